"""The bound that keeps a search for the largest batch from exhausting the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from compileboard.collectors.record.memory import available_bytes
from tests.tools.observed import ROOT

GREEDY = """
from compileboard.collectors.bench.worker.timing import limited_memory
with limited_memory(0.001) as extra:
    try:
        bytearray(2 * extra)
    except MemoryError:
        print("refused")
print(len(bytearray(2 * extra)) == 2 * extra)
"""


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_the_container_counts_where_it_has_less_than_the_machine(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None
    write(tmp_path, "proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    4096 kB\n")
    assert available_bytes(tmp_path) == 4096 * 1024
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    write(tmp_path, "sys/fs/cgroup/memory.current", "1000\n")
    assert available_bytes(tmp_path) == 4096 * 1024
    write(tmp_path, "sys/fs/cgroup/memory.max", "5000\n")
    assert available_bytes(tmp_path) == 4000


@pytest.mark.nightly
def test_more_than_the_share_is_refused_and_afterwards_it_is_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GREEDY], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["refused", "True"], done.stderr
