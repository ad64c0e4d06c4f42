"""Page faults, as the harness counts them."""

from __future__ import annotations

import contextlib
import mmap
import sys
import threading

import pytest

from compileboard.collectors.bench.worker.timing import count_page_faults

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux counts them by thread")
PAGES = 256


def touch_pages() -> None:
    with mmap.mmap(
        -1, PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    ) as memory:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        for position in range(0, len(memory), mmap.PAGESIZE):
            memory[position] = 1


@pytest.mark.parametrize("all_threads", [False, True])
def test_page_faults_are_this_threads_or_all_threads(all_threads: bool) -> None:
    before = count_page_faults(all_threads=all_threads)
    thread = threading.Thread(target=touch_pages)
    thread.start()
    thread.join()
    between = count_page_faults(all_threads=all_threads)
    touch_pages()
    after = count_page_faults(all_threads=all_threads)
    assert before is not None and between is not None and after is not None
    assert (between - before >= PAGES) == all_threads
    assert after - between >= PAGES
