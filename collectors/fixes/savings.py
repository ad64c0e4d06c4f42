"""Estimate the compile time that a fix saves, from the compile times of the run itself.

Compiles that remain with the fix are subtracted. One-time costs of a process, such as imports and
the first C++ or Triton build, are paid by any first compile, so a fix does not save them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from statistics import median

from compileboard.collectors.fixes.fix import RecordedCompile

# `python -m benchmarks.fixes.costs` measures both, of dynamo, AOTAutograd, inductor, code, builds:
# a graph costs as much as that many operators, beside its own,
GRAPH_IN_OPS = (6, 6, 10, 10, 100)
# and for any size, as much as that many for a single size.
DYNAMIC_COSTS = (2.1, 3.2, 1.2, 1.1, 1.0)
# From code generation on, kernels cost. So few operators are one kernel, of one graph or of two.
ONE_KERNEL_OPS = 10
_KERNELS = 3  # the first phase of kernels

Claims = dict[int, float]


@dataclass(frozen=True)
class Cost:
    """The time of a compile by phase and of its restarts, without the one-time costs of its
    process.
    """

    phases: tuple[float, ...]
    restart_us: float = 0.0
    op_count: int = 0

    @property
    def graph_us(self) -> float:
        return sum(self.phases)

    @property
    def total_us(self) -> float:
        return self.graph_us + self.restart_us


def measure_costs(compiles: Sequence[RecordedCompile]) -> dict[int, Cost]:
    """Return the cost of each compile by its key. `compiles` are in the order they started."""
    shares = share_clock(compiles)
    by_process: dict[str, list[RecordedCompile]] = defaultdict(list)
    for row in compiles:
        by_process[row.process_id].append(row)
    costs = {}
    for rows in by_process.values():
        once = _find_once(rows)
        for row in rows:
            phases = [us - once.get((row.key, place), 0.0) for place, us in enumerate(_phases(row))]
            # A pass that was thrown away repeats what the last one did, up to the break.
            restart_us = min(row.restart_us, phases[0]) if row is rows[0] else row.restart_us
            share = shares[row.key]
            costs[row.key] = Cost(
                tuple(us * share for us in phases), restart_us * share, row.op_count
            )
    return costs


def _phases(row: RecordedCompile) -> tuple[float, ...]:
    return row.phases_us or (row.total_us - row.restart_us,)


def _find_once(rows: Sequence[RecordedCompile]) -> dict[tuple[int, int], float]:
    """Return how much longer the first compile with a phase took than later ones indicate."""
    once = {}
    for place in range(max(len(_phases(row)) for row in rows)):
        with_phase = [row for row in rows if any(_phases(row)[place : place + 1])]
        if len(with_phase) > 1:
            first, *later = with_phase
            typical = median(_phases(row)[place] / _weigh(row, place) for row in later)
            usual_us = typical * _weigh(first, place)
            once[first.key, place] = max(0.0, _phases(first)[place] - usual_us)
    return once


def _weigh(row: RecordedCompile, place: int) -> float:
    weight = GRAPH_IN_OPS[place] + row.op_count
    return weight * (DYNAMIC_COSTS[place] if row.is_dynamic else 1.0)


def share_clock(compiles: Iterable[RecordedCompile]) -> dict[int, float]:
    """Return the fraction of each compile's time that counts if processes compile at the same time.

    A second in which three processes compile counts as a third of a second for each.
    """
    rows = [row for row in compiles if row.total_us > 0]
    shares = {row.key: 1.0 for row in compiles}
    if len({row.process_id for row in rows}) < 2:
        return shares
    ends = [(row.started_us, True, row) for row in rows]
    ends += [(row.started_us + row.total_us, False, row) for row in rows]
    ends.sort(key=lambda end: (end[0], end[1]))
    running: dict[str, set[int]] = defaultdict(set)
    counted: dict[int, float] = defaultdict(float)
    before_us = 0
    for at_us, is_start, row in ends:
        process_count = sum(1 for keys in running.values() if keys)
        for keys in running.values():
            for key in keys:
                counted[key] += (at_us - before_us) / process_count
        before_us = at_us
        (running[row.process_id].add if is_start else running[row.process_id].discard)(row.key)
    return shares | {row.key: min(1.0, counted[row.key] / row.total_us) for row in rows}


def claim_whole(keys: Iterable[int], costs: Mapping[int, Cost]) -> Claims:
    return {key: costs[key].total_us for key in keys}


def claim_all_but_dynamic(
    first: RecordedCompile, saved: Sequence[RecordedCompile], costs: Mapping[int, Cost]
) -> Claims:
    """Claim all recompiles, minus the extra time that the first compile takes for dynamic sizes."""
    own = [row for row in saved if row.key != first.key]
    longest = _longest([costs[row.key].phases for row in (first, *own)])
    if any(row.is_dynamic for row in own):
        # The first compile of a function takes longer in some phases, a dynamic one in others.
        left_us = sum(longest)
    else:
        left_us = sum(us * cost for us, cost in zip(longest, DYNAMIC_COSTS))
    return _claim_equal_share(own, max(0.0, left_us - costs[first.key].graph_us), costs)


def claim_joined(
    left: Sequence[RecordedCompile], gone: Sequence[RecordedCompile], costs: Mapping[int, Cost]
) -> Claims:
    """Claim the time saved if the graphs of `gone` become part of those of `left`, and are compiled
    as often.

    The number of kernels stays the same, unless they are small enough to be fused into one.
    """
    rows = [*left, *gone]
    if not left:
        return {}
    op_count = sum(costs[row.key].op_count for row in rows)
    inner = {row.frame: costs[row.key].op_count for row in gone}
    frames = {row.frame for row in left}
    joined = sum(costs[row.key].op_count for row in left)
    joined += round(len(left) * sum(inner.values()) / len(frames))
    phases = zip(*(costs[row.key].phases for row in rows))
    has_kernels = joined > len(left) * ONE_KERNEL_OPS
    left_us = 0.0
    for place, (graph, of_one) in enumerate(zip(GRAPH_IN_OPS, phases)):
        share = (len(left) * graph + joined) / (len(rows) * graph + op_count)
        share = 1.0 if has_kernels and place >= _KERNELS else min(1.0, share)
        left_us += max(*of_one, sum(of_one) * share)
    # The pass that remains is the first one through its function, as slow as the one that was
    # thrown away: what is saved is at most another.
    joined_costs = {}
    for row in rows:
        cost = costs[row.key]
        joined_costs[row.key] = replace(cost, restart_us=min(cost.restart_us, cost.phases[0]))
    return _claim_equal_share(rows, left_us, joined_costs)


def _longest(phases: Collection[tuple[float, ...]]) -> list[float]:
    return [max(of_one) for of_one in zip(*phases)]


def _claim_equal_share(
    rows: Sequence[RecordedCompile], left_us: float, costs: Mapping[int, Cost]
) -> Claims:
    """Claim all restarts, and the same share of each compile's graph time so that `left_us` of it
    remains.
    """
    total = sum(costs[row.key].graph_us for row in rows)
    share = max(0.0, 1 - left_us / total) if total else 0.0
    return {row.key: costs[row.key].graph_us * share + costs[row.key].restart_us for row in rows}


def resolve_claims(claims: Sequence[Claims], costs: Mapping[int, Cost]) -> list[int]:
    """Return the saving of each claim in microseconds. Time claimed several times counts only for
    the largest claim.
    """
    left = {key: cost.total_us for key, cost in costs.items()}
    saved = [0] * len(claims)

    def remaining(position: int) -> float:
        return sum(min(us, left[key]) for key, us in claims[position].items())

    waiting = [(-remaining(position), position) for position in range(len(claims))]
    heapify(waiting)
    while waiting:
        claimed_us, position = heappop(waiting)
        saved_us = remaining(position)
        if saved_us < -claimed_us:  # a larger one took of it since
            heappush(waiting, (-saved_us, position))
            continue
        for key, us in claims[position].items():
            left[key] = max(0.0, left[key] - us)
        saved[position] = int(saved_us)
    return saved
