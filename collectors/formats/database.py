"""Read the cells of CSV files, and results in the JSON format of the PyTorch HUD benchmark
database.

That JSON is one object, an array, or one object per line.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from compileboard.collectors.contract.rejects import Rejects
from compileboard.collectors.formats import result_file as upstream_status
from compileboard.collectors.formats.result_file import (
    ExtraMeasurements,
    FileNameInfo,
    ResultFile,
    read_name,
    stem_of,
)

_LINE = re.compile(
    r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+"
)  # not str.splitlines: a cell may hold its other line ends
_CONFLICT = re.compile(r"(?:<{7}|>{7}|\|{7})(?: |$)|={7}$")
# How a row begins that has texts of several lines: what follows a damaged one is found again by
# this alone.
_TEXT_ROW = re.compile(r'[^",\s][^",]*,"')
_MAX_ROW_LINES = 5_000
# Each is looked for up to _MAX_ROW_LINES; a file that is full of them ends a row at its line
_MAX_OPEN_QUOTES = 20
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


@dataclass(frozen=True)
class CsvRow:
    line: int
    cells: dict[str, str]


def clean(text: str) -> str:
    """Replace lone surrogates and NUL characters, which some databases reject."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def decode(data: bytes, rejects: Rejects) -> str:
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        text = data.decode(encoding, "replace")
        bad = max(1, text.count("\N{REPLACEMENT CHARACTER}"))
        rejects.add("bad_utf8", line, data[max(0, error.start - 40) : error.start + 40], bad)
        return text


def read_rows(text: str, rejects: Rejects) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and cells of each row, without blank lines and merge-conflict
    markers.
    """
    lines = _LINE.findall(text)
    at = open_quotes = width = 0
    has_texts = False
    while at < len(lines):
        line = lines[at].rstrip("\r\n")
        if not line.strip():
            at += 1
            continue
        if _CONFLICT.match(line):
            rejects.add("conflict_marker", at + 1, line)
            at += 1
            continue
        most = 1 if open_quotes >= _MAX_OPEN_QUOTES else _MAX_ROW_LINES
        cells, taken = _take_field(lines, at, most)
        # A quote that is never closed takes what follows with it: that is not one row, and costs
        # its own line only.
        if cells is None or (taken > 1 and width and len(cells) != width):
            open_quotes += taken > 1 or cells is None
            cells, taken = _take_field(lines, at, 1) if cells is not None else (None, 1)
        if cells is None:
            begun = at
            at += 1
            while has_texts and at < len(lines) and not _TEXT_ROW.match(lines[at]):
                at += 1
            rejects.add(
                "truncated" if has_texts and at == len(lines) else "bad_row", begun + 1, line
            )
            continue
        has_texts |= not width and "reason" in cells
        width = width or len(cells)
        yield at + 1, [clean(cell) for cell in cells]
        at += taken


def _take_field(lines: Sequence[str], at: int, max_length: int) -> tuple[list[str] | None, int]:
    taken, is_open = 1, lines[at].count('"') % 2
    while is_open and taken < max_length and at + taken < len(lines):
        is_open ^= lines[at + taken].count('"') % 2
        taken += 1
    reader = csv.reader(lines[at : at + taken], strict=True)
    try:
        return next(
            reader
        ), reader.line_num  # a quote inside a cell that has none around it opens nothing
    except (csv.Error, StopIteration):
        return None, taken


def read_table(text: str, rejects: Rejects) -> tuple[list[str], Iterator[CsvRow]]:
    """Return the columns and rows of a table.

    A row with another number of cells than the header is rejected, because its columns cannot be
    assigned. A repeated header, as in concatenated files, applies from there on.
    """
    rows = read_rows(text, rejects)
    first = next(rows, None)
    if first is None:
        return [], iter(())
    columns = _name_columns(first[1], first[0], rejects)
    return columns, _iterate_rows(rows, columns, text, rejects)


def _iterate_rows(
    rows: Iterator[tuple[int, list[str]]], columns: list[str], text: str, rejects: Rejects
) -> Iterator[CsvRow]:
    last_line = len(_LINE.findall(text))
    whole = text.endswith(("\n", "\r"))
    for line, cells in rows:
        if [cell.strip() for cell in cells[:2]] == columns[:2] and len(cells) > 1:
            columns = _name_columns(cells, line, rejects)
        elif len(cells) == len(columns):
            yield CsvRow(line, dict(zip(columns, cells, strict=True)))
        elif len(cells) < len(columns) and line == last_line and not whole:
            rejects.add("truncated", line, ",".join(cells))
        else:
            rejects.add("bad_row", line, ",".join(cells))


def _name_columns(cells: list[str], line: int, rejects: Rejects) -> list[str]:
    columns: dict[str, None] = {}
    counts: dict[str, int] = {}
    for cell in cells:
        name = base = cell.strip()
        while name in columns:
            counts[base] = counts.get(base, 1) + 1
            name = f"{base} ({counts[base]})"
        if name != base:
            rejects.add("duplicate_column", line, base)
        columns[name] = None
    return list(columns)


_BETWEEN = re.compile(r"[\s,\[\]\ufeff]*")
_DECODER = json.JSONDecoder()


def read_objects(text: str, rejects: Rejects) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each object and the line at which it begins.

    Arrays are unpacked. Anything that is not an object is skipped to the end of its line. A
    truncated last object is counted separately, because a longer copy of the file completes it.
    """
    at, line, counted = 0, 1, 0
    while True:
        gap = _BETWEEN.match(text, at)
        at = gap.end() if gap else at
        if at >= len(text):
            return
        line += text.count("\n", counted, at)
        counted = at
        try:
            value, end = _DECODER.raw_decode(text, at)
        except ValueError:
            value, end = None, at
        except (
            RecursionError
        ):  # nobody's results are that deep, and each deeper line would be tried again
            rejects.add("bad_json", line, text[at : at + 200])
            return
        if isinstance(value, dict):
            yield line, value
            at = end
            continue
        stop = text.find("\n", at)
        kind = "truncated" if stop < 0 and value is None and text[at] == "{" else "bad_json"
        rejects.add(kind, line, text[at : at + 200])
        if stop < 0:
            return
        at = stop


