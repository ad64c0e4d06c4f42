"""Find likely causes of an incident, those with most checks passed first."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compileboard.app.benchmarks.metrics import PASSES
from compileboard.app.core.format import format_plural
from compileboard.app.core.store import Store, open_run_or_board
from compileboard.app.incidents.model import (
    CauseCheck,
    IncidentCause,
    SeriesChange,
    describe_cause,
    describe_environment,
    find_metric_of,
    shorten_commit,
)
from compileboard.app.reasons.queries import list_affected_runs
from compileboard.app.reasons.recompiles import RECOMPILES
from compileboard.collectors.contract.fingerprints import format_id, parse_id
from compileboard.collectors.fixes.titles import name_stack_values

# In the order of CodeLocation.
BREAKS_SQL = """
select
  b.id, f.file, f.name as function, b.line, b.source_line,
  coalesce(b.gb_type, b.reason) as reason, null as source
from json_each(:ids) as wanted
join distinct_breaks as b on b.id = wanted.value
left join functions as f on f.id = b.function_id
"""
CAUSES_SQL = """
with located as (
  select
    c.id, c.function_id, c.reason, c.source,
    (select r.line from recompiles as r
      where r.cause_id = c.id order by r.time_us desc limit 1) as line
  from json_each(:ids) as wanted
  join recompile_causes as c on c.id = wanted.value
)
select
  c.id, f.file, f.name as function, c.line, null as source_line, c.reason, c.source
from located as c
left join functions as f on f.id = c.function_id
"""
FAILURE_SQL = """
select x.status, x.reason, x.accuracy, x.message
from results as x
join series as s on s.id = x.series_id
where x.run_id = :run_id
  and s.suite = :suite
  and s.model = :model
  and (x.status = 'failed' or x.accuracy is not null)
