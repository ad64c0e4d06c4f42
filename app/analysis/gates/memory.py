"""`memory`: the compression ratio is at least 0.95 of the expected one, as upstream decides.

Of our own runs a peak that was measured less than three times decides nothing.

Source: pytorch benchmarks/dynamo/check_memory_compression_ratio.py at 20e7b45
"""

from __future__ import annotations

from app.analysis.gates.model import (
    FAIL,
    MEMORY_SAMPLES,
    NOTE,
    PASS,
    Options,
    Rule,
    Side,
    Verdict,
    describe_few,
    need_columns,
    read_number,
    show,
)

SHARE = 0.95
COLUMN = "compression_ratio"


def check(actual: Side, expected: Side, _options: Options) -> list[Verdict]:
    """Compare the compression ratio of every model of the run; one that the baseline lacks is only named."""
    known = {row.name: row for row in expected.rows}
    verdicts = []
    for row in actual.rows:
        found, wanted = actual.get(row.name, COLUMN), expected.get(row.name, COLUMN)
        found_ratio, wanted_ratio = read_number(found), read_number(wanted)
        if wanted is None:
            verdicts.append(RULE.make(row.name, "MISSING", f"{COLUMN}={_show(found)}, no expected one"))
            continue
        is_enough = found_ratio is not None and wanted_ratio is not None and found_ratio >= wanted_ratio * SHARE
        detail = f"{COLUMN}={_show(found)}, expected={_show(wanted)}"
        few = "" if is_enough else describe_few(row, known[row.name], MEMORY_SAMPLES)
        word = "PASS" if is_enough else "FEW_SAMPLES" if few else "FAIL"
        verdicts.append(RULE.make(row.name, word, f"{detail}; {few}" if few else detail))
    return verdicts


def _show(cell: object) -> str:
    value = read_number(cell)
    return show(cell) if value is None else f"{value:.2f}"


RULE = Rule(
    name="memory",
    said="every compression ratio is at least 0.95 of the expected one",
    source="check_memory_compression_ratio.py",
    words={"PASS": PASS, "MISSING": NOTE, "FEW_SAMPLES": NOTE, "FAIL": FAIL},
    check=check,
    applies=need_columns(COLUMN, both=True),
    is_default=True,
    columns=(COLUMN,),
    is_performance=True,
)
