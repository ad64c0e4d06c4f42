"""A database of whole trace logs: real ones of torch 2.11 on CUDA, cut to a few compiles, every
record of them kept.

zoo_recompiles has 0/0, 0/1, 0/2 and the recompile limit 0/8 of one function, zoo_graph_breaks 0/0,
1/0 and 4/0. torch2.13-shapes has the events, symbols and graphs' sizes of
tests/data/trace/record_shapes.py.
"""

from __future__ import annotations

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.logs.log_loader import LoadOptions
from tests.tools.make_db import DATA

LOGS = {
    name: DATA / "explored" / f"{name}.xz"
    for name in ("zoo_recompiles", "zoo_graph_breaks", "torch2.13-shapes")
}
RANKS = [DATA / "trace" / f"torch2.11-cuda-ddp-rank{rank}.log.xz" for rank in (0, 1)]


def import_ranks(database: Path) -> None:
    """Import the events of a two-rank training as one run: at step 4 rank 1 saw another sequence
    length.
    """
    with TemporaryDirectory() as folder:
        for log in RANKS:
            shutil.copy(log, folder)
        options = LoadOptions(name="train_ddp", suite="captures")
        import_paths([folder], str(database), options, print_line=lambda _line: None)


def explore(database: Path, *, payloads: bool = True) -> None:
    """Import each log as a run that has its name, and a run of two ranks."""
    if payloads and not database.exists():
        shutil.copyfile(_explored(), database)
    else:
        _import_all(database, payloads=payloads)


@cache
def _explored() -> Path:
    """Return one that all tests of a process copy: to import it takes seconds."""
    folder = mkdtemp(prefix="explored-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _import_all(Path(folder, "explored.db"))
    return Path(folder, "explored.db")


def _import_all(database: Path, *, payloads: bool = True) -> None:
    import_ranks(database)
    for name, log in LOGS.items():
        options = LoadOptions(payloads=payloads, name=name, suite="captures")
        import_paths([str(log)], str(database), options, print_line=lambda _line: None)
