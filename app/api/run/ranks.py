"""Schemas of how ranks differ."""

from __future__ import annotations

from flask import request

from compileboard.app.analysis.ranks.comparison import ASPECTS, DIFFERS, NOT_COMPARED, NOT_RECORDED, SAME
from compileboard.app.api.answers import Answer, Operation, find_run
from compileboard.app.api.schema import (
    COMPILE_ID,
    COMPILE_KEY,
    FUNCTION,
    OUTCOME,
    PHASES,
    Schema,
    array_of,
    count,
    duration_us,
    mapping,
    maybe,
    record,
    ref,
    text,
    whole,
    word,
)
from compileboard.app.db import get_reader
from compileboard.app.queries.page import FilterError
from compileboard.app.screens.run.ranks import build_ranks, serialize_ranks

_RANK = whole("A rank.")
_RANKS = array_of(_RANK, "Ranks.")
_VERDICT = word(
    "`not recorded`: nothing of it came; `not compared`: texts differ, and they were too many to leave out what each "
    "rank has of its own.",
    (SAME, DIFFERS, NOT_RECORDED, NOT_COMPARED),
)
_VERDICTS = mapping(_VERDICT, f"By what is compared: {', '.join(f'`{it.name}` ({it.meaning})' for it in ASPECTS)}.")
RANK = record(
    "One rank.",
    rank=_RANK,
    pids=array_of(maybe(whole("Process number of the operating system.")), "Its processes, in the order they started."),
    compile_count=count("Compiles."),
    recompile_count=count("Recompiles."),
    total_us=maybe(duration_us("Time of its compiles, forward and backward.")),
    phases_us=PHASES,
    slowest_key=COMPILE_KEY,
    verdicts=_VERDICTS | {"description": "Against more than half of the ranks; where no half agrees, all differ."},
)
DIVERGENCE = record(
    "The first compile, in each rank's own order, at which ranks part.",
    aspect=word("What differs there.", [it.name for it in ASPECTS]),
    shared_count=count("Compiles before it, alike on every rank."),
    sentence=text("What happened there."),
    groups=array_of(
        record(
            "Ranks that did the same there.",
            ranks=_RANKS,
            compile_key=COMPILE_KEY,
            compile_id=COMPILE_ID,
            function=FUNCTION,
            outcome=maybe(OUTCOME),
        ),
        "The largest group first. `compile_key` is the compile of its first rank, null where it compiled nothing more.",
    ),
    recompiles=array_of(ref("Recompile"), "Why the compiles there are recompiles, where that is what differs."),
)
RANKS = record(
    "How ranks differ.",
    ranks=array_of(ref("RankSummary"), "Every rank; none where the run has fewer than two."),
    aspects=_VERDICTS,
    divergence=maybe(ref("RankDivergence")),
    times=maybe(text("Which rank compiled longest, in words; null where no time was recorded.")),
    columns=array_of(
        _RANKS, "Ranks that compiled everything alike, together; `compile_keys` of `rows` has this order."
    ),
    rows=array_of(
        record(
            "One compile id of all ranks.",
            process=count("Which process of its rank: 0 is the first."),
            generation=count("How often the process had called `reset()`."),
            compile_id=text("Compile id as torch prints it: `0/1`."),
            differs=array_of(word("What differs.", [it.name for it in ASPECTS]), "In what ranks differ here."),
            rank_count=count("Ranks that have it."),
            least_us=duration_us("Time of the quickest rank."),
            most_us=duration_us("Time of the slowest rank."),
            slowest_rank=_RANK,
            compile_keys=array_of(
                COMPILE_KEY, "Its compile on the first rank of each of `columns`, null where it has none."
            ),
        ),
        "What differs, in program order, the first 1000; with `rows=all` every compile id.",
    ),
    row_count=count("How many rows there are."),
)
SCHEMAS: dict[str, Schema] = {"RankSummary": RANK, "RankDivergence": DIVERGENCE, "Ranks": RANKS}


def get_ranks(run_id: str) -> Answer:
    """Compare the ranks of a run."""
    find_run(run_id)
    given = request.args.get("rows", "")
    if given not in ("", "all"):
        raise FilterError(f"rows: {given[:40]!r} is not all")
    return Answer(serialize_ranks(build_ranks(get_reader(), run_id), every_row=given == "all"))


OPERATIONS = (
    Operation(
        "/runs/<run_id>/ranks",
        get_ranks,
        "Ranks",
        False,
        "Where a run's ranks differ, and the first compile at which they part; nothing where there are no ranks.",
        ("rows",),
    ),
)
