"""A database of whole trace logs: real ones of torch 2.11 on CUDA, cut to a few compiles, every record of them kept.

zoo_recompiles has 0/0, 0/1, 0/2 and the recompile limit 0/8 of one function, zoo_graph_breaks 0/0, 1/0 and 4/0.
"""

from __future__ import annotations

from pathlib import Path

from collectors.importer.command import import_paths
from collectors.importer.loader import Options
from tests.tools.make_db import DATA

LOGS = {name: DATA / "explored" / f"{name}.xz" for name in ("zoo_recompiles", "zoo_graph_breaks")}


def explore(database: Path, *, payloads: bool = True) -> None:
    """Import each log as a run that has its name."""
    for name, log in LOGS.items():
        options = Options(payloads=payloads, name=name, suite="captures")
        import_paths([str(log)], str(database), options, say=lambda _line: None)
