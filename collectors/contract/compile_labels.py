"""Labels that distinguish the compiles and processes of a run.

`encoder · Tower.forward · train.py:15 · first compile`, followed by torch's compile ID.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .categories import label_category

SEPARATOR = " · "
UNKNOWN_FUNCTION = "unknown function"


class ProcessIdentity(NamedTuple):
    id: str
    task: str | None
    rank: int | None
    pid: int | None


def name_processes(processes: Iterable[ProcessIdentity]) -> dict[str, str]:
    unnamed = list(processes)
    parts: dict[str, list[str]] = {process.id: [] for process in unnamed}
    groups = [unnamed]
    for number in range(5):  # model, experiment, rank, pid, id: the first that suffice
        groups = [group for group in groups if len(group) > 1]
        divided: list[list[ProcessIdentity]] = []
        for group in groups:
            by_word = defaultdict(list)
            for process in group:
                by_word[_describe_process(process)[number]].append(process)
            if len(by_word) > 1:
                for word, members in by_word.items():
                    for process in members:
                        parts[process.id] += [word] if word else []
            divided += by_word.values()
        groups = divided
    return {id_: SEPARATOR.join(words) for id_, words in parts.items()}


def _describe_process(process: ProcessIdentity) -> Sequence[str | None]:
    task = (process.task or "").split("/")
    return (
        "/".join(task[1:-1]) or (process.task or None),
        task[-1] if len(task) > 2 else None,
        None if process.rank is None else f"rank {process.rank}",
        None if process.pid is None else f"pid {process.pid}",
        f"process {process.id[:8]}",
    )


def label_function(function: str | None, resumed_at: int | None = None) -> str:
    name = function or UNKNOWN_FUNCTION
    return f"{name} after the break at line {resumed_at}" if resumed_at else name


def label_line(file: str | None, line: int | None) -> str:
    """Return `train.py:15`, or the file alone, or "" without a file."""
    return (f"{file}:{line}" if line else file) if file else ""


def label_role(recompiled_from: str | None, category: str | None = None) -> str:
    """Return `first compile` or `recompile: tensor size`."""
    if recompiled_from is None:
        return "first compile"
    return f"recompile: {label_category(category).label.lower()}" if category else "recompile"


def build_label(process: str, function: str, line: str, role: str = "") -> str:
    return SEPARATOR.join(filter(None, (process, function, line, role)))
