"""What a report for people says of a run: read once, bounded, the same for HTML and Markdown."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compileboard.app.analysis.comparison import environment
from compileboard.app.analysis.compiles import ChainLink, build_steps, shorten_steps
from compileboard.app.analysis.runs.diagnosis import Fix, rank_fixes, read_evidence
from compileboard.app.queries.run import compiles, graph_breaks, recompiles
from compileboard.app.queries.run import failures as run_events
from compileboard.app.queries.run import run as run_detail
from compileboard.app.queries.run.failures import count_unfinished
from compileboard.app.queries.run.run import RunDetail, RunFeatures, get_run_features
from compileboard.app.reports.redaction import select_source, without_source
from compileboard.app.reports.run.tables import ShownResults, read_shown
from compileboard.app.reports.run.trace_sections import Section, read_sections

MOST_COMPILES = 200
MOST_FINDINGS = 100
MOST_BREAKS = 200
MOST_CAUSES = 200
MOST_CHAINS = 30
MOST_STEPS = 20
MOST_FAILURES = 20
MOST_SKIPS = 200
MOST_PROCESSES = 64


@dataclass(frozen=True)
class ShownChain:
    """Hold one frame's recompiles and the steps that a report shows of them."""

    chain: recompiles.Chain
    steps: Sequence[ChainLink]
    left_out: int


@dataclass(frozen=True)
class Contents:
    """Hold all that a report for people shows; each list has what costs most first and may be cut."""

    detail: RunDetail
    source: bool
    written_us: int
    findings: Sequence[Fix]
    raised_count: int
    unfinished_count: int
    phases: compiles.Phases
    compiles: Sequence[compiles.CompileRow]
    breaks: Sequence[graph_breaks.RunDistinctBreak]
    distinct_count: int
    causes: Sequence[recompiles.RunCause]
    limits: Sequence[recompiles.LimitHit]
    chains: Sequence[ShownChain]
    more_chains: bool
    failures: Sequence[run_events.FailureRow]
    more_failures: bool
    cache_results: Sequence[run_events.CacheResult]
    skips: Sequence[run_events.CudagraphSkip]
    changes: Sequence[environment.SettingChange]
    changed_recorded: bool
    processes: Sequence[run_detail.ProcessRow]
    explored: RunFeatures
    sections: Mapping[str, Section]
    results: ShownResults | None

    @property
    def run(self) -> Any:
        """Return the run's row."""
        return self.detail.run

    @property
    def source_note(self) -> str:
        """Say in one sentence whether lines of the program are in this report."""
        if not self.detail.keep_source:
            return "No line of the program's source code is inside: the run was recorded with --no-source."
        if not self.source:
            return "The lines of the program's source code were left out of this report."
        return "This report has lines of the program's source code inside; --no-source (?source=0) leaves them out."


def read_contents(connection: sqlite3.Connection, detail: RunDetail, source: bool, written_us: int) -> Contents:
    """Read what a report for people shows of a run."""
    run = detail.run
    explored = get_run_features(connection, run.id)
    changed = run_detail.list_changed_configs(connection, run.id)
    phases = compiles.get_phases(connection, run.id)
    evidence = read_evidence(connection, run)
    evidence = evidence if source else without_source(evidence)
    failures = run_events.list_failures(connection, run.id, limit=MOST_FAILURES)
    cache_results = select_source(run_events.count_cache_results(connection, run.id), source)
    chains, more_chains = _read_chains(connection, run.id, source)
    return Contents(
        detail=detail if source else without_source(detail),
        source=source,
        written_us=written_us,
        findings=rank_fixes(evidence)[:MOST_FINDINGS],
        raised_count=run_events.count_failures(connection, run.id),
        unfinished_count=count_unfinished(connection, run),
        phases=phases,
        compiles=compiles.list_compiles(connection, run.id, sort="time", limit=MOST_COMPILES).rows,
        breaks=evidence.breaks[:MOST_BREAKS],
        distinct_count=graph_breaks.count_distinct_breaks(connection, run.id),
        causes=evidence.causes[:MOST_CAUSES],
        limits=evidence.limit_hits,
        chains=chains,
        more_chains=more_chains,
        failures=select_source(failures.rows, source),
        more_failures=failures.next is not None,
        cache_results=cache_results,
        skips=evidence.skips[:MOST_SKIPS],
        changes=select_source(environment.list_changes(changed), source),
        changed_recorded=bool(changed),
        processes=select_source(run_detail.list_processes(connection, run.id, limit=MOST_PROCESSES), source),
        explored=explored,
        sections=read_sections(connection, run.id, explored, source),
        results=read_shown(connection, run.id, source),
    )


def _read_chains(connection: sqlite3.Connection, run_id: str, source: bool) -> tuple[list[ShownChain], bool]:
    page = recompiles.list_chains(connection, run_id, limit=MOST_CHAINS)
    found = []
    for chain in page.rows:
        members = compiles.list_chain(connection, chain.process_id, chain.generation, chain.frame_id)
        kept, left_out = shorten_steps(build_steps(members, ()), MOST_STEPS)
        reasons = recompiles.list_compile_recompiles(connection, [step.compile.id for step in kept])
        steps = build_steps([step.compile for step in kept], select_source(reasons, source))
        found.append(ShownChain(chain, steps, left_out))
    return found, page.next is not None
