"""Write rows of PyTorch's benchmark tables with its order of columns, floats and padding.

Source: benchmarks/dynamo/common.py output_csv, speedup_experiment, write_csv_when_exception,
_write_accuracy_row.

Cells that a spreadsheet would take for a formula are not escaped, unlike in app/reports/csv.py: an
apostrophe would change the model's name for every program that compares these files.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.contract.result_columns import RESULT_COLUMNS, list_upstream
from compileboard.collectors.formats.upstream_status import COUNTS, SKIP_COLUMN, SPEEDUPS

Cell = str | int | float

_COMPILE = ("compilation_latency", "compression_ratio", "eager_peak_mem", "dynamo_peak_mem")
_COLUMNS = {
    "coverage": (*list_upstream("coverage", counts=True), *list_upstream("coverage", counts=False)),
    "tolerance": list_upstream("tolerance", counts=False),
    "xla": ("speedup", *list_upstream("xla", counts=False)),
}
# To upstream an export is a backend: its rows stand in these tables, in files of that backend's
# name.
_OF_BACKEND = {
    "export": ("accuracy",),
    "export_strict": ("accuracy",),
    "aot_inductor": ("performance", "accuracy"),
}
_WITH_VERDICT = ("onnx", "aot_precompile")  # timed, in a table of their own, and judged
EXPORTED_EXPERIMENTS = (*SPEEDUPS, "accuracy", *_COLUMNS)
_ALWAYS_FLOAT = frozenset(column.upstream for column in RESULT_COLUMNS if not column.is_count)


@dataclass
class OutputTable:
    stem: str
    experiment: str
    results: list[BenchMeasured] = field(default_factory=list)
    is_named: bool = False  # by whoever asked for the file, not by its contents


def list_rows(result: BenchMeasured, modes: Collection[str] = ()) -> list[BenchMeasured]:
    """Return a result as the rows that upstream has of it: its own, or one in each table of its
    backend.

    Beside one of its modes upstream has the rows of that mode alone.
    """
    tables = _OF_BACKEND.get(result.experiment, ())
    if result.experiment in _WITH_VERDICT and "accuracy" in modes and "performance" not in modes:
        tables = ("accuracy",)
    rows = []
    for table in [table for table in tables if table in modes] or tables:
        if table == "accuracy":
            of_table = {
                name: result.values[name]
                for name in (*COUNTS, "compilation_latency")
                if name in result.values
            }
            facts = {
                name: fact for name, fact in result.facts.items() if name != "phases_s"
            }  # of what is timed alone
            rows.append(replace(result, experiment=table, values=of_table, facts=facts, repeats={}))
        else:  # upstream times without a look at the verdict
            status = "measured" if "speedup" in result.values else result.status
            rows.append(replace(result, experiment=table, status=status))
    return rows or [result]


def is_written(result: BenchMeasured) -> bool:
    if result.experiment == "accuracy":
        return result.accuracy is not None or result.status == "failed"
    return result.experiment in EXPORTED_EXPERIMENTS and result.status in ("measured", "failed")


def identity(result: BenchMeasured) -> dict[str, Cell]:
    tag = result.facts.get("tag")
    failed = result.status == "failed" and not result.values
    known: dict[str, Cell] = {
        "dev": result.device or "",
        "name": result.model,
        "batch_size": 0 if failed else result.batch_size or 0,
    }
    return {**known, "tag": str(tag)} if tag else known


def metrics(
    result: BenchMeasured, stats: Sequence[str], *, is_named: bool = False
) -> dict[str, Cell]:
    """Return the other columns in PyTorch's order, followed by those it does not have.

    With `is_named` the file replaces one of PyTorch's and has only its columns.
    """
    values = {name: _number(name, value) for name, value in result.values.items()}
    if not is_written(result):
        return {SKIP_COLUMN: result.reason or result.status}
    if result.experiment == "accuracy":
        verdict: dict[str, Cell] = {"accuracy": result.accuracy or result.reason or "fail_to_run"}
        names = [*stats, "compilation_latency"] if values else []
    elif result.experiment in SPEEDUPS:
        verdict = {}
        if result.status != "measured":
            return {"speedup": 0.0, "abs_latency": 0.0}
        names = ["speedup", "abs_latency"]
        for together in (("baseline", "speedup_vs_baseline"), _COMPILE, ("cache_lookup_latency",)):
            names += _present(values, together)
        names += stats
    else:
        verdict, names = {}, list(_COLUMNS[result.experiment])
    rest = [
        name
        for name in sorted(values)
        if name not in names and name not in verdict and not is_named
    ]
    row = [*names, *rest]
    # What lies behind the last number that there is was never in this row; what lies before it was
    # 0 to upstream.
    while row and row[-1] not in values and not is_named:
        row.pop()
    zeros: dict[str, Cell] = {name: 0.0 if name in _ALWAYS_FLOAT else 0 for name in row}
    return {**verdict, **{name: values.get(name, zeros[name]) for name in row}}


def _present(values: dict[str, Cell], names: Sequence[str]) -> list[str]:
    return list(names) if any(name in values for name in names) else []


def _number(name: str, value: float) -> Cell:
    return int(value) if name not in _ALWAYS_FLOAT and value == int(value) else float(value)


def stats_of(results: Sequence[BenchMeasured]) -> list[str]:
    return [name for name in COUNTS if any(name in result.values for result in results)]


def write_table(table: OutputTable) -> bytes:
    stats = stats_of(table.results)
    if table.is_named and not stats and table.experiment in ("performance", "accuracy"):
        stats = list(COUNTS)  # dynamo has no part in a package: upstream counts 0
    rows = [
        {**identity(result), **metrics(result, stats, is_named=table.is_named)}
        for result in table.results
    ]
    return write_rows(rows)


def write_rows(rows: Sequence[dict[str, Any]]) -> bytes:
    """Write rows with the columns of the longest one; shorter rows are padded with 0.

    Numbers always stand under their own column; PyTorch's writer shifts them to the left.
    """
    longest: dict[str, Any] = max(rows, key=_width) if rows else {}
    columns = list(longest)
    for row in rows:
        columns += [name for name in row if name not in columns]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        last = max((index for index, name in enumerate(columns) if name in row), default=0)
        cells = [
            _absent(name) if name not in row else _cell(row[name]) for name in columns[: last + 1]
        ]
        writer.writerow([*cells, *["0"] * (len(columns) - last - 1)])
    return buffer.getvalue().encode("utf-8", "replace")


def _width(row: dict[str, Any]) -> int:
    return len(row)


def _cell(value: Cell) -> Cell:
    return f"{value:.6f}" if isinstance(value, float) else value


def _absent(name: str) -> str:
    return "0.000000" if name in _ALWAYS_FLOAT else "0"
