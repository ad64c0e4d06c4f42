"""Write results as PyTorch's benchmark harness does.

The files are CSV, JSON, raw timings, and files without a table: batch sizes, recompile reports,
minimal programs. Source: benchmarks/dynamo/common.py of PyTorch: batch_size_finder,
recompile_profiler_experiment, minify_model.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.events import BenchMeasured, GraphBroke
from compileboard.collectors.contract.result_columns import RESULT_COLUMNS, list_upstream
from compileboard.collectors.decode.break_texts import reason_text, user_stack
from compileboard.collectors.formats.database import METRICS_FILE
from compileboard.collectors.formats.raw_timings import write_timings
from compileboard.collectors.formats.result_file import (
    COUNTS,
    FILE_WORDS,
    SKIP_COLUMN,
    SPEEDUPS,
    damage_stem,
    write_csv,
)

Cell = str | int | float

_COMPILE = ("compilation_latency", "compression_ratio", "eager_peak_mem", "dynamo_peak_mem")
_COLUMNS = {
    "coverage": (*list_upstream("coverage", counts=True), *list_upstream("coverage", counts=False)),
    "tolerance": list_upstream("tolerance", counts=False),
    "xla": ("speedup", *list_upstream("xla", counts=False)),
}
# Upstream treats an export as a backend: its rows are in these tables, in files named after it.
_OF_BACKEND = {
    "export": ("accuracy",),
    "export_strict": ("accuracy",),
    "aot_inductor": ("performance", "accuracy"),
}
_WITH_VERDICT = ("onnx", "aot_precompile")  # timed, in a table of their own, with a verdict
EXPORTED_EXPERIMENTS = (*SPEEDUPS, "accuracy", *_COLUMNS)
_ALWAYS_FLOAT = frozenset(column.upstream for column in RESULT_COLUMNS if not column.is_count)


@dataclass
class OutputTable:
    stem: str
    experiment: str
    results: list[BenchMeasured] = field(default_factory=list)
    is_named: bool = False  # named by the user, not after its contents


def list_rows(result: BenchMeasured, modes: Collection[str] = ()) -> list[BenchMeasured]:
    """Return upstream's rows for a result: its own, or one in each table of its backend.

    With a mode, upstream has only the rows of that mode.
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
            }  # only timed
            rows.append(replace(result, experiment=table, values=of_table, facts=facts, repeats={}))
        else:  # upstream times regardless of the verdict
            status = "measured" if "speedup" in result.values else result.status
            rows.append(replace(result, experiment=table, status=status))
    return rows or [result]


def is_written(result: BenchMeasured) -> bool:
    if result.experiment == "accuracy":
        return result.accuracy is not None or result.status == "failed"
    return result.experiment in EXPORTED_EXPERIMENTS and result.status in ("measured", "failed")


def identity_columns(result: BenchMeasured) -> dict[str, Cell]:
    tag = result.facts.get("tag")
    failed = result.status == "failed" and not result.values
    known: dict[str, Cell] = {
        "dev": result.device or "",
        "name": result.model,
        "batch_size": 0 if failed else result.batch_size or 0,
    }
    return {**known, "tag": str(tag)} if tag else known


def metric_columns(
    result: BenchMeasured, stats: Sequence[str], *, is_named: bool = False
) -> dict[str, Cell]:
    """Return the other columns in PyTorch's order, then those that PyTorch lacks.

    With `is_named` the file replaces one of PyTorch's and has only the columns of that file.
    """
    values = {name: _format_number(name, value) for name, value in result.values.items()}
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
            names += _list_present(values, together)
        names += stats
    else:
        verdict, names = {}, list(_COLUMNS[result.experiment])
    rest = [
        name
        for name in sorted(values)
        if name not in names and name not in verdict and not is_named
    ]
    row = [*names, *rest]
    # Numbers after the last one present were never in this row; missing ones before it were 0 to
    # upstream.
    while row and row[-1] not in values and not is_named:
        row.pop()
    zeros: dict[str, Cell] = {name: 0.0 if name in _ALWAYS_FLOAT else 0 for name in row}
    return {**verdict, **{name: values.get(name, zeros[name]) for name in row}}


def _list_present(values: dict[str, Cell], names: Sequence[str]) -> list[str]:
    return list(names) if any(name in values for name in names) else []


def _format_number(name: str, value: float) -> Cell:
    return int(value) if name not in _ALWAYS_FLOAT and value == int(value) else float(value)


