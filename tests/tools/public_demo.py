"""The public demo: a static site of what machines with H200 GPUs recorded.

python -m tests.tools.public_demo DIR
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections import defaultdict
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from compileboard.collectors.store.connection import open_writer
from tests.tools.history import record_history
from tests.tools.observed import ROOT
from tests.unit.app.benchmarks.test_h200_suite import ingest_recorded

DATA = ROOT / "tests" / "data"
RECORDED = (
    "events/torch2.11-cuda-graphs-branches.jsonl.xz",
    "events/torch2.11-steps-in_training.jsonl.xz",
)
CAPTURES = {
    "GPT-2, BERT, Llama, T5, ResNet": "captures/h200-torch2.11.tar.xz",
    "DDP on two GPUs": "captures/h200x2-ddp-torch2.11.tar.xz",
}
MEASURED = datetime(2026, 11, 23, tzinfo=UTC).timestamp()  # `import` dates results by their file
COLUMNS = {
    "batch_size": "batch_size",
    "speedup": "speedup",
    "abs_latency": "abs_latency_ms",
    "compilation_latency": "compilation_latency_s",
    "unique_graphs": "unique_graphs",
    "graph_breaks": "graph_breaks",
}


def write_suites(folder: Path) -> None:
    """Write the suites as files of PyTorch's harness, which `import` reads."""
    rows = defaultdict(list)
    with (DATA / "suites" / "h200.csv").open(newline="", encoding="utf-8") as recorded:
        for row in csv.DictReader(recorded):
            is_measured = row["status"] == "measured"
            where = f"inductor_{row['suite']}_{row['dtype']}_{row['mode']}_cuda"
            cells = {"dev": "cuda", "name": row["model"]}
            if is_measured:
                values = {name: row[column] for name, column in COLUMNS.items()}
                rows[f"{where}_performance.csv"].append(cells | values)
            else:
                values = {"batch_size": row["batch_size"], "accuracy": row["reason"]}
                rows[f"{where}_accuracy.csv"].append(cells | values)
    for name, cells_of in rows.items():
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, fieldnames=list(cells_of[0]))
            table.writeheader()
            table.writerows(cells_of)
        os.utime(folder / name, (MEASURED, MEASURED))


def fill(database: Path) -> None:
    """Record everything that the demo shows."""
    record_history(database)
    with closing(open_writer(database)) as store:
        for name in RECORDED:
            ingest_recorded(store, DATA / name)
    with TemporaryDirectory() as folder:
        write_suites(Path(folder))
        paths = {"87 models": folder} | {name: str(DATA / path) for name, path in CAPTURES.items()}
        for name, path in paths.items():
            _run("compileboard.collectors", "import", "--db", database, "--name", name, path)


def _run(module: str, *arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", module, *map(str, arguments)], check=True, cwd=ROOT)


def main(folder: str) -> None:
    with TemporaryDirectory() as temporary:
        database = Path(temporary) / "demo.db"
        fill(database)
        _run("compileboard.app", "export", "--site", folder, "--db", database)


if __name__ == "__main__":
    main(*sys.argv[1:])
