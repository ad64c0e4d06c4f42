"""What a run ran in: its processes, versions and configuration, the files it was read from."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compileboard.app.analysis.comparison import environment
from compileboard.app.analysis.comparison.environment import SettingChange
from compileboard.app.queries.run import run, trace_files
from compileboard.app.queries.run.run import ConfigText, ConfigUse, ProcessRow
from compileboard.app.queries.run.trace_files import Log, Note, RejectSum, TraceFile

MOST_PROCESSES = 64
_MOST_TEXTS = 8  # configuration texts of one kind that are compared


@dataclass(frozen=True)
class EnvironmentScreen:
    """What a run ran in. `differences` are settings by kind that its processes did not agree on."""

    changes: Sequence[SettingChange]
    is_changed_recorded: bool
    uses: Sequence[ConfigUse]
    differences: Sequence[tuple[str, Sequence[Any]]]
    processes: Sequence[ProcessRow]

    @property
    def variables(self) -> list[tuple[str, str]]:
        """List environment variables with every value that a process had."""
        return sorted({pair for process in self.processes for pair in process.environment.items()})

    def find_version(self, name: str) -> str | None:
        """Return a version that the first process has which recorded it: a launcher may load no torch."""
        return next((version for process in self.processes if (version := getattr(process, name))), None)


def build_environment(reader: sqlite3.Connection, run_id: str, *, compare: bool = False) -> EnvironmentScreen:
    """Read what a run ran in; with `compare` also in which settings its processes differ, which takes longest."""
    changed = run.list_changed_configs(reader, run_id)
    by_kind: dict[str, list[ConfigUse]] = {}
    for use in run.list_configs(reader, run_id):
        if use.kind != "changed":
            by_kind.setdefault(use.kind, []).append(use)
    differences = []
    for kind, uses in by_kind.items():
        if compare and len(uses) > 1:
            texts = [run.get_config(reader, run_id, use.config_hash) for use in uses[:_MOST_TEXTS]]
            pairs = [(text.config_hash, text.values) for text in texts if text]
            differences.append((kind, environment.compare_texts(pairs)))
    return EnvironmentScreen(
        changes=environment.list_changes(changed),
        is_changed_recorded=bool(changed),
        uses=[use for uses in by_kind.values() for use in uses],
        differences=differences,
        processes=run.list_processes(reader, run_id, limit=MOST_PROCESSES),
    )


@dataclass(frozen=True)
class ConfigScreen:
    """One configuration text. `defaults` has torch's own value of each setting that differs from it."""

    text: ConfigText
    values: Mapping[str, Any]
    defaults: Mapping[str, str]

    def list_settings(self, part: str = "") -> list[tuple[str, str]]:
        """List name and value of the settings with `part` in their names."""
        return [(name, environment.show_value(value)) for name, value in self.values.items() if part in name.lower()]


def build_config(reader: sqlite3.Connection, run_id: str, config_hash: str) -> ConfigScreen | None:
    """Read one configuration text, None where the run has no such text."""
    text = run.get_config(reader, run_id, config_hash)
    if text is None:
        return None
    changes = environment.list_changes(run.list_changed_configs(reader, run_id))
    defaults = {change.name: change.default for change in changes if change.module == text.kind}
    return ConfigScreen(text, text.values, defaults)


@dataclass(frozen=True)
class ProcessesScreen:
    """The processes of a run, the files it was read from, and what of them could not be read."""

    processes: Sequence[ProcessRow]
    notes: Sequence[Note]
    trace_files: Sequence[TraceFile]
    logs: Sequence[Log]
    rejects: Sequence[RejectSum]


def build_processes(reader: sqlite3.Connection, run_id: str) -> ProcessesScreen:
    """Read the processes and files of a run."""
    return ProcessesScreen(
        processes=run.list_processes(reader, run_id, limit=MOST_PROCESSES),
        notes=trace_files.list_notes(reader, run_id),
        trace_files=trace_files.list_trace_files(reader, run_id),
        logs=trace_files.list_logs(reader, run_id),
        rejects=trace_files.sum_rejects(reader, run_id),
    )
