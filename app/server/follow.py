"""The process that `serve` starts to update incidents while runs arrive, and to send due alerts."""

from __future__ import annotations

import os
import select
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

from compileboard.app.alerts.rules import RulesError
from compileboard.app.clickhouse.upkeep import Upkeep
from compileboard.app.core.address import parse_address
from compileboard.app.core.log_lines import log
from compileboard.app.core.newest import read_clock
from compileboard.app.core.settings import Settings
from compileboard.app.core.store import open_store
from compileboard.app.incidents.pending import find_pending_runs
from compileboard.collectors.contract.run_config import STALE_AFTER_S
from compileboard.collectors.store.connection import StoreError, explain, open_reader, open_writer
from compileboard.collectors.store.leases import FOLLOW, PRUNE, Lease, try_acquire_lease
from compileboard.collectors.store.pruning import PruneRule, prune_runs
from compileboard.collectors.store.search import index_run
from compileboard.collectors.store.stream_rows import list_unindexed_runs
from compileboard.collectors.store.tokens import ActionOrigin, record_action
from compileboard.collectors.store.trash import prune_trash
from compileboard.exit_codes import REFUSED
from compileboard.start import own_command

LOOK_EVERY_S = 5.0
ASK_EVERY_S = 0.25  # whether anything waits for publication
RESTART_EVERY_S = 10.0
ALERT_EVERY_S = 60.0
PRUNE_EVERY_S = 3600.0


class Follower:
    """The follower process of a server. It ends with the server, because its stdin is then
    closed.
    """

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        db = settings.db if parse_address(settings.db).clickhouse else os.path.abspath(settings.db)
        self._command = own_command("compileboard.app", "follow", "--while-stdin", "--db", db)
        if settings.alerts:
            self._command += ["--alerts", os.path.abspath(settings.alerts)]
        self._environ = {**environ, "COMPILEBOARD_LOG_FORMAT": settings.log_format}
        self._start()

    def _start(self) -> None:
        self._started_s = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            env=self._environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the server; the follower ends after it
        )
        self._process.returncode = 0  # reaped by gunicorn

    def restart(self) -> None:
        if self._has_ended() and time.monotonic() - self._started_s >= RESTART_EVERY_S:
            log("the process that updates incidents ended; it is started again", "warning")
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._start()

    def _has_ended(self) -> bool:
        poll = select.poll()
        poll.register(self._process.stdin, 0)  # type: ignore[arg-type]
        return bool(poll.poll(0))


class FollowerThread:
    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._is_stopping.set()
        self._thread.join()

    def _run(self) -> None:
        settings = self._settings
        while not self._is_stopping.is_set():
            try:
                follow(
                    *(settings.db, settings.alerts, self._environ, self._is_stopping.wait),
                    prune_after_days=settings.prune_after_days,
                    seal_after_s=settings.seal_after_s,
                )
            except Exception:  # a thread's exceptions would be lost
                traceback.print_exc()
                log("the thread that updates incidents ended; it is started again", "warning")
                self._is_stopping.wait(RESTART_EVERY_S)


def follow(
    db: str,
    rules_path: str,
    environ: Mapping[str, str],
    wait: Callable[[float], bool],
    *,
    prune_after_days: int = 0,
    seal_after_s: int = Settings.seal_after_s,
) -> int:
    """Scan until `wait` returns True; return the exit code.

    Only one process works on a database; the others wait for its lease. An error is reported once,
    and the work is retried.
    """
    lease: Lease | None = None
    board = parse_address(db).board
    try:
        while lease is None:
            lease = try_acquire_lease(board, FOLLOW)
            if lease is None and wait(LOOK_EVERY_S):
                return 0
    except OSError as error:
        log(f"{error.filename} cannot be made ({error.strerror})", "error")
        return REFUSED
    with lease:
        lease.renew()
        work = _FollowerTasks(db, rules_path, environ, prune_after_days, seal_after_s)
        is_over = False
        while not is_over:
            work.run()
            lease.renew()
            is_over = work.wait(wait)
        if work.upkeep is not None:
            work.upkeep.close()
    return 0


