"""Verdicts and failures as PyTorch's benchmarks spell them, and the columns of their tables."""

from __future__ import annotations

import math
import re

from compileboard.collectors.contract.result_columns import list_upstream

# Verdicts of a check that ran to its end. Everything else that an accuracy column says is why it
# did not.
VERDICTS = frozenset(
    ("pass", "fail_accuracy", "eager_two_runs_differ", "eager_variation", "not_bitwise_equivalent")
)
_VERDICTS_OF_BATCH = re.compile(r"^fail_batch_invariance_at_")
SKIPPED = "pass_due_to_skip"
SKIP_COLUMN = "skipped"  # ours: why a model was not measured, in a table that has nothing else
UNKNOWN_FAILURE = "unknown"  # upstream wrote zeros and no word
EXPECTED = "expected, not measured"
UNREADABLE = "its numbers cannot be read"
NOT_RUN = "upstream wrote 0 where nothing was run"

# Experiments whose table is upstream's of speedups.
SPEEDUPS = (
    "performance",
    "overhead",
    "nothing",
    "quantization",
    "onnx",
    "aot_precompile",
    "caching_precompile",
)

# Columns whose numbers upstream writes as %.6f: a plain 0 there is padding.
FLOATS = list_upstream("models", counts=False)
COUNTS = list_upstream("models", counts=True)
_LONGEST_NUMBER = 64
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


def status_of(accuracy: str) -> tuple[str, str | None]:
    if accuracy in VERDICTS or _VERDICTS_OF_BATCH.match(accuracy):
        return "measured", None
    if accuracy == SKIPPED:
        return "skipped", accuracy
    if accuracy in ("", "0", "0.0"):
        return "not_run", NOT_RUN
    return "failed", accuracy


def read_number(text: str) -> float | None:
    text = text.strip()
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def find_fault(name: str, text: str) -> str | None:
    """Return `not_finite` or `bad_number` if a column's text is invalid, else None.

    Unknown columns may hold text and negative numbers.
    """
    value, text = read_number(text), text.strip()
    is_short = len(text) <= _LONGEST_NUMBER  # the patterns take the square of a long text's time
    if value is None and is_short and (_NOT_FINITE.fullmatch(text) or _NUMBER.fullmatch(text)):
        return "not_finite"
    is_known = name in FLOATS or name in COUNTS
    return "bad_number" if is_known and (value is None or value < 0) else None
