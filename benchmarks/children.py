"""Run other programs pinned to cores and say what they took: wall time, CPU time, peak memory, output."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TLPARSE = "0.4.3"


@dataclass(frozen=True)
class Measured:
    """Hold what one run took. Memory is the highest of the program and the children it waited for."""

    wall_s: float
    cpu_s: float
    rss_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class Pinned:
    """Run programs on a few cores of this machine, the last ones that this process may use."""

    cores: int
    environment: Mapping[str, str]

    def measure(self, command: Sequence[str], output: Path) -> Measured:
        """Run a program that writes `output` (a file with its companions, or a folder), which is removed before.

        Its peak memory is at least this process's at the start, so keep large things out of this process.
        Raises: SystemExit with the program's own words if it fails.
        """
        _remove(output)
        os.sync()  # what an earlier program wrote is not written back while this one runs
        with tempfile.TemporaryFile() as said:
            began = time.perf_counter()
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=self.environment, preexec_fn=self._pin
            )
            _, status, usage = os.wait4(child.pid, 0)
            wall_s = time.perf_counter() - began
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode:
                said.seek(0)
                words = said.read()[-3000:].decode(errors="replace")
                raise SystemExit(f"{' '.join(command)} ended with {child.returncode}:\n{words}")
        return Measured(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, _size(output))

    def _pin(self) -> None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-self.cores :])


def find_tlparse(folder: Path) -> str | None:
    """Return the path of tlparse: the one on PATH, else its wheel's from PyPI, unpacked into the folder."""
    found = shutil.which("tlparse")
    if found:
        return found
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    if subprocess.run([*pip, f"tlparse=={TLPARSE}"], capture_output=True, check=False).returncode:
        return None
    (wheel,) = folder.glob("tlparse-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/scripts/tlparse"))
        program = Path(archive.extract(name, folder))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def _companions(output: Path) -> list[Path]:
    return [path for path in output.parent.glob(f"{output.name}*") if path.is_file()]


def _remove(output: Path) -> None:
    if output.is_dir():
        shutil.rmtree(output)
    for path in _companions(output):
        path.unlink()


def _size(output: Path) -> int:
    files = output.rglob("*") if output.is_dir() else iter(_companions(output))
    return sum(path.stat().st_size for path in files if path.is_file())
