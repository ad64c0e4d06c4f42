"""What a result keeps of its compile times: the samples, their median, and the first of all. Standard library alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from compileboard.collectors.bench.outcome import Outcome

# In a fresh process, the compiler's own start with it: what upstream's harness calls compilation_latency.
FIRST = "first_compilation_latency"


@dataclass(frozen=True)
class CompileTime:
    """A compile time by its value's name and its samples' name."""

    value: str
    samples: str


COLD = CompileTime("compilation_latency", "cold_compile_s")
WARM = CompileTime("warm_compilation_latency", "warm_compile_s")


def keep_samples(outcome: Outcome, what: CompileTime, samples_s: Sequence[float]) -> None:
    """Add the samples to a result, and their median as its value; nothing where there are none."""
    if samples_s:
        outcome.repeats[what.samples] = list(samples_s)
        outcome.values[what.value] = median(samples_s)