def list_stats(results: Sequence[BenchMeasured]) -> list[str]:
    return [name for name in COUNTS if any(name in result.values for result in results)]


def write_table(table: OutputTable) -> bytes:
    stats = list_stats(table.results)
    if table.is_named and not stats and table.experiment in ("performance", "accuracy"):
        stats = list(COUNTS)  # a package runs without dynamo: upstream counts 0
    rows = [
        {**identity_columns(result), **metric_columns(result, stats, is_named=table.is_named)}
        for result in table.results
    ]
    return write_rows(rows)


def write_rows(rows: Sequence[dict[str, Any]]) -> bytes:
    """Write rows with the columns of the longest one; shorter rows are padded with 0.

    Numbers are always under their own column; PyTorch's writer shifts them to the left.
    """
    longest: dict[str, Any] = max(rows, key=len) if rows else {}
    columns = list(longest)
    for row in rows:
        columns += [name for name in row if name not in columns]
    lines: list[list[Cell]] = [[*columns]]
    for row in rows:
        last = max((index for index, name in enumerate(columns) if name in row), default=0)
        cells = [
            _format_cell(row[name]) if name in row else "0.000000" if name in _ALWAYS_FLOAT else "0"
            for name in columns[: last + 1]
        ]
        lines.append([*cells, *["0"] * (len(columns) - last - 1)])
    return write_csv(lines)


def _format_cell(value: Cell) -> Cell:
    return f"{value:.6f}" if isinstance(value, float) else value


BREAK_COLUMNS = ("model", "reason", "user_stack")
_DIAGNOSTICS = ("rule_id", "rule_name", "diagnostic_level", "diagnostic_message")
_NO_METRICS = ("dev", "name", "batch_size")  # columns without a record in upstream's JSON
_MAX_NAME_LENGTH = 150
_ONE_ROW = (
    "_multi_tensor_sgd"  # upstream counts graph breaks in it as one, although their texts differ
)
Breaks = Mapping[str, Sequence[GraphBroke]]  # Graph breaks by the task of their result.


def write_files(files: Mapping[str, bytes], folder: str | os.PathLike[str]) -> list[str]:
    """Write files into a folder, replacing existing ones; return their names. Raises OSError if
    one cannot be written.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        handle, temporary = tempfile.mkstemp(prefix=f".{name[:40]}.", dir=target)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(temporary, 0o644)
            os.replace(temporary, target / name)
        except BaseException:
            os.unlink(temporary)
            raise
    return list(files)


def render_files(
    results: Sequence[BenchMeasured],
    breaks: Breaks,
    *,
    raw_timings: bool = False,
    stem: str | None = None,
    modes: Collection[str] = (),
) -> dict[str, bytes]:
    files = render_untabled(results, stem)
    rows = _list_written(results, modes)
    for table in _split_tables(rows) if stem is None else _make_table(rows, stem, modes):
        files[f"{table.stem}.csv"] = write_table(table)
        files[f"{table.stem}.json"] = _write_json(table)
        files |= _write_phases(table)
        files |= _write_export_errors(table)
        files |= _write_breaks(table, breaks)
        for result in table.results if raw_timings else ():
            if result.repeats.get("eager") and result.repeats.get("compiled"):
                model, device = safe_name(result.model), safe_name(result.device or "cpu")
                name = f"{table.stem}-raw_timings-{model}-{device}.npy"
                files[name] = write_timings(result.repeats)
    return files


def _split_tables(rows: Iterable[BenchMeasured]) -> list[OutputTable]:
    """Split rows into upstream's files; each has a model once, or once per tag."""
    tables: dict[str, OutputTable] = {}
    taken: set[tuple[str, str, str]] = set()
    for result in rows:
        for label in _list_labels(result):
            stem = _file_stem(result, label)
            key = (stem, result.model, str(result.facts.get("tag", "")))
            if key not in taken:
                break
        taken.add(key)
        tables.setdefault(stem, OutputTable(stem, result.experiment)).results.append(result)
    return [tables[stem] for stem in sorted(tables)]


def _make_table(rows: list[BenchMeasured], stem: str, modes: Collection[str]) -> list[OutputTable]:
    mode = "accuracy" if "accuracy" in modes else "performance"
    of_mode = [row for row in rows if row.experiment == mode] or rows
    return [OutputTable(stem, of_mode[0].experiment, of_mode, is_named=True)] if rows else []


