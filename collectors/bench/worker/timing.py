"""Measure times, page faults and memory, and write profiles. Only in child processes."""

from __future__ import annotations

import contextlib
import gc
import random
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch._dynamo.testing import reset_rng_state

from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.steps import map_tensors
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome, describe_error
from compileboard.collectors.bench.worker.statistics import add_speedup
from compileboard.collectors.bench.worker.torch_setup import SEED
from compileboard.collectors.bench.worker.workbench import (
    Workbench,
    batch_dimension,
    eagerly,
    failing_as,
    first_eager_run,
)
from compileboard.collectors.record.memory import available_bytes, limit_memory

SHARE = 0.6  # A share of the free memory, because others use the machine too.
_OF_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)  # only on Linux


@contextlib.contextmanager
def limited_memory(share: float = SHARE) -> Iterator[int | None]:
    """Make allocations beyond a share of free memory fail inside the block; yield the number of
    bytes if known.
    """
    free = available_bytes()
    if free is None:
        yield None
        return
    before, extra = resource.getrlimit(resource.RLIMIT_DATA), int(free * share)
    limit_memory(extra)
    try:
        yield extra
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def count_page_faults(*, all_threads: bool = False) -> int | None:
    """Return the minor page faults of this thread or process so far, None if unavailable. A call
    takes about 0.5 µs.
    """
    if _OF_THREAD is None:
        return None
    return resource.getrusage(resource.RUSAGE_SELF if all_threads else _OF_THREAD).ru_minflt


@dataclass
class InterleavedRepeats:
    """Repeats of eager and compiled in order, in ms, and the page faults of each call if
    available.
    """

    repeats: dict[str, list[float]] = field(default_factory=lambda: {"eager": [], "compiled": []})
    page_faults: dict[str, list[float]] = field(
        default_factory=lambda: {"eager": [], "compiled": []}
    )

    def add(self, which: str, sample: tuple[float, float | None]) -> None:
        self.repeats[which].append(sample[0])
        if sample[1] is not None:
            self.page_faults[which].append(sample[1])

    def add_to(self, outcome: ExperimentOutcome) -> None:
        outcome.values |= self.fault_values()
        add_speedup(outcome, self.repeats)

    def fault_values(self) -> dict[str, float]:
        return {
            f"{which}_page_faults": median(counts)
            for which, counts in self.page_faults.items()
            if counts
        }


def time_call(
    bench: Workbench, step: Callable[..., Any], module: torch.nn.Module, inputs: Inputs
) -> tuple[float, float | None]:
    """Return the milliseconds and page faults of one call, averaged over `iterations_per_run`.

    On CUDA, events are used. The device is idle before and synchronized after, so they span the
    same work as a clock around both, without the latency of synchronization.
    """
    times = bench.settings.iterations_per_run
    reset_rng_state()
    bench.synchronize()
    # On CUDA autograd runs the backward pass in another thread with its own stack.
    all_threads = bench.settings.is_training and bench.settings.is_cuda
    before = count_page_faults(all_threads=all_threads)
    milliseconds = _time_ms(bench, step, module, inputs)
    after = count_page_faults(all_threads=all_threads)
    return milliseconds / times, None if before is None or after is None else (
        after - before
    ) / times


def _time_ms(
    bench: Workbench, step: Callable[..., Any], module: torch.nn.Module, inputs: Inputs
) -> float:
    times = bench.settings.iterations_per_run
    if bench.settings.is_cuda:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(times):
            step(module, inputs, collect_outputs=bench.settings.collect_outputs)
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end))
    start = time.perf_counter()
    for _ in range(times):
        step(module, inputs, collect_outputs=bench.settings.collect_outputs)
    return (time.perf_counter() - start) * 1e3


@dataclass(frozen=True)
class TimedCall:
    step: Callable[..., Any]
    module: torch.nn.Module
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


def interleave(
    bench: Workbench,
    eager: Callable[..., Any],
    compiled: Callable[..., Any],
    *,
    inputs: Inputs | None = None,
) -> InterleavedRepeats:
    sides = (
        TimedCall(eager, bench.module, eagerly),
        TimedCall(torch._dynamo.run(compiled), bench.module),
    )
    return take_turns(bench, *sides, inputs=inputs)


def take_turns(
    bench: Workbench, eager: TimedCall, compiled: TimedCall, *, inputs: Inputs | None = None
) -> InterleavedRepeats:
    turns = InterleavedRepeats()
    given = bench.inputs if inputs is None else inputs
    for number in range(bench.settings.repeat):
        now = randomized(given) if bench.settings.randomize_input else given
        if bench.batch_sizes and inputs is None:
            now = resize_batch(now, bench.batch_size or 0, bench.batch_sizes[number])
        for name, side in (("eager", eager), ("compiled", compiled)):
            with side.context():
                turns.add(name, time_call(bench, side.step, side.module, now))
    return turns


def time_beside_eager(bench: Workbench, compiled: Callable[..., Any]) -> InterleavedRepeats:
    """Time the eager step and an already compiled callable, such as a loaded package,
    alternately.
    """
    bench.stage("measure")
    eager = bench.steps.step()
    with first_eager_run():
        bench.warm_up(eager, bench.module)
    with failing_as("fail_to_run"):
        bench.warm_up(compiled, bench.module)
        return take_turns(
            bench, TimedCall(eager, bench.module, eagerly), TimedCall(compiled, bench.module)
        )


