"""Resolve the sides of a comparison: run, commit, branch, torch version or baseline."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from compileboard.app.checks.model import CannotCompare
from compileboard.app.comparison.baselines import Baseline, get_baseline, list_baselines
from compileboard.app.core.engine import Engine, Row, get_row
from compileboard.app.core.format import format_time
from compileboard.app.core.newest import (
    LATEST,
    SHOWN_STATE,
    RecorderClock,
    RunCandidate,
    get_newest_run_id,
)
from compileboard.app.core.page import FilterError
from compileboard.app.core.store import Store
from compileboard.app.runs.queries import find_run_ids, get_newest_run, get_run_to_compare
from compileboard.app.runs.rows import RunRow
from compileboard.app.runs.run_queries import RunDetail, get_run

KINDS = ("commit", "branch", "torch", "baseline")
FORMS = "the beginning of a run's id, commit:HASH, branch:NAME, torch:VERSION or baseline:NAME"
MAX_RUNS = 64
_LONGEST = 200
_COMMIT = re.compile(r"[0-9a-fA-F]{4,40}")

# Runs are thousands, not millions: reading each row is fast enough.
CANDIDATES_SQL = f"""
select
  r.id, r.suite, r.name, r.started_us, {SHOWN_STATE} as state, r.git_commit, r.torch_version,
  coalesce($t.result_count, 0) as result_count
from runs as r
$totals
where r.source <> 'trial'
  and (:commit is null or substr(r.git_commit, 1, length(:commit)) = :commit)
  and (:branch is null or r.git_branch = :branch)
  and (
    :torch is null or r.torch_version = :torch
    or substr(r.torch_version, 1, length(:torch) + 1) in (:torch || '+', :torch || '.')
  )
order by r.started_us desc, r.id desc
limit 20000
"""  # noqa: S608  own texts only
# Runs of the same suite around one, nearest first; then the first of them that measured one of the
# same series.
_NEAR = """
select r.id, $pub(r) as pub, r.started_us
from runs as r
join runs as o on o.id = :run_id and r.suite $is o.suite and (o.suite is not null
  or r.name = o.name)
where {state} <> 'running'
  and r.source <> 'trial'
  and (r.started_us, r.id) {sign} (o.started_us, o.id)
