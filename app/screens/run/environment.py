"""The environment of a run: processes, versions, configuration and source files."""

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
    changes: Sequence[SettingChange]
    is_changed_recorded: bool
    uses: Sequence[ConfigUse]
    differences: Sequence[tuple[str, Sequence[Any]]]
    processes: Sequence[ProcessRow]

    @property
    def variables(self) -> list[tuple[str, str]]:
        return sorted({pair for process in self.processes for pair in process.environment.items()})

    def find_version(self, name: str) -> str | None:
        """Return a version from the first process that recorded it; a launcher may not load
        torch.
        """
        return next(
            (version for process in self.processes if (version := getattr(process, name))), None
        )


def build_environment(
    reader: sqlite3.Connection, run_id: str, *, compare: bool = False
) -> EnvironmentScreen:
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
    """One configuration text; `defaults` has torch's default of each changed setting."""

    text: ConfigText
    values: Mapping[str, Any]
    defaults: Mapping[str, str]

    def list_settings(self, part: str = "") -> list[tuple[str, str]]:
        return [
            (name, environment.show_value(value))
            for name, value in self.values.items()
            if part in name.lower()
        ]


def build_config(reader: sqlite3.Connection, run_id: str, config_hash: str) -> ConfigScreen | None:
    text = run.get_config(reader, run_id, config_hash)
    if text is None:
        return None
    changes = environment.list_changes(run.list_changed_configs(reader, run_id))
    defaults = {change.name: change.default for change in changes if change.module == text.kind}
    return ConfigScreen(text, text.values, defaults)


@dataclass(frozen=True)
class ProcessesScreen:
    processes: Sequence[ProcessRow]
    notes: Sequence[Note]
    trace_files: Sequence[TraceFile]
    logs: Sequence[Log]
    rejects: Sequence[RejectSum]


def build_processes(reader: sqlite3.Connection, run_id: str) -> ProcessesScreen:
    return ProcessesScreen(
        processes=run.list_processes(reader, run_id, limit=MOST_PROCESSES),
        notes=trace_files.list_notes(reader, run_id),
        trace_files=trace_files.list_trace_files(reader, run_id),
        logs=trace_files.list_logs(reader, run_id),
        rejects=trace_files.sum_rejects(reader, run_id),
    )
