"""Find what people name: a run, and what it is compared with."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable

from compileboard.app.checks.rules.model import Side
from compileboard.app.checks.sides import load_baseline, load_run
from compileboard.app.checks.tables import CannotCompare, read_table
from compileboard.app.queries.fleet.baselines import get_baseline, list_baselines
from compileboard.app.queries.fleet.runs import (
    RunFilter,
    RunRow,
    find_run_ids,
    get_newest_run,
    get_other,
    get_run,
    list_runs,
)
from compileboard.app.queries.newest import read_clock

PREFIX = "baseline:"
_COMMIT = re.compile(r"[0-9a-fA-F]{4,40}")
Open = Callable[[], sqlite3.Connection]


def is_file(text: str) -> bool:
    """Tell whether a text names a CSV rather than something in the database; a baseline's name may have slashes."""
    if text.startswith(PREFIX):
        return False
    return text.lower().endswith(".csv") or text.startswith((os.sep, f".{os.sep}", f"..{os.sep}"))


def find_run(open_reader: Open, text: str) -> RunRow:
    """Return the run that a text names: `latest`, an id or its beginning, a commit's beginning.

    Raises: CannotCompare if there is none, or more than one.
    """
    reader = open_reader()
    if text == "latest":
        newest = get_newest_run(reader, read_clock())
        if newest is None:
            raise CannotCompare("there is no run in this database; record one with `compileboard-collect bench`")
        return newest
    found = _by_id(reader, text) or _by_commit(reader, text, None)
    if found is None:
        raise CannotCompare(
            f"there is no run {text[:80]!r} in this database; expected latest, the beginning of a run's id or of a "
            "commit's hash, or a CSV file; `compileboard-collect list` lists the runs"
        )
    return found


def find_baseline(open_reader: Open, text: str, run: RunRow | None) -> Side:
    """Make the side that a text names: a CSV, a stored baseline, `latest`, `previous`, a run or a commit.

    Raises: CannotCompare if there is none, or more than one.
    """
    if is_file(text):
        return read_table(text)
    reader = open_reader()
    if text in ("latest", "previous"):
        return load_run(reader, _earlier(reader, text, run))
    name = text.removeprefix(PREFIX)
    stored = get_baseline(reader, name)
    if stored is not None:
        return load_baseline(stored.body, f"baseline {stored.name}")
    if text.startswith(PREFIX):
        known = ", ".join(row.name for row in list_baselines(reader, limit=10).rows) or "none yet"
        raise CannotCompare(
            f"there is no stored baseline {name[:80]!r}; known: {known}; `compileboard baseline save` keeps one"
        )
    found = _by_id(reader, text) or _by_commit(reader, text, run)
    if found is None:
        raise CannotCompare(
            f"{text[:80]!r} is no run, commit or stored baseline of this database, and no file that ends in .csv; "
            "`compileboard-collect list` lists the runs, `compileboard baseline list` the baselines"
        )
    return load_run(reader, found)


def _by_id(reader: sqlite3.Connection, text: str) -> RunRow | None:
    found = find_run_ids(reader, text)
    if len(found) > 1:
        raise CannotCompare(f"{text!r} fits several runs, give more of the id: {', '.join(found[:3])}, …")
    return get_run(reader, found[0]) if found else None


def _by_commit(reader: sqlite3.Connection, text: str, run: RunRow | None) -> RunRow | None:
    """Return the newest run of a commit; of the same name and suite as the run where there is one."""
    if not _COMMIT.fullmatch(text):
        return None
    found = list_runs(reader, RunFilter(commit=text.lower()), limit=500, pinned_first=False).rows
    commits = {candidate.git_commit for candidate in found}
    if len(commits) > 1:
        raise CannotCompare(
            f"{text!r} fits several commits, give more of the hash: {', '.join(sorted(map(str, commits))[:3])}"
        )
    others = [candidate for candidate in found if run is None or candidate.id != run.id]
    alike = [
        candidate for candidate in others if run is None or (candidate.name, candidate.suite) == (run.name, run.suite)
    ]
    return next(iter(alike or others), None)


def _earlier(reader: sqlite3.Connection, word: str, run: RunRow | None) -> RunRow:
    if run is None:
        raise CannotCompare(
            f"the {word} run is that of a run of the database; what is compared is a CSV: name its baseline"
        )
    found = get_other(reader, run, word, read_clock())
    if found is not None:
        return found
    kind = "earlier" if word == "previous" else "other"
    raise CannotCompare(f"there is no {kind} run named {run.name!r} of the same suite to compare run {run.id} with")