METRICS_FILE = "_compilation_metrics"
_PLAIN = (str, int, float, bool)
_ABOUT_RUN = {
    "head_sha": "commit",
    "head_branch": "branch",
    "timestamp": "timestamp",
    "workflow_id": "workflow",
    "repo": "repository",
}
_EXPERIMENTS = ("accuracy", *upstream_status.SPEEDUPS, "coverage", "tolerance")


class _PendingResult:
    def __init__(self, number: int, line: int, record: dict[str, Any]) -> None:
        self.number, self.line, self.record = number, line, record
        self.numbers: dict[str, float] = {}
        self.texts: dict[str, str] = {}
        self.lists: dict[str, list[float]] = {}


def read_database(file: ResultFile, text: str, suite: str | None) -> None:
    pending: dict[tuple[Any, ...], _PendingResult] = {}
    for line, record in read_objects(text, file.rejects):
        if not file.has_room(line):
            break
        metric, model = _get_part(record, "metric"), _get_part(record, "model")
        name, model_name = metric.get("name"), model.get("name")
        if not isinstance(name, str) or not isinstance(model_name, str) or not model_name:
            file.rejects.add("bad_record", line, str(record)[:200])
            continue
        values = _list_values(metric)
        file.mark(
            {
                "model": model_name,
                "metric": name,
                "value": values[0] if values else None,
                "others": values[1:] or None,
            }
        )
        key = _result_key(file, record)
        pending_result = pending.setdefault(key, _PendingResult(file.row_count, line, record))
        if name in pending_result.numbers or name in pending_result.texts:
            file.rejects.add("duplicate_row", line, f"{model_name}: {name}")
            continue
        _add_values(file, pending_result, name, values, line)
    for result in pending.values():
        _finish_result(file, result, suite)


def _get_part(record: dict[str, Any], name: str) -> dict[str, Any]:
    part = record.get(name)
    return part if isinstance(part, dict) else {}


def _get_extra(record: dict[str, Any]) -> dict[str, Any]:
    return _get_part(_get_part(record, "benchmark"), "extra_info")


def _list_values(metric: dict[str, Any]) -> list[Any]:
    # A text is no number, so it stands in extra_info.
    for part in (metric, _get_part(metric, "extra_info")):
        values = part.get("benchmark_values")
        if isinstance(values, list) and values:
            return values
        if isinstance(values, _PLAIN):
            return [values]
    return []


def _result_key(file: ResultFile, record: dict[str, Any]) -> tuple[Any, ...]:
    benchmark, model, extra = (
        _get_part(record, "benchmark"),
        _get_part(record, "model"),
        _get_extra(record),
    )
    parts = (
        *(benchmark.get(name) for name in ("name", "mode", "dtype")),
        *(model.get(name) for name in ("name", "backend", "origins")),
        *(
            extra.get(name)
            for name in ("device", "arch", "batch_size", "output", "tag", "is_dynamic")
        ),
        *(extra.get(name) for name in _EXPERIMENTS),
        *(record.get(name) for name in _ABOUT_RUN),
        # HUD's own merge keeps accuracy and performance of a model apart by their files, which a
        # dump has not.
        _get_part(record, "metric").get("name") == "accuracy" if not extra.get("output") else None,
    )
    return tuple(str(part) for part in parts)


def _add_values(
    file: ResultFile, pending_result: _PendingResult, name: str, values: list[Any], line: int
) -> None:
    name = clean(name)
    numbers = [value for value in map(_read_number, values) if value is not None]
    fault = next(
        (fault for value in values if (fault := upstream_status.find_fault(name, str(value)))), None
    )
    if fault:
        pending_result.texts[name] = clean(str(values[0]))
        file.rejects.add(fault, line, f"{name}: {values[0]}")
    elif len(numbers) == len(values) and numbers:
        pending_result.numbers[name] = sum(numbers) / len(numbers)
        if len(numbers) > 1:
            pending_result.lists[name] = numbers  # HUD shows their average; the spread is kept
    elif values:
        pending_result.texts[name] = clean(str(values[0]))
    else:
        file.rejects.add("bad_record", line, f"{name}: no value")