order by x.status <> 'failed', x.id
limit 1
"""
COMPILE_FAILURE_SQL = """
select exists (
  select 1
  from failures as f
  where f.run_id = :run_id
    and f.error_type = :error_type
    and f.phase = 'compile'
)
"""
FILES_SQL = """
select distinct f.file
from run_functions as o
join functions as f on f.id = o.function_id
where o.run_id = :run_id
limit 10000
"""


@dataclass(frozen=True)
class CodeLocation:
    file: str | None = None
    function: str | None = None
    line: int | None = None
    source_line: str | None = None
    reason: str = ""
    source: str | None = None


NOWHERE = CodeLocation()


@dataclass(frozen=True)
class FailedResult:
    status: str
    reason: str | None
    accuracy: str | None
    message: str | None


def _read_locations(rows: Iterable[sqlite3.Row]) -> dict[str, CodeLocation]:
    return {format_id(row[0]): CodeLocation(*row[1:]) for row in rows}


def get_failed_result(store: Store, change: SeriesChange) -> FailedResult | None:
    """Return the failed result of a model in the first run that shows the change."""
    run_id = change.first_run_id
    row = (
        open_run_or_board(store, run_id)
        .execute(FAILURE_SQL, {"run_id": run_id, "suite": change.suite, "model": change.model})
        .fetchone()
    )
    return FailedResult(*row) if row else None


def list_run_files(connection: sqlite3.Connection, run_id: str) -> list[str]:
    return [row["file"] for row in connection.execute(FILES_SQL, {"run_id": run_id})]


_MORE = ("new", "more often")
NO_ROW: Mapping[str, Any] = {}
_CODE = {"graph_break": ("break_id", "Graph break"), "recompile": ("cause_id", "Recompile")}
MAX_CAUSES = 5
MAX_OTHERS = 12
_REASON_LIMIT = 300
# The rest of the evidence follows from these, or counts them.
_KINDS = ("failure", "graph_break", "recompile", "environment", "setting", "eager_mode")
_NEAR_LINES = 1  # graph breaks this near belong to one statement
_STACK = "___stack"  # torch's name for a value left by a graph break
_TIMES = {
    "speedup",
    "abs_latency_ms",
    "compilation_latency_s",
    "warm_compilation_latency_s",
    "compile_s",
}
_BREAKS = {"graph_breaks", "unique_graph_breaks", "graph_break_count", "graph_breaks_per_model"}
_GRAPHS = {
    "calls_captured",
    "unique_graphs",
    "compile_count",
    "cudagraph_skips",
    "autograd_captures",
}
_RECOMPILES = {
    "recompiles",
    "recompile_count",
    "recompiles_per_model",
    "recompile_limit_count",
    "fallbacks_to_eager",
}
_EXPLAINED = {
    "graph_break": _TIMES
    | _BREAKS
    | _GRAPHS
    | {"geomean_speedup", "dynamo_peak_mem_gb", "compression_ratio"},
    "recompile": _TIMES
    | _RECOMPILES
    | _GRAPHS
    | {"geomean_speedup", "dynamo_peak_mem_gb", "compression_ratio"},
    "failure": {"passes", "pass_ratio"},
    "eager_mode": {"speedup", "eager_latency_ms", "geomean_speedup"},
}
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in [^\n]*\n\s*([^\n]*)')


class CauseFinder:
    def __init__(self, store: Store) -> None:
        self._store = store

    def find(
        self, lead: SeriesChange, changes: Sequence[SeriesChange]
    ) -> tuple[list[IncidentCause], list[str]]:
        if lead.metric == PASSES.name and lead.kind != "vanished" and lead.direction == "worse":
            return [self._describe_failure(lead)], []
        rows: dict[tuple[str, str], tuple[dict[str, Any], SeriesChange]] = {}
        for change in sorted(
            changes, key=lambda change: (change.first_run_id != lead.first_run_id, change.id)
        ):
            for row in change.causes:
                key = (row["kind"], str(row.get("break_id") or row.get("cause_id") or row["label"]))
                rows.setdefault(key, (row, change))
        causes = [
            *self._list_code(lead, rows.values(), "graph_break"),
            *self._list_code(lead, rows.values(), "recompile"),
            *_list_environment(lead),
            *(
                _make_cause(row["kind"], _describe_setting(row))
                for row, _of in rows.values()
                if row["kind"] == "setting"
            ),
            *(
                _make_cause("eager_mode", row["label"])
                for row, _of in rows.values()
                if row["kind"] == "eager_mode"
            ),
        ]
        causes = _join_recompiles_of_breaks(_merge_near(causes))
        for cause in causes:
            cause.checks.extend(_check_environment(lead, cause) + _check_explained(cause, changes))
        causes.sort(
            key=lambda cause: (
                -cause.passed_count,
                _KINDS.index(cause.kind),
                -(cause.after or 0),
            )
        )
        others = [describe_cause(row) for row, _of in rows.values() if _is_other(row)]
        return causes[:MAX_CAUSES], others[:MAX_OTHERS]

    def _list_code(
        self, lead: SeriesChange, rows: Iterable[tuple[dict[str, Any], SeriesChange]], kind: str
    ) -> list[IncidentCause]:
        own = [(row, of) for row, of in rows if row["kind"] == kind and row["word"] in _MORE]
        name, title = _CODE[kind]
        ids = [row[name] for row, _of in own if row.get(name)]
        locations = (
            self._locate_breaks(lead, ids) if name == "break_id" else self._locate_causes(ids)
        )
        causes = []
        for row, of in own:
            location = locations.get(row.get(name) or "", NOWHERE)
            cause = _make_cause(kind, f"{title}{_format_location(location)}", row, location)
            cause.checks.append(_check_first_seen(lead, of, row))
            causes.append(cause)
        return causes

    def _locate_breaks(self, lead: SeriesChange, ids: Sequence[str]) -> dict[str, CodeLocation]:
        values = {"ids": json.dumps([parse_id(id_) for id_ in ids])}
        file = open_run_or_board(self._store, lead.first_run_id)
        return _read_locations(file.execute(BREAKS_SQL, values))

    def _locate_causes(self, ids: Sequence[str]) -> dict[str, CodeLocation]:
        locations: dict[str, CodeLocation] = {}
        ids_of_file: dict[sqlite3.Connection, list[str]] = {}
        for cause_id in ids:
            runs = list_affected_runs(
                self._store.engine, RECOMPILES, parse_id(cause_id), limit=1
            ).rows
            file = open_run_or_board(self._store, runs[0].id) if runs else self._store.board
            ids_of_file.setdefault(file, []).append(cause_id)
        for file, of_file in ids_of_file.items():
            values = {"ids": json.dumps([parse_id(id_) for id_ in of_file])}
            locations |= _read_locations(file.execute(CAUSES_SQL, values))
        return locations

    def _describe_failure(self, lead: SeriesChange) -> IncidentCause:
        first = open_run_or_board(self._store, lead.first_run_id)
        failed = get_failed_result(self._store, lead)
        labels = [str(row["label"]) for row in lead.causes if row["kind"] == "failure"]
        if failed is None or not failed.message:
            return _make_cause(
                "failure",
                (failed and (failed.accuracy or failed.reason)) or (labels or ["Failed"])[0],
            )
        error, _newline, _rest = failed.message.partition("\n")
        name, _colon, message = error.partition(": ")
        location = self._find_user_line(failed.message, lead.first_run_id)
        detail = re.search(r"got (\w+\(.*?\))\.?\n", failed.message)
        values = {"run_id": lead.first_run_id, "error_type": name}
        cause = replace(
            _make_cause("failure", f"{name[:100]}{_format_location(location)}", location=location),
            reason=f"{message}{f': {detail[1]}' if detail else ''}"[:_REASON_LIMIT],
            is_compile_failure=bool(first.execute(COMPILE_FAILURE_SQL, values).fetchone()[0]),
        )
        cause.checks.append(_make_check(True, f"First failed in {_name_first_commit(lead)}"))
        cause.checks.extend(_check_environment(lead, cause))
        return cause

    def _find_user_line(self, message: str, run_id: str) -> CodeLocation:
        own = [match for match in _FRAME.finditer(message) if "site-packages" not in match[1]]
        if not own:
            return NOWHERE
        path, line, source_line = own[-1].groups()
        known = [
            file
            for file in list_run_files(open_run_or_board(self._store, run_id), run_id)
            if path.endswith(f"/{file}") or path == file
        ]
        file = max(known, key=len, default=path.rpartition("/")[2])
        return CodeLocation(file, None, int(line), source_line.strip() or None)


def _make_cause(
    kind: str, text: str, row: Mapping[str, Any] = NO_ROW, location: CodeLocation = NOWHERE
) -> IncidentCause:
    return IncidentCause(
        kind=kind,
        text=text[:_REASON_LIMIT],
        reason=(location.reason or row.get("label") or "")[:_REASON_LIMIT],
        file=location.file,
        line=location.line,
        source_line=location.source_line,
        function=location.function,
        break_id=row.get("break_id"),
        cause_id=row.get("cause_id"),
        before=row.get("before"),
        after=row.get("after"),
        also=[],
        checks=[],
        source=location.source or "",
        explained=list(_EXPLAINED.get(kind, ())),
    )


def _format_location(location: CodeLocation) -> str:
    if not location.file:
        return ""
    if location.line is None:
        return f" in {location.function}" if location.function else ""
    return f" at {location.file}:{location.line}"


def _list_environment(lead: SeriesChange) -> list[IncidentCause]:
    causes = [_make_cause("environment", describe_environment(part)) for part in lead.environment]
    for cause in causes:
        cause.checks.append(_make_check(True, f"Changed with {_name_first_commit(lead)}"))
    return causes


def _describe_setting(row: dict[str, Any]) -> str:
    if row.get("before") is None and row.get("after") is None:
        return f"Setting {row['label']} changed"
    return f"Setting {row['label']}: {row.get('before')} → {row.get('after')}"


def _is_other(row: dict[str, Any]) -> bool:
    is_cause = row["kind"] in _CODE and row["word"] in _MORE
    return not is_cause and row["kind"] not in ("setting", "eager_mode")


def _merge_near(causes: list[IncidentCause]) -> list[IncidentCause]:
    """Merge graph breaks of one statement: print(x.item()) breaks twice."""
    merged: list[IncidentCause] = []
    for cause in sorted(causes, key=lambda cause: -(cause.after or 0)):
        near = next((other for other in merged if _is_near(cause, other)), None)
        if near is None:
            merged.append(cause)
        else:
            near.also.append(cause.reason)
    return merged


def _is_near(cause: IncidentCause, other: IncidentCause) -> bool:
    return (
        cause.kind == other.kind == "graph_break"
        and bool(cause.file)
        and cause.file == other.file
        and cause.line is not None
        and other.line is not None
        and abs(cause.line - other.line) <= _NEAR_LINES
    )


def _join_recompiles_of_breaks(causes: list[IncidentCause]) -> list[IncidentCause]:
    breaks = {
        cause.function: cause for cause in causes if cause.kind == "graph_break" and cause.function
    }
    own = []
    for cause in causes:
        broken = breaks.get(cause.function) if cause.function else None
        if cause.kind == "recompile" and broken and _STACK in cause.source:
            text = name_stack_values(cause.reason.removeprefix("tensor "))
            broken.checks.append(_make_check(True, f"Explains the recompile after it: {text}"))
            broken.explained.extend(_RECOMPILES)
        else:
            own.append(cause)
    return own


def _make_check(passed: bool, text: str) -> CauseCheck:
    return CauseCheck(passed, text[:_REASON_LIMIT])


def _check_first_seen(lead: SeriesChange, of: SeriesChange, row: dict[str, Any]) -> CauseCheck:
    verb = "First seen in" if row["word"] == "new" else "More often since"
    metric = find_metric_of(lead).label.lower()
    if of.first_run_id == lead.first_run_id:
        return _make_check(True, f"{verb} {_name_first_commit(of)}, the run where {metric} changed")
    return _make_check(
        False, f"{verb} {_name_first_commit(of)}, not the run where {metric} changed"
    )


def _name_first_commit(change: SeriesChange) -> str:
    after = change.after or {}
    return shorten_commit(after.get("commit")) or f"run {change.first_run_id}"


def _check_environment(lead: SeriesChange, cause: IncidentCause) -> list[CauseCheck]:
    if cause.kind == "environment" or not lead.before or not lead.after:
        return []
    changed = [str(part.get("word")) for part in lead.environment]
    if changed:
        return [_make_check(False, f"{', '.join(changed)} changed as well")]
    return [_make_check(True, "GPU, driver, torch and triton unchanged")]


def _check_explained(cause: IncidentCause, changes: Sequence[SeriesChange]) -> list[CauseCheck]:
    if not cause.explained:
        return []
    explained = sum(change.metric in cause.explained for change in changes)
    total = len(changes)
    if explained == total:
        whole = "the change" if total == 1 else f"all {total} changed metrics"
        return [_make_check(True, f"Can explain {whole}")]
    return [
        _make_check(False, f"Can explain {explained} of {format_plural(total, 'changed metric')}")
    ]
