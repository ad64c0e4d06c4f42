"""How the ranks of a run differ."""

from __future__ import annotations

from typing import Any

from flask import request

from app.analysis import rows
from app.analysis.rank_report import read_comparison
from app.analysis.rank_words import describe_divergence, describe_times, explain_groups
from app.analysis.ranks import AlignedRow, Divergence, RankComparison, RankSummary
from app.api.answer import Answer, find_run
from app.api.operation import Operation
from app.db import get_reader
from app.queries.compiles import PHASES
from app.queries.page import FilterError
from app.queries.ranks import list_names
from app.queries.run_recompiles import list_compile_recompiles

MOST_ROWS = 1000


def get_ranks(run_id: str) -> Answer:
    """Compare the ranks of a run."""
    find_run(run_id)
    given = request.args.get("rows", "")
    if given not in ("", "all"):
        raise FilterError(f"rows: {given[:40]!r} is not all")
    found = read_comparison(get_reader(), run_id)
    if found is None:
        nothing: dict[str, Any] = {
            "ranks": [],
            "aspects": {},
            "divergence": None,
            "times": None,
            "columns": [],
            "rows": [],
        }
        return Answer(nothing | {"row_count": 0})
    shown = found.rows if given == "all" else [it for it in found.rows if it.differs]
    return Answer(
        {
            "ranks": [_rank_row(it) for it in found.ranks],
            "aspects": found.aspects,
            "divergence": _divergence_row(found),
            "times": describe_times(found.ranks),
            "columns": [list(ranks) for ranks in found.columns],
            "rows": [_aligned_row(it) for it in shown[:MOST_ROWS]],
            "row_count": len(shown),
        }
    )


def _rank_row(it: RankSummary) -> dict[str, Any]:
    return {
        "rank": it.rank,
        "pids": list(it.pids),
        "compile_count": it.compile_count,
        "recompile_count": it.recompile_count,
        "total_us": it.total_us,
        "phases_us": {phase: it.get(phase) for phase in PHASES},
        "slowest_key": it.slowest.key if it.slowest else None,
        "verdicts": it.verdicts,
    }


def _divergence_row(found: RankComparison) -> dict[str, Any] | None:
    it: Divergence | None = found.divergence
    if it is None:
        return None
    reader = get_reader()
    names = list_names(reader, {one.compile.function_id or 0 for one in it.groups if one.compile})
    said = describe_divergence(it, names)
    return {
        "aspect": it.aspect,
        "shared_count": it.shared_count,
        "sentence": said.sentence,
        "groups": [
            {
                "ranks": list(one.ranks),
                "compile_key": one.compile.key if one.compile else None,
                "compile_id": one.compile.place.compile_id if one.compile else None,
                "function": names.get(one.compile.function_id or 0, (None,))[0] if one.compile else None,
                "outcome": one.compile.outcome if one.compile else None,
            }
            for one in it.groups
        ],
        "recompiles": [rows.recompile_row(one) for one in list_compile_recompiles(reader, explain_groups(it)[:100])],
    }


def _aligned_row(it: AlignedRow) -> dict[str, Any]:
    return {
        "process": it.place.process,
        "generation": it.place.generation,
        "compile_id": it.place.compile_id,
        "differs": list(it.differs),
        "rank_count": it.rank_count,
        "least_us": it.least_us,
        "most_us": it.most_us,
        "slowest_rank": it.slowest_rank,
        "compile_keys": [cell.key if cell else None for cell in it.cells],
    }


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
