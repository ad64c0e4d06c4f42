"""Update incidents while runs come in, and send due alerts: `serve` has one such process beside it."""

from __future__ import annotations

import os
import select
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing

from compileboard.app.alerts.rules import RulesError
from compileboard.app.incidents.pending import find_pending_runs
from compileboard.app.queries.newest import read_clock
from compileboard.app.settings import Settings
from compileboard.collectors.contract.run_config import STALE_AFTER_S
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.dashboard.audit import ActionOrigin, record_action
from compileboard.collectors.store.dashboard.trash import prune_trash
from compileboard.collectors.store.errors import StoreError, explain
from compileboard.collectors.store.maintenance.leases import FOLLOW, PRUNE, Lease, take_lease
from compileboard.collectors.store.maintenance.pruning import PruneRule, prune_runs
from compileboard.collectors.store.search_index import index_run
from compileboard.collectors.store.streams.rows import list_unindexed_runs
from compileboard.exit_codes import REFUSED
from compileboard.start import own_command

LOOK_EVERY_S = 5.0
RESTART_EVERY_S = 10.0
ALERT_EVERY_S = 60.0
PRUNE_EVERY_S = 3600.0


class Follower:
    """The follower beside a server. It ends with this process, however this one ends: then its stdin is closed."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._command = own_command("compileboard.app", "follow", "--while-stdin", "--db", os.path.abspath(settings.db))
        if settings.alerts:
            self._command += ["--alerts", os.path.abspath(settings.alerts)]
        self._environ = dict(environ)
        self._start()

    def _start(self) -> None:
        self._started_s = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            env=self._environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the server; this one ends after it
        )
        self._process.returncode = 0  # gunicorn reaps it

    def restart(self) -> None:
        """Start it again where it has ended, but not all the time."""
        if self._has_ended() and time.monotonic() - self._started_s >= RESTART_EVERY_S:
            sys.stderr.write("compileboard: the process that updates incidents ended; it is started again\n")
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._start()

    def _has_ended(self) -> bool:
        """Return whether nobody holds the other end of its stdin; its number may be another's by now."""
        poll = select.poll()
        poll.register(self._process.stdin, 0)  # type: ignore[arg-type]
        return bool(poll.poll(0))


def follow(
    path: str,
    rules_path: str,
    environ: Mapping[str, str],
    wait: Callable[[float], bool],
    *,
    prune_after_days: int = 0,
) -> int:
    """Scan until `wait` returns True; return the exit code.

    Of several processes at one database one does the work; the others wait for its lease. A problem is reported once,
    and tried again: a database is locked, moved or migrated while this runs.
    """
    lease: Lease | None = None
    try:
        while lease is None:
            lease = take_lease(path, FOLLOW)
            if lease is None and wait(LOOK_EVERY_S):
                return 0
    except OSError as error:
        sys.stderr.write(f"compileboard: {error.filename} cannot be made ({error.strerror})\n")
        return REFUSED
    with lease:
        lease.renew()
        _work(path, rules_path, environ, wait, lease, prune_after_days)
    return 0


def _work(
    path: str,
    rules_path: str,
    environ: Mapping[str, str],
    wait: Callable[[float], bool],
    lease: Lease,
    prune_after_days: int,
) -> None:
    reported = ""
    alerted_s = -ALERT_EVERY_S
    pruned_s = time.monotonic()  # `serve` did it when it started
    while True:
        try:
            changed = _scan(path)
            _index(path)
            if time.monotonic() - pruned_s >= PRUNE_EVERY_S:
                pruned_s = time.monotonic()
                _prune(path, prune_after_days)
            if rules_path and (changed or time.monotonic() - alerted_s >= ALERT_EVERY_S):
                alerted_s = time.monotonic()
                _alert(path, rules_path, environ)
            reported = ""
        except (StoreError, RulesError, sqlite3.Error) as error:
            text = str(explain(error, path) if isinstance(error, sqlite3.Error) else error)
            if text != reported:
                sys.stderr.write(f"compileboard: {text}\n")
            reported = text
        lease.renew()
        if wait(LOOK_EVERY_S):
            return


def _prune(path: str, after_days: int) -> None:
    """Delete for good what was deleted a week ago, and the detail of runs that are old enough."""
    clock = read_clock(STALE_AFTER_S)
    with closing(open_writer(path, create=False)) as writer:
        prune_trash(writer)
        pruning = take_lease(path, PRUNE) if after_days else None
        if pruning is not None:
            with pruning:
                rule = PruneRule(clock.now_us - after_days * 86_400 * 1_000_000)
                for run in prune_runs(writer, rule, clock.alive_since_us):
                    origin = ActionOrigin("server")
                    record_action(writer, "run.prune_detail", run.id, origin, detail=f"after {after_days} days")


def _scan(path: str) -> bool:
    with closing(open_reader(path)) as reader:
        pending = find_pending_runs(reader)
    if not pending.needs_full_scan and not pending.run_ids:
        return False
    from compileboard.app.incidents.update import update_incidents

    update_incidents(path)
    return True


def _index(path: str) -> None:
    """Index the runs that boxes have pushed whole since: no recorder here does it at their end."""
    with closing(open_reader(path)) as reader:
        run_ids = list_unindexed_runs(reader)
    if run_ids:
        with closing(open_writer(path, create=False)) as writer:
            for run_id in run_ids:
                index_run(writer, run_id)


def _alert(path: str, rules_path: str, environ: Mapping[str, str]) -> None:
    from compileboard.app.alerts.delivery import send_due

    for problem in send_due(path, rules_path, environ, time.time_ns() // 1000).problems:
        sys.stderr.write(f"compileboard: alerts: {problem}\n")


def sleep(seconds: float) -> bool:
    """Wait; nobody ends this one."""
    time.sleep(seconds)
    return False


def wait_for_stdin(seconds: float) -> bool:
    """Wait, and say whether whoever started this is gone."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and not os.read(sys.stdin.fileno(), 1024)
