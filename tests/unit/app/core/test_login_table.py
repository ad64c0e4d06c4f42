"""A table that processes share: no update is lost, a killed process blocks nobody, the oldest
record gives way.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from compileboard.app.core.login_records import SharedRecord, SharedTable


def fork(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def count_up(table: SharedTable, times: int) -> None:
    for _ in range(times):
        table.update(b"n", lambda before: SharedRecord((before.touched if before else 0) + 1, b""))


def read(table: SharedTable, name: bytes) -> int | None:
    record = table.update(name, lambda before: before)
    return None if record is None else record.touched


def test_no_update_of_two_processes_is_lost() -> None:
    table = SharedTable("test", value_bytes=0)
    children = [fork(lambda: count_up(table, 3000)) for _ in range(3)]
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    assert read(table, b"n") == 9000


def test_a_process_that_is_killed_while_it_writes_blocks_nobody() -> None:
    table = SharedTable("test", value_bytes=0)
    reads, writes = os.pipe()

    def hang(before: SharedRecord | None) -> SharedRecord | None:
        os.write(writes, b"x")
        signal.pause()
        return before

    pid = fork(lambda: table.update(b"n", hang))
    assert os.read(reads, 1) == b"x"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    count_up(table, 1)
    assert read(table, b"n") == 1
    os.close(reads), os.close(writes)


def test_a_process_has_one_table_at_a_time() -> None:
    """Else the kernel takes what two processes do with two tables for a deadlock, and refuses a
    lock.
    """
    first, second = (SharedTable("test", value_bytes=0) for _ in range(2))
    order: list[str] = []

    def change_second(_before: SharedRecord | None) -> None:
        order.append("second")

    def change_first(_before: SharedRecord | None) -> None:
        thread.start()
        thread.join(0.2)
        order.append("first")

    thread = threading.Thread(target=second.update, args=(b"n", change_second))
    first.update(b"n", change_first)
    thread.join()
    assert order == ["first", "second"]


def test_a_full_set_gives_the_place_of_the_oldest() -> None:
    table = SharedTable("test", value_bytes=1)
    for number in range(9):
        table.update(b"%d" % number, lambda _, number=number: SharedRecord(9 - number, b"x"))  # type: ignore[misc]
    assert [read(table, b"%d" % number) for number in range(9)] == [9, 8, 7, 6, 5, 4, 3, None, 1]
    table.update(b"8", lambda _: None)
    assert read(table, b"8") is None
