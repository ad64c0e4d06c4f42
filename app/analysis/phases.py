"""Phases of compiles as shares of a whole, for bars and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from compileboard.app.analysis.words import PHASES, Phase


class HasPhases(Protocol):
    """What is needed: app.queries.compiles.Phases and anything like it."""

    def get(self, phase: str) -> int | None: ...


@dataclass(frozen=True)
class Share:
    """Hold one phase's time, and where its part of a bar begins and how wide it is.

    Units: microseconds; percent of the bar.
    """

    phase: Phase
    time_us: int
    start: float
    width: float


def list_shares(phases: HasPhases, whole_us: int | None = None) -> list[Share]:
    """Split a bar among the phases that took time; `whole_us` is what a full bar means, else their sum."""
    times = [(phase, phases.get(phase.name) or 0) for phase in PHASES]
    whole = whole_us or sum(time for _phase, time in times)
    shares, place = [], 0.0
    for phase, time_us in times:
        if time_us > 0 and whole > 0:
            width = 100 * time_us / whole
            shares.append(Share(phase, time_us, round(place, 2), round(width, 2)))
            place += width
    return shares


def sum_phases(phases: HasPhases) -> int | None:
    """Add the phases up; None where torch recorded none of them."""
    times = [time for phase in PHASES if (time := phases.get(phase.name)) is not None]
    return sum(times) if times else None
