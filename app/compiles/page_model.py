"""A run's compiles as a list, and one compile with every recorded field."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from compileboard.app.compiles import run_queries as compiles
from compileboard.app.compiles.model import (
    CompileEntry,
    CompileGroup,
    build_entries,
    group_compiles,
)
from compileboard.app.compiles.run_queries import Compilation, CompileFilter, CompileRow
from compileboard.app.core.labels import (
    Label,
    PhaseShare,
    describe_outcome,
    list_shares,
    sum_phases,
)
from compileboard.app.core.page import Page
from compileboard.app.core.rows import list_rows
from compileboard.app.cuda_graphs.model import (
    FunctionGraphs,
    RecordingReason,
    list_functions,
    list_reasons,
)
from compileboard.app.cuda_graphs.run_queries import COMPILE_GRAPHS_SQL, MAX_GRAPHS, CudaGraph
from compileboard.app.reasons import run_queries as reasons
from compileboard.app.reasons.run_queries import GraphBreakRow, RecompileRow
from compileboard.app.runs import failures, trace_files
from compileboard.app.runs.failures import CacheLookup, CudagraphSkip, FailureRow, UnfinishedCompile
from compileboard.app.runs.model import CHARTED
from compileboard.app.runs.rows import RunRow
from compileboard.app.runs.run_queries import list_configs
from compileboard.collectors.contract.metric_fields import FIELDS

MAX_EVENTS, MAX_FAILURES = 100, 50  # Limits on the lists of one compile.
_MAX_CONFIGS = 10_000  # texts of one run; links to more are left out


@dataclass(frozen=True)
class CompilesScreen:
    run: RunRow
    page: Page[CompileRow]
    count: int
    longest: Sequence[CompileRow]
    outcomes: Mapping[str, int]

    @cached_property
    def highest_us(self) -> int:
        return max(
            (sum_phases(row.phases) or 0 for row in (*self.longest, *self.page.rows)), default=0
        )

    @cached_property
    def groups(self) -> list[CompileGroup]:
        return group_compiles(self.longest)

    @cached_property
    def rows(self) -> list[tuple[CompileRow, list[PhaseShare]]]:
        highest_us = self.highest_us
        return [(row, list_shares(row.phases, highest_us)) for row in self.page.rows]


def build_compiles(
    reader: sqlite3.Connection,
    run: RunRow,
    selection: CompileFilter | None = None,
    *,
    sort: str = "started.asc",
    cursor: str | None = None,
    limit: int = 50,
) -> CompilesScreen:
    page = compiles.list_compiles(reader, run.id, selection, sort=sort, cursor=cursor, limit=limit)
    if sort == "time" and cursor is None and limit >= CHARTED:
        longest = page.rows[:CHARTED]
    else:
        longest = compiles.list_compiles(reader, run.id, selection, sort="time", limit=CHARTED).rows
    return CompilesScreen(
        run=run,
        page=page,
        count=compiles.count_compiles(reader, run.id, selection),
        longest=longest,
        outcomes=compiles.count_outcomes(reader, run.id),
    )


@dataclass(frozen=True)
class CompileScreen:
    """One compile with all its data.

    `chain` has all compiles of its frame, `older` is the compile from which it was recompiled,
    `before` and `after` are its neighbours in time. `stretch_us` is its interval on the timeline.
    """

    compile: CompileRow
    outcome: Label
    unfinished: UnfinishedCompile | None
    records: Sequence[Compilation]
    chain: Sequence[CompileRow]
    before: CompileRow | None
    after: CompileRow | None
    entry: CompileEntry
    recompiles: Sequence[RecompileRow]
    graph_breaks: Sequence[GraphBreakRow]
    failures: Sequence[FailureRow]
    cache_lookups: Sequence[CacheLookup]
    cudagraphs: Sequence[CudaGraph]
    cudagraph_skips: Sequence[CudagraphSkip]
    stack: Sequence[dict[str, Any]]
    stretch_us: tuple[int, int] | None
    config_hashes: Set[str]  # available configuration texts of its run

    @property
    def older(self) -> CompileRow | None:
        return next(
            (other for other in self.chain if other.compile_id == self.compile.recompiled_from),
            None,
        )

    @property
    def restart_reasons(self) -> list[str]:
        return [
            reason
            for record in self.records
            for reason in record.metrics.get("restart_reasons") or []
        ]

    @cached_property
    def cudagraph_functions(self) -> list[FunctionGraphs]:
        return list_functions(self.cudagraphs)

    @property
    def cudagraph_reasons(self) -> list[RecordingReason]:
        return list_reasons(self.cudagraph_functions)

    @property
    def phases_us(self) -> int | None:
        return sum_phases(self.compile.phases)


def build_compile(reader: sqlite3.Connection, run: RunRow, key: int) -> CompileScreen | None:
    row = compiles.get_compile(reader, run.id, key)
    if row is None:
        return None
    is_live = run.state == "running"
    records = compiles.list_records(reader, key=row.id)
    stretch = trace_files.get_stretch(reader, row.id)
    return CompileScreen(
        compile=row,
        outcome=describe_outcome(row.outcome, is_live),
        unfinished=next(iter(failures.list_unfinished(reader, run, row.id)), None),
        records=records,
        chain=compiles.list_chain(reader, row.process_id, row.generation, row.frame_id),
        before=compiles.get_beside(reader, row, run.id, False),
        after=compiles.get_beside(reader, row, run.id, True),
        entry=build_entries([row], trace_files.list_steps(reader, [row.id]))[0],
        recompiles=reasons.list_compile_recompiles(reader, [row.id]),
        graph_breaks=list_rows(
            GraphBreakRow, reasons.COMPILE_BREAKS_SQL, reader, key=row.id, limit=MAX_EVENTS
        ),
        failures=list_rows(
            FailureRow, failures.COMPILE_FAILURES_SQL, reader, key=row.id, limit=MAX_FAILURES
        ),
        cache_lookups=list_rows(
            CacheLookup, failures.COMPILE_LOOKUPS_SQL, reader, key=row.id, limit=MAX_EVENTS
        ),
        cudagraphs=list_rows(CudaGraph, COMPILE_GRAPHS_SQL, reader, key=row.id, limit=MAX_GRAPHS),
        cudagraph_skips=list_rows(
            CudagraphSkip, failures.COMPILE_SKIPS_SQL, reader, key=row.id, limit=MAX_EVENTS
        ),
        stack=trace_files.list_stack(compiles.get_start(reader, row, records)),
        stretch_us=stretch if stretch is not None and stretch[0] < stretch[1] else None,
        config_hashes={use.config_hash for use in list_configs(reader, run.id, limit=_MAX_CONFIGS)},
    )


def make_compilation(record: Compilation) -> dict[str, Any]:
    """Return one CompilationMetrics record, every metric under torch's name at the top level.

    If one of our fields has the same name, torch's value is used; the compile ID is that of the
    record's envelope. Every known field is present, because hooks send only those with a value.
    """
    row = dict(vars(record))
    metrics: Mapping[str, Any] = row.pop("metrics")
    recorded = {
        name: value for name, value in metrics.items() if value is not None or name not in row
    }
    if record.compile_id is not None:
        recorded.pop("compile_id", None)
    return row | {name: None for name in FIELDS if name not in row} | recorded
