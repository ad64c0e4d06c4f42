"""Peak memory, profiler trace and memory snapshot. Child processes only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from compileboard.collectors.bench.worker.workbench import Workbench, eagerly

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
def side_file(bench: Workbench, what: str) -> Iterator[None]:
    """Record an error in writing a side file without failing; the measurement remains valid."""
    try:
        yield
    except Exception as error:  # torch raises what it likes here; it is told with the result
        bench.artifact_errors.append(f"{what}: {type(error).__name__}: {error}")


def export_profile(
    bench: Workbench, step: Callable[..., Any], compiled: Callable[..., Any]
) -> None:
    if not bench.settings.export_profiler_trace:
        return
    bench.stage("profile")
    details = bench.settings.profile_details
    with side_file(bench, "profiler trace"):
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
    if not (bench.settings.snapshot_memory and bench.settings.device == "cuda"):
        yield
        return
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    try:
        yield
    finally:
        with side_file(bench, "memory snapshot"):
            torch.cuda.memory._dump_snapshot(str(output_path(bench, f"{what}_memory", ".pickle")))
        torch.cuda.memory._record_memory_history(enabled=None)
