"""A run's recompiles: recompile limits, failed guards, and each frame's compiles."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.analysis.compiles import ChainLink, build_steps, shorten_steps
from compileboard.app.analysis.runs.advice import CauseRow
from compileboard.app.queries.page import Page
from compileboard.app.queries.run import compiles, recompiles
from compileboard.app.queries.run.recompiles import Chain, LimitHit, RunCause
from compileboard.app.queries.run_rows import RunRow
from compileboard.app.screens.run.run import list_run_causes

MOST_CAUSES = 200
MOST_LIMIT_HITS = 100
MOST_STEPS = 40  # of one chain: its first and its newest


@dataclass(frozen=True)
class RecompileChain:
    chain: Chain
    steps: Sequence[ChainLink]
    left_out: int

    @property
    def gap_at(self) -> int | None:
        return MOST_STEPS // 4 if self.left_out else None


@dataclass(frozen=True)
class RunRecompilesScreen:
    fixes: Sequence[CauseRow]  # the run's causes with recompiles among them
    limit_hits: Page[LimitHit]
    causes: Page[RunCause]
    chains: Page[RecompileChain]


def build_recompiles(
    reader: sqlite3.Connection, run: RunRow, cursor: str | None = None, limit: int = 8
) -> RunRecompilesScreen:
    run_id = run.id
    page = recompiles.list_chains(reader, run_id, cursor, limit)
    return RunRecompilesScreen(
        fixes=[cause for cause in list_run_causes(reader, run) if cause.has_recompiles],
        limit_hits=recompiles.list_limit_hits(reader, run_id, limit=MOST_LIMIT_HITS),
        causes=recompiles.list_causes(reader, run_id, limit=MOST_CAUSES),
        chains=Page(tuple(_build_chain(reader, chain) for chain in page.rows), page.next),
    )


def _build_chain(reader: sqlite3.Connection, chain: Chain) -> RecompileChain:
    members = compiles.list_chain(reader, chain.process_id, chain.generation, chain.frame_id)
    shown, left_out = shorten_steps(build_steps(members, ()), MOST_STEPS)
    rows = [step.compile for step in shown]
    reasons = recompiles.list_compile_recompiles(reader, [row.id for row in rows])
    return RecompileChain(chain, build_steps(rows, reasons), left_out)
