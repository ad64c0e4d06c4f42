"""Recorded events as templates, and their replay under another process, time and project."""

from __future__ import annotations

import dataclasses
import lzma
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, scratch_folder
from compileboard.collectors.contract.events import (
    Compiled,
    ConfigSeen,
    Event,
    GraphBroke,
    ProcessStarted,
    Recompiled,
    RunEnded,
    RunStarted,
    SnapshotTaken,
)
from compileboard.collectors.contract.fingerprints import fingerprint
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import TorchRecord
from compileboard.collectors.record.spool import SpoolReader
from tests.tools.trace_logs import read_trace_log

DATA = ROOT / "tests" / "data"
SUFFIXES = (".log", ".jsonl")
LEFT_OUT = (RunStarted, RunEnded, ProcessStarted, SnapshotTaken)  # a replayed run has its own
EPOCH_US = 1_000_000_000_000_000  # a microsecond count above it is a moment, not a duration


@dataclass(frozen=True)
class Recording:
    """One recorded process's events, in their order."""

    name: str
    events: list[Event]
    compilations: int
    breaks: int
    first_us: int
    last_us: int


def find_sources(given: Iterable[Path]) -> list[Path]:
    """List the logs and spools under the given paths, by default those of the tests.

    Raises: SystemExit if there are none.
    """
    sources: list[Path] = []
    for path in list(given) or [DATA]:
        sources += (
            sorted(p for p in path.rglob("*") if p.name.removesuffix(".xz").endswith(SUFFIXES))
            if path.is_dir()
            else [path]
        )
    if not sources:
        raise SystemExit(
            "no recorded log (*.log, *.log.xz) or spool (*.jsonl) in "
            f"{', '.join(map(str, given)) or DATA}"
        )
    return sources


def read_recordings(sources: Iterable[Path]) -> list[Recording]:
    """Decode every source; those without a compile are left out.

    Raises: SystemExit if none has one.
    """
    recordings = [
        recording for source in sources if (recording := read_recording(source)).compilations
    ]
    if not recordings:
        raise SystemExit("none of the recorded files has a compile in it")
    return recordings


def read_recording(source: Path, *, every_kind: bool = False) -> Recording:
    """Decode one log or spool, with or without what a replayed run says itself."""
    decoder = Decoder()
    events = [
        event
        for captured in _captured(source)
        for event in decoder.decode(captured)
        if every_kind or not isinstance(event, LEFT_OUT)
    ]
    times = [event.time_us for event in events] or [0]
    return Recording(
        name=source.stem,
        events=events,
        compilations=sum(isinstance(event, Compiled) for event in events),
        breaks=sum(isinstance(event, GraphBroke) for event in events),
        first_us=min(times),
        last_us=max(times),
    )


def _captured(source: Path) -> Iterable[TorchRecord]:
    if source.suffix == ".xz":
        with scratch_folder() as folder:
            plain = folder / source.stem
            plain.write_bytes(lzma.decompress(source.read_bytes()))
            return list(_captured(plain))
    if source.suffix == ".jsonl":
        reader = SpoolReader(source.parent)
        return [captured for captured in reader.read() if captured.process_id == source.stem]
    return read_trace_log(source, source.stem)


class Renamer:
    """Gives events of one recorded process another process, time and project."""

    def __init__(self, process_id: str, folder: str, epoch: int) -> None:
        self.process_id = process_id
        self.folder = folder
        self.epoch = epoch
        self._configs: set[str] = set()

    def replay(self, event: Event, sequence: int, shift_us: int) -> Event | None:
        """Return the event under the new identity; None for a configuration this process has told
        already.
        """
        changes: dict[str, Any] = {
            "process_id": self.process_id,
            "sequence": sequence,
            "time_us": event.time_us + shift_us,
        }
        if isinstance(event, ConfigSeen):
            if event.config_hash in self._configs:
                return None
            self._configs.add(event.config_hash)
        if isinstance(event, Compiled):
            changes["start_us"] = None if event.start_us is None else event.start_us + shift_us
            changes["end_us"] = None if event.end_us is None else event.end_us + shift_us
            changes["metrics"] = {
                name: value + shift_us
                if name.endswith("_us") and isinstance(value, int) and value > EPOCH_US
                else value
                for name, value in event.metrics.items()
            }
        if getattr(event, "file", None):
            changes["file"] = self._file(event.file)  # type: ignore[attr-defined]
        if isinstance(event, GraphBroke):
            changes["fingerprint"] = self._fingerprint(event.fingerprint, event.file)
        if isinstance(event, Recompiled):
            changes["guards"] = [
                dataclasses.replace(
                    guard,
                    file=self._file(guard.file) if guard.file else None,
                    fingerprint=self._fingerprint(guard.fingerprint, guard.file),
                )
                for guard in event.guards
            ]
        return dataclasses.replace(event, **changes)

    def _file(self, file: str) -> str:
        """Put a file into the project's folder; now and then a project moves a part of its
        files.
        """
        if file.startswith(("torch/", "<")):
            return file
        return _moved(self.folder, file, self.epoch)

    def _fingerprint(self, old: str, file: str | None) -> str:
        return fingerprint(old, self._file(file) if file else self.folder)


def _shift(value: Any, shift_us: int) -> Any:
    return value + shift_us if isinstance(value, int) and value > EPOCH_US else value


@cache
def _moved(folder: str, file: str, epoch: int) -> str:
    """Name the file's place in an epoch: one file in three moves with each epoch, the others
    stay.
    """
    generation = epoch if int(fingerprint(folder, file), 16) % 3 == 0 else 0
    return f"{folder}/v{generation}/{file}" if generation else f"{folder}/{file}"
