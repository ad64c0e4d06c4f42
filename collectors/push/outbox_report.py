"""Describe the contents of an outbox and wait for its delivery."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.push.outbox import (
    TEXTS,
    WAKE_NAME,
    has_waiting,
    list_waiting,
    measure_bytes,
    outbox_root,
)
from compileboard.collectors.push.sender import (
    is_deleted,
    is_sending,
    read_losses,
    read_status,
    spawn_sender,
)
from compileboard.collectors.push.target import Target

STEP_S = 0.05
FIRST_ANSWER_S = 2.0  # Time to start, connect and receive one response.
MAX_WAIT_S, MAX_DELIVERY_S = 5.0, 3600.0


@dataclass(frozen=True)
class WaitingRun:
    run_id: str
    target: Target
    is_written: bool
    waiting_bytes: int
    error: str | None  # the server's last error
    has_sender: bool

    def describe(self) -> str:
        sending = "is being sent" if self.has_sender else "waits for the next command, or `push`"
        state = "is being recorded" if self.is_written else self.error or sending
        return (
            f"{self.run_id}  {describe_size(self.waiting_bytes):>9}  {self.target.server}  {state}"
        )


def describe_size(size_bytes: int) -> str:
    for limit_bytes, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= limit_bytes:
            return f"{size_bytes / limit_bytes:.1f} {unit}"
    return f"{size_bytes} B"


def list_waiting_runs(root: Path) -> list[WaitingRun]:
    runs: dict[tuple[str, Target], WaitingRun] = {}
    has_sender = root.is_dir() and is_sending(root)
    for item in list_waiting(root):
        key = (item.run_id, item.target)
        before = runs.get(key)
        texts_bytes = 0 if before else measure_bytes(item.folder / TEXTS)
        lines_bytes = max(item.measure() - item.read_sent().offset, 0)
        runs[key] = WaitingRun(
            *key,
            is_written=item.is_written() or bool(before and before.is_written),
            waiting_bytes=lines_bytes + texts_bytes + (before.waiting_bytes if before else 0),
            error=item.read_sent().refusal or read_status(root, item.target, item.run_id).error,
            has_sender=has_sender,
        )
    return list(runs.values())


def await_delivery(
    root: Path, run_id: str, target: Target, max_s: float = MAX_WAIT_S, since_us: int = 0
) -> bool:
    """Wait until a run is delivered, as long as the server responds; return whether it was."""
    began_s, began_us = time.monotonic(), read_clock_us()
    while (root / run_id).exists():
        elapsed_s = time.monotonic() - began_s
        status = read_status(root, target, run_id)
        is_away = status.error is not None and (status.failed_us or 0) > since_us
        has_answered = (status.answered_us or 0) > began_us - FIRST_ANSWER_S * 1e6
        if is_away or elapsed_s > max_s or (elapsed_s > FIRST_ANSWER_S and not has_answered):
            return False
        time.sleep(STEP_S)
    return True


def describe_delivery(root: Path, run_id: str, target: Target) -> str:
    with suppress(OSError):
        spawn_sender(root)  # it may have been killed
    is_delivered = await_delivery(root, run_id, target)
    if is_deleted(root, run_id):
        return _describe_deleted(run_id, target)
    if is_delivered:
        return _describe_pushed(root, run_id, target)
    waiting_bytes = sum(
        run.waiting_bytes for run in list_waiting_runs(root) if run.run_id == run_id
    )
    error = read_status(root, target, run_id).error
    why = f"; {error}" if error else ""
    size = describe_size(waiting_bytes)
    return (
        f"{size} of run {run_id} wait in {root} and are sent when {target.server} takes them{why}"
    )


def _describe_pushed(root: Path, run_id: str, target: Target) -> str:
    return "; ".join(
        filter(None, [f"pushed to {target.run_page(run_id)}", read_losses(root, run_id)])
    )


def _describe_deleted(run_id: str, target: Target) -> str:
    return f"run {run_id} was deleted or pruned on {target.server}; nothing more of it is sent"


def deliver(
    environment: Mapping[str, str], run_ids: Iterable[str], print_line: Callable[[str], None]
) -> bool:
    root = outbox_root(environment)
    targets = {run.run_id: run.target for run in list_waiting_runs(root)}
    began_us = read_clock_us()
    wake_sender(environment)
    left = []
    for run_id in dict.fromkeys(run_ids):
        target = targets.get(run_id)
        if target is None:
            continue  # it was sent in the meantime
        is_delivered = await_delivery(root, run_id, target, MAX_DELIVERY_S, began_us)
        if is_deleted(root, run_id):
            print_line(_describe_deleted(run_id, target))
        elif is_delivered:
            print_line(_describe_pushed(root, run_id, target))
        else:
            left.append(run_id)
    if left:
        runs = [run for run in list_waiting_runs(root) if run.run_id in left]
        size = describe_size(sum(run.waiting_bytes for run in runs))
        errors = sorted({run.error for run in runs if run.error})
        print_line(
            "; ".join([f"{size} wait in {root} and are sent when the server takes them", *errors])
        )
    return not left


def wake_sender(environment: Mapping[str, str]) -> None:
    """Request an immediate try of everything, ignoring earlier failures. Never raises."""
    with suppress(OSError, RuntimeError):
        (outbox_root(environment) / WAKE_NAME).touch()
    resume_sending(environment)


def resume_sending(environment: Mapping[str, str]) -> None:
    if has_waiting(environment):
        with suppress(OSError, RuntimeError):
            spawn_sender(outbox_root(environment))
