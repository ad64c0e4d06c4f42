"""Run numbered tasks in worker processes, items in order, with a bounded lead over the reader."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait
from typing import IO, Any

# Items that a process is ahead of who takes them: its memory and its disk are bounded so.
AHEAD_COUNT = 16
INLINE_BYTES = 16 << 10  # a larger item goes through a file: a pipe would stop who made it
_GO_ON = -1
_END = -2
_NO_ITEM = object()


def can_fork() -> bool:
    return "fork" in multiprocessing.get_all_start_methods()


class Processes:
    def __init__(
        self, work: Callable[[int], Iterator[Any]], task_count: int, process_count: int
    ) -> None:
        self._unassigned = deque(range(task_count))
        self._came: dict[int, deque[tuple[str, Any]]] = {
            number: deque() for number in range(task_count)
        }
        self._opened = ExitStack()
        self._files: dict[Connection, list[IO[bytes]]] = {}
        self._processes: dict[Connection, Any] = {}
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe() for _ in range(min(process_count, task_count))]
        for ours, theirs in pipes:
            files = map(tempfile.TemporaryFile, ["w+b"] * AHEAD_COUNT)
            self._files[ours] = [self._opened.enter_context(file) for file in files]
            others = [end for pair in pipes for end in pair if end is not theirs]
            process = context.Process(
                target=_serve, args=(theirs, others, self._files[ours], work), daemon=True
            )
            process.start()
            self._processes[ours] = process
        for _ours, theirs in pipes:
            theirs.close()
        for connection in [
            *self._processes,
            *self._processes,
        ]:  # the second to go on with while nobody listens here
            self._assign(connection)

    def read(self, number: int) -> Iterator[Any]:
        """Yield a task's items; tasks must be read in order.

        Raises the task's exception, or ChildProcessError if its process died.
        """
        while True:
            while not self._came[number]:
                self._listen()
            kind, value = self._came[number].popleft()
            if kind == "end":
                return
            if kind == "raised":
                raise value
            yield value if kind == "item" else self._fetch(*value)

    def close(self) -> None:
        for connection, process in self._processes.items():
            process.terminate()
            process.join()
            connection.close()
        self._opened.close()
        self._processes.clear()

    def _listen(self) -> None:
        for connection in wait(list(self._processes)):
            assert isinstance(connection, Connection)
            try:
                number, kind, value = connection.recv()
            except (EOFError, OSError) as error:
                process = self._processes[connection]
                process.join()
                raise ChildProcessError(
                    f"A process that read logs ended with exit code {process.exitcode}. What "
                    "it read before is kept; "
                    "import again with --jobs 1."
                ) from error
            self._came[number].append((kind, (connection, *value) if kind == "filed" else value))
            if kind in ("end", "raised"):
                self._assign(connection)

    def _assign(self, connection: Connection) -> None:
        connection.send(self._unassigned.popleft() if self._unassigned else _END)

    def _fetch(self, connection: Connection, slot: int, size_bytes: int) -> Any:
        body = os.pread(self._files[connection][slot].fileno(), size_bytes, 0)
        value = pickle.loads(body)  # noqa: S301 - written by our own process
        connection.send(_GO_ON)
        return value


class _Sender:
    def __init__(self, connection: Connection, files: list[IO[bytes]]) -> None:
        self._connection = connection
        self._files = files
        self._tasks: deque[int] = deque()
        self._free = deque(range(len(files)))
        self._used: deque[int] = deque()

    def next_task(self) -> int | None:
        while not self._tasks:
            self._listen()
        number = self._tasks.popleft()
        return None if number == _END else number

    def send(self, number: int, kind: str, value: Any = None) -> None:
        self._connection.send((number, kind, value))

    def send_item(self, number: int, item: Any) -> None:
        body = pickle.dumps(item, protocol=5)
        if len(body) <= INLINE_BYTES:
            self.send(number, "item", item)
            return
        while not self._free:
            self._listen()
        slot = self._free.pop()  # the file used last, whose pages are there
        file = self._files[slot]
        written = 0
        while written < len(body):
            written += os.pwrite(file.fileno(), memoryview(body)[written:], written)
        self._used.append(slot)
        self.send(number, "filed", (slot, len(body)))

    def _listen(self) -> None:
        message = self._connection.recv()
        if message == _GO_ON:
            self._free.append(self._used.popleft())
        else:
            self._tasks.append(message)


def _serve(
    connection: Connection,
    others: list[Connection],
    files: list[IO[bytes]],
    work: Callable[[int], Iterator[Any]],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who waits for the items ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()
    sender = _Sender(connection, files)
    try:
        while (number := sender.next_task()) is not None:
            items = work(number)
            while True:
                try:
                    item = next(items, _NO_ITEM)
                except Exception as error:
                    sender.send(number, "raised", _sendable(error))
                    break
                if item is _NO_ITEM:
                    sender.send(number, "end")
                    break
                sender.send_item(number, item)
        while True:
            connection.recv()  # until who takes the items has them all
    except (EOFError, OSError):
        pass  # nobody waits any more


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - written by our own process
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
