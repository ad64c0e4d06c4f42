"""Compare the return values, exceptions, gradients and printed lines of a trial's two sides.

Output that differs between two executions of the unchanged program (times, random names, addresses)
is not compared, only counted.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from typing import Any

from compileboard.collectors.trials.execution import STDERR, STDOUT, Call, Execution, ProcessCalls

# Relative to the number, and to the largest one of its tensor. Source: torch.testing.assert_close's
# defaults are 1.3e-6, 1e-3 and 1.6e-2; float32 has a margin for fused reductions.
TOLERANCES = {"float64": 1e-7, "complex128": 1e-7, "float16": 2e-3, "bfloat16": 2e-2}
TOLERANCE = 1e-4  # float32 and Python's numbers, most of which were float32
PRINTED_TOLERANCE = 1e-3
MAX_LINES = 100_000
# Equal lines are looked for this far away, so that two long outputs are compared in linear time.
MAX_DISTANCE = 64
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_WHOLE = re.compile(r"[-+]?\d+")
_VARYING = re.compile(
    r"\d[\d.,]*\s?(?:ns|us|µs|ms|s|sec|secs|seconds|min|minutes|it/s|s/it|steps/s|samples/s|tokens/s)\b"
    r"|\d{1,4}[-:]\d{2}[-:]\d{2}(?:[.,]\d+)?|\[\d{1,2}:\d{2}<[\d:?]+|0x[0-9a-fA-F]+|/tmp/\S+"
    r"|\x1b\[[\d;]*[A-Za-z]"
)
# Code after a graph break has the name of its function, which another line number is part of.
_RESUMED = re.compile(r"\btorch_dynamo_resume_in_(\w+?)_at_\d+")
# The path is relative to a folder of sys.path, which may be the one that holds `.venv`.
_TORCH_LOG = re.compile(r"^(?:\[rank\d+\]:)?[VIWEC]\d{4} [\d:.]+ \d+ (?:[^\]]*/)?torch/\S+:\d+\]")
_WARNING = re.compile(r"^(?P<path>\S.*?):\d+: (?P<text>\w*Warning: .*)$")
# The parts of torch whose warnings are about a compile, not about what the program does.
_COMPILER = re.compile(r"/torch/(?:_dynamo|_inductor|_functorch|_higher_order_ops|fx|_logging)/")
_AUTOTUNING = re.compile(
    r"^(?:AUTOTUNE |strides: |dtypes: |S\w+Process AUTOTUNE )|^\s+\w+ [\d.]+ ms [\d.]+%"
)
_TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True)
class Output:
    """One execution's output; `streams` are the compared lines of stdout and stderr."""

    exit: str
    processes: Sequence[ProcessCalls] = ()
    streams: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, execution: Execution) -> Output:
        readers = {STDOUT: _read_lines, STDERR: _read_errors}
        streams = {name: list(read(execution.folder / name)) for name, read in readers.items()}
        return cls(execution.exit_text, execution.calls, streams)


def _read_lines(path: Path) -> Iterator[str]:
    # A progress bar goes back to the start of its line: what stays is what it wrote last.
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for line in islice(file, MAX_LINES):
            yield line.rstrip().rpartition("\r")[2]


def _read_errors(path: Path) -> Iterator[str]:
    return clean_errors(_read_lines(path))


def clean_errors(lines: Iterable[str]) -> Iterator[str]:
    """Remove torch's log lines, compiler warnings, traceback frames and the positions of warnings.
    They depend on the graphs, and a patch moves lines.
    """
    in_traceback = after_warning = False
    for line in lines:
        is_indented = line[:1].isspace()
        if is_indented and (in_traceback or after_warning):
            after_warning = False
            continue
        in_traceback = line == _TRACEBACK
        warning = _WARNING.match(line)
        after_warning = warning is not None
        if warning and not _COMPILER.search(warning["path"]):
            yield warning["text"]
        elif line and warning is None and not in_traceback and not _is_of_compiler(line):
            yield line


def _is_of_compiler(line: str) -> bool:
    return bool(_TORCH_LOG.match(line) or _AUTOTUNING.match(line))


