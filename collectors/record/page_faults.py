"""Detect excessive page faults while a program compiles nothing, for docs/stack-cliff.md.

Such a program maps and unmaps a 16 KiB chunk thousands of times a second. Programs that fill new
arrays also cause faults, and others may map one chunk per step, so the rate decides. There are
three checks, each only if the previous one found something: the fault counter every second, the
memory map for a small range that appears and disappears, and that range's page a hundred times
within milliseconds.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.contract.events import (
    Compiled,
    CompileFailed,
    CompileStarted,
    Event,
    PageFaultsCounted,
    ProcessStarted,
)

WINDOW_S = 1.0
CALM_S = 2.0  # after a process's last event
MAX_WINDOWS = 3600
# Of a second of the program's processor time, because it may be waiting, or share the processor.
SUSPECT_FAULTS_PER_CPU_S, CLIFF_MAPS_PER_CPU_S = 2_000, 600
# CPython's mappings for frames; malloc's are a page longer than a power of two, and pymalloc's
# larger.
CHUNK_BYTES = frozenset({1 << 14, 1 << 15, 1 << 16, 1 << 17})
CANDIDATE_CHANGES = 2
BURST_SAMPLES, ENOUGH_BURSTS, MAX_SAMPLES = 100, 5, 60
PAUSE_S = 60.0  # before checking again after finding nothing
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
Range = tuple[int, int]


@dataclass(frozen=True)
class FaultCounter:
    fault_count: int
    cpu_ticks: int
    start_ticks: int  # since boot: distinguishes processes with the same pid


def read_counter(pid: int, proc: Path = PROC) -> FaultCounter | None:
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
        values = text.rpartition(")")[2].split()  # a program's name may contain spaces and brackets
        return FaultCounter(int(values[7]), int(values[11]) + int(values[12]), int(values[19]))
    except (OSError, ValueError, IndexError):
        return None


def writes_into(pid: int, folder: Path) -> bool:
    """Return whether a process has a spool file open. This detects a pid that was reused, or that
    is from a container's namespace.
    """
    try:
        with os.scandir(PROC / str(pid) / "fd") as entries:
            return any(os.readlink(entry.path).startswith(f"{folder}{os.sep}") for entry in entries)
    except OSError:
        return False


def read_anonymous(pid: int, proc: Path = PROC) -> frozenset[Range] | None:
    ranges = set()
    try:
        with (proc / str(pid) / "maps").open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                fields = line.split(None, 5)
                if len(fields) == 5 and fields[1] == "rw-p" and fields[4] == "0":
                    start, _, end = fields[0].partition("-")
                    ranges.add((int(start, 16), int(end, 16)))
    except (OSError, ValueError):
        return None
    return frozenset(ranges)


def count_mappings(pid: int, address: int) -> tuple[float, float] | None:
    """Sample one page for a few milliseconds; return how often it was mapped and the seconds taken.

    Changes between two samples are missed. None if the kernel does not show the page.
    """
    try:
        descriptor = os.open(PROC / str(pid) / "pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    changes, before = 0, None
    begin_s = time.monotonic()
    try:
        for _ in range(BURST_SAMPLES):
            present = os.pread(descriptor, 8, address // PAGE_BYTES * 8)[7:] >= b"\x80"
            changes += before is not None and present != before
            before = present
            time.sleep(1e-5)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return changes / 2, time.monotonic() - begin_s


def changed_ranges(before: frozenset[Range], after: frozenset[Range]) -> Iterator[Range]:
    edges: Counter[int] = Counter()
    for ranges, side in ((before - after, 1), (after - before, -1)):
        for start, end in ranges:
            edges[start] += side
            edges[end] -= side
    depth, begin = 0, 0
    for address in sorted(address for address, change in edges.items() if change):
        if depth:
            yield begin, address
        depth, begin = depth + edges[address], address


@dataclass(frozen=True)
class FaultWindow:
    start_us: int
    end_us: int
    fault_count: int
    cpu_us: int

    @property
    def cpu_share(self) -> float:
        return min(1.0, max(0.01, self.cpu_us / max(1, self.end_us - self.start_us)))

    @property
    def faults_per_cpu_s(self) -> float:
        return self.fault_count * 1e6 / max(1, self.end_us - self.start_us) / self.cpu_share

    def joined(self, later: FaultWindow) -> FaultWindow:
        faults, cpu_us = self.fault_count + later.fault_count, self.cpu_us + later.cpu_us
        return FaultWindow(self.start_us, later.end_us, faults, cpu_us)


class ProcessFaults:
    def __init__(self, process_id: str, pid: int, counter: FaultCounter, now_s: float) -> None:
        self.process_id = process_id
        self.pid = pid
        self.counter, self.counted_s = counter, now_s
        self.busy_s = now_s
        self.open_compiles: set[str] = set()
        self.windows: list[FaultWindow] = []
        self.anonymous: frozenset[Range] | None = None
        self.sample_count = self.burst_count = 0
        self.sample_after_s = 0.0
        self.changes: Counter[Range] = Counter()
        self.mapping_count = self.burst_cpu_s = 0.0
        self.is_on_cliff = False
        self.reported: tuple[int, bool] = (0, False)

    @property
    def is_suspect(self) -> bool:
        if not self.windows or self.windows[-1].end_us != int(self.counted_s * 1e6):
            return False
        return self.windows[-1].faults_per_cpu_s >= SUSPECT_FAULTS_PER_CPU_S

    def count(self, counter: FaultCounter, now_s: float, tick_us: int) -> None:
        if not self.open_compiles and self.busy_s + CALM_S <= self.counted_s:
            faults = counter.fault_count - self.counter.fault_count
            cpu_us = (counter.cpu_ticks - self.counter.cpu_ticks) * tick_us
            self.windows.append(
                FaultWindow(int(self.counted_s * 1e6), int(now_s * 1e6), faults, cpu_us)
            )
            if len(self.windows) > MAX_WINDOWS:
                self.windows[:2] = [self.windows[0].joined(self.windows[1])]
        self.counter, self.counted_s = counter, now_s

    def sample_map(self, now_s: float) -> None:
        anonymous = read_anonymous(self.pid)
        if anonymous is not None and self.anonymous is not None:
            changed = changed_ranges(self.anonymous, anonymous)
            self.changes.update(
                (start, end) for start, end in changed if end - start in CHUNK_BYTES
            )
        self.anonymous = anonymous
        self.sample_count += 1
        for (start, _end), change_count in self.changes.most_common(1):
            burst = count_mappings(self.pid, start) if change_count >= CANDIDATE_CHANGES else None
            if burst is not None:
                self.burst_count += 1
                self.mapping_count += burst[0]
                self.burst_cpu_s += burst[1] * self.windows[-1].cpu_share
        if (
            self.burst_count >= ENOUGH_BURSTS
            and self.mapping_count >= CLIFF_MAPS_PER_CPU_S * self.burst_cpu_s
        ):
            self.is_on_cliff = True
        elif self.sample_count >= MAX_SAMPLES:
            self.reset_samples()
            self.sample_after_s = now_s + PAUSE_S

    def reset_samples(self) -> None:
        self.anonymous, self.is_on_cliff = None, False
        self.sample_count = self.burst_count = 0
        self.mapping_count = self.burst_cpu_s = 0.0
        self.changes.clear()

    def forget_from(self, start_us: int) -> None:
        """Drop counts from `start_us` on, because the process was compiling. The compile of a
        backward is known only at its end.
        """
        if self.windows and self.windows[-1].end_us > start_us:
            self.windows = [window for window in self.windows if window.end_us <= start_us]
            self.reset_samples()

    def report(self, *, growth: float) -> Iterator[PageFaultsCounted]:
        """Yield the sum if it grew by `growth` since the last report, or if the verdict changed."""
        calm_us = sum(window.end_us - window.start_us for window in self.windows)
        known_us, was_on_cliff = self.reported
        if not calm_us or (calm_us < growth * known_us and was_on_cliff == self.is_on_cliff):
            return
        self.reported = calm_us, self.is_on_cliff
        end_us = int(self.counted_s * 1e6)
        yield PageFaultsCounted(
            process_id=self.process_id,
            sequence=-end_us,  # below zero, unlike the process's own events
            time_us=end_us,
            calm_us=calm_us,
            cpu_us=sum(window.cpu_us for window in self.windows),
            fault_count=sum(window.fault_count for window in self.windows),
            is_on_cliff=self.is_on_cliff,
        )


class FaultWatch:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, ProcessFaults] = {}
        self._tick_us = 1_000_000 // os.sysconf("SC_CLK_TCK")

    def track(self, event: Event) -> None:
        now_s = time.time()
        if isinstance(event, ProcessStarted) and event.process_id not in self._processes:
            counter = read_counter(event.pid)
            if counter is not None and writes_into(event.pid, self._folder):
                self._processes[event.process_id] = ProcessFaults(
                    event.process_id, event.pid, counter, now_s
                )
        process = self._processes.get(event.process_id)
        if process is None:
            return
        process.busy_s = now_s
        if isinstance(event, CompileStarted):
            process.open_compiles.add(str(event.compile_id))
        elif isinstance(event, (Compiled, CompileFailed)):
            process.open_compiles.discard(str(event.compile_id))
            if isinstance(event, Compiled) and isinstance(event.start_us, int):
                process.forget_from(event.start_us)

    def step(self) -> Iterator[PageFaultsCounted]:
        for process in list(self._processes.values()):
            now_s = time.time()
            if process.counted_s + WINDOW_S <= now_s:
                counter = read_counter(process.pid)
                if counter is None or counter.start_ticks != process.counter.start_ticks:
                    del self._processes[process.process_id]
                    yield from process.report(growth=1)
                    continue
                process.count(counter, now_s, self._tick_us)
                yield from process.report(growth=2)
            if process.is_suspect and not process.is_on_cliff and process.sample_after_s <= now_s:
                process.sample_map(now_s)

    def end(self) -> Iterator[PageFaultsCounted]:
        for process in self._processes.values():
            yield from process.report(growth=1)
        self._processes.clear()
