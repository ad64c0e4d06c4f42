"""gunicorn's threaded worker with time limits for clients, so that slow clients block no others.

gunicorn 27's gthread gives each new connection a thread for 5 s, even if it is silent, and a
started request a thread without limit. Its gevent worker has neither problem, but an SQLite query
blocks every other request (benchmarks/serve/stalled_clients.py measures all three). Here a silent
connection waits in the poller; a started request has its own thread, limited by `ClientTimeout`;
and `--threads` limits the requests being processed, not those waiting for bytes.
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

HEADER_S = 20.0  # as in Apache's mod_reqtimeout, with 500 bytes/s
SILENCE_S = 20.0
GRACE_S = 20.0
MIN_BYTES_S = 500
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NO_ROOM_S = 0.1


class ClientTooSlow(TimeoutError):
    """A client sent or received bytes more slowly than the limits allow."""

    def __init__(self) -> None:
        # gunicorn omits the traceback only for connection errors of a client that went away.
        super().__init__(errno.EPIPE, "the client was slower than the server's limits")


class ClientTimeout:
    """Time limits of a client: a fixed time for the header, a minimum rate for the rest. Processing
    does not count.
    """

    def __init__(self, fixed_s: float | None = None) -> None:
        self.waited_s = 0.0
        self.byte_count = 0
        self._fixed_s = fixed_s

    def get_left_s(self) -> float:
        """Return the seconds that the next byte may take."""
        allowed_s = (
            GRACE_S + self.byte_count / MIN_BYTES_S if self._fixed_s is None else self._fixed_s
        )
        return min(SILENCE_S, allowed_s - self.waited_s)


class ClientSocket(socket.socket):
    """A connection with limited waits. It releases its permit to process a request while it
    waits.
    """

    def __init__(self, accepted: socket.socket, permits: threading.Semaphore) -> None:
        super().__init__(fileno=accepted.detach())
        super().settimeout(0.0)  # non-blocking: this class does all waiting
        self._timeout_s: float | None = None
        self._permits = permits
        self._has_permit = False
        self.client_timeout = ClientTimeout(HEADER_S)

    def begin_work(self) -> None:
        self._take_permit()
        self.client_timeout = ClientTimeout()

    def _take_permit(self) -> None:
        self._permits.acquire()
        self._has_permit = True

    def end_work(self) -> None:
        if self._has_permit:
            self._has_permit = False
            self._permits.release()

    def settimeout(self, value: float | None) -> None:
        """Set the timeout of one operation, as `socket.settimeout` does."""
        self._timeout_s = value

    def setblocking(self, flag: bool) -> None:
        self._timeout_s = None if flag else 0.0

    def gettimeout(self) -> float | None:
        return self._timeout_s

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive data. Raises ClientTooSlow if none arrives within the limits, OSError."""
        while True:
            with suppress(BlockingIOError):
                data = super().recv(size, flags)
                self.client_timeout.byte_count += len(data)
                return data
            self._wait(select.POLLIN)

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send data. Raises ClientTooSlow if the client does not receive it within the limits,
        OSError.
        """
        view = memoryview(data).cast("B")
        while view:
            sent = 0
            with suppress(BlockingIOError):
                sent = super().send(view, flags)
                self.client_timeout.byte_count += sent
                view = view[sent:]
            if not sent:
                self._wait(select.POLLOUT)

    def _wait(self, event: int) -> None:
        left_s = self.client_timeout.get_left_s()
        if self._timeout_s is not None:
            left_s = min(left_s, self._timeout_s)
        if left_s <= 0:
            raise ClientTooSlow
        waiting = select.poll()
        waiting.register(self, event)
        began_s = time.monotonic()
        try:
            with self.without_permit():
                if not waiting.poll(left_s * 1000):
                    raise ClientTooSlow
        finally:
            self.client_timeout.waited_s += time.monotonic() - began_s

    @contextmanager
    def without_permit(self) -> Iterator[None]:
        worked = self._has_permit
        self.end_work()
        try:
            yield
        finally:
            if worked:
                self._take_permit()


class Worker(gthread.ThreadWorker):  # type: ignore[misc]  # gunicorn ships no types
    """One thread per started request, and permits for those being processed."""

    def get_thread_pool(self) -> ThreadPoolExecutor:
        self.permits = threading.Semaphore(self.cfg.threads)
        return ThreadPoolExecutor(max_workers=self.worker_connections)

    def accept(self, listener: socket.socket) -> None:
        try:
            accepted, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            time.sleep(NO_ROOM_S)  # the listener stays readable, so the loop would only spin
            return
        connection = gthread.TConn(
            self.cfg, ClientSocket(accepted, self.permits), address, listener.getsockname()
        )
        connection.timeout = time.monotonic() + HEADER_S
        self.nr_conns += 1
        self.pending_conns.append(connection)
        self.poller.register(
            connection.sock,
            gthread.selectors.EVENT_READ,
            partial(self.on_pending_socket_readable, connection),
        )

    def murder_pending(self) -> None:
        """Close connections that waited too long and, at the connection limit, the one that was
        silent longest.

        Otherwise gunicorn would stop accepting connections until one ends.
        """
        super().murder_pending()
        while self.nr_conns >= self.worker_connections and (idle := self._pick_silent_longest()):
            connection = idle.popleft()
            self.poller.unregister(connection.sock)
            self.nr_conns -= 1
            connection.close()

    def _pick_silent_longest(self) -> deque[Any] | None:
        waits = ((self.pending_conns, HEADER_S), (self.keepalived_conns, self.cfg.keepalive))
        began_s = [(queue[0].timeout - limit_s, queue) for queue, limit_s in waits if queue]
        return min(began_s, key=itemgetter(0))[1] if began_s else None

    def _cap_keepalive(self, deadline: float) -> None:
        super()._cap_keepalive(deadline)
        for connection in self.pending_conns:
            connection.timeout = min(connection.timeout, deadline)

    def handle(self, conn: Any) -> Any:
        conn.sock.client_timeout = ClientTimeout(HEADER_S)
        try:
            keeps = super().handle(conn)
        finally:
            conn.sock.end_work()
        if not keeps:
            util.close_graceful(conn.sock)  # may wait 2 s
        return keeps

    def handle_request(self, req: Any, conn: Any) -> Any:
        conn.sock.begin_work()
        return super().handle_request(req, conn)
