"""Run programs one after the other in this process, like a notebook: torch is imported once.

in_turn.py 'PROGRAM [WORD …]' …
"""

import runpy
import sys

import torch

for line in sys.argv[1:]:
    sys.argv = line.split()
    runpy.run_path(sys.argv[0], run_name="__main__")
    torch._dynamo.reset()
