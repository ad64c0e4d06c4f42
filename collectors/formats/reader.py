"""Read PyTorch's result files: CSV, JSON and graph-break tables.

Source: benchmarks/dynamo/common.py run_one_model, torch/_dynamo/symbolic_convert.py
log_graph_break.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from compileboard.collectors.contract.events import BenchMeasured, GraphBroke
from compileboard.collectors.contract.result_columns import ALIASES
from compileboard.collectors.decode.break_texts import parse_break
from compileboard.collectors.decode.records import PathNamer
from compileboard.collectors.formats import result_file as upstream_status
from compileboard.collectors.formats.database import (
    METRICS_FILE,
    CsvRow,
    clean,
    decode,
    read_database,
    read_rows,
    read_table,
)
from compileboard.collectors.formats.raw_timings import is_npy, read_timings, to_repeats
from compileboard.collectors.formats.result_file import (
    BreakRow,
    ExtraMeasurements,
    FileNameInfo,
    ResultFile,
    count_lines,
    read_name,
    read_timings_name,
    stem_of,
)

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
    cells = {
        _normalise_column(column): (column, cell.strip()) for column, cell in row.cells.items()
    }
    identity = {
        key: cell for key, (_column, cell) in cells.items() if key in IDENTITY.values() and cell
    }
    if "model" not in identity:
        file.rejects.add("bad_row", row.line, ",".join(row.cells.values()))
        return
    numbers, texts = _split_numbers_and_texts(file, row, cells)
    for experiment in _list_experiments(file, cells, identity):
        result = _make_result(file, row, experiment, identity, dict(numbers), dict(texts), suite)
        file.add(_set_status(file.kind, result, cells), row.line)


@lru_cache(maxsize=4096)
def _normalise_column(column: str) -> str:
    plain = _WORD.sub("_", column.lower()).strip("_")
    plain = re.sub(r"_(?:ms|s|gb|x)$", "", plain) if plain.removesuffix("_ms") != plain else plain
    return (
        IDENTITY.get(plain)
        or ALIASES.get(plain)
        or (plain if plain in ("accuracy", *upstream_status.FLOATS) else column)
    )


def _split_numbers_and_texts(
    file: ResultFile, row: CsvRow, cells: dict[str, tuple[str, str]]
) -> tuple[dict[str, float], dict[str, str]]:
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    padded = _find_padding(
        list(row.cells.values()), [_normalise_column(column) for column in row.cells]
    )
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


def _find_padding(cells: Sequence[str], names: Sequence[str]) -> set[str]:
    """Return the trailing columns that PyTorch padded with 0 because a later row had more.

    Floats are written as 0.000000, so a plain 0 in a float column is padding. So are the counts at
    the end of a row if all are 0 although the row has graphs.
    """
    start = len(cells)
    while start and cells[start - 1].strip() == "0":
        start -= 1
    tail = list(names[start:])
    first = next((index for index, name in enumerate(tail) if name in upstream_status.FLOATS), None)
    if first is None and {"calls_captured", "unique_graphs"} <= set(tail):
        first = min(tail.index("calls_captured"), tail.index("unique_graphs"))
    return set(tail[first:]) if first is not None else set()


def _list_experiments(
    file: ResultFile, cells: dict[str, tuple[str, str]], identity: dict[str, str]
) -> list[str]:
    if "experiment" in identity:
        return [identity["experiment"]]
    if file.kind != "hud":
        return [file.kind]
    # One row of HUD's is what two experiments said.
    experiments = ["performance"] if any(name in cells for name in PERFORMANCE) else []
    return [*experiments, "accuracy"] if "accuracy" in cells or not experiments else experiments


def _make_result(
    file: ResultFile,
    row: CsvRow,
    experiment: str,
    identity: dict[str, str],
    numbers: dict[str, float],
    texts: dict[str, str],
    suite: str | None,
) -> BenchMeasured:
    facts: dict[str, Any] = {name: identity[name] for name in _ABOUT_RUN if name in identity}
    if texts:
        facts["columns"] = texts
    given = {
        **identity,
        "dynamic": identity.get("dynamic", "").lower() in ("1", "true", "yes"),
        "batch_size": _read_count(identity.get("batch_size")),
        "world_size": _read_count(identity.get("world_size")),
    }
    return file.make_result(
        given,
        file.named,
        stem=file.stem,
        number=file.row_count,
        line=row.line,
        suite=identity.get("suite") or suite or file.named.suite or "",
        experiment=experiment,
        values=numbers,
        facts=facts,
    )


def _read_count(text: str | None) -> int | None:
    """Read a count that is never 0, because 0 is the placeholder for an unknown batch size."""
    value = upstream_status.read_number(text or "")
    return int(value) if value and 0 < value < 1e12 and value == int(value) else None


def _set_status(
    kind: str, result: BenchMeasured, cells: dict[str, tuple[str, str]]
) -> BenchMeasured:
    accuracy = cells["accuracy"][1] if "accuracy" in cells else ""
    status: str
    reason: str | None
    values, verdict = dict(result.values), accuracy
    if reason := result.facts.get("columns", {}).get(upstream_status.SKIP_COLUMN):
        return replace(result, status="skipped", reason=reason)
    if result.experiment == "accuracy":
        status, reason = upstream_status.read_status(accuracy)
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
        status, reason = upstream_status.read_status(accuracy)
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


_FRAME = re.compile(
    r"<FrameSummary file (?P<file>.*?), line (?P<line>\d{1,9}) in (?P<name>.*?)>(?=, "
    r"<FrameSummary |$)"
)


def read_break(file: ResultFile, row: CsvRow) -> None:
    model, reason = row.cells.get("model", "").strip(), _unquote(row.cells.get("reason", ""))
    if not model or not reason.strip():
        file.rejects.add("bad_row", row.line, model or reason)
        return
    stack_text = _unquote(row.cells.get("user_stack", ""))
    stack = tuple(
        (match["file"], int(match["line"]), match["name"]) for match in _FRAME.finditer(stack_text)
    )
    file.breaks.append(BreakRow(model, reason, stack, row.line))


def _unquote(cell: str) -> str:
    return cell[1:-1] if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def break_event(
    row: BreakRow, namer: PathNamer, process_id: str, sequence: int, time_us: int
) -> GraphBroke:
    innermost = row.stack[-1] if row.stack else None
    headline = f"Graph break in user code at {innermost[0]}:{innermost[1]}\n" if innermost else ""
    frames = "".join(f'  File "{file}", line {line}, in {name}\n' for file, line, name in row.stack)
    text = f"{headline}Graph Break Reason: {row.reason}\n" + (
        f"User code traceback:\n{frames}" if frames else ""
    )
    return GraphBroke(process_id, sequence, time_us, **parse_break(text, namer))


_SUFFIX = re.compile(r"\.(?:csv|json|jsonl|npy)(?:\.(?:gz|zst|xz|bz2))?$", re.IGNORECASE)
_TABLE = re.compile(
    rb"(?:\xef\xbb\xbf)?[^\r\n]*\b(?:accuracy|speedup|batch_size|user_stack|abs_latency)\b",
    re.IGNORECASE,
)
_PR_TIME = re.compile(rb"(?:\xef\xbb\xbf)?\s*[\w.-]+ *, *[\w .-]+, *\d+ *(?:, *[\d.]+ *)?\r?\n")
_RECORD = re.compile(rb'(?:\xef\xbb\xbf)?[\s\[]*\{[\s\S]*"(?:benchmark|metric|head_sha)"')


def is_results(head: bytes, name: str) -> bool:
    if is_npy(head):
        return read_timings_name(stem_of(name)) is not None
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) and _SUFFIX.search(name):
        return True
    return bool(_RECORD.match(head) or _TABLE.match(head) or _PR_TIME.match(head))


def has_results_name(name: str) -> bool:
    return bool(_SUFFIX.search(name))


def read_results(name: str, data: bytes, suite: str | None = None) -> ResultFile:
    """Read a result file. Unreadable parts are counted in `rejects` with their line; nothing is
    raised.

    `suite` is used if no column has one.
    """
    file = ResultFile(name, "unknown", line_count=count_lines(data))
    if not data.strip():
        file.kind = "empty"
        file.rejects.add("empty_log", None, name)
    elif is_npy(data):
        _read_timings(file, data)
    else:
        text = decode(data, file.rejects)
        if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
            _read_json(file, text, suite)
        else:
            _read_csv(file, text, suite)
    return file


def _read_timings(file: ResultFile, data: bytes) -> None:
    file.kind = "raw_timings"
    file.line_count = 0
    named = read_timings_name(file.stem)
    try:
        timings = read_timings(data)
    except ValueError as error:
        file.rejects.add("damaged_file", None, f"{file.name}: {error}")
        return
    if named is None:
        file.rejects.add(
            "bad_record", None, f"{file.name}: its name has no -raw_timings-MODEL-DEVICE"
        )
        return
    repeats = to_repeats(timings)
    if len(repeats["eager"]) < len(timings):
        file.rejects.add("not_finite", None, file.name, len(timings) - len(repeats["eager"]))
    file.mark(
        {
            "timings": [str(timing) for timing in timings],
            "model": named[1],
            "first": timings[0][0] if timings else 0,
        }
    )
    file.additions.append(ExtraMeasurements(named[1], None, repeats=repeats))


def _read_json(file: ResultFile, text: str, suite: str | None) -> None:
    file.kind = "compilation_metrics" if METRICS_FILE in file.stem else "database"
    file.is_full = True
    read_database(file, text, suite)
    if not (file.row_count or file.rejects.by_kind):
        file.rejects.add("empty_log", None, file.name)


def _read_csv(file: ResultFile, text: str, suite: str | None) -> None:
    head = next(read_rows(text, type(file.rejects)()), (0, []))[1]
    file.kind = _classify([cell.strip() for cell in head], file.stem)
    if file.kind in ("pr_time", "expected_pr_time"):
        _read_pr_time(file, text, suite)
        return
    columns, rows = read_table(text, file.rejects)
    if file.kind == "unknown":
        other = _find_separator(columns, file.stem)
        if other:
            problem = (
                f"{','.join(columns)[:80]}: separated by {other!r}, expected commas; write it "
                "with commas"
            )
            file.rejects.add("wrong_separator", 1, problem)
        else:
            file.rejects.add("unknown_table", 1, ",".join(columns))
        return
    for row in rows:
        if not file.has_room(row.line):
            break
        file.mark({name: _normalise_number(cell) for name, cell in row.cells.items()})
        if file.kind == "graph_breaks":
            read_break(file, row)
        elif file.kind == "compilation_metrics":
            _read_phases(file, row)
        elif file.kind == "hud" and "metric" in row.cells:
            read_row(file, _spread_metrics(row), suite)
        elif file.kind not in ("summary", "graph_breaks_deduped"):
            read_row(file, row, suite)


def _find_separator(columns: list[str], stem: str) -> str | None:
    for other in (";", "\t", "|"):
        cells = [cell.strip() for cell in columns[0].split(other)] if len(columns) == 1 else []
        if len(cells) > 1 and _classify(cells, stem) != "unknown":
            return other
    return None


def _normalise_number(cell: str) -> str:
    """Normalise a number so that padding does not change the record's identity."""
    return "" if upstream_status.read_number(cell) == 0 else cell


