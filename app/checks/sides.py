"""Make a side of a comparison: of a run's results, or of what a stored baseline keeps of one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from app.analysis.gates.model import Distinct, Row, Side
from app.analysis.gates.pairing import FIELDS, TIE_BREAKERS, name_configuration
from app.checks.tables import CannotCompare
from app.queries import check_parts
from app.queries.check_parts import TaskDistinct
from app.queries.result_rows import Measured, ResultRow, merge_with_parts
from app.queries.results import list_measured
from app.queries.runs import RunRow

VERSION = 1
# Upstream's column -> ours. What judges accuracy counts too: upstream's counters are the accuracy file's.
_NUMBERS = {
    "speedup": "speedup",
    "speedup_low": "speedup_low",
    "speedup_high": "speedup_high",
    "abs_latency": "abs_latency_ms",
    "compilation_latency": "compilation_latency_s",
    "compression_ratio": "compression_ratio",
    "eager_peak_mem": "eager_peak_mem_gb",
    "dynamo_peak_mem": "dynamo_peak_mem_gb",
}
_COUNTS = ("graph_breaks", "calls_captured", "unique_graphs", "unique_graph_breaks", "fallbacks_to_eager", "recompiles")
_JUDGES = ("accuracy", "expected_accuracy")


def load_run(reader: sqlite3.Connection, run: RunRow) -> Side:
    """Make a side of a run: its results, its distinct graph breaks and causes by model, its surroundings."""
    counts = check_parts.list_instruction_counts(reader, run.id)
    rows: list[Row] = []
    tasks: dict[str, str] = {}
    for merged, parts in merge_with_parts(list_measured(reader, run.id)):
        row = _make_row(merged, parts, counts)
        rows.append(row)
        tasks |= dict.fromkeys(merged.tasks, row.key)
    breaks = _by_model(check_parts.list_task_breaks(reader, run.id), tasks)
    causes = _by_model(check_parts.list_task_causes(reader, run.id), tasks)
    was_observed = bool(check_parts.count_observed(reader, run.id))
    hardware = {row.series["hardware"] for row in rows if row.series.get("hardware")} or {run.gpu_name or "CPU"}
    return Side(
        title=f"run {run.id}" + (" (still running)" if run.state == "running" else ""),
        rows=tuple(rows),
        breaks=breaks if breaks or was_observed else None,
        causes=causes if causes or was_observed else None,
        environment={
            "hardware": ", ".join(sorted(str(it) for it in hardware)),
            **({"torch": run.torch_version} if run.torch_version else {}),
        },
    )


def _make_row(merged: ResultRow, parts: Iterable[Measured], counts: Mapping[int, Mapping[str, float]]) -> Row:
    said = tuple(parts)
    judge = next((it for it in said if it.experiment in _JUDGES), None)
    cells: dict[str, Any] = {"status": merged.status, "reason": merged.reason}
    cells |= {name: getattr(merged, column) for name, column in _NUMBERS.items()}
    for name in _COUNTS:
        of_judge = None if judge is None else getattr(judge, name)
        cells[name] = getattr(merged, name) if of_judge is None else of_judge
    failure = (judge or merged).reason if (judge or merged).status == "failed" else None
    cells["accuracy"] = merged.accuracy or (failure if judge else None)
    if judge is None:
        cells["ran"] = "pass" if merged.status == "measured" else merged.reason or merged.status
    for part in said:
        cells |= counts.get(part.id, {})
    series = {name: getattr(merged, name) for name in (*FIELDS, *TIE_BREAKERS)}
    key = name_configuration(merged.model, series)
    return Row(merged.model, {name: cell for name, cell in cells.items() if cell is not None}, series, key)


def _by_model(found: Iterable[TaskDistinct], tasks: Mapping[str, str]) -> tuple[Distinct, ...]:
    """Sum up what several tasks of one model had, and name the model."""
    merged: dict[tuple[str | None, str], Distinct] = {}
    for it in found:
        model = tasks.get(it.task or "")
        known = merged.get((model, it.fingerprint))
        count = it.count + (known.count if known else 0)
        merged[model, it.fingerprint] = Distinct(
            it.fingerprint, model, it.reason, count, it.function, it.file, it.line, it.kind
        )
    return tuple(merged.values())


def choose(side: Side, wanted: Mapping[str, str], models: Iterable[str]) -> Side:
    """Keep the rows that have these words in their series, and these models; a bare CSV has no series to ask."""
    names = set(models)
    rows = tuple(
        row
        for row in side.rows
        if (not names or row.name in names)
        and all(not row.series or str(row.series.get(field)) == value for field, value in wanted.items())
    )
    return replace(side, rows=rows)


def dump_side(side: Side) -> dict[str, Any]:
    """Write a side as what a baseline keeps."""
    return {"version": VERSION, **asdict(side)}


def load_side(body: Mapping[str, Any], title: str) -> Side:
    """Read back what `dump_side` wrote.

    Raises: CannotCompare if a newer CompileBoard wrote it.
    """
    if body.get("version") != VERSION:
        raise CannotCompare(f"{title} has version {body.get('version')}, this knows {VERSION}; upgrade CompileBoard")
    return Side(
        title=title,
        rows=tuple(Row(**row) for row in body["rows"]),
        breaks=_read_distinct(body["breaks"]),
        causes=_read_distinct(body["causes"]),
        environment=body["environment"],
    )


def _read_distinct(found: list[dict[str, Any]] | None) -> tuple[Distinct, ...] | None:
    return None if found is None else tuple(Distinct(**it) for it in found)
