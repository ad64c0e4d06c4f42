"""Page faults of a call: tens of them in every warm call mean that CPython's frame stack is mapped anew.

The compiled code is then charged for what the interpreter does; docs/stack-cliff.md has the measurement.
"""

from __future__ import annotations

try:
    import resource
except ImportError:  # Windows
    _THREAD = _PROCESS = None
else:
    _THREAD, _PROCESS = getattr(resource, "RUSAGE_THREAD", None), resource.RUSAGE_SELF  # the first is Linux's


def count_page_faults(*, all_threads: bool = False) -> int | None:
    """Return how many pages this thread, or the process, has mapped so far without reading a disk.

    None where nobody counts. It takes some 0.5 µs.
    """
    who = _PROCESS if all_threads else _THREAD
    return None if _THREAD is None or who is None else resource.getrusage(who).ru_minflt
