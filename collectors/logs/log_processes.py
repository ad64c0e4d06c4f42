"""Run tasks in worker processes that yield items in order, a bounded number ahead of the reader."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

# Items that a process may be ahead of its reader, which bounds memory.
AHEAD_COUNT = 16


def can_fork() -> bool:
    return "fork" in multiprocessing.get_all_start_methods()


class WorkerProcesses:
    def __init__(
        self, work: Callable[[int], Iterable[Any]], task_count: int, process_count: int
    ) -> None:
        context = multiprocessing.get_context("fork")
        count = min(process_count, task_count)
        pipes = [context.Pipe(duplex=False) for _ in range(count)]
        self._processes: list[tuple[Any, Connection]] = []
        for number, (ours, theirs) in enumerate(pipes):
            others = [end for pair in pipes for end in pair if end is not theirs]
            tasks = range(number, task_count, count)
            process = context.Process(
                target=_run_worker, args=(theirs, others, work, tasks), daemon=True
            )
            process.start()
            self._processes.append((process, ours))
        for _ours, theirs in pipes:
            theirs.close()

    def read(self, number: int) -> Iterator[Any]:
        """Yield a task's items; tasks must be read in order.

        Raises the task's exception, or ChildProcessError if its process died.
        """
        process, connection = self._processes[number % len(self._processes)]
        while True:
            try:
                body = connection.recv_bytes()
            except (EOFError, OSError) as error:
                process.join()
                raise ChildProcessError(
                    f"A process that read logs ended with exit code {process.exitcode}. What "
                    "it read before is kept; "
                    "import again with --jobs 1."
                ) from error
            kind, value = pickle.loads(body)  # noqa: S301 - written by our own process
            if kind == "end":
                return
            if kind == "raised":
                raise value
            yield value

    def close(self) -> None:
        for process, connection in self._processes:
            process.terminate()
            process.join()
            connection.close()
        self._processes.clear()


def _run_worker(
    connection: Connection,
    others: Iterable[Connection],
    work: Callable[[int], Iterable[Any]],
    tasks: Iterable[int],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the reader ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()
    ahead: queue.Queue[bytes | None] = queue.Queue(AHEAD_COUNT)
    sender = threading.Thread(target=_send_items, args=(connection, ahead))
    sender.start()
    for number in tasks:
        try:
            for item in work(number):
                ahead.put(pickle.dumps(("item", item), protocol=5))
            end = pickle.dumps(("end", None))
        except Exception as error:
            end = _dump_error(error)
        ahead.put(end)
    ahead.put(None)
    sender.join()


def _send_items(connection: Connection, ahead: queue.Queue[bytes | None]) -> None:
    while (body := ahead.get()) is not None:
        try:
            connection.send_bytes(body)
        except OSError:  # the reader is gone
            os._exit(0)


def _dump_error(error: Exception) -> bytes:
    try:
        body = pickle.dumps(("raised", error))
        pickle.loads(body)  # noqa: S301 - written by our own process
    except Exception:
        return pickle.dumps(("raised", RuntimeError(f"{type(error).__name__}: {error}")))
    return body