@dataclass(frozen=True)
class OutputComparison:
    """The first difference in results or exceptions of calls, and in printed lines.

    Values are not compared if they depend on random numbers, or differ between executions of the
    unchanged program.
    """

    value_count: int = 0
    call_count: int = 0
    backward_count: int = 0
    line_count: int = 0
    difference: str | None = None
    printed_difference: str | None = None
    random_count: int = 0
    unsteady_count: int = 0
    is_reordered: bool = False

    @property
    def is_equal(self) -> bool:
        return self.difference is None and self.printed_difference is None

    @property
    def word(self) -> str:
        if self.difference is not None:
            return "output differs"
        if self.printed_difference is not None:
            return "printed lines differ"
        return "output equal, lines in another order" if self.is_reordered else "output equal"

    def describe(self) -> str:
        parts = ["exit code"]
        if self.call_count:
            parts.append(
                f"{_count(self.value_count, 'value')} of {_count(self.call_count, 'compiled call')}"
            )
        if self.backward_count:
            parts.append(f"gradients of {_count(self.backward_count, 'backward pass')}")
        if self.line_count:
            parts.append(_count(self.line_count, "printed line"))
        compared = ", ".join(parts)
        if self.random_count:
            compared += f"; {_count(self.random_count, 'call')} with random numbers left out"
        if self.unsteady_count:
            compared += f"; {self.unsteady_count:,} that differ by themselves left out"
        if self.is_equal:
            order = " in another order" if self.is_reordered else ""
            return f"equal{order}: {compared}"
        return f"differs: {self.difference or self.printed_difference} (compared: {compared})"


