"""Count what is recorded of CUDA graphs beside torch's own debug lines. Needs a GPU.

python -m benchmarks.cuda_graphs.against_torch [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.common import Row, print_table, require_gpu
from benchmarks.cuda_graphs.programs import PROGRAMS
from compileboard.collectors.store.connection import open_reader

AT_ONCE = max((os.cpu_count() or 1) // 2, 1)
# What did not fit is written at replays too: a pair of addresses is new where a graph is recorded.
_LINES = {
    "warm-up": re.compile(r"Running warmup function="),
    "recording": re.compile(r"\] Recording function="),
    "skip": re.compile(r"[Ss]kipping cudagraphs? due to"),
    "moved input": re.compile(
        r"\[__cudagraphs\] input name: .*data pointer changed (from .*? to \d+)"
    ),
}
_OURS = """
select
  (select count(*) from cudagraphs where stage = 'warm_up') as "warm-up",
  (select count(*) from cudagraphs where stage = 'recording') as "recording",
  (select count(*) from cudagraph_skips) as "skip",
  sum(w.value ->> 'input_count') as "moved input"
from cudagraphs, json_each(reasons) as w
"""


def count(name: str, folder: Path) -> tuple[Counter[str], Counter[str]]:
    database = folder / f"{name}.db"
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "compileboard.collectors", "run"),
            *("--db", str(database), "--name", name, "--"),
            *(sys.executable, "-m", "benchmarks.cuda_graphs.programs", name),
        ],
        env={**os.environ, "TORCH_LOGS": "cudagraphs,perf_hints"},
        capture_output=True,
        text=True,
        check=False,
    )
    (folder / f"{name}.log").write_text(ended.stdout + ended.stderr)
    theirs = read_log(ended.stderr)
    with closing(open_reader(database)) as reader:
        ours = Counter({what: n or 0 for what, n in dict(reader.execute(_OURS).fetchone()).items()})
    return ours, theirs


def read_log(log: str) -> Counter[str]:
    found = {what: pattern.findall(log) for what, pattern in _LINES.items()}
    found["moved input"] = list(set(found["moved input"]))
    return Counter({what: len(lines) for what, lines in found.items()})


def describe(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {what}" for what, n in counts.items() if n) or "nothing"


def compare(folder: Path) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(PROGRAMS, pool.map(partial(count, folder=folder), PROGRAMS), strict=True))
    rows = [
        Row(
            name,
            describe(ours),
            describe(theirs),
            "equal" if ours == theirs else "differs",
            "equal",
        )
        for name, (ours, theirs) in found.items()
    ]
    print_table("CUDA graphs, recorded and in torch's debug lines", rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where databases and logs stay")
    arguments = parser.parse_args()
    require_gpu()
    with tempfile.TemporaryDirectory() as folder:
        kept = arguments.keep or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        compare(kept)


if __name__ == "__main__":
    main()
