"""Measure change points beside asv's and HUD's rule.

    python -m benchmarks.regression.change_points [--asv FOLDER]

Rates over seeded series that all three get, then the time for 2 000 series of 400 points. asv comes
from PyPI into a throw-away folder, unless --asv names one that has it (`pip install --target FOLDER
asv`).
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Row, print_table, scratch_folder
from compileboard.app.incidents.change_points import detect_change_points
from compileboard.app.incidents.drift import find_changes, is_stopped

Floats = NDArray[np.float64]
Rng = np.random.Generator
ASV = "0.6.6"
THRESHOLD = 0.05  # asv's default, and HUD's for the geomean speedup
NOTE = (
    "Flat: share flagged. Steps: share found at ± 1 point; HUD's rule tells no place, there it "
    "is the share flagged."
)
SERIES_COUNT, POINT_COUNT, REPEATS = 2_000, 400, 5
MANY = 5_000


@dataclass(frozen=True)
class Kind:
    """A kind of series: how to make one, where its step is (none: it is flat), and what to
    reach.
    """

    what: str
    make: Callable[[Rng], Floats]
    position: int | None = None
    reach: str = ""


def noisy(level: Floats, noise: float) -> Callable[[Rng], Floats]:
    """Return a maker of series about a level, with normal noise relative to it."""
    return lambda rng: level * (1 + noise * rng.standard_normal(len(level)))


def stepped(noise: float, after: int, count: int = 40, size: float = 0.1) -> Kind:
    """Return series that step up with so many points after."""
    level = np.ones(count)
    level[count - after :] += size
    reaches = {(0.01, 4): "≥ 95%", (0.03, 6): "≥ 80%"}
    what = f"{size:.0%} step, {noise:.0%} noise, {after} points after"
    return Kind(what, noisy(level, noise), count - after, reaches.get((noise, after), "≥ HUD"))


def remembering(share: float, count: int) -> Kind:
    """Return flat series whose noise repeats a share of the point before."""

    def make(rng: Rng) -> Floats:
        noise = rng.standard_normal(count + 50)
        for position in range(1, len(noise)):
            noise[position] += share * noise[position - 1]
        return 1 + 0.03 * noise[50:] * np.sqrt(1 - share**2)

    return Kind(f"flat, 3% noise that repeats {share:.0%} of the last, {count} points", make)


def spiked(position: int | None) -> Callable[[Rng], Floats]:
    """Return a maker of flat series with one point 50% off."""

    def make(rng: Rng) -> Floats:
        values = 1 + 0.01 * rng.standard_normal(40)
        values[int(rng.integers(40)) if position is None else position] = 1.5
        return values

    return make


def flat_kinds() -> list[Kind]:
    """Return the series in which there is nothing to find."""
    ones = np.ones(40)
    kinds = [
        Kind("flat, 3% noise, 40 points", noisy(ones, 0.03), reach="≤ 1%, ≤ asv"),
        Kind("flat, 1% noise, 40 points", noisy(ones, 0.01), reach="≤ asv"),
        Kind("flat, 5% noise, 40 points", noisy(ones, 0.05), reach="≤ asv"),
        Kind("flat, 3% noise, 400 points", noisy(np.ones(400), 0.03), reach="≤ asv"),
        Kind("one-point spike of 50%, anywhere", spiked(None), reach="0%"),
        Kind("one-point spike of 50%, the newest point", spiked(39), reach="0%"),
        *(remembering(share, count) for share in (0.3, 0.5, 0.8) for count in (40, 200)),
        Kind(
            "flat, heavy tails (Student's t, 3), 40 points",
            lambda rng: 1 + 0.03 * rng.standard_t(3, 40),
        ),
        Kind(
            "flat, 3% noise, rounded to 0.1",
            lambda rng: np.round(1 + 0.03 * rng.standard_normal(40), 1),
        ),
        Kind(
            "a count that flickers, 0 or 1, one run in five",
            lambda rng: 1.0 * (rng.random(40) < 0.2),
        ),
        Kind("constant", lambda rng: np.full(40, float(rng.integers(0, 9)))),
        Kind("about 0, as often below as above", lambda rng: rng.standard_normal(40)),
        Kind("flat, 3% noise, a third of the points missing", missing(noisy(ones, 0.03))),
        Kind("flat, 3% noise, 2 000 points", noisy(np.ones(2_000), 0.03)),
    ]
    return kinds + [
        Kind(f"flat, 3% noise, {count} points", noisy(np.ones(count), 0.03))
        for count in (1, 3, 5, 10)
    ]


def missing(make: Callable[[Rng], Floats]) -> Callable[[Rng], Floats]:
    """Return a maker that leaves out a third of the points."""

    def leave_out(rng: Rng) -> Floats:
        values = make(rng)
        values[rng.random(len(values)) < 1 / 3] = np.nan
        return values

    return leave_out


def ours(values: Floats) -> list[int]:
    """Return where ours finds a step."""
    return [change_point.index for change_point in detect_change_points(values)]


def hud(values: Floats) -> bool:
    """Apply HUD's rule to a cost: the last 2 of the newest 4 points above 1.05 × the median of the
    6 before.
    """
    known = values[np.isfinite(values)]
    if len(known) < 10:
        return False
    flagged = known[-4:] > (1 + THRESHOLD) * np.median(known[-10:-4])
    return bool(flagged[-1] and flagged[-2])


def make_asv(detector: Any) -> Callable[[Floats], list[int]]:
    """Return asv's own detection of regressions, as its publisher calls it."""

    def find(values: Floats) -> list[int]:
        steps = detector.detect_steps(
            [None if np.isnan(value) else float(value) for value in values]
        )
        _, _, positions = detector.detect_regressions(steps, threshold=THRESHOLD)
        return [position[1] for position in positions or []]

    return find


