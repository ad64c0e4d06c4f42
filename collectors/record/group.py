"""Tell a signal sent to the whole process group from one sent to us alone.

`kill PID` to us must be passed on to the program; `kill -- -PGID` (a test harness, `timeout`, Jupyter) has reached the
program already, and a second SIGINT would interrupt its clean-up. Linux does not say which it was. So a `cat` stands
beside us in the group with these signals blocked: one that is pending there was sent to all.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

SETTLE_S = 0.01  # the kernel signals a group's processes one after the other


class GroupWatch:
    """Hold the process that stands by. Start it with the signals in question blocked: it inherits the mask."""

    def __init__(self) -> None:
        self._standing: subprocess.Popen[bytes] | None = None
        self._start()

    def _start(self) -> None:
        try:
            # It ends when its input does: with us, however we end.
            self._standing = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        except OSError:
            self._standing = None

    def was_sent_to_all(self, number: int) -> bool:
        """Tell whether a signal that reached us reached the group."""
        if self._standing is None:
            return False
        time.sleep(SETTLE_S)
        pending = _pending(self._standing.pid) >> (number - 1) & 1
        if pending:  # it stays pending for good, so another one has to stand there for the next
            self.close()
            self._start()
        return bool(pending)

    def close(self) -> None:
        """Send the standing process away."""
        if self._standing is not None:
            self._standing.kill()
            self._standing.communicate()
            self._standing = None


def _pending(pid: int) -> int:
    """Read the signals that wait for a process, as a bit mask."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    mask = 0
    for line in lines:
        if line.startswith(("SigPnd:", "ShdPnd:")):
            mask |= int(line.split()[1], 16)
    return mask
