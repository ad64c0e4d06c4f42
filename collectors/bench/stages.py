"""How far a child process is, and how long each part took it: what is known of one that dies, and where time went."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Stages:
    """Note each stage as it begins. The first is the interpreter's own start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}
        self._name = "start"
        self._began_s = time.monotonic() - (_age_s() or 0.0)

    def begin(self, name: str) -> None:
        """End the stage before and note this one where the parent can read it."""
        self._close()
        self._name = name
        (self.folder / "stage").write_text(name)

    def durations(self) -> dict[str, float]:
        """Return what each stage has taken so far.

        Units: seconds.
        """
        self._close()
        return {name: round(value, 3) for name, value in self.seconds.items()}

    def _close(self) -> None:
        now_s = time.monotonic()
        self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now_s - self._began_s
        self._began_s = now_s


def _age_s() -> float | None:
    """Return how long this process has existed, as Linux tells it."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
