"""Read a CSV table of results row by row; a 0 that stands for "not measured" is not kept as a
value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.contract.result_columns import ALIASES
from compileboard.collectors.formats import upstream_status
from compileboard.collectors.formats.csv_text import CsvRow
from compileboard.collectors.formats.file_names import FileNameInfo
from compileboard.collectors.formats.results import ResultFile, task_of

# Columns that say which series a row belongs to; each by every name that upstream and HUD give it.
IDENTITY = {
    "dev": "device",
    "device": "device",
    "name": "model",
    "model": "model",
    "model_name": "model",
    "batch_size": "batch_size",
    "tag": "tag",
    "suite": "suite",
    "dtype": "dtype",
    "precision": "dtype",
    "mode": "mode",
    "backend": "backend",
    "compiler": "backend",
    "arch": "hardware",
    "hardware": "hardware",
    "gpu": "hardware",
    "device_arch": "hardware",
    "dynamic": "dynamic",
    "world_size": "world_size",
    "experiment": "experiment",
    "commit": "commit",
    "head_sha": "commit",
    "sha": "commit",
    "branch": "branch",
    "head_branch": "branch",
    "timestamp": "timestamp",
    "date": "timestamp",
    "time": "timestamp",
    "granularity_bucket": "timestamp",
    "workflow_id": "workflow",
}
PERFORMANCE = ("speedup", "abs_latency", "compression_ratio", "eager_peak_mem", "dynamo_peak_mem")
_ABOUT_RUN = ("commit", "branch", "timestamp", "workflow", "tag")
_WORD = re.compile(r"[^a-z0-9]+")


def read_row(file: ResultFile, row: CsvRow, suite: str | None) -> None:
    cells = {_rename(column): (column, cell.strip()) for column, cell in row.cells.items()}
    identity = {
        key: cell for key, (_column, cell) in cells.items() if key in IDENTITY.values() and cell
    }
    if "model" not in identity:
        file.rejects.add("bad_row", row.line, ",".join(row.cells.values()))
        return
    numbers, texts = _sort_cells(file, row, cells)
    for experiment in _experiments(file, cells, identity):
        result = _result(file, row, experiment, identity, dict(numbers), dict(texts), suite)
        file.add(_judge(file.kind, result, cells), row.line)


@lru_cache(maxsize=4096)
def _rename(column: str) -> str:
    plain = _WORD.sub("_", column.lower()).strip("_")
    plain = re.sub(r"_(?:ms|s|gb|x)$", "", plain) if plain.removesuffix("_ms") != plain else plain
    return (
        IDENTITY.get(plain)
        or ALIASES.get(plain)
        or (plain if plain in ("accuracy", *upstream_status.FLOATS) else column)
    )


def _sort_cells(
    file: ResultFile, row: CsvRow, cells: dict[str, tuple[str, str]]
) -> tuple[dict[str, float], dict[str, str]]:
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    padded = _padding(list(row.cells.values()), [_rename(column) for column in row.cells])
    for name, (column, cell) in cells.items():
        if name in IDENTITY.values() or name == "accuracy" or not cell or name in padded:
            continue
        value = upstream_status.read_number(cell)
        fault = upstream_status.find_fault(name, cell)
        if fault:
            file.rejects.add(fault, row.line, f"{column}: {cell}")
        if value is None or fault:
            texts[name] = cell
        # Upstream has no other word for what it did not measure; a latency, a ratio or a peak is
        # never 0.
        elif value or name not in upstream_status.FLOATS:
            numbers[name] = value
    return numbers, texts


def _padding(cells: Sequence[str], names: Sequence[str]) -> set[str]:
    """Return the trailing columns that PyTorch padded with 0 because a later row had more.

    Padding is a plain 0 while floats are written as 0.000000, so a plain 0 in a float column gives
    it away; so does a row whose counts at the end are all 0 although it has graphs.
    """
    start = len(cells)
    while start and cells[start - 1].strip() == "0":
        start -= 1
    tail = list(names[start:])
    first = next((index for index, name in enumerate(tail) if name in upstream_status.FLOATS), None)
    if first is None and {"calls_captured", "unique_graphs"} <= set(tail):
        first = min(tail.index("calls_captured"), tail.index("unique_graphs"))
    return set(tail[first:]) if first is not None else set()


def _experiments(
    file: ResultFile, cells: dict[str, tuple[str, str]], identity: dict[str, str]
) -> list[str]:
    if "experiment" in identity:
        return [identity["experiment"]]
    if file.kind != "hud":
        return [file.kind]
    # One row of HUD's is what two experiments said.
    experiments = ["performance"] if any(name in cells for name in PERFORMANCE) else []
    return [*experiments, "accuracy"] if "accuracy" in cells or not experiments else experiments


def _result(
    file: ResultFile,
    row: CsvRow,
    experiment: str,
    identity: dict[str, str],
    numbers: dict[str, float],
    texts: dict[str, str],
    suite: str | None,
) -> BenchMeasured:
    named = file.named
    facts: dict[str, Any] = {name: identity[name] for name in _ABOUT_RUN if name in identity}
    if texts:
        facts["columns"] = texts
    return BenchMeasured(
        process_id="",
        sequence=file.row_count,
        time_us=0,
        suite=identity.get("suite") or suite or named.suite or "",
        model=identity["model"],
        experiment=experiment,
        mode=identity.get("mode") or named.mode,
        dtype=identity.get("dtype") or named.dtype,
        device=identity.get("device") or named.device,
        hardware=identity.get("hardware") or named.hardware,
        backend=_backend(identity.get("backend"), named, identity.get("tag")),
        dynamic=identity.get("dynamic", "").lower() in ("1", "true", "yes") or named.dynamic,
        batch_size=_count(identity.get("batch_size")),
        world_size=_count(identity.get("world_size")) or 1,
        values=numbers,
        facts=facts,
        task=task_of(file.stem, identity["model"], identity.get("tag")),
        origin=f"{file.name}:{row.line}",
    )


def _backend(given: str | None, named: FileNameInfo, tag: str | None) -> str | None:
    backend = given or named.backend
    # The file's name has the configuration's label too: inductor_no_cudagraphs.
    if given and named.backend and named.backend.startswith(f"{given}_"):
        backend = named.backend
    # --diff-branch writes a model once for each branch: two series.
    return f"{backend or ''}:{tag}" if tag else backend


def _count(text: str | None) -> int | None:
    """Read a count that is never 0: 0 is the placeholder for an unknown batch size."""
    value = upstream_status.read_number(text or "")
    return int(value) if value and 0 < value < 1e12 and value == int(value) else None


def _judge(kind: str, result: BenchMeasured, cells: dict[str, tuple[str, str]]) -> BenchMeasured:
    accuracy = cells["accuracy"][1] if "accuracy" in cells else ""
    status: str
    reason: str | None
    values, verdict = dict(result.values), accuracy
    if reason := result.facts.get("columns", {}).get(upstream_status.SKIP_COLUMN):
        return replace(result, status="skipped", reason=reason)
    if result.experiment == "accuracy":
        status, reason = upstream_status.status_of(accuracy)
        verdict = "" if status == "not_run" else accuracy
        if kind == "hud":
            values = {}
    elif result.experiment == "expected_accuracy":
        # Under their own names a page or a gate would take them for what was measured.
        verdict, status, reason = "", "not_run", upstream_status.EXPECTED
        values = {f"expected_{name}": value for name, value in values.items()}
        result = replace(result, facts={**result.facts, "expected_accuracy": accuracy})
    else:
        verdict = ""
        status, reason = _judge_measured(kind, result, accuracy)
        if status != "measured":
            values = {name: value for name, value in values.items() if value}
    return replace(result, status=status, reason=reason, accuracy=verdict or None, values=values)


def _judge_measured(kind: str, result: BenchMeasured, accuracy: str) -> tuple[str, str | None]:
    if result.experiment in (*upstream_status.SPEEDUPS, "xla"):
        ran = any(result.values.get(name) for name in PERFORMANCE)
    elif result.experiment == "coverage":
        ran = bool(result.values.get("total_ops"))
    else:
        ran = bool(result.values or result.facts.get("columns"))
    if ran:
        return "measured", None
    if kind == "hud":
        status, reason = upstream_status.status_of(accuracy)
        return (
            (status, reason)
            if status in ("failed", "skipped")
            else ("not_run", upstream_status.NOT_RUN)
        )
    columns = result.facts.get("columns", {})
    if any(upstream_status.find_fault(name, cell) for name, cell in columns.items()):
        return "not_run", upstream_status.UNREADABLE
    return (
        ("not_run", upstream_status.NOT_RUN)
        if columns
        else ("failed", upstream_status.UNKNOWN_FAILURE)
    )
