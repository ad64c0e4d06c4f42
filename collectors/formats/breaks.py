"""Rows of upstream's graph-breaks files, as torch's own text of a break, for the decoder that the hooks use.

Source: benchmarks/dynamo/common.py run_one_model, torch/_dynamo/symbolic_convert.py log_graph_break.
"""

from __future__ import annotations

import re

from compileboard.collectors.decode.breaks import parse_break
from compileboard.collectors.decode.paths import PathNamer
from compileboard.collectors.events import GraphBroke
from compileboard.collectors.formats.csv_text import Row
from compileboard.collectors.formats.results import BreakRow, ResultFile

_FRAME = re.compile(r"<FrameSummary file (?P<file>.*?), line (?P<line>\d{1,9}) in (?P<name>.*?)>(?=, <FrameSummary |$)")


def read_break(file: ResultFile, row: Row) -> None:
    """Read one row of model, reason and stack."""
    model, reason = row.cells.get("model", "").strip(), _unquote(row.cells.get("reason", ""))
    if not model or not reason.strip():
        file.rejects.add("bad_row", row.line, model or reason)
        return
    said = _unquote(row.cells.get("user_stack", ""))
    stack = tuple((it["file"], int(it["line"]), it["name"]) for it in _FRAME.finditer(said))
    file.breaks.append(BreakRow(model, reason, stack, row.line))


def _unquote(cell: str) -> str:
    """Take off the second pair of quotes that upstream puts around a text."""
    return cell[1:-1] if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def break_event(row: BreakRow, namer: PathNamer, process_id: str, sequence: int, time_us: int) -> GraphBroke:
    """Make an event of a row; the file does not tell the compile, the source line or what became of the frame."""
    innermost = row.stack[-1] if row.stack else None
    place = f"Graph break in user code at {innermost[0]}:{innermost[1]}\n" if innermost else ""
    frames = "".join(f'  File "{file}", line {line}, in {name}\n' for file, line, name in row.stack)
    text = f"{place}Graph Break Reason: {row.reason}\n" + (f"User code traceback:\n{frames}" if frames else "")
    return GraphBroke(process_id, sequence, time_us, **parse_break(text, namer))