def _list_written(results: Iterable[BenchMeasured], modes: Collection[str]) -> list[BenchMeasured]:
    rows = [row for measured in results for row in list_rows(measured, modes)]
    return [row for row in rows if is_written(row)] or [
        row for row in rows if row.status == "skipped"
    ]


def _list_labels(result: BenchMeasured) -> Iterable[str]:
    tag = result.facts.get("tag")
    label = (result.backend or "").removesuffix(f":{tag}") if tag else result.backend or ""
    if result.dynamic and "dynamic" not in label:
        label = f"{label}_dynamic"
    if result.world_size > 1:
        label = f"{label}_world{result.world_size}"
    yield label
    label = f"{label}_{result.hardware}" if result.hardware else label
    yield label
    label = f"{label}_batch{result.batch_size or 0}"
    yield label
    number = 2
    while True:
        yield f"{label}_{number}"
        number += 1


def _file_stem(result: BenchMeasured, label: str) -> str:
    experiment = FILE_WORDS.get(result.experiment, result.experiment)
    parts = (label, result.suite, result.dtype, result.mode, result.device, experiment)
    return "_".join(safe for part in parts if part and (safe := safe_name(part)))[
        -_MAX_NAME_LENGTH:
    ]


def _write_json(table: OutputTable) -> bytes:
    stats = list_stats(table.results)
    lines = []
    for result in table.results:
        row = {**identity_columns(result), **metric_columns(result, stats)}
        lines += [
            _make_record(table, result, name, row[name]) for name in row if name not in _NO_METRICS
        ]
    return _to_lines(lines)


def _make_record(
    table: OutputTable, result: BenchMeasured, name: str, value: Cell
) -> dict[str, Any]:
    settings = result.facts.get("settings")
    extra = {
        "device": result.device,
        "quantization": None,
        "batch_size": result.batch_size,
        "tag": result.facts.get("tag"),
        **(settings if isinstance(settings, dict) else {}),
        "output": f"{table.stem}.csv",
        table.experiment: True,
    }
    metric: dict[str, Any] = {"name": name, "benchmark_values": [value]}
    if isinstance(value, str):  # the database has only numbers
        metric = {"name": name, "extra_info": {"benchmark_values": [value]}}
    return {
        "benchmark": {
            "name": "TorchInductor",
            "mode": result.mode,
            "dtype": result.dtype,
            "extra_info": extra,
        },
        "model": {
            "name": result.model,
            "type": "OSS model",
            "backend": result.backend,
            "origins": [result.suite],
        },
        "metric": metric,
    }


