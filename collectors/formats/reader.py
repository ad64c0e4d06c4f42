"""Read PyTorch's result files: CSV, JSON and graph-break tables.

Source: benchmarks/dynamo/common.py run_one_model, torch/_dynamo/symbolic_convert.py
log_graph_break.
"""

from __future__ import annotations

import re

from compileboard.collectors.contract.events import BenchMeasured, GraphBroke
from compileboard.collectors.contract.result_columns import ALIASES
from compileboard.collectors.decode.graph_breaks import parse_break
from compileboard.collectors.decode.paths import PathNamer
from compileboard.collectors.formats import upstream_status
from compileboard.collectors.formats.csv_text import CsvRow, clean, decode, read_rows, read_table
from compileboard.collectors.formats.database import METRICS_FILE, read_database
from compileboard.collectors.formats.file_names import read_name, read_timings_name, stem_of
from compileboard.collectors.formats.input_tables import IDENTITY, read_row
from compileboard.collectors.formats.raw_timings import is_npy, read_timings, to_repeats
from compileboard.collectors.formats.results import (
    Addition,
    BreakRow,
    ResultFile,
    count_lines,
    task_of,
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

    `suite` is used where no column names one.
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
    file.additions.append(Addition(named[1], None, repeats=repeats))


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
        file.mark({name: _precise(cell) for name, cell in row.cells.items()})
        if file.kind == "graph_breaks":
            read_break(file, row)
        elif file.kind == "compilation_metrics":
            _read_phases(file, row)
        elif file.kind == "hud" and "metric" in row.cells:
            read_row(file, _spread(row), suite)
        elif file.kind not in ("summary", "graph_breaks_deduped"):
            read_row(file, row, suite)


def _find_separator(columns: list[str], stem: str) -> str | None:
    for other in (";", "\t", "|"):
        cells = [cell.strip() for cell in columns[0].split(other)] if len(columns) == 1 else []
        if len(cells) > 1 and _classify(cells, stem) != "unknown":
            return other
    return None


def _precise(cell: str) -> str:
    """Normalise a number so that padding does not change the record's identity."""
    return "" if upstream_status.read_number(cell) == 0 else cell


def _spread(row: CsvRow) -> CsvRow:
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

    PyTorch writes every row under the header of the first model, whatever its own phases are. A
    padded row had other phases, so its numbers are dropped; its JSON twin has their names.
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
        file.additions.append(Addition(model, row.cells.get("tag") or None, phases_s=phases))


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
    for name, (number, line, of_model) in measured.items():
        file.results.append(_pr_time(file, suite, name, number, line, of_model))


def _pr_time(
    file: ResultFile, suite: str | None, name: str, number: int, line: int, values: dict[str, float]
) -> BenchMeasured:
    return BenchMeasured(
        process_id="",
        sequence=number,
        time_us=0,
        suite=suite or "pr_time_benchmarks",
        model=clean(name),
        experiment=file.kind,
        status="measured" if file.kind == "pr_time" else "not_run",
        reason=None if file.kind == "pr_time" else upstream_status.EXPECTED,
        values=values,
        task=task_of(file.stem, name),
        origin=f"{file.name}:{line}",
    )
