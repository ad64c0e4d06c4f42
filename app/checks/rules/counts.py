"""Rules on counts: graph breaks, recompiles, instructions.

Sources: pytorch benchmarks/dynamo/check_graph_breaks.py, later than 021f677 (drop threshold,
validated counters); pr_time_benchmarks/check_results.py at 0140b62
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from compileboard.app.checks.model import (
    FAIL,
    IMPROVED,
    NOTE,
    PASS,
    Finding,
    Rule,
    RuleOptions,
    Side,
    describe_missing_columns,
    is_empty,
    read_counter,
    read_number,
    require_columns,
    show,
)
from compileboard.app.comparison.queries import DistinctItem

COVERAGE_DROP_TOLERANCE = 0.05
METRICS = ("graph_breaks", "calls_captured", "fallbacks_to_eager")
# Upstream passes these although nothing was captured: two eager runs differ.
PASS_WITHOUT_CAPTURE = frozenset({"mobilenet_v3_large"})
CAPTURE_OPTIONAL = frozenset(
    {"OOM", "fail_to_run", "model_fail_to_load", "pass_due_to_skip", "timeout"}
)
RAN = "ran"  # our own runs: pass, or the failure of a model without an accuracy check
COUNT = "expected a finite nonnegative integer"
WORDS = {  # The words of every version of upstream's checker.
    "PASS": PASS,
    "EAGER_FAILED": NOTE,
    "PASS_BUT_FLAKY": NOTE,
    "FAIL_BUT_FLAKY": NOTE,
    "IMPROVED_BUT_FLAKY": NOTE,
    "IMPROVED": IMPROVED,
    "MISSING": IMPROVED,
    "FAIL": FAIL,
    "INVALID": FAIL,
}


def _find_counts(actual: Side, expected: Side, options: RuleOptions) -> Iterator[Finding]:
    unusable = [*_find_unusable(actual, "actual", "accuracy")]
    unusable = unusable or [*_find_unusable(expected, "expected", "accuracy", "graph_breaks")]
    yield from unusable
    known = expected.names()
    for row in () if unusable else actual.rows:
        if row.name in known:
            yield from _find_counts_of(row.name, actual, expected, options)
        else:
            breaks = show(actual.get(row.name, "graph_breaks"))
            yield row.name, "MISSING", f"graph_breaks={breaks}, expected=None"


def _find_unusable(side: Side, label: str, *columns: str) -> Iterator[Finding]:
    missing = sorted(
        name
        for name in columns
        if not side.has(name) and not (name == "accuracy" and side.has(RAN))
    )
    counts = Counter(row.name for row in side.rows)
    if not side.rows:
        yield side.title, "INVALID", f"the {label} side has no results"
    elif missing:
        yield side.title, "INVALID", f"the {label} side has no column {', '.join(missing)}"
    elif not all(map(str.strip, counts)):
        yield side.title, "INVALID", f"the {label} side has a row without a name"
    else:
        for name, count in counts.items():
            if count > 1:
                yield name, "INVALID", f"the {label} side has several results of it"


def _find_counts_of(
    name: str, actual: Side, expected: Side, options: RuleOptions
) -> Iterator[Finding]:
    statuses = []
    for side, whose in ((actual, ""), (expected, "expected ")):
        status = side.get(name, "accuracy")
        status = side.get(name, RAN) if status is None else status
        if not isinstance(status, str) or not status.strip():
            yield name, "INVALID", f"{whose}accuracy={show(status)}, expected a result status"
            return
        statuses.append(status)
    is_required = _needs_capture(name, *statuses)
    raw = actual.get(name, "unique_graphs")
    graphs = read_counter(raw)
    if graphs is None and (is_required or not is_empty(raw)):
        yield name, "INVALID", f"unique_graphs={show(raw)}, {COUNT}"
        return
    if is_required and graphs == 0 and read_counter(expected.get(name, "calls_captured")) != 0:
        yield name, "INVALID", "unique_graphs=0, expected Dynamo graph capture"
        return
    has_captured = is_required or bool(graphs)
    found = [
        finding
        for metric in METRICS
        if (finding := _compare_count(name, metric, actual, expected, has_captured, options))
    ]
    if not has_captured and all(finding[1] != "INVALID" for finding in found):
        yield name, "EAGER_FAILED", f"accuracy={statuses[0]}"
    else:
        yield from found or [(name, "PASS_BUT_FLAKY" if name in options.flaky else "PASS")]


def _needs_capture(name: str, status: str, expected_status: str) -> bool:
    if status == "pass" and name in PASS_WITHOUT_CAPTURE:
        return False
    # A known failure may happen before anything is captured.
    is_known = status == expected_status != "pass"
    return not (is_known or status in CAPTURE_OPTIONAL or status.startswith("eager_"))


def _compare_count(
    name: str, metric: str, actual: Side, expected: Side, has_captured: bool, options: RuleOptions
) -> Finding | None:
    expected_raw, count_raw = expected.get(name, metric), actual.get(name, metric)
    if metric != "graph_breaks" and is_empty(expected_raw):
        return None
    expected_count, count = read_counter(expected_raw), read_counter(count_raw)
    if expected_count is None:
        return name, "INVALID", f"expected {metric}={show(expected_raw)}, {COUNT}"
    if count is None:
        is_excused = not has_captured and is_empty(count_raw)
        return None if is_excused else (name, "INVALID", f"{metric}={show(count_raw)}, {COUNT}")
    if metric == "calls_captured":  # counts many things, so only a collapse is meaningful
        word = "FAIL" if count < expected_count * (1 - COVERAGE_DROP_TOLERANCE) else "PASS"
    else:
        word = _compare_to_expected(count, expected_count, is_lower_better=True)
    if word == "PASS" or not has_captured:
        return None
    word = f"{word}_BUT_FLAKY" if name in options.flaky else word
    return name, word, f"{metric}={count}, expected={expected_count}"


def _compare_to_expected(count: float, expected: float, *, is_lower_better: bool) -> str:
    if count == expected:
        return "PASS"
    return "FAIL" if (count > expected) == is_lower_better else "IMPROVED"


GRAPH_BREAKS = Rule(
    name="graph-breaks",
    about="no more graph breaks or fallbacks to eager, no collapse of the calls captured",
    source="check_graph_breaks.py",
    words=WORDS,
    find=_find_counts,
    applies=require_columns("graph_breaks", both=True),
    columns=("graph_breaks", "unique_graphs"),
    is_default=True,
)
LOWER_IS_BETTER = {
    "graph_breaks": True,
    "calls_captured": False,
    "unique_graphs": False,
    "fallbacks_to_eager": True,
}


def _find_exact(actual: Side, expected: Side, options: RuleOptions) -> Iterator[Finding]:
    for name in (row.name for row in actual.rows):
        graphs = actual.get(name, "unique_graphs")
        # Upstream's checker stops with a ValueError.
        is_unreadable = graphs is not None and read_number(graphs) is None
        if expected.get(name, "graph_breaks") is None and not is_unreadable:
            breaks = show(actual.get(name, "graph_breaks"))
            yield name, "MISSING", f"graph_breaks={breaks}, expected=None"
        elif is_unreadable:
            yield name, "INVALID", f"unique_graphs={show(graphs)}, expected a number"
        elif int(read_number(graphs) or 0) == 0:
            yield name, "EAGER_FAILED"
        else:
            is_flaky = name in options.flaky
            found = [*_compare_exact(name, actual, expected, "_BUT_FLAKY" if is_flaky else "")]
            yield from found or [(name, "PASS_BUT_FLAKY" if is_flaky else "PASS")]


def _compare_exact(name: str, actual: Side, expected: Side, flaky: str) -> Iterator[Finding]:
    for metric, is_lower_better in LOWER_IS_BETTER.items():
        cell, expected_cell = actual.get(name, metric), expected.get(name, metric)
        count, expected_count = read_number(cell), read_number(expected_cell)
        detail = f"{metric}={show(cell)}, expected={show(expected_cell)}"
        if is_empty(expected_cell) or is_empty(cell):
            continue
        if count is None or expected_count is None:
            yield name, "INVALID", f"{detail}: both must be numbers"
        elif count != expected_count:
            word = _compare_to_expected(count, expected_count, is_lower_better=is_lower_better)
            yield name, f"{word}{flaky}", detail


GRAPH_BREAKS_EXACT = Rule(
    name="graph-breaks-exact",
    about=(
        "graph breaks, calls captured, graphs and fallbacks exactly as expected: upstream's "
        "older rule"
    ),
    source="check_graph_breaks.py at 021f677",
    words=WORDS,
    find=_find_exact,
    applies=require_columns("graph_breaks", both=True),
    columns=("graph_breaks", "unique_graphs"),
)
COLUMNS = ("compile_time_instruction_count", "instruction_count")
KEPT_DIGITS = 4


def metric_margin(metric: str) -> str:
    return f"{metric}_noise_margin"


def list_counts(side: Side) -> dict[tuple[str, str], int]:
    return {
        (row.name, column): cell if isinstance(cell, int) else int(value)
        for row in side.rows
        for column, cell in row.cells.items()
        if (value := read_number(cell)) is not None
        and (column in COLUMNS or metric_margin(column) in row.cells)
    }


def _find_instructions(actual: Side, expected: Side, options: RuleOptions) -> Iterator[Finding]:
    counts = list_counts(actual)
    for (name, metric), value in list_counts(expected).items():
        count = counts.pop((name, metric), None)
        if count is None:
            yield name, "MISSING", f"{metric} is not in the run, expected {value}"
            continue
        margin = _find_margin(expected, name, metric, options)
        detail = f"{metric}={count} {_relative_change(count, value):+.2f}%"
        word = "WIN" if count < value - value * margin else "PASS"
        word = "REGRESSION" if count > value + value * margin else word
        yield name, word, f"{detail}, expected {value} ±{margin * 100:.2f}%"
    for (name, metric), count in counts.items():
        yield name, "MISSING_REGRESSION_TEST", f"{metric}={count}"


def propose_expected(
    actual: Side, expected: Side, options: RuleOptions
) -> Iterator[tuple[str, str, int, float]]:
    """Yield pr-time's new expected results, as upstream's checker writes them."""
    actual_counts = list_counts(actual)
    for (name, metric), value in list_counts(expected).items():
        margin = _find_margin(expected, name, metric, options)
        count = actual_counts.get((name, metric), value)
        has_moved = abs(_relative_change(count, value)) > margin * 100 / 3
        yield name, metric, round_down(count) if has_moved else value, margin


def round_down(number: int) -> int:
    dropped: int = 10 ** max(0, len(str(abs(number))) - KEPT_DIGITS)
    return (number // dropped) * dropped


def _find_margin(expected: Side, name: str, metric: str, options: RuleOptions) -> float:
    margin = read_number(expected.get(name, metric_margin(metric)))
    return options.noise_margin if margin is None else margin


def _relative_change(count: int, value: int) -> float:
    if value == 0:
        return 0.0 if count == 0 else 100.0
    return float(count - value) * 100 / value


# A win fails too: unless the expected number follows, it hides the next regression.
PR_TIME = Rule(
    name="pr-time",
    about=(
        "every count of instructions within its margin; a win fails too, and a new baseline is "
        "proposed"
    ),
    source="pr_time_benchmarks/check_results.py",
    words={
        "PASS": PASS,
        "MISSING_REGRESSION_TEST": NOTE,
        "WIN": IMPROVED,
        "REGRESSION": FAIL,
        "MISSING": FAIL,
    },
    find=_find_instructions,
    applies=lambda actual, expected, _options: next(
        (
            describe_missing_columns(side, COLUMNS)
            for side in (actual, expected)
            if not list_counts(side)
        ),
        "",
    ),
    is_default=True,
    is_performance=True,
)
WHOLE_RUN = "the run"  # used as model if a run names none


def _make_distinct_rule(
    name: str,
    about: str,
    attribute: str,
    word: str,
    recorded: str,
    *,
    is_optional: bool = False,
) -> Rule:
    def find(actual: Side, expected: Side, _options: RuleOptions) -> Iterator[Finding]:
        ours: Sequence[DistinctItem] = getattr(actual, attribute) or ()
        theirs: Sequence[DistinctItem] = getattr(expected, attribute) or ()
        names = actual.names()
        models = names & expected.names()
        is_known, is_present = _make_item_test(theirs, models), _make_item_test(ours, models)
        new = [item for item in ours if not is_known(item)]
        # Nothing is resolved in a model that vanished.
        gone = [
            item
            for item in theirs
            if (item.model is None or item.model in names) and not is_present(item)
        ]
        for item in new:
            yield item.model or WHOLE_RUN, word, describe(item), item
        for item in gone:
            yield item.model or WHOLE_RUN, "RESOLVED", describe(item)
        if len(ours) > len(new) or not (new or gone):
            yield WHOLE_RUN, "PASS", f"{len(ours) - len(new)} known"

    return Rule(
        name=name,
        about=about,
        source="CompileBoard",
        words={"PASS": PASS, "RESOLVED": NOTE, word: FAIL},
        find=find,
        applies=lambda *sides: next(
            (
                f"{side.title} has no recorded {recorded}, only counts"
                for side in sides[:2]
                if getattr(side, attribute) is None
            ),
            "",
        ),
        is_default=True,
        is_optional=is_optional,
    )


def _make_item_test(
    items: Sequence[DistinctItem], models: set[str]
) -> Callable[[DistinctItem], bool]:
    """Return a function that tests whether a side has an item.

    If both sides have the item's model and this side's items name their models, the item must be in
    the same model.
    """
    models = models if any(item.model is not None for item in items) else set()
    models_by_fingerprint: dict[str, set[str | None]] = {}
    for item in items:
        models_by_fingerprint.setdefault(item.fingerprint, set()).add(item.model)

    def has(item: DistinctItem) -> bool:
        found = models_by_fingerprint.get(item.fingerprint, set())
        return bool(found & {item.model, None} if item.model in models else found)

    return has


def describe(item: DistinctItem) -> str:
    where = f"{item.file}:{item.line}" if item.file and item.line else item.file
    position = " ".join(filter(None, (where, item.function and f"in {item.function}")))
    kind = f"{item.kind}: " if item.kind else ""
    times = f"{item.count} times" if item.count != 1 else "once"
    return f"{kind}{' '.join(item.reason.split())}{position and f' at {position}'}, {times}"


NEW_BREAKS = _make_distinct_rule(
    "new-breaks",
    "no distinct graph break that the baseline has not",
    "breaks",
    "NEW_BREAK",
    "graph breaks",
)
NEW_RECOMPILES = _make_distinct_rule(
    "new-recompiles",
    "no cause of recompiles that the baseline has not",
    "causes",
    "NEW_RECOMPILE",
    "recompiles",
)
NEW_RERECORDINGS = _make_distinct_rule(
    "new-rerecordings",
    "no reason to record CUDA graphs again that the baseline has not",
    "rerecordings",
    "NEW_RERECORDING",
    "CUDA graphs",
    is_optional=True,
)