def fetch_asv(folder: Path) -> Any:
    """Install asv into a folder unless it is there, and return its detector."""
    if not (folder / "asv").is_dir():
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--target",
            str(folder),
            f"asv=={ASV}",
        ]
        if subprocess.run(pip, check=False).returncode:
            raise SystemExit(
                f"pip could not install asv {ASV}; give a folder that has it with --asv FOLDER"
            )
    sys.path.append(str(folder))
    return importlib.import_module("asv.step_detect")


def measure(
    kinds: Sequence[Kind], asv: Callable[[Floats], list[int]], count: int, seed: int
) -> list[Row]:
    """Return a line for each kind: the share that each of the three flags, or finds at ± 1
    point.
    """
    rows = []
    for kind in kinds:
        rng = np.random.default_rng(seed)
        few = (
            min(count, 30) if len(kind.make(rng)) > 1_000 else count
        )  # asv takes a second for so long a series
        series = [kind.make(rng) for _ in range(few)]
        cells = [_share(series, ours, kind.position), _share(series, asv, kind.position)]
        cells.append(sum(map(hud, series)) / len(series))
        rows.append(Row(kind.what, *(f"{share:.1%}" for share in cells), kind.reach))
    return rows


def _share(
    series: Sequence[Floats], find: Callable[[Floats], list[int]], wanted_position: int | None
) -> float:
    hits = [find(values) for values in series]
    return sum(
        any(wanted_position is None or abs(position - wanted_position) <= 1 for position in hit)
        for hit in hits
    ) / len(series)


def measure_changes(asv: Callable[[Floats], list[int]], count: int, seed: int) -> list[Row]:
    """Return lines for what took place and what was then said of it."""
    down = np.concatenate(
        (np.ones(20), np.repeat(0.99 ** np.arange(1, 11), 3), np.full(10, 0.99**10))
    )
    rng = np.random.default_rng(seed)
    rows = [_measure_bump(length, asv, count, rng) for length in (3, 10)]
    for noise in (0.005, 0.01):
        changes = [find_changes(noisy(down, noise)(rng)) for _ in range(count)]
        detected_count = sum(
            series_changes.drift is not None or bool(series_changes.steps)
            for series_changes in changes
        )
        slow = sum(series_changes.drift is not None for series_changes in changes)
        both = sum(
            series_changes.drift is not None and bool(series_changes.steps)
            for series_changes in changes
        )
        what = f"ten −1% steps, 3 points each, {noise:.1%} noise: found (as drift; drift and steps)"
        rows.append(
            Row(
                what,
                f"{detected_count / count:.1%} ({slow / count:.1%}; {both / count:.1%})",
                "–",
                "–",
                "found",
            )
        )
    stops = [
        is_stopped(np.flatnonzero(rng.random(36) < 0.9).tolist(), list(range(40)))
        for _ in range(count)
    ]
    rows.append(
        Row(
            "series that left 4 runs out (of 36, it had 9 in 10)",
            f"{sum(stops) / count:.1%}",
            "–",
            "–",
            "listed",
        )
    )
    flat = (
        sum(find_changes(noisy(np.ones(40), 0.03)(rng)).drift is not None for _ in range(count))
        / count
    )
    return [
        *rows,
        Row("flat, 3% noise, 40 points: called drift", f"{flat:.1%}", "–", "–", "≤ 1%"),
        _measure_many(asv, seed + 1),
    ]


