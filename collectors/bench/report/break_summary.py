"""The distinct graph breaks of a bench run with their models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from compileboard.collectors.bench.report.progress import plain
from compileboard.collectors.contract.library_names import is_harness_step
from compileboard.collectors.store.connection import open_reader

SHORT_LIST, MOST = 10, 1000  # how many are listed unasked, and at most
LIST_BREAKS = """
select distinct_breaks.gb_id,
  distinct_breaks.reason,
  functions.file,
  distinct_breaks.line,
  count(*) as break_count,
  json_group_array(distinct series.model) as models
from graph_breaks
  join processes on processes.id = graph_breaks.process_id
  join results on results.run_id = graph_breaks.run_id and results.task = processes.task
  join series on series.id = results.series_id
  join distinct_breaks on distinct_breaks.id = graph_breaks.distinct_id
  left join functions on functions.id = distinct_breaks.function_id
where graph_breaks.run_id = :run
group by distinct_breaks.id
order by count(distinct series.model) desc, break_count desc, distinct_breaks.id
limit :most
"""


@dataclass(frozen=True)
class BenchBreak:
    gb_id: str | None
    reason: str
    file: str | None
    line: int | None
    break_count: int
    models: tuple[str, ...]


def list_breaks(database: str, run_id: str) -> list[BenchBreak]:
    with closing(open_reader(database)) as reader:
        rows = reader.execute(LIST_BREAKS, {"run": run_id, "most": MOST}).fetchall()
    return [
        BenchBreak(**{**dict(row), "models": tuple(sorted(json.loads(row["models"])))})
        for row in rows
    ]


def format_breaks(breaks: Sequence[BenchBreak], *, explain: bool) -> list[str]:
    ours = sum(row.break_count for row in breaks if is_harness_step(row.file))
    breaks = [row for row in breaks if not is_harness_step(row.file)]
    if not breaks and not ours:
        return []
    shown = breaks if explain else breaks[:SHORT_LIST]
    total = sum(bench_break.break_count for bench_break in breaks)
    beside = (
        f" ({ours} more in bench's own training step, as in upstream's harness)" if ours else ""
    )
    lines = [
        "",
        f"distinct graph breaks: {len(breaks)}, by reason and line; {total} in all{beside}",
    ]
    for bench_break in shown:
        reason = (bench_break.reason.strip().splitlines() or [""])[0]
        location = (
            f"{bench_break.file}:{bench_break.line}"
            if bench_break.file and bench_break.line
            else bench_break.file or "no place recorded"
        )
        lines.append(plain(f"  {bench_break.gb_id + ' ' if bench_break.gb_id else ''}{reason}"))
        lines.append(
            plain(
                f"    {location}, {bench_break.break_count} times in {_models(bench_break.models)}"
            )
        )
    if len(shown) < len(breaks):
        lines.append(f"  and {len(breaks) - len(shown)} more, which --explain lists")
    return lines


def _models(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} models: {', '.join(names)}"