def time_loads(bench: Workbench, load: Callable[[], Any]) -> list[float]:
    """Return the seconds of repeated loads, each freed before the next. The first load is left out,
    because it also loads libraries.
    """
    loads_s = []
    for _ in range(bench.settings.cheap_repeats):
        begin_s = time.perf_counter()
        loaded = load()
        bench.synchronize()
        loads_s.append(time.perf_counter() - begin_s)
        del loaded
        gc.collect()
    return loads_s


def vary_batch(
    bench: Workbench, eager: Callable[..., Any], compiled: Callable[..., Any]
) -> dict[str, Any]:
    """Choose a batch size per repeat if only the batch is dynamic, and warm up the extremes.

    Both sides of a repeat have the same batch; upstream varies only the eager side. Returns the
    sizes as facts, or why they cannot vary. Source: timed of upstream's
    benchmarks/dynamo/common.py.
    """
    batch_size = bench.batch_size or 1
    if not bench.settings.dynamic_batch_only or batch_size == 1:
        return {}
    sizes = draw_batch_sizes(batch_size, bench.settings.repeat)
    collect_outputs = bench.settings.collect_outputs
    ends = [
        resize_batch(bench.inputs, batch_size, size) for size in sorted({min(sizes), max(sizes)})
    ]
    try:
        with eagerly():
            for inputs in ends:
                eager(bench.module, inputs, collect_outputs=collect_outputs)
    except Exception as error:  # the batch is not only in the model's inputs
        return {"batch_variation_error": describe_error(error)[:500]}
    for inputs in ends:
        compiled(bench.module, inputs, collect_outputs=collect_outputs)
    bench.batch_sizes = sizes
    return {"batch_sizes": sorted(set(sizes))}


def draw_batch_sizes(batch_size: int, count: int) -> list[int]:
    """Return sizes within a fifth of a batch size and at least 2, the same in every run."""
    draw = random.Random(SEED)  # noqa: S311 - no secret
    return [max(2, int(batch_size * draw.uniform(0.8, 1.2))) for _ in range(count)]


def resize_batch(inputs: Inputs, batch_size: int, size: int) -> Inputs:
    def resize(tensor: torch.Tensor) -> torch.Tensor:
        dimension = batch_dimension(tensor, batch_size)
        if dimension is None:
            return tensor
        rows = torch.arange(size, device=tensor.device).clamp(max=batch_size - 1)
        return tensor.index_select(dimension, rows)

    return map_tensors(resize, inputs)


def randomized(inputs: Inputs) -> Inputs:
    return map_tensors(
        lambda tensor: torch.randn_like(tensor) if tensor.is_floating_point() else tensor, inputs
    )


GB = 10**9  # as upstream
_RESET_PEAK = "5"  # to /proc/self/clear_refs, from Linux 4.0 on


def reset_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.empty_cache()
        return
    with contextlib.suppress(OSError):  # the peak is then that of the whole process so far
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)


def peak_gb(device: str) -> float | None:
    """Return the highest use since `reset_peak` in 10⁹ bytes, None if the system does not report
    it.
    """
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / GB
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / GB
    return None


def peak_of(device: str, work: Callable[[], object]) -> float | None:
    reset_peak(device)
    work()
    return peak_gb(device)


def output_path(bench: Workbench, kind: str, suffix: str, stem: str | None = None) -> Path:
    safe = safe_name(bench.ref.name)
    name = f"{bench.settings.label()}_{safe}_{kind}" if stem is None else f"{stem}_{safe}"
    rank = "" if bench.rank is None else f"_rank{bench.rank}"
    return output_folder(bench) / f"{name}{rank}{suffix}"


def output_folder(bench: Workbench) -> Path:
    folder = Path(bench.settings.output_directory or ".")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def safe_name(model: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in model)


@contextlib.contextmanager
def recording_file_errors(bench: Workbench, what: str) -> Iterator[None]:
    """Record an error in writing an additional file without failing, because the measurement
    remains valid.
    """
    try:
        yield
    except Exception as error:  # torch raises various exceptions here; reported with the result
        bench.artifact_errors.append(f"{what}: {describe_error(error)}")


def export_profile(
    bench: Workbench, step: Callable[..., Any], compiled: Callable[..., Any]
) -> None:
    if not bench.settings.export_profiler_trace:
        return
    bench.stage("profile")
    details = bench.settings.profile_details
    with recording_file_errors(bench, "profiler trace"):
        with torch.profiler.profile(
            record_shapes=True, profile_memory=details, with_stack=details
        ) as profile:
            with torch.profiler.record_function("expected"), eagerly():
                bench.call(step)
            with torch.profiler.record_function("actual"):
                bench.call(compiled)
            bench.synchronize()
        path = output_path(bench, "profile", ".json", bench.settings.profiler_trace_name)
        profile.export_chrome_trace(str(path))
        if not path.is_file():  # the profiler only logs that it cannot write
            raise OSError(f"{path} was not written")


@contextlib.contextmanager
def memory_snapshot(bench: Workbench, what: str) -> Iterator[None]:
    if not (bench.settings.snapshot_memory and bench.settings.is_cuda):
        yield
        return
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    try:
        yield
    finally:
        with recording_file_errors(bench, "memory snapshot"):
            torch.cuda.memory._dump_snapshot(str(output_path(bench, f"{what}_memory", ".pickle")))
        torch.cuda.memory._record_memory_history(enabled=None)
