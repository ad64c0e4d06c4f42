"""`memory`: the compression ratio is at least 0.95 of the expected one, as upstream decides.

A peak of our own runs that was measured less than three times decides nothing.

Source: pytorch benchmarks/dynamo/check_memory_compression_ratio.py at 20e7b45
"""

from __future__ import annotations

from compileboard.app.checks.rules.measured import describe_basis, judge_row
from compileboard.app.checks.rules.model import (
    FAIL,
    NOTE,
    PASS,
    Rule,
    RuleInput,
    RuleOptions,
    RuleVerdict,
    Side,
    need_columns,
    read_number,
    show,
)

SHARE = 0.95
COLUMN = "compression_ratio"
WORDS = {"worse": "FAIL", "single": "FEW_SAMPLES", "wrong": "WRONG_ANSWER"}


def check(actual: Side, expected: Side, _options: RuleOptions) -> list[RuleVerdict]:
    known = {row.name: row for row in expected.rows}
    verdicts = []
    for row in actual.rows:
        cell, expected_cell = actual.get(row.name, COLUMN), expected.get(row.name, COLUMN)
        ratio, expected_ratio = read_number(cell), read_number(expected_cell)
        if expected_cell is None:
            verdicts.append(
                RULE.make(row.name, "MISSING", f"{COLUMN}={_show(cell)}, no expected one")
            )
            continue
        detail = f"{COLUMN}={_show(cell)}, expected={_show(expected_cell)}"
        if ratio is None or expected_ratio is None:
            word = "FAIL"
        elif ratio >= expected_ratio * SHARE:
            word = "PASS"
        else:
            word, why = _judge(row, known[row.name])
            detail += f"; {why}" if why else ""
        verdicts.append(RULE.make(row.name, word, detail))
    return verdicts


def _judge(row: RuleInput, other: RuleInput) -> tuple[str, str]:
    if not (row.repeats and other.repeats):  # upstream's files
        return "FAIL", ""
    verdict = judge_row(row, other)[COLUMN]
    return WORDS.get(verdict.word, "NOISE"), describe_basis(verdict)


def _show(cell: object) -> str:
    value = read_number(cell)
    return show(cell) if value is None else f"{value:.2f}"


RULE = Rule(
    name="memory",
    about="every compression ratio is at least 0.95 of the expected one",
    source="check_memory_compression_ratio.py",
    words={
        "PASS": PASS,
        "NOISE": PASS,
        "MISSING": NOTE,
        "FEW_SAMPLES": NOTE,
        "WRONG_ANSWER": NOTE,
        "FAIL": FAIL,
    },
    check=check,
    applies=need_columns(COLUMN, both=True),
    is_default=True,
    columns=(COLUMN,),
    is_performance=True,
)
