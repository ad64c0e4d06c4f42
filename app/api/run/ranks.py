"""How ranks differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compileboard.app.analysis.ranks.comparison import ASPECTS, DIFFERS, NOT_COMPARED, NOT_RECORDED, SAME
from compileboard.app.api.answers import operation
from compileboard.app.db import get_reader
from compileboard.app.queries.fields import CompileId, CompileKey, Count, DurationUs, FunctionName, Generation
from compileboard.app.queries.parameters import Parameter
from compileboard.app.queries.run.compiles import OUTCOMES, PhaseTimes
from compileboard.app.queries.run.recompiles import RecompileRow
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.schema import one_of
from compileboard.app.screens.run.ranks import build_ranks, serialize_ranks

ASPECT_NAMES = tuple(aspect.name for aspect in ASPECTS)
RankVerdict = Annotated[
    str,
    one_of((SAME, DIFFERS, NOT_RECORDED, NOT_COMPARED)),
    "`not recorded`: nothing of it came; `not compared`: texts differ, and they were too many to leave out what each "
    "rank has of its own.",
]
Verdicts = Annotated[
    dict[str, RankVerdict],
    f"By what is compared: {', '.join(f'`{aspect.name}` ({aspect.meaning})' for aspect in ASPECTS)}.",
]


@dataclass(frozen=True)
class RowsQuery:
    """How much is shown."""

    rows: Annotated[bool, Parameter(choices=("all",)), "`all`: also what does not differ."] = False


@dataclass(frozen=True)
class RankSummaryJson:
    """One rank."""

    rank: Annotated[int, "A rank."]
    pids: Annotated[list[int | None], "Its processes, in the order they started."]
    compile_count: Annotated[Count, "Compiles."]
    recompile_count: Annotated[Count, "Recompiles."]
    total_us: Annotated[DurationUs | None, "Time of its compiles, forward and backward."]
    phases_us: PhaseTimes
    slowest_key: CompileKey
    verdicts: Annotated[
        dict[str, RankVerdict], "Against more than half of the ranks; where no half agrees, all differ."
    ]


@dataclass(frozen=True)
class RankGroupJson:
    """Ranks that did the same there."""

    ranks: Annotated[list[int], "Ranks."]
    compile_key: CompileKey
    compile_id: CompileId
    function: FunctionName
    outcome: Annotated[str | None, one_of(OUTCOMES), "What became of the compile."]


@dataclass(frozen=True)
class RankDivergenceJson:
    """The first compile, in each rank's own order, at which ranks part."""

    aspect: Annotated[str, one_of(ASPECT_NAMES), "What differs there."]
    shared_count: Annotated[Count, "Compiles before it, alike on every rank."]
    sentence: Annotated[str, "What happened there."]
    groups: Annotated[
        list[RankGroupJson],
        "The largest group first. `compile_key` is the compile of its first rank, null where it compiled nothing more.",
    ]
    recompiles: Annotated[list[RecompileRow], "Why the compiles there are recompiles, where that is what differs."]


@dataclass(frozen=True)
class AlignedCompile:
    """One compile id of all ranks."""

    process: Annotated[Count, "Which process of its rank: 0 is the first."]
    generation: Generation
    compile_id: Annotated[str, "Compile id as torch prints it: `0/1`."]
    differs: Annotated[list[Annotated[str, one_of(ASPECT_NAMES)]], "In what ranks differ here."]
    rank_count: Annotated[Count, "Ranks that have it."]
    least_us: Annotated[DurationUs, "Time of the quickest rank."]
    most_us: Annotated[DurationUs, "Time of the slowest rank."]
    slowest_rank: Annotated[int, "A rank."]
    compile_keys: Annotated[
        list[int | None], "Its compile on the first rank of each of `columns`, null where it has none."
    ]


@dataclass(frozen=True)
class RanksReport:
    """How ranks differ."""

    ranks: Annotated[list[RankSummaryJson], "Every rank; none where the run has fewer than two."]
    aspects: Verdicts
    divergence: RankDivergenceJson | None
    times: Annotated[str | None, "Which rank compiled longest, in words; null where no time was recorded."]
    columns: Annotated[
        list[list[int]], "Ranks that compiled everything alike, together; `compile_keys` of `rows` has this order."
    ]
    rows: Annotated[
        list[AlignedCompile], "What differs, in program order, the first 1000; with `rows=all` every compile id."
    ]
    row_count: Annotated[Count, "How many rows there are."]


@operation("/runs/<run_id>/ranks")
def get_ranks(detail: RunDetail, wanted: RowsQuery) -> RanksReport:
    """Return where a run's ranks differ, and the first compile at which they part; nothing where there are no ranks."""
    return RanksReport(**serialize_ranks(build_ranks(get_reader(), detail.run.id), every_row=wanted.rows))