def _measure_many(asv: Callable[[Floats], list[int]], seed: int) -> Row:
    rng = np.random.default_rng(seed)
    series = [noisy(np.ones(40), 0.03)(rng) for _ in range(MANY)]
    shares = [_share(series, ours, None), _share(series, asv, None), sum(map(hud, series)) / MANY]
    return Row(
        f"flat, 3% noise, 40 points, {MANY} series", *(f"{share:.2%}" for share in shares), "≤ 1%"
    )


def _measure_bump(length: int, asv: Callable[[Floats], list[int]], count: int, rng: Rng) -> Row:
    level = np.ones(60)
    level[30 : 30 + length] *= 1.1
    bumps = [noisy(level, 0.01)(rng) for _ in range(count)]
    back = sum(
        any(
            change_point.recovered_at and abs(change_point.recovered_at - 30 - length) <= 1
            for change_point in detect_change_points(v)
        )
        for v in bumps
    )
    theirs = (sum(bool(find(bump)) for bump in bumps) / count for find in (asv, hud))
    what = f"10% step for {length} points, 1% noise, recovered: listed, with its end"
    return Row(what, f"{back / count:.1%}", *(f"{value:.1%}" for value in theirs), "listed")


def make_fleet(rng: Rng) -> list[Floats]:
    """Return a fleet's series with one point more than were looked at: a third has a step, a third
    of those a bump.
    """
    fleet = []
    for number in range(SERIES_COUNT):
        values = 1 + 0.03 * rng.standard_normal(POINT_COUNT + 1)
        if number % 3 == 0:
            values[int(rng.integers(20, POINT_COUNT - 5)) :] *= 1.15
        if number % 9 == 0:
            values[100:120] *= 0.85
        fleet.append(values)
    return fleet


def time_it(call: Callable[[], object]) -> float:
    """Return the median CPU seconds of five calls."""
    taken = []
    for _ in range(REPEATS):
        begin = time.process_time()
        call()
        taken.append(time.process_time() - begin)
    return statistics.median(taken)


def measure_speed(asv: Callable[[Floats], list[int]], seed: int) -> list[Row]:
    """Return a line for each figure of speed."""
    fleet = make_fleet(np.random.default_rng(seed))
    known = [values[:POINT_COUNT] for values in fleet]
    few = known[:20]
    theirs = time_it(lambda: [asv(values) for values in few]) * SERIES_COUNT / len(few)
    whole = time_it(lambda: [detect_change_points(values) for values in known])
    ratio = f"{whole / theirs:.4f}"
    what = f"{SERIES_COUNT} series × {POINT_COUNT} points"
    return [
        Row(f"{what}: steps", f"{whole:.2f} s", f"{theirs:.0f} s (from 20)", ratio, "≤ 20 s"),
        Row(
            f"{what}: steps and drift",
            f"{time_it(lambda: [find_changes(values) for values in known]):.2f} s",
            "–",
            "–",
            "≤ 20 s",
        ),
    ]


def main(argv: list[str] | None = None) -> int:
    """Measure rates and times and print a table of each."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.regression.change_points", description=__doc__
    )
    parser.add_argument(
        "--asv", type=Path, metavar="FOLDER", help="a folder that has asv, or is to keep it"
    )
    parser.add_argument(
        "--series", type=int, default=300, help="series a line (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("rates", "speed"), help="one of the two tables")
    arguments = parser.parse_args(argv)
    with scratch_folder() as folder:
        asv = make_asv(fetch_asv(arguments.asv or folder))
        headings = ("what", "ours", f"asv {ASV}", "HUD's rule", "reach")
        if arguments.only != "speed":
            kinds = [
                *flat_kinds(),
                *(stepped(noise, k) for noise in (0.01, 0.03, 0.05) for k in (2, 3, 4, 6, 8)),
            ]
            rows = measure(kinds, asv, arguments.series, arguments.seed)
            rows += measure_changes(asv, arguments.series, arguments.seed)
            title = f"Step detection, {arguments.series} series a line, seed {arguments.seed}"
            print_table(title, rows, NOTE, headings=headings)
        if arguments.only != "rates":
            speed = measure_speed(asv, arguments.seed)
            title = "Step detection, CPU time on one core, medians of five"
            print_table(title, speed, headings=("what", "ours", "asv", "ratio", "reach"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
