"""The single process per home folder that sends the outbox.

It ends when nothing is left and no stream is being written.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.push.client import Client, Refused
from compileboard.collectors.push.delivery import BundleDelivery, StreamDelivery, open_delivery
from compileboard.collectors.push.outbox import WaitingDelivery, list_waiting, read_wake
from compileboard.collectors.push.target import Target, TargetError
from compileboard.collectors.record.program import start_detached
from compileboard.collectors.record.spool import replace_file
from compileboard.collectors.store.leases import is_locked, try_lock
from compileboard.collectors.wire.http import ServerUnavailable

IDLE_S, LINGER_S = 0.25, 1.0
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 60.0
GIVE_UP_S = 24 * 3600.0  # without a response or a writer; the next command starts it again
MAX_NAMED = 100  # deleted runs, and runs with losses, in its status
LOCK_TRIES, LOCK_PAUSE_S = 5, 0.02
LOCK_NAME, STATUS_NAME = "sender.lock", "sender.json"


@dataclass
class ServerStatus:
    answered_us: int | None = None
    error: str | None = None
    failed_us: int | None = None


@dataclass
class RetryBackoff:
    failure_count: int = 0
    due_s: float = 0.0

    def lengthen(self, pause_s: float) -> None:
        """Wait for a random time up to a doubling limit, but at least as long as the server
        requests.
        """
        longest_s = min(FIRST_PAUSE_S * 2**self.failure_count, MAX_PAUSE_S)
        self.failure_count = min(self.failure_count + 1, 30)
        self.due_s = time.monotonic() + max(pause_s, random.uniform(0, longest_s))  # noqa: S311 - no secret

    def is_over(self) -> bool:
        return time.monotonic() >= self.due_s


@dataclass
class ServerConnection:
    target: Target
    status: ServerStatus = field(default_factory=ServerStatus)
    client: Client | None = None
    wants_token: bool = False
    pause: RetryBackoff = field(default_factory=RetryBackoff)

    def open(self, environment: Mapping[str, str]) -> Client:
        self.client = self.client or Client(self.target, environment)
        return self.client

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None


@dataclass
class PendingDelivery:
    delivery: StreamDelivery | BundleDelivery
    pause: RetryBackoff = field(default_factory=RetryBackoff)


class Sender:
    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self.root = root
        self._environment = environment
        self._lines: dict[Target, ServerConnection] = {}
        self._shipments: dict[WaitingDelivery, PendingDelivery] = {}
        self._refused: dict[
            str, ServerStatus
        ] = {}  # runs that the server refuses, although it accepts others
        self._deleted: dict[str, None] = {}  # runs deleted on the server
        self._lost: dict[str, str] = {}  # losses of runs that the server refused for their content
        self._written_status = ""
        self._woken_us = read_wake(root)
        (root / STATUS_NAME).unlink(missing_ok=True)  # another process's problem may be over

    def run(self, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Send until nothing is left and no stream is being written, then return True.

        Returns False if nothing could be sent for a day, or if every delivery is set aside or needs
        a token that is not there.
        """
        idle_since_s = progress_s = time.monotonic()
        while True:
            waiting = list(list_waiting(self.root))
            has_sent = self.step(waiting)
            now_s = time.monotonic()
            is_written = any(item.is_written() for item in waiting)
            if has_sent or is_written:
                progress_s = now_s
            if waiting:
                idle_since_s = now_s
            if now_s - idle_since_s >= LINGER_S:
                return True
            if now_s - progress_s >= GIVE_UP_S or (
                waiting and not is_written and self._is_hopeless(waiting)
            ):
                return False
            if not has_sent:
                sleep(IDLE_S)

    def close(self) -> None:
        for line in self._lines.values():
            line.close()

    def step(self, waiting: list[WaitingDelivery]) -> bool:
        has_sent = False
        if (woken_us := read_wake(self.root)) != self._woken_us:
            self._woken_us = woken_us
            for line in self._lines.values():
                line.pause = RetryBackoff()
            for shipment in self._shipments.values():
                shipment.pause = RetryBackoff()
        for item in waiting:
            line = self._lines.setdefault(item.target, ServerConnection(item.target))
            shipment = self._shipments.setdefault(item, PendingDelivery(open_delivery(item)))
            if line.pause.is_over() and shipment.pause.is_over() and not item.is_set_aside():
                has_sent |= self._send(item, shipment, line)
        for item in self._shipments.keys() - set(waiting):
            del self._shipments[item]
            self._refused.pop(item.run_id, None)
        self._write_status()
        return has_sent

    def _send(
        self, waiting: WaitingDelivery, shipment: PendingDelivery, line: ServerConnection
    ) -> bool:
        status, now_us = line.status, read_clock_us()
        try:
            client = line.open(self._environment)
            before_count = client.answer_count
            has_sent = shipment.delivery.step(client)
            if lost := shipment.delivery.losses.describe():
                self._lost[waiting.run_id] = lost
            if client.answer_count > before_count:
                line.pause = shipment.pause = RetryBackoff()
                status.answered_us, status.error, line.wants_token = now_us, None, False
                self._deleted.pop(waiting.run_id, None)  # it may be restored
                self._refused.pop(waiting.run_id, None)
            return has_sent
        except (ServerUnavailable, TargetError) as error:
            line.pause.lengthen(0.0)
            line.close()
            words = str(error)
        except Refused as refused:
            (shipment if refused.is_of_one else line).pause.lengthen(refused.pause_s)
            words = str(refused)
            if refused.is_of_one:
                status = self._refused.setdefault(waiting.run_id, ServerStatus())
            if refused.is_deleted:
                self._deleted[waiting.run_id] = None
            if refused.is_token:
                line.wants_token = True
                line.close()
        except (OSError, ValueError) as error:  # a removed file, or a disk error
            shipment.pause.lengthen(0.0)
            words = f"run {waiting.run_id} cannot be read: {error}"
            status = self._refused.setdefault(waiting.run_id, ServerStatus())
        status.error, status.failed_us = words, now_us
        shipment.delivery.forget()
        return False

    def _is_hopeless(self, waiting: list[WaitingDelivery]) -> bool:
        return all(
            item.is_set_aside()
            or (not item.target.token_file and self._lines[item.target].wants_token)
            for item in waiting
        )

    def _write_status(self) -> None:
        text = json.dumps(
            {
                "pid": os.getpid(),
                "servers": {
                    _key_of(line.target): asdict(line.status) for line in self._lines.values()
                },
                "runs": {run_id: asdict(status) for run_id, status in self._refused.items()},
                "deleted": list(self._deleted)[-MAX_NAMED:],
                "lost": dict(list(self._lost.items())[-MAX_NAMED:]),
            }
        )
        if text == self._written_status:
            return
        self._written_status = text
        with suppress(OSError):
            replace_file(self.root / STATUS_NAME, text)


