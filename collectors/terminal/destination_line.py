"""Print where a run is stored, once that is certain."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.push.outbox import list_run, outbox_root
from compileboard.collectors.push.target import Target
from compileboard.collectors.terminal.command_hints import dashboard_command

STEP_S = 0.25


class DestinationLine:
    def __init__(self, config: RunConfig, run_id: str, print_line: Callable[[str], None]) -> None:
        self._config = config
        self._run_id = run_id
        self._print_line = print_line
        self._began_s, self._began_us = time.monotonic(), time.time_ns() // 1000
        self._due_s = 0.0
        self._waits = False
        self._is_over = False

    def step(self) -> None:
        now_s = time.monotonic()
        if self._is_over or now_s < self._due_s:
            return
        self._due_s = now_s + STEP_S
        if not self._config.server:
            served = dashboard_command("serve", database=self._config.database)
            self._end(
                f"run {self._run_id} is recorded in {self._config.database}; see it with: {served}"
            )
            return
        with suppress(OSError, ValueError, RuntimeError):
            self._ask(now_s)

    def _ask(self, now_s: float) -> None:
        from compileboard.collectors.push.report import FIRST_ANSWER_S  # with it an HTTP client
        from compileboard.collectors.push.sender import read_status

        root, target = outbox_root(os.environ), Target.of(self._config)
        if any(item.read_sent().offset for item in list_run(root / self._run_id)):
            self._end(f"run {self._run_id} is pushed to {target.run_page(self._run_id)}")
        elif not self._waits:
            status = read_status(root, target, self._run_id)
            error = status.error if (status.failed_us or 0) > self._began_us else None
            if error is None and now_s - self._began_s > FIRST_ANSWER_S:
                error = f"{target.server} gave no answer so far"
            if error is not None:
                self._waits = True
                self._print_line(f"run {self._run_id} waits for the server: {error}")

    def _end(self, line: str) -> None:
        self._is_over = True
        self._print_line(line)
