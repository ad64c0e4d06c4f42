"""The data of a run that HTML and Markdown reports show."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace

from compileboard.app.aot.model import AotScreen, build_aot
from compileboard.app.benchmarks.model import ReportedResults, build_reported_results
from compileboard.app.caches.model import CachesScreen, build_caches
from compileboard.app.compiles.page_model import CompilesScreen, build_compiles
from compileboard.app.core.page import Page
from compileboard.app.cuda_graphs.model import CudaGraphsScreen, build_cuda_graphs
from compileboard.app.guards.model import RunGuardsScreen, build_guards
from compileboard.app.ranks.model import RanksScreen, build_ranks
from compileboard.app.reasons.model import (
    RunGraphBreaksScreen,
    RunRecompilesScreen,
    build_distinct_breaks,
    build_recompiles,
)
from compileboard.app.reasons.run_queries import RecompileRow
from compileboard.app.reports.redaction import without_source
from compileboard.app.runs.failures import FailureRow, list_failures
from compileboard.app.runs.model import (
    EnvironmentScreen,
    RunHeader,
    RunSummaryScreen,
    build_environment,
    build_header,
    build_summary,
)
from compileboard.app.runs.rows import RunRow
from compileboard.app.runs.run_queries import RunDetail, RunFeatures
from compileboard.app.runs.trace_files import RejectedLines, sum_rejects
from compileboard.app.shapes.model import RunShapesScreen, build_run_shapes
from compileboard.app.stacks.model import StacksScreen, build_stacks
from compileboard.app.steps.model import StepsScreen, WindowView, load_steps
from compileboard.app.steps.run_queries import list_windows
from compileboard.app.timeline.model import StripLane, TimelineScreen, build_timeline, read_strips

# Limits of a page's lists in a report; JSON and CSV have everything.
MAX_COMPILES = 200
MAX_BREAKS = 200
MAX_CHAINS = 30
MAX_FAILURES = 20
MAX_LOOKUPS = 200
MAX_EXPLAINED = 5
MAX_BLOCKS = 60
MAX_SETS = 40
MAX_SHAPES = 8
MAX_GRAPHS = 40
MAX_WINDOWS = 4


@dataclass(frozen=True)
class Contents:
    header: RunHeader
    source: bool
    written_us: int
    summary: RunSummaryScreen
    compiles: CompilesScreen
    breaks: RunGraphBreaksScreen
    recompiles: RunRecompilesScreen
    failures: Page[FailureRow]
    caches: CachesScreen
    cuda_graphs: CudaGraphsScreen | None
    steps: StepsScreen | None
    environment: EnvironmentScreen
    results: ReportedResults | None
    ranks: RanksScreen | None
    timeline: TimelineScreen | None
    strips: Sequence[StripLane]
    stacks: StacksScreen | None
    guards: RunGuardsScreen | None
    shapes: RunShapesScreen | None
    aot: AotScreen | None
    rejects: Sequence[RejectedLines]

    @property
    def detail(self) -> RunDetail:
        return self.header.detail

    @property
    def run(self) -> RunRow:
        return self.header.run

    @property
    def features(self) -> RunFeatures:
        return self.header.features

    @property
    def source_note(self) -> str:
        if not self.detail.keep_source:
            return (
                "No line of the program's source code is inside: the run was recorded with "
                "--no-source."
            )
        if not self.source:
            return "The lines of the program's source code were left out of this report."
        return (
            "This report has lines of the program's source code inside; --no-source "
            "(?source=0) leaves them out."
        )


def read_contents(
    reader: sqlite3.Connection, detail: RunDetail, source: bool, written_us: int, stale_after_s: int
) -> Contents:
    run = detail.run
    header = build_header(reader, detail, written_us, stale_after_s)
    has = header.features
    explained = MAX_EXPLAINED if has.has_artifacts else 0
    timeline = build_timeline(reader, run.id) if has.has_spans else None
    contents = Contents(
        header=header,
        source=source,
        written_us=written_us,
        summary=build_summary(reader, run),
        compiles=build_compiles(reader, run, sort="time", limit=MAX_COMPILES),
        breaks=build_distinct_breaks(reader, run.id, limit=MAX_BREAKS),
        recompiles=build_recompiles(reader, run, limit=MAX_CHAINS),
        failures=list_failures(reader, run.id, limit=MAX_FAILURES),
        caches=build_caches(reader, run.id, limit=MAX_LOOKUPS, explain_count=explained),
        cuda_graphs=build_cuda_graphs(reader, run) if has.has_cuda_graphs else None,
        steps=load_steps(reader, run.id, list_windows(reader, run.id, limit=MAX_WINDOWS).rows)
        if has.has_steps
        else None,
        environment=build_environment(reader, run.id),
        results=build_reported_results(reader, run.id),
        ranks=build_ranks(reader, run.id) if has.has_ranks else None,
        timeline=timeline,
        strips=read_strips(reader, timeline) if timeline else (),
        stacks=build_stacks(reader, run.id, max_count=MAX_BLOCKS) if has.has_stacks else None,
        guards=build_guards(reader, run.id, limit=MAX_SETS) if has.has_guards else None,
        shapes=build_run_shapes(reader, run.id, limit=MAX_SHAPES) if has.has_symbols else None,
        aot=build_aot(reader, run.id, limit=MAX_GRAPHS) if has.has_aot else None,
        rejects=sum_rejects(reader, run.id),
    )
    return contents if source else _leave_out_source(contents)


def _leave_out_source(contents: Contents) -> Contents:
    ranks, stacks = contents.ranks, contents.stacks
    steps = contents.steps
    reduced = replace(
        contents,
        ranks=None,
        timeline=None,
        strips=(),
        stacks=None,
        guards=None,
        aot=None,
        steps=None,
    )
    return replace(
        without_source(reduced),
        ranks=None
        if ranks is None
        else replace(
            ranks, reasons=_hide_source(ranks.reasons), partial=_hide_source(ranks.partial)
        ),
        steps=None
        if steps is None
        else replace(steps, views=tuple(map(_hide_view_source, steps.views))),
        timeline=contents.timeline,
        strips=contents.strips,
        stacks=None if stacks is None else replace(stacks, codes={}),
        guards=contents.guards,
        aot=contents.aot,
    )


def _hide_view_source(view: WindowView) -> WindowView:
    costs = tuple(without_source(row) for row in view.costs)
    parts = tuple(
        replace(row, compile=row.compile and without_source(row.compile)) for row in view.parts
    )
    return replace(view, costs=costs, parts=parts)


def _hide_source(rows: Sequence[RecompileRow]) -> list[RecompileRow]:
    return [without_source(row) for row in rows]