def _spread_metrics(row: CsvRow) -> CsvRow:
    cells = {name: cell for name, cell in row.cells.items() if name not in ("metric", "value")}
    return CsvRow(row.line, {**cells, row.cells["metric"].strip(): row.cells.get("value", "")})


def _classify(columns: list[str], stem: str) -> str:
    known = {column.lower() for column in columns}
    if not columns:
        return "unknown"
    if {"reason", "user_stack"} <= known:
        return "graph_breaks_deduped" if "dedup" in stem else "graph_breaks"
    if not known & set(IDENTITY):
        if len(columns) in (3, 4) and all(
            upstream_status.read_number(cell) is not None for cell in columns[2:]
        ):
            return "pr_time" if len(columns) == 3 else "expected_pr_time"
        return "unknown"
    if columns[0] == "Compiler" and not known & {"name", "model"}:
        return "summary"  # runner.py's, computed from the tables beside it
    if not known & {"name", "model", "model_name"}:
        return "unknown"
    return _classify_models(known, stem)


def _classify_models(known: set[str], stem: str) -> str:
    about_run = {
        name for name, ours in IDENTITY.items() if ours in ("commit", "timestamp", "workflow")
    }
    if (
        known & about_run
        or {"metric", "value"} <= known
        or ("speedup" in known and "accuracy" in known)
    ):
        return "hud"
    if METRICS_FILE in stem or any("compile_inner" in name for name in known):
        return "compilation_metrics"
    if {"time_baseline", "time_xla"} & known:
        return "xla"
    if {"pct_ops", "captured_ops"} & known:
        return "coverage"
    if {"max", "mean", "std"} <= known:
        return "tolerance"
    if upstream_status.SKIP_COLUMN in known:
        return read_name(stem).experiment or "performance"
    if "accuracy" in known:
        return "accuracy" if "dev" in known else "expected_accuracy"
    if known & {"speedup", "abs_latency", "compression_ratio", *ALIASES}:
        named = "overhead" if "overhead" in stem else read_name(stem).experiment
        return named if named in upstream_status.SPEEDUPS else "performance"
    return "other" if known & {"dev", "batch_size"} else "unknown"