def _count(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def compare_outputs(bases: Sequence[Output], new: Output) -> OutputComparison:
    """Compare with the first of `bases`; the others show which output is not reproducible."""
    returned = _compare_processes([base.processes for base in bases], new.processes)
    exits = [base.exit for base in bases]
    if new.exit not in exits:
        returned.difference = f"{exits[0]} → {new.exit}"
    printed = [
        compare_lines([base.streams.get(name, ()) for base in bases], lines, name)
        for name, lines in new.streams.items()
    ]
    return OutputComparison(
        value_count=returned.value_count,
        call_count=returned.call_count,
        backward_count=returned.backward_count,
        line_count=sum(lines.line_count for lines in printed),
        difference=returned.difference,
        printed_difference=next((lines.difference for lines in printed if lines.difference), None),
        random_count=returned.random_count,
        unsteady_count=returned.unsteady_count + sum(lines.unsteady_count for lines in printed),
        is_reordered=any(lines.is_reordered for lines in printed),
    )


@dataclass
class _ReturnedComparison:
    value_count: int = 0
    call_count: int = 0
    backward_count: int = 0
    random_count: int = 0
    unsteady_count: int = 0
    difference: str | None = None


def _compare_processes(
    bases: Sequence[Sequence[ProcessCalls]], new: Sequence[ProcessCalls]
) -> _ReturnedComparison:
    found = _ReturnedComparison()
    for process, sides in zip(new, zip(*bases)):
        for is_backward, noun in ((False, "compiled calls"), (True, "backward passes")):
            counts = [_count_calls(side, is_backward) for side in sides]
            count = _count_calls(process, is_backward)
            if count not in counts and not found.difference:
                found.difference = f"{counts[0]} {noun} → {count}"
        _compare_calls(sides, process, found)
    counts = [len(side) for side in bases]
    if len(new) not in counts and not found.difference:
        found.difference = f"{counts[0]} processes with compiled calls → {len(new)}"
    return found


def _count_calls(process: ProcessCalls, is_backward: bool) -> int:
    return sum(call.is_backward == is_backward for call in process.calls)


def _compare_calls(
    bases: Sequence[ProcessCalls], new: ProcessCalls, found: _ReturnedComparison
) -> None:
    by_key = {call.key: call for call in new.calls}
    others = [{call.key: call for call in base.calls} for base in bases[1:]]
    has_drawn = False  # other random numbers: what follows may differ for them
    for call in bases[0].calls:
        came = by_key.get(call.key)
        if call.values is None or came is None or came.values is None:
            continue
        differs = compare_values(call, came)
        if differs is not None and (has_drawn or call.is_random or came.is_random):
            has_drawn = True
            found.random_count += 1
            continue
        again = (other[call.key] for other in others if call.key in other)
        if differs is not None and any(compare_values(call, other) for other in again):
            found.unsteady_count += 1
            continue
        if call.is_backward:
            found.backward_count += 1
        else:
            found.call_count += 1
            found.value_count += len(call.values)
        found.difference = found.difference or differs


def compare_values(base: Call, new: Call) -> str | None:
    if base.is_backward:
        return _compare_gradients(base, new)
    where = f"compiled call {base.number + 1} ({base.name})"
    for old, leaf in zip_longest(base.values or (), new.values or ()):
        if old is None or leaf is None or old[0] != leaf[0]:
            return f"{where} returned {_path(old)} → {_path(leaf)}"
        if old[1] == "raised" or leaf[1] == "raised":
            if old[1:3] == leaf[1:3] and _are_alike(old[3], leaf[3]):
                continue
            return f"{where} {_result(old)} → {_result(leaf)}"
        if difference := _compare_leaves(old[1:], leaf[1:]):
            return f"{where} returned {_path(old)}: {difference}"
    return None


def _result(leaf: Sequence[Any]) -> str:
    return f"raised {leaf[2]}: {leaf[3][:120]}" if leaf[1] == "raised" else "returned a result"


def _compare_gradients(base: Call, new: Call) -> str | None:
    """Compare gradients of equal shape in any order, which depends on the graphs."""
    where = f"backward pass {base.number + 1}"
    rest = list(new.values or ())
    for old in base.values or ():
        alike = [
            leaf for leaf in rest if leaf[1:3] == old[1:3] and _shape(leaf[1:]) == _shape(old[1:])
        ]
        equal = next((leaf for leaf in alike if not _compare_leaves(old[1:], leaf[1:])), None)
        if equal is None:
            shape = f"of a tensor {_shape(old[1:])}"
            change = (
                _compare_leaves(old[1:], alike[0][1:]) if alike else f"{old[1]} → nothing there"
            )
            return f"{where}: gradient {shape}: {change}"
        rest.remove(equal)
    return f"{where}: {_count(len(rest), 'gradient')} more" if rest else None


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


@dataclass(frozen=True)
class LineComparison:
    line_count: int
    difference: str | None = None
    unsteady_count: int = 0
    is_reordered: bool = False


def compare_lines(
    bases: Sequence[Sequence[str]], new: Sequence[str], stream: str = STDOUT
) -> LineComparison:
    """Find each line of the base in the new output, in any order and once. A lost line is a
    difference, and so is a new one.

    The last digits of numbers, times, addresses and temporary paths may differ. Lines that differ
    between the bases may differ too, but their number must be the same.
    """
    first = bases[0]
    pairs = [_pair_lines(first, other) for other in bases[1:]]
    steady = [n for n in range(len(first)) if all(n in found for found in pairs)]
    found = _pair_lines([first[n] for n in steady], new)
    count = max(len(first), len(new))
    lost = [n for place, n in enumerate(steady) if place not in found]
    places = set(found.values())
    added = [n for n in range(len(new)) if n not in places]
    unsteady = [len(base) - len(steady) for base in bases]
    slack = max(unsteady) - min(unsteady)
    difference = None
    if lost:
        nearest = min(added, key=lambda place: abs(place - lost[0]), default=0)
        instead = _quote(new[nearest]) if len(added) > max(unsteady) else "not there"
        difference = f"{stream} line {lost[0] + 1}: {_quote(first[lost[0]])} → {instead}"
        difference += f", and {len(lost) - 1:,} more" if len(lost) > 1 else ""
    elif len(added) > max(unsteady) + slack:
        place = added[max(unsteady)]
        difference = f"{stream} line {place + 1}: not there → {_quote(new[place])}"
    elif len(added) < min(unsteady) - slack:
        lost_count = min(unsteady) - len(added)
        lines = f"{_count(lost_count, 'line')} of {stream}"
        difference = f"{lines} lost, of those that differ by themselves"
    was_ordered = all(_is_ordered(found) for found in pairs)
    return LineComparison(
        count, difference, unsteady[0], is_reordered=was_ordered and not _is_ordered(found)
    )


def _is_ordered(pairs: Mapping[int, int]) -> bool:
    return all(before < after for before, after in pairwise(pairs.values()))


def _pair_lines(base: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Map each line of `base` to a line of `new` with the same text and nearly equal numbers;
    each line of `new` is used at most once.
    """
    parts = [_split_numbers(line) for line in new]
    waiting: dict[str, deque[int]] = {}
    for place, (text, _) in enumerate(parts):
        waiting.setdefault(text, deque()).append(place)
    pairs = {}
    for number, line in enumerate(base):
        text, numbers = _split_numbers(line)
        places = waiting.get(text, deque())
        near = islice(places, MAX_DISTANCE)
        for place in near:
            if all(map(_are_close, numbers, parts[place][1])):
                pairs[number] = place
                break
        if number in pairs:
            places.remove(pairs[number])
    return pairs


def _are_alike(base: str, new: str) -> bool:
    return bool(_pair_lines([base], [new]))


def _split_numbers(line: str) -> tuple[str, list[str]]:
    text = _VARYING.sub("", _RESUMED.sub(r"\1", line))
    return _NUMBER.sub("#", text), _NUMBER.findall(text)


def _are_close(base: str, new: str) -> bool:
    if base == new or (_WHOLE.fullmatch(base) and _WHOLE.fullmatch(new)):
        return base == new
    return math.isclose(float(base), float(new), rel_tol=PRINTED_TOLERANCE, abs_tol=1e-6)


def _quote(line: str) -> str:
    return repr(line[:120])