class _FollowerTasks:
    def __init__(
        self,
        db: str,
        rules_path: str,
        environ: Mapping[str, str],
        prune_after_days: int,
        seal_after_s: int,
    ) -> None:
        address = parse_address(db)
        self._db = db
        self._board = address.board
        self._rules_path = rules_path
        self._environ = environ
        self._prune_after_days = prune_after_days
        self._reported: set[str] = set()
        self._alerted_s = -ALERT_EVERY_S
        self._pruned_s = time.monotonic()  # `serve` pruned when it started
        self.upkeep = (
            Upkeep(address, address.clickhouse, seal_after_s) if address.clickhouse else None
        )

    def run(self) -> None:
        problems: dict[str, None] = {}
        changed = False
        with self._collecting_errors(problems):
            if self.upkeep is not None:
                self.upkeep.publish()
            changed = _scan(self._db)
        with self._collecting_errors(problems):
            _index(self._board)
        with self._collecting_errors(problems):
            if time.monotonic() - self._pruned_s >= PRUNE_EVERY_S:
                self._pruned_s = time.monotonic()
                _prune(self._board, self._prune_after_days)
        with self._collecting_errors(problems):
            if self._rules_path and (
                changed or time.monotonic() - self._alerted_s >= ALERT_EVERY_S
            ):
                self._alerted_s = time.monotonic()
                _alert(self._board, self._rules_path, self._environ)
        if self.upkeep is not None:
            with self._collecting_errors(problems):
                self.upkeep.run_due_tasks()
            problems |= dict.fromkeys(self.upkeep.problems)
        for text in problems:
            if text not in self._reported:
                log(text, "error")
        self._reported = set(problems)

    @contextmanager
    def _collecting_errors(self, problems: dict[str, None]) -> Iterator[None]:
        try:
            yield
        except (StoreError, RulesError, sqlite3.Error) as error:
            text = str(explain(error, self._board) if isinstance(error, sqlite3.Error) else error)
            problems[text] = None

    def wait(self, wait: Callable[[float], bool]) -> bool:
        if self.upkeep is None:
            return wait(LOOK_EVERY_S)
        until_s = time.monotonic() + LOOK_EVERY_S
        while time.monotonic() < until_s:
            if wait(ASK_EVERY_S):
                return True
            try:
                self.upkeep.publish_if_written()
            except (StoreError, sqlite3.Error):  # retried and reported in the next pass
                return wait(ASK_EVERY_S)
        return False


def _prune(path: str, after_days: int) -> None:
    clock = read_clock(STALE_AFTER_S)
    with closing(open_writer(path, create=False)) as writer:
        prune_trash(writer)
        pruning = try_acquire_lease(path, PRUNE) if after_days else None
        if pruning is not None:
            with pruning:
                rule = PruneRule(clock.now_us - after_days * 86_400 * 1_000_000)
                for run in prune_runs(
                    writer, rule, clock.alive_since_us
                ):  # `verify` lists damaged files
                    origin = ActionOrigin("server")
                    record_action(
                        writer,
                        "run.prune_detail",
                        run.id,
                        origin,
                        detail=f"after {after_days} days",
                    )


def _scan(db: str) -> bool:
    with closing(open_store(db)) as store:
        pending = find_pending_runs(store)
    if not pending.needs_full_scan and not pending.run_ids:
        return False
    from compileboard.app.incidents.update import update_incidents

    update_incidents(db)
    return True


def _index(path: str) -> None:
    with closing(open_reader(path)) as reader:
        run_ids = list_unindexed_runs(reader)
    if run_ids:
        with closing(open_writer(path, create=False)) as writer:
            for run_id in run_ids:
                index_run(writer, run_id)


def _alert(path: str, rules_path: str, environ: Mapping[str, str]) -> None:
    from compileboard.app.alerts.alert_delivery import send_due

    for problem in send_due(path, rules_path, environ, time.time_ns() // 1000).problems:
        log(f"alerts: {problem}", "error")


def sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def wait_for_stdin(seconds: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and not os.read(sys.stdin.fileno(), 1024)
