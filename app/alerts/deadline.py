"""An end for a conversation: a socket's timeout begins anew with each byte, and a slow server may send one a second."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def hold_deadline(find_socket: Callable[[], socket.socket | None], seconds: float) -> Iterator[None]:
    """Break a conversation that takes longer: whoever reads or writes then gets an error."""

    def cut() -> None:
        connection = find_socket()
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
