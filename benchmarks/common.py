"""What every benchmark shares: the machine, interleaved pairs, intervals, and the table."""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
RUN_ID = "01BENCHMARK000000000000000"
RESAMPLES = 10_000
HEADINGS = ("what", "ours", "reference", "ratio", "reach")

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One line of a table, as it is printed."""

    what: str
    ours: str
    reference: str = ""
    ratio: str = ""
    reach: str = ""


@dataclass(frozen=True)
class Interval:
    """A median with its 95% bootstrap interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Return the median of the values and its 95% interval from resampling them."""
    rng = random.Random(seed)
    medians = sorted(
        statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    return Interval(
        statistics.median(values),
        medians[int(0.025 * RESAMPLES)],
        medians[int(0.975 * RESAMPLES) - 1],
    )


def interleave(
    pairs: int, ours: Callable[[], T], reference: Callable[[], T], *, seed: int = 0
) -> list[tuple[T, T]]:
    """Call both once a pair, in an order drawn for each pair, so that a drifting machine favours
    neither.
    """
    rng = random.Random(seed)
    results = []
    for _ in range(pairs):
        if rng.random() < 0.5:
            first = ours()
            results.append((first, reference()))
        else:
            second = reference()
            results.append((ours(), second))
    return results


def ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Divide ours by the reference, pair by pair."""
    return [ours / reference for ours, reference in pairs]


def differences(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Subtract the reference from ours, pair by pair."""
    return [ours - reference for ours, reference in pairs]


def medians(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the median of ours and that of the reference."""
    return statistics.median(ours for ours, _ in pairs), statistics.median(
        reference for _, reference in pairs
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))]


def print_table(
    title: str, rows: Sequence[Row], *notes: str, headings: tuple[str, ...] = HEADINGS
) -> None:
    """Print a table in Markdown, under it the notes and the machine it was measured on."""
    cells = [headings, *((row.what, row.ours, row.reference, row.ratio, row.reach) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headings))]
    print(f"\n### {title}\n")
    for number, line in enumerate(cells):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    for note in (*notes, f"Machine: {describe_machine()}."):
        print(f"\n{note}")


def describe_machine() -> str:
    """Return in one line what was measured on: CPU, memory, GPU, versions, load, commit."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    try:
        torch_version = f"torch {metadata.version('torch')}"
    except metadata.PackageNotFoundError:
        torch_version = ""
    parts = [
        f"{os.cpu_count()} × {_cpu_name()}",
        f"{memory_gb:.0f} GB",
        _first_line(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]),
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
        torch_version,
        f"load {os.getloadavg()[0]:.1f}",
        (
            "commit "
            f"{_first_line(['git', '-C', str(ROOT), 'rev-parse', '--short', 'HEAD']) or 'unknown'}"
        ),
    ]
    return ", ".join(part for part in parts if part)


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _first_line(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else ""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Lend a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="compileboard-benchmark-") as folder:
        yield Path(folder)


def clean_environment(**more: str) -> dict[str, str]:
    """Return this environment without what would observe, trace or cache; with the checkout
    importable.
    """
    dropped = ("COMPILEBOARD_", "TORCH_TRACE", "TORCH_LOGS", "TORCH_COMPILE_DEBUG")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    inherited["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    )
    return {**inherited, **more}


@contextmanager
def observing(folder: Path, *, must_record: bool = True) -> Iterator[None]:
    """Have the hooks in this process, as `collectors run` puts them there; no recorder follows the
    spool.

    Raises: SystemExit if the hooks recorded nothing though they must: there would be nothing to
    compare.
    """
    from compileboard.collectors.contract.run_config import RunConfig
    from compileboard.collectors.observe import hooks
    from compileboard.collectors.record.live import child_environment

    spool = Path(tempfile.mkdtemp(prefix="spool-", dir=folder))
    armed = child_environment(RunConfig(database=str(folder / "unused.db")), {}, RUN_ID, spool)
    os.environ.update(
        {name: value for name, value in armed.items() if name.startswith("COMPILEBOARD_")}
    )
    hooks.install_from_environment()
    try:
        yield
    finally:
        hooks.uninstall_hooks()
    if must_record and not any(spool.iterdir()):
        raise SystemExit("the hooks recorded nothing; there is nothing to compare")


def require_gpu() -> None:
    """Raises: SystemExit where torch finds no GPU."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit(f"This needs an NVIDIA GPU, and torch {torch.__version__} finds none.")


def run_python(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run this Python with the arguments and return what it printed.

    Raises: SystemExit with the program's own words if it fails.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        env=dict(environment),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return done.stdout


def last_json(text: str) -> object:
    """Read the JSON on the last line a program printed."""
    return json.loads(text.strip().splitlines()[-1])
