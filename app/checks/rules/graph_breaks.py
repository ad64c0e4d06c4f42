"""`graph-breaks`: no more breaks and fallbacks, and no fewer captured calls, as upstream decides.

Source: pytorch benchmarks/dynamo/check_graph_breaks.py, later than 021f677 (drop threshold,
validated counters)
"""

from __future__ import annotations

from collections import Counter

from compileboard.app.checks.rules.model import (
    FAIL,
    IMPROVED,
    NOTE,
    PASS,
    Rule,
    RuleOptions,
    RuleVerdict,
    Side,
    is_empty,
    need_columns,
    read_counter,
    read_number,
    show,
)

COVERAGE_DROP_TOLERANCE = 0.05
METRICS = ("graph_breaks", "calls_captured", "fallbacks_to_eager")
# Upstream says "pass" of these although nothing was captured: two eager runs differ.
PASS_WITHOUT_CAPTURE = frozenset({"mobilenet_v3_large"})
CAPTURE_OPTIONAL = frozenset(
    {"OOM", "fail_to_run", "model_fail_to_load", "pass_due_to_skip", "timeout"}
)
RAN = "ran"  # our own runs: pass, or why not, of a model whose accuracy nobody asked for
COUNT = "expected a finite nonnegative integer"


def check(actual: Side, expected: Side, options: RuleOptions) -> list[RuleVerdict]:
    broken = _find_unusable(actual, "actual", ()) or _find_unusable(
        expected, "expected", ("graph_breaks",)
    )
    if broken:
        return broken
    known = expected.names()
    verdicts: list[RuleVerdict] = []
    for row in actual.rows:
        if row.name not in known:
            breaks = show(actual.get(row.name, "graph_breaks"))
            verdicts.append(RULE.make(row.name, "MISSING", f"graph_breaks={breaks}, expected=None"))
        else:
            verdicts += _check_model(row.name, actual, expected, options)
    return verdicts


def _find_unusable(side: Side, label: str, columns: tuple[str, ...]) -> list[RuleVerdict]:
    missing = sorted(name for name in ("accuracy", *columns) if not side.has(name))
    if missing and side.has(RAN):
        missing = [name for name in missing if name != "accuracy"]
    if not side.rows:
        return [RULE.make(side.title, "INVALID", f"the {label} side has no results")]
    if missing:
        return [
            RULE.make(side.title, "INVALID", f"the {label} side has no column {', '.join(missing)}")
        ]
    if any(not row.name.strip() for row in side.rows):
        return [RULE.make(side.title, "INVALID", f"the {label} side has a row without a name")]
    twice = [name for name, count in Counter(row.name for row in side.rows).items() if count > 1]
    return [
        RULE.make(name, "INVALID", f"the {label} side has several results of it") for name in twice
    ]


def _check_model(
    name: str, actual: Side, expected: Side, options: RuleOptions
) -> list[RuleVerdict]:
    status, expected_status = _status(actual, name), _status(expected, name)
    for cell, whose in ((status, ""), (expected_status, "expected ")):
        if not isinstance(cell, str) or not cell.strip():
            return [
                RULE.make(
                    name, "INVALID", f"{whose}accuracy={show(cell)}, expected a result status"
                )
            ]
    is_required = _needs_capture(name, str(status), str(expected_status))
    raw = actual.get(name, "unique_graphs")
    graphs = read_counter(raw)
    if graphs is None and (is_required or not is_empty(raw)):
        return [RULE.make(name, "INVALID", f"unique_graphs={show(raw)}, {COUNT}")]
    if is_required and graphs == 0 and read_counter(expected.get(name, "calls_captured")) != 0:
        return [RULE.make(name, "INVALID", "unique_graphs=0, expected Dynamo graph capture")]
    has_captured = is_required or bool(graphs)
    verdicts = [
        rule_verdict
        for metric in METRICS
        if (rule_verdict := _check_metric(name, metric, actual, expected, has_captured, options))
    ]
    if not has_captured and not any(rule_verdict.word == "INVALID" for rule_verdict in verdicts):
        return [RULE.make(name, "EAGER_FAILED", f"accuracy={status}")]
    return verdicts or [RULE.make(name, "PASS_BUT_FLAKY" if name in options.flaky else "PASS")]


def _status(side: Side, name: str) -> object:
    status_cell = side.get(name, "accuracy")
    return side.get(name, RAN) if status_cell is None else status_cell


def _needs_capture(name: str, status: str, expected_status: str) -> bool:
    if status == "pass" and name in PASS_WITHOUT_CAPTURE:
        return False
    if (
        status == expected_status and status != "pass"
    ):  # a known failure may come before anything is captured
        return False
    return not (status in CAPTURE_OPTIONAL or status.startswith("eager_"))