def _to_lines(records: Sequence[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(record, default=str)}\n" for record in records).encode()


def _write_phases(table: OutputTable) -> dict[str, bytes]:
    rows: list[dict[str, Cell]] = []
    records: list[dict[str, Any]] = []
    names = dict.fromkeys(name for result in table.results for name in _list_phases(result))
    for result in table.results:
        phases = _list_phases(result)
        if phases:
            # Upstream writes each model's numbers under the first one's heading; here each has its
            # own name.
            rows.append(
                {**identity_columns(result), **{name: phases.get(name, 0.0) for name in names}}
            )
            records += [_make_record(table, result, name, value) for name, value in phases.items()]
    if not rows:
        return {}
    stem = f"{table.stem}{METRICS_FILE}"
    return {f"{stem}.csv": write_rows(rows), f"{stem}.json": _to_lines(records)}


def _write_export_errors(table: OutputTable) -> dict[str, bytes]:
    rows = []
    for result in table.results:
        failure = result.facts.get("export")
        if (
            (result.backend or "").startswith("onnx")
            and isinstance(failure, dict)
            and failure.get("error")
        ):
            empty: dict[str, Cell] = dict.fromkeys(_DIAGNOSTICS, "")
            identified: dict[str, Cell] = {
                "device": result.device or "",
                "model_name": result.model,
                "batch_size": result.batch_size or 0,
            }
            raised: dict[str, Cell] = {
                "exception_type_name": str(failure["error"]),
                "exception_message": str(failure.get("message") or ""),
            }
            rows.append({**identified, **empty, **raised})
    return {f"{table.stem}_export_error.csv": write_rows(rows)} if rows else {}


def _list_phases(result: BenchMeasured) -> dict[str, float]:
    phases = result.facts.get("phases_s")
    if not isinstance(phases, dict):
        return {}
    return {
        str(name): float(value) for name, value in phases.items() if isinstance(value, int | float)
    }


def _write_breaks(table: OutputTable, breaks: Breaks) -> dict[str, bytes]:
    rows = [
        (
            result.model,
            f'"{reason_text(graph_break.text) if graph_break.text else graph_break.reason}"',
            f'"{_format_stack(graph_break)}"',
        )
        for result in table.results
        for graph_break in breaks.get(result.task or "", ())
    ]
    if not rows:
        return {}
    # Upstream strips both names by their letters, so an s is missing: …_graph_break_deduped.csv.
    stem = table.stem if table.is_named else damage_stem(table.stem)
    name = f"{stem}_graph_breaks.csv"
    deduped = (
        f"{stem}_graph_breaks_deduped.csv"
        if table.is_named
        else f"{damage_stem(f'{stem}_graph_breaks')}_deduped.csv"
    )
    return {
        name: write_csv([BREAK_COLUMNS, *rows]),
        deduped: write_csv([BREAK_COLUMNS, *_dedupe(rows)]),
    }


def _format_stack(graph_break: GraphBroke) -> str:
    frames: list[tuple[Any, ...]] = [
        (frame.path, frame.line, frame.name) for frame in user_stack(graph_break.text)
    ]
    frames = frames or [
        (frame.get("file"), frame.get("line"), frame.get("name")) for frame in graph_break.stack
    ]
    return ", ".join(
        f"<FrameSummary file {file}, line {line} in {name}>" for file, line, name in frames
    )


def _dedupe(rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    distinct: dict[str, tuple[str, str, str]] = {}
    for row in sorted(rows, key=lambda row: row[1]):
        distinct.setdefault(row[1], row)
    same = [row for row in distinct.values() if _ONE_ROW in row[1]]
    return [row for row in distinct.values() if _ONE_ROW not in row[1]] + same[:1]


BATCH_SIZES, RECOMPILES = (
    "batch_sizes",
    "recompile_profiler_log",
)  # upstream calls the first coverage.csv
_UNSAFE = re.compile(r"[^A-Za-z0-9.=+-]+")


def safe_name(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("._") or "_"


def render_untabled(results: Sequence[BenchMeasured], stem: str | None = None) -> dict[str, bytes]:
    """Return the files by name; `stem` replaces the CSV's own name."""
    sizes = [
        (result.model, int(result.values["batch_size_found"]))
        for result in results
        if result.experiment == "batch_size" and "batch_size_found" in result.values
    ]
    reports = [
        (result.model, format_recompiles(result.facts))
        for result in results
        if result.experiment == "recompile_profile" and result.status == "measured"
    ]
    files: dict[str, bytes] = {}
    if sizes:  # as --batch-size-file reads them
        files[f"{stem or BATCH_SIZES}.csv"] = write_csv(sizes)
    if reports:
        files[f"{stem or RECOMPILES}.csv"] = write_csv([("model", "profiler report"), *reports])
    for result in results:
        programs = [
            minimal["program"]
            for minimal in result.facts.get("minimal_programs", ())
            if minimal["program"]
        ]
        for number, program in enumerate(programs, start=1):
            suffix = "" if number == 1 else f"_{number}"
            files[f"{safe_name(result.model)}_repro{suffix}.py"] = program.encode(
                "utf-8", "replace"
            )
    return files


def format_recompiles(facts: Mapping[str, Any]) -> str:
    """Format a recompile profile like torch's CompileProfiler, which was removed in 2.5."""
    breaks: Mapping[str, int] = facts.get("graph_break_reasons", {})
    changes = [change for change in facts["changes"] if change["recompiles"] or "error" in change]
    lines = [
        "Torchdynamo Profiler Report",
        "===========================",
        "",
        "Graph Breaks",
        "------------",
    ]
    lines += [f"{count} × {reason}" for reason, count in breaks.items()] or [
        "No graph breaks detected."
    ]
    lines += ["", "Recompilation", "-------------"]
    for change in changes:
        lines.append(f"{change['change']}: recompiles {change['recompiles']}")
        lines += [f"  {line}" for line in _list_reasons(change)]
    return "\n".join(lines if changes else [*lines, "No recompilation detected."]) + "\n"


def _list_reasons(change: Mapping[str, Any]) -> Iterable[str]:
    for text in (*change["reasons"], *filter(None, [change.get("error")])):
        yield from text.splitlines()
