"""Compare exit codes, values of compiled calls and printed lines.

Numbers may differ within a tolerance for their type, since a fix changes what is fused.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from compileboard.collectors.trials.calls import Call, ProcessCalls

# Relative to the number, and to the largest one of its tensor. Source: torch.testing.assert_close's
# defaults are 1.3e-6, 1e-3 and 1.6e-2; float32 has a margin for fused reductions.
TOLERANCES = {"float64": 1e-7, "complex128": 1e-7, "float16": 2e-3, "bfloat16": 2e-2}
TOLERANCE = 1e-4  # float32 and Python's numbers, most of which were float32
PRINTED_TOLERANCE = 1e-3
MOST_LINES = 100_000
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_TIME = re.compile(
    r"\d[\d.,]*\s?(?:ns|us|µs|ms|s|sec|secs|seconds|min|minutes|it/s|s/it|steps/s|samples/s|tokens/s)\b"
    r"|\d{1,4}[-:]\d{2}[-:]\d{2}(?:[.,]\d+)?|0x[0-9a-fA-F]+|/tmp/\S+"
)


@dataclass(frozen=True)
class OutputComparison:
    """The comparison and first difference of each kind.

    `missing_line_count` lines are no longer printed, if nothing else differs. Differing calls that
    used random numbers are not compared.
    """

    value_count: int = 0
    call_count: int = 0
    line_count: int = 0
    difference: str | None = None
    printed_difference: str | None = None
    missing_line_count: int = 0
    random_call_count: int = 0

    @property
    def is_equal(self) -> bool:
        return self.difference is None and self.printed_difference is None

    @property
    def has_same_results(self) -> bool:
        prints_less = self.missing_line_count > 0 and self.call_count > 0
        return self.is_equal or (self.difference is None and prints_less)

    @property
    def word(self) -> str:
        if self.difference is not None:
            return "output differs"
        if self.printed_difference is None:
            return "output equal"
        if self.has_same_results:
            return f"values equal, {_count(self.missing_line_count, 'printed line')} fewer"
        return "printed lines differ"

    def describe(self) -> str:
        parts = ["exit code"]
        if self.call_count:
            parts.append(
                f"{_count(self.value_count, 'value')} of {_count(self.call_count, 'compiled call')}"
            )
        if self.line_count:
            parts.append(_count(self.line_count, "printed line"))
        random = f"; {_count(self.random_call_count, 'call')} with random numbers left out"
        compared = ", ".join(parts) + (random if self.random_call_count else "")
        if self.is_equal:
            return f"equal: {compared}"
        first = f"{self.difference or self.printed_difference} (compared: {compared})"
        return f"{self.word}: {first}" if self.has_same_results else f"differs: {first}"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def compare_outputs(
    exits: tuple[str, str],
    calls: tuple[Sequence[ProcessCalls], Sequence[ProcessCalls]],
    printed: tuple[Iterable[str], Iterable[str]],
) -> OutputComparison:
    value_count = call_count = random_count = 0
    difference = None if exits[0] == exits[1] else f"{exits[0]} → {exits[1]}"
    for base, new in zip(*calls):
        by_number = {call.number: call for call in new.calls}
        for call in base.calls:
            other = by_number.get(call.number)
            if call.values is None or other is None or other.values is None:
                continue
            differs = compare_values(call, other)
            if differs is not None and (call.is_random or other.is_random):
                random_count += 1
                continue
            call_count += 1
            value_count += len(call.values)
            difference = difference or differs
        if base.call_count != new.call_count and not difference:
            difference = f"{base.call_count} compiled calls → {new.call_count}"
    if len(calls[0]) != len(calls[1]) and not difference:
        difference = f"{len(calls[0])} processes with compiled calls → {len(calls[1])}"
    line_count, printed_difference, missing_count = compare_lines(*printed)
    return OutputComparison(
        value_count,
        call_count,
        line_count,
        difference,
        printed_difference,
        missing_count,
        random_count,
    )


def compare_values(base: Call, new: Call) -> str | None:
    if base.name != new.name:
        return f"compiled call {base.number + 1} is {base.name} → {new.name}"
    where = f"compiled call {base.number + 1} ({base.name})"
    for old, leaf in zip_longest(base.values or (), new.values or ()):
        if old is None or leaf is None or old[0] != leaf[0]:
            return f"{where} returned {_path(old)} → {_path(leaf)}"
        if difference := _compare_leaves(old[1:], leaf[1:]):
            return f"{where} returned {_path(old)}: {difference}"
    return None


def _path(leaf: Sequence[Any] | None) -> str:
    return "nothing there" if leaf is None else f"result{leaf[0]}"


def _compare_leaves(base: Sequence[Any], new: Sequence[Any]) -> str | None:
    kinds = base[0], new[0]
    if kinds[0] in ("tensor", "number") and kinds[1] in ("tensor", "number"):
        # A number that became a tensor without dimensions is the same value.
        if _shape(base) != _shape(new):
            return f"shape {_shape(base)} → {_shape(new)}"
        if kinds == ("tensor", "tensor") and base[1] != new[1]:
            return f"{base[1]} → {new[1]}"
        tolerance = max(_tolerance(base), _tolerance(new))
        extent = max((abs(v) for v in base[2] if math.isfinite(v)), default=0.0)
        return _compare_numbers([*base[2], *_sums(base)], [*new[2], *_sums(new)], tolerance, extent)
    if kinds == ("other", "other") or kinds == ("cut", "cut"):
        return None if base[1] == new[1] else f"{base[1]} → {new[1]}"
    return None if list(base) == list(new) else f"{base[-1]} → {new[-1]}"


def _shape(leaf: Sequence[Any]) -> list[int]:
    return list(leaf[3]) if leaf[0] == "tensor" else []


def _sums(leaf: Sequence[Any]) -> list[float]:
    return list(leaf[4]) if leaf[0] == "tensor" else []


def _tolerance(leaf: Sequence[Any]) -> float:
    is_exact = leaf[1] in ("bool", "str") or leaf[1].startswith(("int", "uint"))
    return 0.0 if is_exact else TOLERANCES.get(leaf[1], TOLERANCE)


def _compare_numbers(
    base: Sequence[float], new: Sequence[float], tolerance: float, extent: float
) -> str | None:
    for old, number in zip(base, new):
        if old == number or (math.isnan(old) and math.isnan(number)):
            continue
        if not math.isclose(old, number, rel_tol=tolerance, abs_tol=tolerance * extent):
            return f"{old:.6g} → {number:.6g}"
    return None


def compare_lines(base: Iterable[str], new: Iterable[str]) -> tuple[int, str | None, int]:
    """Return the number of compared lines, the first difference, and the number of missing lines.

    Ignores numbers' last digits, times, addresses, temporary paths and order.
    """
    old_lines, new_lines = _read_lines(base), _read_lines(new)
    differing = [
        (number, old, line)
        for number, (old, line) in enumerate(zip_longest(old_lines, new_lines), 1)
        if not _are_alike(old, line)
    ]
    count = max(len(old_lines), len(new_lines))
    if not differing:
        return count, None, 0
    old_counts, new_counts = _normalise(old_lines), _normalise(new_lines)
    if old_counts == new_counts:
        return count, None, 0
    missing_count = 0 if new_counts - old_counts else sum((old_counts - new_counts).values())
    number, old, line = differing[0]
    return count, f"printed line {number}: {_quote(old)} → {_quote(line)}", missing_count


def _read_lines(lines: Iterable[str]) -> list[str]:
    return [line.rstrip() for line, _ in zip(lines, range(MOST_LINES))]


def _normalise(lines: Iterable[str]) -> Counter[str]:
    return Counter(
        _NUMBER.sub(lambda number: f"{float(number[0]):.3g}", _TIME.sub("", line))
        for line in lines
        if line
    )


def _are_alike(base: str | None, new: str | None) -> bool:
    if base == new:
        return True
    if base is None or new is None:
        return False
    base, new = _TIME.sub("", base), _TIME.sub("", new)
    if _NUMBER.sub("#", base) != _NUMBER.sub("#", new):
        return False
    return all(
        math.isclose(float(old), float(number), rel_tol=PRINTED_TOLERANCE, abs_tol=1e-6)
        for old, number in zip(_NUMBER.findall(base), _NUMBER.findall(new))
    )


def _quote(line: str | None) -> str:
    return "not there" if line is None else repr(line[:120])
