"""Run planted failures under the hooks, each in its turn; what they raise is caught and written.

python run_planted.py NAME [NAME …]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "programs"))

import planted
import torch

for name in sys.argv[1:]:
    torch._dynamo.reset()
    try:
        print(f"{name}: largest difference from eager {planted.run(planted.PLANTED[name]()):.4g}")
    except Exception as error:
        print(f"{name}: {type(error).__name__}")
