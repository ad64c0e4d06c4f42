"""Copy a store to another place or engine, and verify the copy.

<DST>.copying/        the unverified copy; DST stays empty but for data of ClickHouse
    copy.json         progress, and the digest of the source
    board.db          a backup of the source's board, with its trash and its files of sealed runs
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compileboard.app.engines.address import ClickHouseAddress, StoreAddress
from compileboard.app.engines.client import Clients
from compileboard.app.engines.digests import (
    StoreDigest,
    TableDigest,
    digest_board,
    digest_engine,
    list_digest_differences,
)
from compileboard.app.engines.publication.passes import Publisher
from compileboard.app.engines.setup import make_folder, prepare_engine
from compileboard.app.format import format_plural
from compileboard.collectors.store.connection import checkpoint, open_writer, write_transaction
from compileboard.collectors.store.dashboard.audit import ActionOrigin, record_action
from compileboard.collectors.store.dashboard.trash import trash_path
from compileboard.collectors.store.errors import StoreError
from compileboard.collectors.store.maintenance.backup import (
    DATABASE,
    RUN_FILES,
    TRASH,
    write_backup,
)
from compileboard.collectors.store.maintenance.pruning import vacuum
from compileboard.collectors.store.maintenance.verification import verify
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.sealed.address import BOARD
from compileboard.collectors.store.sealed.files import remove_run_files, run_folder
from compileboard.collectors.store.sealed.reopening import reopen_run
from compileboard.collectors.store.sealed.rows import list_sealed_runs
from compileboard.collectors.store.sealed.sealing import list_sealable, seal_run

_STATE, _SNAPSHOT = "copy.json", "snapshot"
_AT_ONCE = 1000
Say = Callable[[str], None]


class CopyError(StoreError):
    """A store cannot be copied, or the copy differs."""


@dataclass(frozen=True)
class StoreComparison:
    source: StoreDigest
    target: StoreDigest
    differences: list[str]


def copy_store(
    source: StoreAddress,
    target: StoreAddress,
    *,
    password: str,
    program_version: str,
    origin: ActionOrigin,
    resume: bool = False,
    say: Say = lambda line: None,
) -> StoreComparison:
    """Copy a store to an empty place, and compare the two.

    Raises CopyError, with the copy left for `resume`, if something differs; StoreError.
    """
    work = _find_work(target)
    with _open_work(work, source, target, resume) as state:
        board = str(work / BOARD)
        if "digest" not in state:
            try:
                _take(source, work, program_version, say)
                say("adding up what was copied")
                state["digest"] = digest_board(board)
            except BaseException:
                shutil.rmtree(work, ignore_errors=True)  # nothing is to go on with
                raise
            _save(work, state)
        expected = _read_digest(state["digest"])
        if target.clickhouse is None:
            _reopen_all(board, say)
        else:
            _publish_all(work, state, board, target.clickhouse, password, say)
            _seal_all(board, say)
        comparison = _compare(expected, board, target.clickhouse, password, say)
        problems = [*comparison.differences, *_list_problems(board, say)]
        if problems:
            raise CopyError(
                f"{work} is not what was copied, and stays there: {problems[0]} (of "
                f"{len(problems)})"
            )
        with closing(open_writer(board, create=False)) as writer:
            record_action(
                writer, "database.copy", os.path.basename(source.folder or source.board), origin
            )
            checkpoint(writer)
        _move_copy(work, target)
    return comparison


def compare_stores(
    source: StoreAddress, target: StoreAddress, password: str, say: Say
) -> StoreComparison:
    say("adding up the first")
    return _compare(digest_board(source.board), target.board, target.clickhouse, password, say)


def _find_work(target: StoreAddress) -> Path:
    root = Path(os.path.abspath(target.folder or target.board))
    if os.path.lexists(target.board):
        raise CopyError(f"{target.board} is there already; a copy needs a new place.")
    if not root.parent.is_dir():
        raise CopyError(f"there is no folder {root.parent}; make it first.")
    return root.with_name(f"{root.name}.copying")


@contextmanager
def _open_work(
    work: Path, source: StoreAddress, target: StoreAddress, resume: bool
) -> Iterator[dict[str, Any]]:
    names = {"source": os.path.abspath(source.board), "target": os.path.abspath(target.board)}
    try:
        known = json.loads((work / _STATE).read_text(encoding="utf-8")) if work.exists() else None
    except (OSError, ValueError):
        known = {}
    if known is not None and not resume:
        raise CopyError(
            f"{work} is of a copy that stopped: --resume goes on with it, or remove it."
        )
    if known and {name: known.get(name) for name in names} != names:
        raise CopyError(
            f"{work} is of another copy ({known.get('source')} to {known.get('target')}); "
            "remove it."
        )
    try:
        work.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CopyError(f"{work} cannot be made ({error.strerror}).") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        state = known or names
        _save(work, state)
        yield state
    except BlockingIOError:
        raise CopyError(f"another copy is at work in {work}; wait for it.") from None
    except OSError as error:
        raise CopyError(
            f"{error.filename or work} cannot be written ({error.strerror}); --resume goes on."
        ) from error
    finally:
        os.close(descriptor)


def _save(work: Path, state: dict[str, Any]) -> None:
    new = work / f"{_STATE}.new"
    new.write_text(json.dumps(state), encoding="utf-8")
    new.replace(work / _STATE)


def _read_digest(values: Any) -> StoreDigest:
    tables, runs, rollups = values
    return StoreDigest(
        {name: TableDigest(*digest) for name, digest in tables.items()},
        dict(runs),
        {name: TableDigest(*digest) for name, digest in rollups.items()},
    )


def _take(source: StoreAddress, work: Path, program_version: str, say: Say) -> None:
    for left in work.iterdir():
        if left.name != _STATE:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    say(f"copying {source.board}")
    snapshot, board = work / _SNAPSHOT, work / BOARD
    problems: list[str] = []
    write_backup(source.board, str(snapshot), program_version=program_version, problems=problems)
    if problems:
        for problem in problems:
            say(problem)
        raise CopyError(
            f"{source.board} lacks files of {format_plural(len(problems), 'run')}, so nothing "
            "was copied. Put them "
            "back from a backup: `compileboard restore BACKUP --run-files`."
        )
    (snapshot / TRASH).replace(trash_path(str(board), "").parent)
    if (snapshot / RUN_FILES).is_dir():
        (snapshot / RUN_FILES).replace(run_folder(str(board)))
    (snapshot / DATABASE).replace(board)
    shutil.rmtree(snapshot)
    migrate(board)
    with closing(open_writer(board, create=False)) as writer, write_transaction(writer):
        # Of the engine that it had; what detection has seen is numbered by it.
        for table in ("published_runs", "engine_publications", "detection"):
            writer.execute(f"delete from {table}")  # noqa: S608 - our own names


def _reopen_all(board: str, say: Say) -> None:
    with closing(open_writer(board, create=False)) as writer:
        sealed = list_sealed_runs(writer)
        for position, run in enumerate(sealed, 1):
            with write_transaction(writer):
                reopen_run(writer, run.run_id)
            say(f"run {position:,} of {len(sealed):,} is in the file again")
        checkpoint(writer)
        for run in sealed:
            remove_run_files(board, run.run_id)


def _publish_all(
    work: Path,
    state: dict[str, Any],
    board: str,
    address: ClickHouseAddress,
    password: str,
    say: Say,
) -> None:
    if address.host is None:
        make_folder(os.path.dirname(address.path))
    prepare_engine(address, password)
    clients = Clients(address, password)
    with closing(clients):
        with clients.take() as client:
            if (
                "engine" not in state
                and client.query("select count() from boards").result_rows[0][0]
            ):
                raise CopyError(
                    f"{address.label} has the runs of another board; name an empty database."
                )
        state["engine"] = address.label
        _save(work, state)
        publisher = Publisher(clients)
        with closing(open_writer(board, create=False)) as writer:
            say("publishing runs")
            while True:
                outcome = publisher.run_pass(writer, time.time_ns() // 1000, everything=True)
                if outcome.refused:
                    raise CopyError(f"not every run can be published: {outcome.refused[0]}")
                if not (outcome.whole_count or outcome.row_count or outcome.removed_count):
                    return
                say(f"published {outcome.whole_count:,} runs")


def _seal_all(board: str, say: Say) -> None:
    with closing(open_writer(board, create=False)) as writer:
        count = 0
        while run_ids := list_sealable(writer, time.time_ns() // 1000, _AT_ONCE, quiet_us=0):
            for run_id in run_ids:
                seal_run(writer, run_id, quiet_us=0)
                count += 1
            say(f"sealed {count:,} runs")
        if count:
            vacuum(writer)


def _compare(
    expected: StoreDigest, board: str, address: ClickHouseAddress | None, password: str, say: Say
) -> StoreComparison:
    say("comparing")
    actual = digest_board(board)
    differences = list(list_digest_differences(expected, actual))
    if address is not None:
        clients = Clients(address, password)
        with closing(clients), clients.take() as client:
            for table, digest in digest_engine(client).items():
                if digest != expected.rollups[table]:
                    rows = f"{expected.rollups[table].row_count:,} rows → {digest.row_count:,}"
                    differences.append(f"{table} in {address.label}: {rows}, or other values")
    return StoreComparison(expected, actual, differences)


def _list_problems(board: str, say: Say) -> list[str]:
    say("verifying texts and files")
    return [
        f"{check.subject}: {problem}"
        for check in verify(board, texts=True)
        for problem in check.problems
    ]


def _move_copy(work: Path, target: StoreAddress) -> None:
    board, database = work / BOARD, os.path.abspath(target.board)
    if target.folder is not None:
        make_folder(target.folder)
        if run_folder(str(board)).is_dir():
            run_folder(str(board)).replace(run_folder(database))
    trash = trash_path(str(board), "").parent
    if trash.is_dir():
        trash.replace(trash_path(database, "").parent)
    with closing(sqlite3.connect(board, isolation_level=None)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    os.replace(board, database)
    shutil.rmtree(work)
