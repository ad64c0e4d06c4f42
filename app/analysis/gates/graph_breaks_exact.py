"""`graph-breaks-exact`: breaks, calls, graphs and fallbacks exactly as expected, as upstream decided until 2026.

Source: pytorch benchmarks/dynamo/check_graph_breaks.py at 021f677
"""

from __future__ import annotations

from compileboard.app.analysis.gates.graph_breaks import WORDS
from compileboard.app.analysis.gates.model import (
    Options,
    Rule,
    Side,
    Verdict,
    is_empty,
    need_columns,
    read_number,
    show,
)

LOWER_IS_BETTER = {"graph_breaks": True, "calls_captured": False, "unique_graphs": False, "fallbacks_to_eager": True}


def check(actual: Side, expected: Side, options: Options) -> list[Verdict]:
    """Compare the counters of every model of the run; those that one side does not have are not compared."""
    verdicts: list[Verdict] = []
    for row in actual.rows:
        graphs = actual.get(row.name, "unique_graphs")
        if expected.get(row.name, "graph_breaks") is None and (graphs is None or not _is_unreadable(graphs)):
            breaks = show(actual.get(row.name, "graph_breaks"))
            verdicts.append(RULE.make(row.name, "MISSING", f"graph_breaks={breaks}, expected=None"))
        elif graphs is not None and _is_unreadable(graphs):
            verdicts.append(RULE.make(row.name, "INVALID", f"unique_graphs={show(graphs)}, expected a number"))
        elif graphs is None or int(read_number(graphs) or 0) == 0:
            verdicts.append(RULE.make(row.name, "EAGER_FAILED"))
        else:
            verdicts += _check_model(row.name, actual, expected, options)
    return verdicts


def _is_unreadable(cell: object) -> bool:
    return read_number(cell) is None  # upstream's checker stops with a ValueError


def _check_model(name: str, actual: Side, expected: Side, options: Options) -> list[Verdict]:
    is_flaky = name in options.flaky
    verdicts = []
    for metric, is_lower_better in LOWER_IS_BETTER.items():
        wanted_raw, found_raw = expected.get(name, metric), actual.get(name, metric)
        if is_empty(wanted_raw) or is_empty(found_raw):
            continue
        wanted, found = read_number(wanted_raw), read_number(found_raw)
        if wanted is None or found is None:
            detail = f"{metric}={show(found_raw)}, expected={show(wanted_raw)}: both must be numbers"
            verdicts.append(RULE.make(name, "INVALID", detail))
        elif found != wanted:
            word = "FAIL" if (found > wanted) == is_lower_better else "IMPROVED"
            word = f"{word}_BUT_FLAKY" if is_flaky else word
            verdicts.append(RULE.make(name, word, f"{metric}={show(found)}, expected={show(wanted)}"))
    return verdicts or [RULE.make(name, "PASS_BUT_FLAKY" if is_flaky else "PASS")]


RULE = Rule(
    name="graph-breaks-exact",
    said="graph breaks, calls captured, graphs and fallbacks exactly as expected: upstream's older rule",
    source="check_graph_breaks.py at 021f677",
    words=WORDS,
    check=check,
    applies=need_columns("graph_breaks", both=True),
    columns=("graph_breaks", "unique_graphs"),
)