order by r.started_us {direction}, r.id {direction}
limit 100
"""
_ALIKE = """
with near as materialized ({near})
select n.id
from near as n
where exists (
  select 1
  from $rows(results, :run_ids) as x
  join $rows(results, near) as y on y.series_id = x.series_id and y.experiment = x.experiment
  where x.run_id = :run_id
    and y.run_id = n.id
)
order by n.started_us {direction}, n.id {direction}
limit 1
"""


def near_sql(is_before: bool, is_alike: bool) -> str:
    direction = "desc" if is_before else "asc"
    near = _NEAR.format(state=SHOWN_STATE, sign="<" if is_before else ">", direction=direction)
    return _ALIKE.format(near=near, direction=direction) if is_alike else near


CHOICES_SQL = """
select r.id, coalesce($a.title, r.name) as name, r.suite, r.started_us, r.git_commit, r.git_branch,
r.torch_version
from runs as r
$words
order by r.started_us desc, r.id desc
limit :limit
"""


class NoSuchRun(FilterError, LookupError):
    """No run matches a word such as `latest`."""


@dataclass(frozen=True)
class NamedSide:
    asked: str
    runs: tuple[RunDetail, ...]
    baseline: Baseline | None = None


@dataclass(frozen=True)
class SideChoice:
    value: str
    label: str
    started_us: int | None


def find_run(
    connection: sqlite3.Connection,
    engine: Engine,
    clock: RecorderClock,
    text: str,
    beside: RunRow | None = None,
) -> RunRow | None:
    """Find a run by `latest`, or by the beginning of its ID or of its commit's hash.

    A commit selects its newest run other than `beside`, preferably with the name and suite of
    `beside`. Raises FilterError if several runs or commits match, or there are no runs.
    """
    if text == LATEST:
        return find_word(engine, clock, text)
    detail = _find_detail(connection, engine, text)
    if detail is not None or not _COMMIT.fullmatch(text):
        return detail.run if detail else None
    others = [
        row
        for row in _list_newest(engine, clock, "commit", text.lower())
        if not beside or row["id"] != beside.id
    ]
    alike = [
        row
        for row in others
        if beside and (row["name"], row["suite"]) == (beside.name, beside.suite)
    ]
    details = (get_run(connection, row["id"]) for row in alike or others)
    return next((detail.run for detail in details if detail is not None), None)


def need_run(store: Store, clock: RecorderClock, text: str) -> RunRow:
    """Find a run by `latest`, or the beginning of an id or of a commit's hash.

    Raises FilterError unless exactly one matches.
    """
    run = find_run(store.board, store.engine, clock, text)
    if run is None:
        raise CannotCompare(
            f"there is no run {text[:80]!r} in this database; expected latest, the beginning "
            "of a run's id or of a "
            "commit's hash, or a CSV file; `compileboard-collect list` lists the runs"
        )
    return run


def find_word(engine: Engine, clock: RecorderClock, word: str, run: RunRow | None = None) -> RunRow:
    """Return the newest run for `latest`; relative to `run`, the newest other one, or for
    `previous` the one before it.

    Raises NoSuchRun if there is none.
    """
    if run is None:
        named = get_newest_run(engine, clock)
        lack = "run in this database; record one with `compileboard-collect bench` or `run`"
    else:
        named = get_run_to_compare(engine, run, word, clock)
        kind = "earlier" if word == "previous" else "other"
        lack = f"{kind} run named {run.name!r} of the same suite as run {run.id}"
    if named is None:
        raise NoSuchRun(f"there is no {lack}")
    return named


def find_side(
    connection: sqlite3.Connection, engine: Engine, clock: RecorderClock, text: str, name: str
) -> NamedSide:
    """Resolve a text to a side of a comparison; `name` is the parameter named in errors.

    Raises FilterError unless exactly one side matches.
    """
    with _prefixing_errors(name):
        return _find_side(connection, engine, clock, text.strip())


def resolve_run_ids(
    connection: sqlite3.Connection, engine: Engine, clock: RecorderClock, base: str, new: str
) -> tuple[str, str]:
    """Resolve `latest`, and for base `previous`, to run IDs, which `check` accepts."""
    if new == LATEST:
        with _prefixing_errors("new"):
            new = find_word(engine, clock, new).id
    if base not in (LATEST, "previous"):
        return base, new
    named = find_side(connection, engine, clock, new, "new")
    with _prefixing_errors("base"):
        if not named.runs:
            raise FilterError(
                f"{base} is of a run's name and suite, and {new[:80]!r} is not a run; "
                "name base's run"
            )
        return find_word(engine, clock, base, named.runs[0].run).id, new


def find_default(
    connection: sqlite3.Connection,
    engine: Engine,
    clock: RecorderClock,
    base: str | None,
    new: str | None,
) -> tuple[str, str] | None:
    """Fill in missing sides with the newest benchmark and the one before it; None if there is
    none.
    """
    if base and new:
        return base, new
    given = new or base
    if not given:
        newest = get_newest_run_id(engine, clock, benched=True) or get_newest_run_id(engine, clock)
        other = newest and _find_neighbour(engine, clock, newest, is_before=True)
        return (other, newest) if newest and other else None
    if given == LATEST:
        given = find_word(engine, clock, given).id
    named = find_side(connection, engine, clock, given, "new" if new else "base")
    if not named.runs:
        return None
    run_id = named.runs[0].run.id
    other = _find_neighbour(engine, clock, run_id, is_before=bool(new))
    if other is None:
        return None
    return (other, given) if new else (given, other)


def list_side_choices(connection: sqlite3.Connection, engine: Engine) -> list[SideChoice]:
    rows = engine.rows(CHOICES_SQL, {"limit": 200})
    choices: dict[str, SideChoice] = {}
    for kind, column in (
        ("branch", "git_branch"),
        ("torch", "torch_version"),
        ("commit", "git_commit"),
    ):
        for row in rows:
            value = row[column]
            if value:
                asked = f"{kind}:{value[:12] if kind == 'commit' else value}"
                choices.setdefault(asked, SideChoice(asked, "its newest runs", row["started_us"]))
    for baseline in list_baselines(connection, limit=50).rows:
        asked = f"baseline:{baseline.name}"
        choices[asked] = SideChoice(asked, "a stored baseline", None)
    for row in rows[:50]:
        choices[row["id"]] = SideChoice(row["id"], row["name"], row["started_us"])
    return list(choices.values())


def format_baseline_names(connection: sqlite3.Connection) -> str:
    return ", ".join(row.name for row in list_baselines(connection, limit=10).rows) or "none yet"


@contextmanager
def _prefixing_errors(name: str) -> Iterator[None]:
    try:
        yield
    except FilterError as error:
        raise FilterError(f"{name}: {error}") from None


def _find_side(
    connection: sqlite3.Connection, engine: Engine, clock: RecorderClock, text: str
) -> NamedSide:
    if len(text) > _LONGEST:
        raise FilterError(f"must be at most {_LONGEST} characters, got {len(text)}")
    kind, colon, value = text.partition(":")
    if not colon:
        detail = _find_detail(connection, engine, text)
        if detail is None:
            raise FilterError(f"there is no run {text[:80]!r} in this database; expected {FORMS}")
        return NamedSide(detail.run.id, (detail,))
    if kind not in KINDS or not value:
        raise FilterError(f"{text[:80]!r} is not a side; it must be {FORMS}")
    if kind == "baseline":
        stored = get_baseline(connection, value)
        if stored is None:
            raise FilterError(
                f"there is no baseline {value[:80]!r}; known: {format_baseline_names(connection)}"
            )
        return NamedSide(text, (), stored)
    ids = _choose_runs(engine, clock, kind, value.lower() if kind == "commit" else value)
    details = (get_run(connection, run_id) for run_id in ids)
    return NamedSide(text, tuple(detail for detail in details if detail is not None))


def _find_detail(connection: sqlite3.Connection, engine: Engine, text: str) -> RunDetail | None:
    ids = find_run_ids(engine, text)
    if len(ids) > 1:
        raise FilterError(
            f"{text!r} fits several runs, give more of the id: {', '.join(ids[:3])}, …"
        )
    return get_run(connection, ids[0]) if ids else None


def _list_newest(engine: Engine, clock: RecorderClock, kind: str, value: str) -> list[Row]:
    values = {key: value if key == kind else None for key in ("commit", "branch", "torch")}
    rows = engine.rows(CANDIDATES_SQL, values | {"alive_since_us": clock.alive_since_us})
    commits = {row["git_commit"] for row in rows}
    if kind == "commit" and len(commits) > 1:
        raise FilterError(
            f"{value!r} fits several commits, give more of the hash: "
            f"{', '.join(sorted(commits)[:3])}"
        )
    return sorted(
        rows,
        key=lambda row: RunCandidate(row["id"], row["started_us"], row["state"] == "running").rank,
        reverse=True,
    )


def _choose_runs(engine: Engine, clock: RecorderClock, kind: str, value: str) -> Sequence[str]:
    rows = _list_newest(engine, clock, kind, value)
    if not rows:
        raise FilterError(f"no run of {kind} {value[:80]!r} is in this database")
    newest: dict[tuple[str | None, str], Row] = {}
    chosen = []
    for row in rows:
        first = newest.setdefault((row["suite"], row["name"]), row)
        same = row["git_commit"] is not None and row["result_count"] > 0
        same = same and all(
            row[column] == first[column] for column in ("git_commit", "torch_version")
        )
        if row is first or same:
            chosen.append(row["id"])
    return chosen[:MAX_RUNS]


def _find_neighbour(
    engine: Engine, clock: RecorderClock, run_id: str, is_before: bool
) -> str | None:
    values = {"run_id": run_id, "run_ids": [run_id], "alive_since_us": clock.alive_since_us}
    for is_alike in (True, False):
        row = get_row(engine, near_sql(is_before, is_alike), values)
        if row:
            return str(row["id"])
    return None


def name_side(named: NamedSide) -> str:
    if named.baseline:
        return f"baseline {named.baseline.name}"
    newest = named.runs[0].run
    if ":" not in named.asked:
        return f"{newest.shown_name}, {format_time(newest.started_us)[:16]}"
    return named.asked.replace(":", " ", 1)