def _check_metric(
    name: str, metric: str, actual: Side, expected: Side, has_captured: bool, options: RuleOptions
) -> RuleVerdict | None:
    expected_raw, count_raw = expected.get(name, metric), actual.get(name, metric)
    if metric != "graph_breaks" and is_empty(expected_raw):
        return None
    expected_count, count = read_counter(expected_raw), read_counter(count_raw)
    if expected_count is None:
        return RULE.make(name, "INVALID", f"expected {metric}={show(expected_raw)}, {COUNT}")
    if count is None:
        is_excused = not has_captured and is_empty(count_raw)
        return (
            None
            if is_excused
            else RULE.make(name, "INVALID", f"{metric}={show(count_raw)}, {COUNT}")
        )
    word = _classify(metric, count, expected_count) if has_captured else "PASS"
    if word == "PASS":
        return None
    word = f"{word}_BUT_FLAKY" if name in options.flaky else word
    return RULE.make(name, word, f"{metric}={count}, expected={expected_count}")


def _classify(metric: str, count: int, expected_count: int) -> str:
    if metric == "calls_captured":  # counts many things: only a collapse says something
        return "FAIL" if count < expected_count * (1 - COVERAGE_DROP_TOLERANCE) else "PASS"
    return "PASS" if count == expected_count else "FAIL" if count > expected_count else "IMPROVED"


WORDS = {  # of every version of upstream's checker
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
RULE = Rule(
    name="graph-breaks",
    about="no more graph breaks or fallbacks to eager, no collapse of the calls captured",
    source="check_graph_breaks.py",
    words=WORDS,
    check=check,
    applies=need_columns("graph_breaks", both=True),
    columns=("graph_breaks", "unique_graphs"),
    is_default=True,
)


LOWER_IS_BETTER = {
    "graph_breaks": True,
    "calls_captured": False,
    "unique_graphs": False,
    "fallbacks_to_eager": True,
}


def check_exact(actual: Side, expected: Side, options: RuleOptions) -> list[RuleVerdict]:
    verdicts: list[RuleVerdict] = []
    for row in actual.rows:
        graphs = actual.get(row.name, "unique_graphs")
        if expected.get(row.name, "graph_breaks") is None and (
            graphs is None or not _is_unreadable(graphs)
        ):
            breaks = show(actual.get(row.name, "graph_breaks"))
            verdicts.append(
                EXACT_RULE.make(row.name, "MISSING", f"graph_breaks={breaks}, expected=None")
            )
        elif graphs is not None and _is_unreadable(graphs):
            verdicts.append(
                EXACT_RULE.make(
                    row.name, "INVALID", f"unique_graphs={show(graphs)}, expected a number"
                )
            )
        elif graphs is None or int(read_number(graphs) or 0) == 0:
            verdicts.append(EXACT_RULE.make(row.name, "EAGER_FAILED"))
        else:
            verdicts += _check_model_exact(row.name, actual, expected, options)
    return verdicts


def _is_unreadable(cell: object) -> bool:
    return read_number(cell) is None  # upstream's checker stops with a ValueError


def _check_model_exact(
    name: str, actual: Side, expected: Side, options: RuleOptions
) -> list[RuleVerdict]:
    is_flaky = name in options.flaky
    verdicts = []
    for metric, is_lower_better in LOWER_IS_BETTER.items():
        expected_raw, count_raw = expected.get(name, metric), actual.get(name, metric)
        if is_empty(expected_raw) or is_empty(count_raw):
            continue
        expected_count, count = read_number(expected_raw), read_number(count_raw)
        if expected_count is None or count is None:
            detail = (
                f"{metric}={show(count_raw)}, expected={show(expected_raw)}: both must be numbers"
            )
            verdicts.append(EXACT_RULE.make(name, "INVALID", detail))
        elif count != expected_count:
            word = "FAIL" if (count > expected_count) == is_lower_better else "IMPROVED"
            word = f"{word}_BUT_FLAKY" if is_flaky else word
            verdicts.append(
                EXACT_RULE.make(
                    name, word, f"{metric}={show(count)}, expected={show(expected_count)}"
                )
            )
    return verdicts or [EXACT_RULE.make(name, "PASS_BUT_FLAKY" if is_flaky else "PASS")]


EXACT_RULE = Rule(
    name="graph-breaks-exact",
    about=(
        "graph breaks, calls captured, graphs and fallbacks exactly as expected: upstream's "
        "older rule"
    ),
    source="check_graph_breaks.py at 021f677",
    words=WORDS,
    check=check_exact,
    applies=need_columns("graph_breaks", both=True),
    columns=("graph_breaks", "unique_graphs"),
)
