"""Record a process that loads what an earlier one compiled and saved (caching precompile), as
TORCH_TRACE writes it.

python tests/data/trace/record_precompile.py FOLDER: the log of the second process is in
FOLDER/second.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def _run() -> None:
    import torch
    from torch._dynamo.precompile_context import PrecompileContext

    def broken(values: torch.Tensor) -> torch.Tensor:
        doubled = values * 2
        torch._dynamo.graph_break()
        return doubled + 1

    torch._dynamo.config.caching_precompile = True
    print(torch.compile(broken)(torch.arange(3.0)))
    PrecompileContext.save_to_dynamo_cache()


def _record(folder: Path) -> None:
    for name in ("first", "second"):
        environment = {
            **os.environ,
            "TORCH_TRACE": str(folder / name),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        }
        subprocess.run([sys.executable, __file__], env=environment, check=True)


if __name__ == "__main__":
    _record(Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else _run()
