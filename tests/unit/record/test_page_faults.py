from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.events import (
    Compiled,
    CompileStarted,
    PageFaultsCounted,
    ProcessStarted,
)
from compileboard.collectors.record import page_faults
from compileboard.collectors.record.page_faults import (
    FaultWatch,
    changed_ranges,
    read_anonymous,
    read_counter,
)
from tests.tools.observed import PROGRAMS

PAGE = 4096


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_faults, "WINDOW_S", 0.2)
    monkeypatch.setattr(page_faults, "CALM_S", 0.0)


@contextmanager
def standing(mode: str, folder: Path) -> Iterator[int]:
    """Run a program that stands on the cliff, or does not; give its pid once it stands there."""
    command = [sys.executable, str(PROGRAMS / "frame_stack.py"), mode, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            if program.stdout.readline() != "ready\n":
                pytest.skip(f"CPython {sys.version.split()[0]} has no frame-stack cliff")
            yield program.pid
        finally:
            program.kill()


def started(pid: int) -> ProcessStarted:
    return ProcessStarted(process_id="p", sequence=0, time_us=0, run_id="r", pid=pid)


def watch_for(
    seconds: float, watch: FaultWatch, until_cliff: bool = False
) -> list[PageFaultsCounted]:
    end, counted = time.monotonic() + seconds, []
    while time.monotonic() < end and not (until_cliff and counted and counted[-1].is_on_cliff):
        counted += watch.step()
        time.sleep(0.03)
    return counted


def test_watch_names_a_program_on_the_cliff(tmp_path: Path) -> None:
    with standing("cliff", tmp_path) as pid:
        watch = FaultWatch(tmp_path)
        watch.track(started(pid))
        counted = watch_for(30, watch, until_cliff=True)[-1]
    assert counted.is_on_cliff and counted.process_id == "p" and counted.sequence < 0
    assert counted.fault_count > 2_000 * counted.cpu_us / 1e6


@pytest.mark.parametrize("mode", ["calm", "arrays", "slow"])
def test_watch_does_not_name_a_program_whose_faults_are_its_arrays(
    tmp_path: Path, mode: str
) -> None:
    with standing(mode, tmp_path) as pid:
        watch = FaultWatch(tmp_path)
        watch.track(started(pid))
        counted = [*watch_for(3, watch), *watch.end()][-1]
    assert not counted.is_on_cliff and counted.calm_us > 500_000
    assert (counted.fault_count > 1_000) == (mode != "calm")


def test_watch_counts_nothing_while_a_compile_is_open(tmp_path: Path) -> None:
    with standing("calm", tmp_path) as pid:
        watch = FaultWatch(tmp_path)
        watch.track(started(pid))
        watch.track(CompileStarted("p", 1, 0, compile_id="0/0"))
        assert watch_for(0.7, watch) == []
        watch.track(Compiled("p", 2, 0, compile_id="0/0", start_us=0))
        assert watch_for(0.7, watch) != []


def test_watch_drops_what_it_counted_during_a_compile_heard_of_at_its_end(tmp_path: Path) -> None:
    with standing("calm", tmp_path) as pid:
        watch = FaultWatch(tmp_path)
        watch.track(started(pid))
        assert watch_for(0.7, watch) != []
        watch.track(Compiled("p", 1, 0, compile_id="0/0", record_kind="backward", start_us=0))
        assert list(watch.end()) == []


def test_watch_leaves_a_pid_alone_that_does_not_write_into_the_spool(tmp_path: Path) -> None:
    mine, others = tmp_path / "mine", tmp_path / "others"
    others.mkdir()
    with standing("calm", others) as pid:
        watch = FaultWatch(mine)
        watch.track(started(pid))
        assert watch_for(0.5, watch) == []


def test_read_counter_takes_a_name_with_spaces_and_brackets(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    fields = [
        "S",
        *map(str, range(4, 53)),
    ]  # numbered as proc(5) numbers them: minflt is 10, utime 14, start 22
    (tmp_path / "7" / "stat").write_text(f"7 (a) b (c) {' '.join(fields)}\n")
    assert read_counter(7, tmp_path) == page_faults.FaultCounter(10, 14 + 15, 22)
    assert read_counter(8, tmp_path) is None and read_anonymous(8, tmp_path) is None


BOUNDS = st.lists(st.integers(1, 60), min_size=2, max_size=12, unique=True).map(sorted)


def pages(ranges: frozenset[page_faults.Range]) -> set[int]:
    return {page for start, end in ranges for page in range(start, end)}


@given(BOUNDS, BOUNDS)
def test_changed_ranges_are_the_pages_of_one_map_only(first: list[int], second: list[int]) -> None:
    before, after = (
        frozenset(zip(ranges[::2], ranges[1::2], strict=False)) for ranges in (first, second)
    )
    changed = list(changed_ranges(before, after))
    assert pages(frozenset(changed)) == pages(before) ^ pages(after)


def test_changed_ranges_see_a_chunk_that_the_kernel_joined_to_its_neighbour() -> None:
    before, after = frozenset({(16 * PAGE, 32 * PAGE)}), frozenset({(12 * PAGE, 32 * PAGE)})
    assert list(changed_ranges(before, after)) == [(12 * PAGE, 16 * PAGE)]
