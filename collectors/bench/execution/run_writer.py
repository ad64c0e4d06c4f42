"""Write a bench run to the store, each result as soon as it is measured."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compileboard.collectors.bench.execution.resume import PLAN
from compileboard.collectors.bench.plan.settings import changed
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome, without_source
from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.record.facts import describe_run, make_spool, spool_folder
from compileboard.collectors.record.live import TRACE_NAME, Recording, child_environment
from compileboard.collectors.record.spool import append_event
from compileboard.collectors.terminal.progress_line import DestinationLine
from compileboard.collectors.terminal.values import count_text


@dataclass
class BenchRunWriter:
    config: RunConfig
    print_line: Callable[[str], None]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    argv: tuple[str, ...] = ()
    run_id: str | None = None  # The id of a resumed run.
    plan: str = ""  # identifies the run for `--resume`
    cwd: str | None = None  # folder of the models' code, if not the current one
    # Destination of the run, if set.
    destination: DestinationLine | None = None
    unwritten: list[BenchMeasured] = field(default_factory=list)  # results not yet in the spool

    def open(self) -> None:
        """Create the spool and open the database. Raises StoreError if the database can never store
        this run.
        """
        cwd = self.cwd or os.getcwd()
        manifest = describe_run(
            replace(self.config, name=self.config.name or "bench"),
            self.environment,
            argv=self.argv or ["python", "-m", "compileboard.collectors", *sys.argv[1:]],
            cwd=cwd,
            code_folder=cwd,
            run_id=self.run_id,
            source="bench",
        )
        if self.plan:
            manifest.environment[PLAN] = self.plan
        folder = spool_folder(manifest, self.environment, shared=self.run_id is not None)
        if self.config.level == "full":
            manifest = replace(manifest, trace_folder=str(folder / TRACE_NAME))
        make_spool(folder, manifest)
        self.manifest = manifest
        self.recording = Recording(folder, manifest, self.print_line)
        self.recording.open()
        self.sequence = 1  # 0 is the run's start, 1 its end
        self.hardware = manifest.gpus[0].get("name") if manifest.gpus else None
        self.cpu = manifest.host.get("cpu")

    @property
    def folder(self) -> Path:
        return self.recording.folder

    def child_environment(self, task: str) -> dict[str, str]:
        child = child_environment(
            self.manifest, self.environment, self.manifest.run_id, self.folder
        )
        return {**child, "COMPILEBOARD_TASK": task, "PYTHONUNBUFFERED": "1"}

    def beat(self) -> None:
        self.recording.step()
        if self.destination is not None:
            self.destination.step()

    def write_result(self, task: Task, outcome: ExperimentOutcome, command: str) -> BenchMeasured:
        """Record a result. When this returns it is in the spool, and later in the database."""
        self.recording.step()
        settings = task.settings
        if not self.config.keep_source:
            outcome = without_source(outcome)
        recompiles = self._recompiles(task.name)
        if recompiles is not None and outcome.status == "measured":
            outcome.values["recompiles"] = float(recompiles)
        outcome.hardware = outcome.hardware or (self.hardware if settings.is_cuda else self.cpu)
        outcome.batch_size = outcome.batch_size or task.ref.batch_size_for(
            settings.mode, settings.batch_size
        )
        if tag := self.config.tags.get("tag"):
            outcome.facts["tag"] = tag
        outcome.facts |= {"settings": changed(settings), "family": task.ref.family}
        self.sequence += 1
        event = BenchMeasured(
            process_id=self.manifest.recorder_process_id,
            sequence=self.sequence,
            time_us=time.time_ns() // 1000,
            suite=task.ref.suite,
            model=task.ref.name,
            experiment=task.experiment,
            mode=settings.mode,
            dtype=settings.dtype,
            device=settings.device,
            backend=settings.label(),
            dynamic=settings.dynamic,
            world_size=settings.world_size or 1,
            task=task.name,
            command=command,
            **vars(outcome),
        )
        self.unwritten.append(event)
        self._write_events()
        self.recording.step()
        return event

    def _write_events(self) -> None:
        try:
            while self.unwritten:
                append_event(self.folder, self.unwritten[0])
                self.unwritten.pop(0)
        except OSError as error:
            self.print_line(
                f"{count_text(len(self.unwritten), 'result')} cannot be kept yet: {error}"
            )

    def _recompiles(self, task: str) -> int | None:
        recorder = self.recording.recorder
        return None if recorder is None else recorder.sink.count_recompiles(task)

    def end(self, state: str) -> None:
        ends: dict[str, dict[str, Any]] = {
            "finished": {"exit_code": 0},
            "interrupted": {"signal": "SIGINT"},
            "failed": {"exit_code": 1},
        }
        self._write_events()
        self.recording.end(state, **ends[state])