def _key_of(target: Target) -> str:
    return f"{target.server} {target.token_file}"


def read_status(root: Path, target: Target, run_id: str = "") -> ServerStatus:
    status = _read_status_file(root)
    server = status["servers"].get(_key_of(target)) or asdict(ServerStatus())
    failure = status["runs"].get(run_id) or server
    return ServerStatus(server["answered_us"], failure["error"], failure["failed_us"])


def is_deleted(root: Path, run_id: str) -> bool:
    return run_id in _read_status_file(root)["deleted"]


def read_losses(root: Path, run_id: str) -> str | None:
    lost: str | None = _read_status_file(root)["lost"].get(run_id)
    return lost


def _read_status_file(root: Path) -> dict[str, Any]:
    empty: dict[str, Any] = {"servers": {}, "runs": {}, "deleted": [], "lost": {}}
    with suppress(OSError, ValueError, TypeError):
        return {**empty, **json.loads((root / STATUS_NAME).read_text(encoding="utf-8"))}
    return empty


def is_sending(root: Path) -> bool:
    return is_locked(root / LOCK_NAME)


def spawn_sender(root: Path) -> None:
    """Start a sender, unless one is running. Raises OSError if no process can be started."""
    if not is_sending(root):
        start_detached("compileboard.collectors.push.sender", str(root))


def send_all(root: Path) -> int:
    while True:
        lock = try_lock(root / LOCK_NAME)
        for _ in range(LOCK_TRIES):  # a process that checks for a sender holds the lock briefly
            if lock is not None:
                break
            time.sleep(LOCK_PAUSE_S)
            lock = try_lock(root / LOCK_NAME)
        if lock is None:
            return 0
        try:
            with closing(Sender(root, os.environ)) as sender:
                is_empty = sender.run()
        finally:
            os.close(lock)
        if not is_empty:
            return 1
        if not any(
            True for _ in list_waiting(root)
        ):  # processes started in the meantime found the lock taken
            return 0


if __name__ == "__main__":
    os.nice(5)
    sys.exit(send_all(Path(sys.argv[1])))
