"""Peak memory of a piece of work: the GPU's as its allocator saw it, or the process's. Child processes only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import torch

GB = 10**9  # as upstream
_RESET_PEAK = "5"  # to /proc/self/clear_refs, from Linux 4.0 on


def reset_peak(device: str) -> None:
    """Begin to look for the highest use from here on."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.empty_cache()
        return
    with contextlib.suppress(OSError):  # the peak is then that of the whole process so far
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)


def peak_gb(device: str) -> float | None:
    """Return the highest use since `reset_peak`; None where the system does not tell.

    Units: 10⁹ bytes.
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
    """Do something; return the highest use meanwhile.

    Units: 10⁹ bytes.
    """
    reset_peak(device)
    work()
    return peak_gb(device)
