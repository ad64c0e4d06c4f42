"""gunicorn's threaded worker, with time limits for clients: who waits for a client takes nothing from the others.

gunicorn 27's own gthread gives each new connection a thread for 5 s, silent or not, and a begun request a thread for as
long as it likes to stay. Its gevent worker has neither fault, but a query of SQLite stops every request beside it
(benchmarks/serve/stalled_clients.py has all three). Here a silent connection waits in the poller; a begun request has a
thread of its own, bounded by `Patience`; and `--threads` counts the requests that are worked on, not those that wait
for bytes.
"""

from __future__ import annotations

import errno
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from operator import itemgetter
from typing import Any

from gunicorn import util
from gunicorn.workers import gthread

HEADER_S = 20.0  # Apache's mod_reqtimeout has 20 s and 500 bytes/s too
SILENCE_S = 20.0
GRACE_S = 20.0
LEAST_BYTES_S = 500
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NO_ROOM_S = 0.1


class TooSlow(TimeoutError):
    """A client sent or took bytes slower than the limits allow."""

    def __init__(self) -> None:
        # Of all errors of a connection, gunicorn passes over only those of a client that went away without a traceback.
        super().__init__(errno.EPIPE, "the client was slower than the server's limits")


class Patience:
    """How long to wait for a client: a fixed time for a header, a least rate for the rest. Work is no waiting."""

    def __init__(self, fixed_s: float | None = None) -> None:
        self.waited_s = 0.0
        self.byte_count = 0
        self._fixed_s = fixed_s

    def get_left_s(self) -> float:
        """Return the seconds that the next byte may take."""
        allowed_s = GRACE_S + self.byte_count / LEAST_BYTES_S if self._fixed_s is None else self._fixed_s
        return min(SILENCE_S, allowed_s - self.waited_s)


class ClientSocket(socket.socket):
    """A connection whose waits are bounded, and give the working permit back while they last."""

    def __init__(self, accepted: socket.socket, permits: threading.Semaphore) -> None:
        super().__init__(fileno=accepted.detach())
        super().settimeout(0.0)  # for Python; who waits, and how long, is said here alone
        self._timeout_s: float | None = None
        self._permits = permits
        self._has_permit = False
        self.patience = Patience(HEADER_S)

    def begin_work(self) -> None:
        """Wait for the permit to work; what the client sends from now on is a body."""
        self._take_permit()
        self.patience = Patience()

    def _take_permit(self) -> None:
        self._permits.acquire()
        self._has_permit = True

    def end_work(self) -> None:
        """Release the permit."""
        if self._has_permit:
            self._has_permit = False
            self._permits.release()

    def settimeout(self, value: float | None) -> None:
        """Bound each wait further."""
        self._timeout_s = value

    def setblocking(self, flag: bool) -> None:
        """Wait as long as the limits allow, or not at all."""
        self._timeout_s = None if flag else 0.0

    def gettimeout(self) -> float | None:
        """Return what was set."""
        return self._timeout_s

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive what there is; wait for it within the limits.

        Raises: TooSlow; OSError.
        """
        while True:
            with suppress(BlockingIOError):
                data = super().recv(size, flags)
                self.patience.byte_count += len(data)
                return data
            self._wait(select.POLLIN)

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all of it within the limits.

        Raises: TooSlow; OSError.
        """
        view = memoryview(data).cast("B")
        while view:
            sent = 0
            with suppress(BlockingIOError):
                sent = super().send(view, flags)
                self.patience.byte_count += sent
                view = view[sent:]
            if not sent:
                self._wait(select.POLLOUT)

    def _wait(self, event: int) -> None:
        left_s = self.patience.get_left_s()
        if self._timeout_s is not None:
            left_s = min(left_s, self._timeout_s)
        if left_s <= 0:
            raise TooSlow
        waiting = select.poll()
        waiting.register(self, event)
        began_s = time.monotonic()
        try:
            with self.without_permit():
                if not waiting.poll(left_s * 1000):
                    raise TooSlow
        finally:
            self.patience.waited_s += time.monotonic() - began_s

    @contextmanager
    def without_permit(self) -> Iterator[None]:
        """Let others work while this one waits."""
        worked = self._has_permit
        self.end_work()
        try:
            yield
        finally:
            if worked:
                self._take_permit()


class Worker(gthread.ThreadWorker):  # type: ignore[misc]  # gunicorn ships no types
    """Threads for requests that have begun, permits for those that are worked on."""

    def get_thread_pool(self) -> ThreadPoolExecutor:
        """Make a pool that starts a thread when one is needed, up to one a connection."""
        self.permits = threading.Semaphore(self.cfg.threads)
        return ThreadPoolExecutor(max_workers=self.worker_connections)

    def accept(self, listener: socket.socket) -> None:
        """Take a connection, and let the poller wait for its first byte."""
        try:
            accepted, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            time.sleep(NO_ROOM_S)  # the listener stays readable, and the loop would only turn faster
            return
        connection = gthread.TConn(self.cfg, ClientSocket(accepted, self.permits), address, listener.getsockname())
        connection.timeout = time.monotonic() + HEADER_S
        self.nr_conns += 1
        self.pending_conns.append(connection)
        self.poller.register(
            connection.sock, gthread.selectors.EVENT_READ, partial(self.on_pending_socket_readable, connection)
        )

    def murder_pending(self) -> None:
        """Close what waited too long, and where there is no room for another connection the one that is silent longest.

        Else gunicorn would stop listening until one ends.
        """
        super().murder_pending()
        while self.nr_conns >= self.worker_connections and (idle := self._pick_silent_longest()):
            connection = idle.popleft()
            self.poller.unregister(connection.sock)
            self.nr_conns -= 1
            connection.close()

    def _pick_silent_longest(self) -> deque[Any] | None:
        """Pick the queue whose first connection is silent longest: who has just come is the last to go."""
        waits = ((self.pending_conns, HEADER_S), (self.keepalived_conns, self.cfg.keepalive))
        began_s = [(queue[0].timeout - limit_s, queue) for queue, limit_s in waits if queue]
        return min(began_s, key=itemgetter(0))[1] if began_s else None

    def _cap_keepalive(self, deadline: float) -> None:
        """Let who is connected and silent wait no longer than this when the server stops: a browser connects ahead."""
        super()._cap_keepalive(deadline)
        for connection in self.pending_conns:
            connection.timeout = min(connection.timeout, deadline)

    def handle(self, conn: Any) -> Any:
        """Read the header within its limit, then work; where the connection ends, close it here and not in the loop."""
        conn.sock.patience = Patience(HEADER_S)
        try:
            keeps = super().handle(conn)
        finally:
            conn.sock.end_work()
        if not keeps:
            util.close_graceful(conn.sock)  # may wait 2 s
        return keeps

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Answer one request while holding a permit, without it where the client has to be waited for."""
        conn.sock.begin_work()
        return super().handle_request(req, conn)
