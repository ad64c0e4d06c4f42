"""Upkeep of a ClickHouse store: publishing, summing up months, sweeping, sealing."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing

from compileboard.app.clickhouse.client import ClientPool, EngineUnavailable
from compileboard.app.clickhouse.passes import Publisher, publish_changes
from compileboard.app.clickhouse.run_files import find_lost_files, seal_ended_runs
from compileboard.app.clickhouse.tables import prepare_engine
from compileboard.app.core.address import ClickHouseAddress, StoreAddress, read_password
from compileboard.collectors.store.connection import StoreError, open_reader, open_writer
from compileboard.collectors.store.leases import PUBLISH, try_acquire_lease
from compileboard.collectors.store.published_runs import get_numbers, save_outcome

GATHER_S = 2.0
SWEEP_EVERY_S = 86_400.0
FILES_EVERY_S = 600.0  # checks whether a run's file is lost
MAX_LOST = 20  # per log line
SETTLE_EVERY_S = 60.0  # months and sealing wait for quiet minutes


class Upkeep:
    def __init__(self, address: StoreAddress, engine: ClickHouseAddress, seal_after_s: int) -> None:
        self._board = address.board
        self._engine = engine
        self._seal_after_us = seal_after_s * 1_000_000
        self._reader: sqlite3.Connection | None = None
        self._version = -1  # data_version of the board, changed by others' writes
        self._published_s = 0.0
        self._clients: ClientPool | None = None
        self._publisher: Publisher | None = None
        self._settled_s = -SETTLE_EVERY_S
        self._swept_s = time.monotonic()
        self._looked_s = -FILES_EVERY_S
        self._lost_files: list[str] = []
        self.problems: list[str] = []

    def publish_if_written(self) -> None:
        """Publish if the board changed, at most every two seconds so that changes are sent
        together.

        Raises EngineUnavailable or StoreError.
        """
        if self._reader is None:
            self._reader = open_reader(self._board)
        version = self._reader.execute("pragma data_version").fetchone()[0]
        if version != self._version and time.monotonic() - self._published_s >= GATHER_S:
            self._version = version
            self.publish()

    def publish(self) -> None:
        """Publish the board's changes. Raises EngineUnavailable or StoreError."""
        self._published_s = time.monotonic()
        try:
            publisher = self._get_publisher()
        except StoreError as error:
            self._save_error(error)
            raise
        try:
            outcome = publish_changes(self._board, publisher, time.time_ns() // 1000)
        except EngineUnavailable:
            self.close()
            raise
        self.problems = [str(error) for error in outcome.refused] if outcome else []

    def run_due_tasks(self) -> None:
        """Sum up months, seal ended runs and delete unused roll-ups, if due.

        Raises EngineUnavailable or StoreError.
        """
        now_s, now_us = time.monotonic(), time.time_ns() // 1000
        if now_s - self._settled_s < SETTLE_EVERY_S:
            return
        lease = try_acquire_lease(self._board, PUBLISH)
        if lease is not None:
            with lease, closing(open_writer(self._board, create=False)) as board:
                publisher = self._get_publisher()
                publisher.rebuild_months(board, now_us)
                if now_s - self._swept_s >= SWEEP_EVERY_S:
                    publisher.delete_unused_rollups(board, now_us)
                    self._swept_s = now_s
        self.problems += seal_ended_runs(self._board, self._seal_after_us, now_us=now_us).problems
        if now_s - self._looked_s >= FILES_EVERY_S:
            with closing(open_reader(self._board)) as board:
                self._lost_files = [
                    f"run {run_id}: {text}" for run_id, text in find_lost_files(board).items()
                ]
            self._looked_s = now_s
        self.problems += self._lost_files[:MAX_LOST]
        self._settled_s = now_s

    def _save_error(self, error: StoreError) -> None:
        with closing(open_writer(self._board, create=False)) as board:
            get_numbers(board)  # its errors name the board
            save_outcome(board, str(error), time.time_ns() // 1000)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._clients is not None:
            self._clients.close()
        self._clients = self._publisher = None

    def _get_publisher(self) -> Publisher:
        if self._publisher is None:
            password = read_password(os.environ)
            prepare_engine(self._engine, password)
            self._clients = ClientPool(self._engine, password)
            self._publisher = Publisher(self._clients)
        return self._publisher
