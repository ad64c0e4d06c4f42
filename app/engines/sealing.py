"""The pass that seals ended runs: one process at a time, for a bounded time."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.errors import StoreBusy, StoreError, StoreFull
from compileboard.collectors.store.maintenance.leases import PUBLISH, take_lease
from compileboard.collectors.store.sealed.files import remove_abandoned
from compileboard.collectors.store.sealed.sealing import (
    QUIET_US,
    NotSealable,
    list_sealable,
    seal_run,
)

PASS_S = 10.0  # nothing is published meanwhile


@dataclass
class SealingPass:
    sealed_count: int = 0
    problems: list[str] = field(default_factory=list)
    is_done: bool = False


def seal_ended_runs(
    board: str, quiet_us: int = QUIET_US, *, now_us: int | None = None, most_s: float = PASS_S
) -> SealingPass:
    """Seal runs that ended, did not change for a while and are fully published.

    Raises StoreError if the board cannot be opened.
    """
    done = SealingPass()
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    until_s = time.monotonic() + most_s
    try:
        lease = take_lease(board, PUBLISH)
    except OSError as error:
        raise StoreError(f"the locks beside {board} cannot be made ({error.strerror}).") from error
    if lease is None:
        return done
    with lease, closing(open_writer(board, create=False)) as writer:
        remove_abandoned(board)
        for run_id in list_sealable(writer, now_us, quiet_us=quiet_us):
            if time.monotonic() >= until_s:
                return done
            try:
                seal_run(writer, run_id, now_us=now_us, quiet_us=quiet_us)
                done.sealed_count += 1
            except NotSealable:
                continue  # it changed since it was listed
            except (StoreBusy, StoreFull) as error:
                done.problems.append(str(error))
                return done
            except StoreError as error:
                done.problems.append(f"run {run_id}: {error}")
        done.is_done = True
    return done