def _read_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        return upstream_status.read_number(value)
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _finish_result(file: ResultFile, pending_result: _PendingResult, suite: str | None) -> None:
    extra, model = _get_extra(pending_result.record), _get_part(pending_result.record, "model")
    output = _as_text(extra.get("output"))
    # A table's tag column is a record too; that of upstream's newer files stands beside the
    # settings as well.
    tag = _as_text(pending_result.texts.pop("tag", None)) or _as_text(extra.get("tag"))
    model_name = clean(str(model["name"]))
    if file.kind == "compilation_metrics":
        file.additions.append(ExtraMeasurements(model_name, tag, phases_s=pending_result.numbers))
        return
    named = read_name(output or file.name)
    accuracy = pending_result.texts.pop("accuracy", None)
    experiment = _find_experiment(extra, named, accuracy, pending_result)
    numbers = {
        name: value
        for name, value in pending_result.numbers.items()
        if value or name not in upstream_status.FLOATS
    }
    skip = pending_result.texts.pop(upstream_status.SKIP_COLUMN, None)
    status, reason = ("skipped", skip) if skip else _find_status(experiment, accuracy, numbers)
    if status != "measured" and experiment != "accuracy":
        numbers = {name: value for name, value in numbers.items() if value}
    benchmark = _get_part(pending_result.record, "benchmark")
    given = {
        "model": model_name,
        "tag": tag,
        "mode": _as_text(benchmark.get("mode")),
        "dtype": _as_text(benchmark.get("dtype")),
        "device": _as_text(extra.get("device")),
        "hardware": _as_text(extra.get("arch")) or _find_gpu(pending_result.record),
        "backend": _as_text(model.get("backend")),
        "dynamic": any(
            extra.get(name) is True
            for name in ("dynamic_shapes", "dynamic_batch_only", "is_dynamic")
        ),
        "batch_size": _read_count(extra.get("batch_size")),
        "world_size": _read_count(extra.get("world_size")),
    }
    result = file.make_result(
        given,
        named,
        stem=stem_of(output) if output else file.stem,
        number=pending_result.number,
        line=pending_result.line,
        suite=_find_suite(pending_result.record, suite, named),
        experiment=experiment,
        status=status,
        reason=reason,
        accuracy=accuracy if experiment == "accuracy" else None,
        values=numbers,
        facts=_collect_facts(pending_result, extra, tag),
    )
    file.add(result, pending_result.line)


def _read_count(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 < value < 1 << 40 else None


def _find_gpu(record: dict[str, Any]) -> str | None:
    runners = record.get("runners")
    first = runners[0] if isinstance(runners, list) and runners else None
    return _as_text(first.get("gpu_info")) if isinstance(first, dict) else None


def _find_suite(record: dict[str, Any], suite: str | None, named: FileNameInfo) -> str:
    origins = _get_part(record, "model").get("origins")
    origin = _as_text(origins[0]) if isinstance(origins, list) and origins else None
    benchmark = _as_text(_get_part(record, "benchmark").get("name"))
    other = benchmark if benchmark != "TorchInductor" else None
    return origin or suite or named.suite or other or ""


def _find_experiment(
    extra: dict[str, Any], named: FileNameInfo, accuracy: str | None, pending_result: _PendingResult
) -> str:
    flagged = next((name for name in _EXPERIMENTS if extra.get(name) is True), None)
    if accuracy is not None:
        return "accuracy"
    if flagged or named.experiment:
        return str(flagged or named.experiment)
    if any(name.endswith("instruction_count") for name in pending_result.numbers):
        return "pr_time"
    return "performance"


def _find_status(
    experiment: str, accuracy: str | None, numbers: dict[str, float]
) -> tuple[str, str | None]:
    if experiment == "accuracy":
        return upstream_status.read_status(accuracy or "")
    if any(value for name, value in numbers.items() if name not in upstream_status.COUNTS):
        return "measured", None
    return "failed", upstream_status.UNKNOWN_FAILURE


def _collect_facts(
    pending_result: _PendingResult, extra: dict[str, Any], tag: str | None
) -> dict[str, Any]:
    record = pending_result.record
    facts: dict[str, Any] = {
        ours: clean(str(record[name]))
        for name, ours in _ABOUT_RUN.items()
        if record.get(name) not in (None, "")
    }
    if tag:
        facts["tag"] = tag
    settings = {
        clean(str(key)): clean(value) if isinstance(value, str) else value
        for key, value in extra.items()
        if isinstance(value, _PLAIN) and value not in (False, "")
    }
    others = {
        "settings": settings,
        "columns": pending_result.texts,
        "value_lists": pending_result.lists,
    }
    facts |= {name: value for name, value in others.items() if value}
    description = _get_part(record, "dependencies")
    if description:
        facts["dependencies"] = clean(str(description))[:2_000]
    return facts


def _as_text(value: Any) -> str | None:
    return clean(value).strip()[:500] or None if isinstance(value, str) else None