def _read_phases(file: ResultFile, row: CsvRow) -> None:
    """Read the seconds of each phase.

    PyTorch writes every row under the header of the first model, even if its phases differ. A
    padded row had other phases, so its numbers are dropped; the JSON file of the same results has
    their names.
    """
    model = (row.cells.get("name") or row.cells.get("model") or "").strip()
    cells = {name: cell.strip() for name, cell in row.cells.items() if name not in IDENTITY}
    if not model:
        file.rejects.add("bad_row", row.line, ",".join(row.cells.values()))
    elif "0" in cells.values():
        file.rejects.add("misplaced_phases", row.line, model)
    else:
        numbers = {name: upstream_status.read_number(cell) for name, cell in cells.items()}
        phases = {name: value for name, value in numbers.items() if value is not None}
        file.additions.append(
            ExtraMeasurements(model, row.cells.get("tag") or None, phases_s=phases)
        )


def _read_pr_time(file: ResultFile, text: str, suite: str | None) -> None:
    measured: dict[str, tuple[int, int, dict[str, float]]] = {}
    for line, cells in read_rows(text, file.rejects):
        if not file.has_room(line):
            break
        name, metric, *numbers = [*(cell.strip() for cell in cells), ""][: max(2, len(cells))]
        values = [upstream_status.read_number(cell) for cell in numbers]
        if not name or len(cells) not in (3, 4) or None in values:
            file.rejects.add("bad_row", line, ",".join(cells))
            continue
        file.mark({"name": name, "metric": metric, "value": numbers[0]})
        _number, _line, of_model = measured.setdefault(name, (file.row_count, line, {}))
        if metric in of_model or f"expected_{metric}" in of_model:
            file.rejects.add("duplicate_row", line, f"{name},{metric}")
            continue
        names = (
            (metric,)
            if file.kind == "pr_time"
            else (f"expected_{metric}", f"expected_{metric}_noise_margin")
        )
        of_model |= {
            key: value for key, value in zip(names, values, strict=False) if value is not None
        }
    is_measured = file.kind == "pr_time"
    for name, (number, line, of_model) in measured.items():
        result = file.make_result(
            {"model": clean(name)},
            FileNameInfo(),
            stem=file.stem,
            number=number,
            line=line,
            suite=suite or "pr_time_benchmarks",
            experiment=file.kind,
            status="measured" if is_measured else "not_run",
            reason=None if is_measured else upstream_status.EXPECTED,
            values=of_model,
        )
        file.results.append(result)
