"""Run the program of each fix for CUDA graphs, before and after it. Needs a GPU.

python -m benchmarks.cuda_graphs.fixes [ID …]
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import Row, print_table, require_gpu, scratch_folder
from compileboard.collectors.fixes.fix import Fix, list_fixes
from compileboard.collectors.store.connection import open_reader

AT_ONCE = max((os.cpu_count() or 1) // 2, 1)
_COUNTS = """
select
  cudagraph_recording_count as recordings, cudagraph_rerecording_count as again,
  cudagraph_skip_count as skips, failure_count as failures
from run_totals
"""
_ENDING = """
import pickle, sys
pickle.dump(result, open(sys.argv[1], "wb"))
"""


def run(text: str, name: str, folder: Path) -> tuple[dict[str, int], Any]:
    program, database, result = (folder / f"{name}.{kind}" for kind in ("py", "db", "result"))
    program.write_text(text + _ENDING)
    subprocess.run(
        [
            *(sys.executable, "-m", "compileboard.collectors", "run", "--db", str(database), "--"),
            *(sys.executable, str(program), str(result)),
        ],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / f"{name}.cache")},
        capture_output=True,
        check=False,
    )
    with closing(open_reader(database)) as reader:
        counts = dict(reader.execute(_COUNTS).fetchone())
    return counts, pickle.loads(result.read_bytes()) if result.exists() else None


def is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if one is None or other is None:
        return one is other
    return bool(one.allclose(other, rtol=1e-4, atol=1e-5))


def judge(fix: Fix, folder: Path) -> Row:
    before, result = run(fix.before, f"{fix.id}_before", folder)
    after, fixed = run(fix.after or "", f"{fix.id}_after", folder)
    is_better = any(after[name] < before[name] for name in before) and not any(
        after[name] > before[name] for name in ("again", "skips", "failures")
    )
    is_same = is_equal(result, fixed) or (result is None and fixed is not None)
    verdict = "works" if is_better and is_same else "fails" if is_same else "another result"
    return Row(fix.id, describe(after), describe(before), verdict, "works")


def describe(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="of a fix; default: all")
    ids = parser.parse_args().ids
    require_gpu()
    fixes = [fix for fix in list_fixes("cudagraph") if not ids or fix.id in ids]
    with scratch_folder() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(pool.map(partial(judge, folder=folder), fixes))
    print_table(
        "Fixes for CUDA graphs",
        rows,
        headings=("fix", "after it", "before it", "verdict", "reach"),
    )


if __name__ == "__main__":
    main()
