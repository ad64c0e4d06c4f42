"""The spool on disk: read it, lock it, its manifest, and spools that could not be recorded."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeGuard

from compileboard.collectors.contract.events import Event, dump_event, load_event
from compileboard.collectors.contract.fingerprints import ULID_ALPHABET
from compileboard.collectors.contract.rejects import Rejects
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.contract.shapes import CiJob, Git, Gpu, Host
from compileboard.collectors.contract.spool_format import (
    CONTEXT_KEYS,
    JOURNAL_NAME,
    LOCK_NAME,
    LOSSES_SUFFIX,
    MANIFEST_NAME,
    RECORDS_SUFFIX,
)
from compileboard.collectors.contract.values import clean_text, fit_event, fit_json
from compileboard.collectors.decode.records import TorchRecord
from compileboard.collectors.store.leases import try_lock

BATCH_BYTES = 4 << 20
MAX_LINE_BYTES = 64 << 20
MAX_INT64 = 2**63 - 1
MAX_CONFIGS = 16  # events that a record's configurations may become, numbered after it

KEPT = "bad_field"  # loses only one value of the record
UNREADABLE = "spool: a line that is not a record"
TORN = "spool: a last line that is torn"
EMPTY = "spool: nothing could be written"


class BadLine(ValueError):
    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass
class FilePosition:
    offset: int = 0
    line: int = 0
    passing_over: bool = False  # inside a line that is too long


@dataclass(frozen=True)
class SpoolMark:
    positions: dict[str, FilePosition]
    rejects: dict[str, Rejects]


@dataclass
class SpoolReader:
    folder: Path
    keep_examples: bool = True  # a line may hold source code
    rejects: dict[str, Rejects] = field(default_factory=dict)  # by file name
    positions: dict[str, FilePosition] = field(default_factory=dict)  # by file name

    def read(self) -> Iterator[TorchRecord]:
        for path in list_files(self.folder, RECORDS_SUFFIX):
            process_id = process_id_from_name(path.name)
            for number, line in self.read_lines(path):
                if (
                    line
                    and (captured := self._parse(path.name, process_id, number, line)) is not None
                ):
                    yield captured

    def mark(self) -> SpoolMark:
        return deepcopy(SpoolMark(self.positions, self.rejects))

    def rewind(self, mark: SpoolMark) -> None:
        self.positions, self.rejects = deepcopy((mark.positions, mark.rejects))

    def reject(
        self, file_name: str, kind: str, line: int | None = None, example: bytes | str | None = None
    ) -> None:
        rejects = self.rejects.setdefault(clean_text(file_name), Rejects())
        rejects.add(kind, line, example if self.keep_examples else None)

    def read_lines(self, path: Path) -> Iterator[tuple[int, bytes]]:
        position = self.positions.setdefault(path.name, FilePosition())
        try:
            if not is_file(path) or path.stat().st_size <= position.offset:
                return
            file = path.open("rb")
        except FileNotFoundError:  # deleted since it was listed
            return
        with file:
            file.seek(position.offset)
            while block := file.read(BATCH_BYTES):
                while (
                    b"\n" not in block
                    and len(block) <= MAX_LINE_BYTES
                    and (more := file.read(BATCH_BYTES))
                ):
                    block += more
                end = block.rfind(b"\n") + 1
                if not end and len(block) <= MAX_LINE_BYTES:
                    break  # its rest is not written yet
                if not end:
                    position.passing_over = True
                    position.offset += len(block)
                    continue
                for line in block[: end - 1].split(b"\n"):
                    position.line += 1
                    position.offset += len(line) + 1
                    if position.passing_over:
                        position.passing_over = False
                        self.reject(path.name, "too_large", position.line)
                    else:
                        yield position.line, line
                file.seek(position.offset)

    def _parse(
        self, file_name: str, process_id: str, number: int, line: bytes
    ) -> TorchRecord | None:
        try:
            return _parse_record(process_id, json.loads(line))
        except BadLine as bad:
            self.reject(file_name, bad.kind, number, line)
        except UnicodeDecodeError:
            self.reject(file_name, "bad_utf8", number, line)
        except (ValueError, RecursionError, MemoryError):
            self.reject(file_name, "bad_json", number, line)
        return None

    def losses(self) -> dict[str, dict[str, int]]:
        losses: dict[str, Counter[str]] = {}
        for path in list_files(self.folder, LOSSES_SUFFIX):
            losses.setdefault(process_id_from_name(path.name), Counter()).update(
                _reported_losses(path)
            )
        for file_name, rejects in self.rejects.items():
            lost = rejects.total - rejects.count(KEPT)
            if lost and file_name.endswith(RECORDS_SUFFIX):
                losses.setdefault(process_id_from_name(file_name), Counter())[UNREADABLE] += lost
        for path in list_files(self.folder, RECORDS_SUFFIX):
            size, counts = (
                path.stat().st_size,
                losses.setdefault(process_id_from_name(path.name), Counter()),
            )
            position = self.positions.get(path.name, FilePosition())
            if size == 0 and not _has_room(self.folder, path):
                counts[EMPTY] += 1
            elif size > position.offset or position.passing_over:
                counts[TORN] += 1
        return {process_id: dict(counts) for process_id, counts in losses.items() if counts}


def list_files(folder: Path, suffix: str) -> list[Path]:
    return [path for path in sorted(folder.glob(f"*{suffix}")) if is_file(path)]


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file. Opening a pipe blocks, and devices have no end."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def process_id_from_name(file_name: str) -> str:
    return clean_text(file_name.partition(".")[0])


def _has_room(folder: Path, path: Path) -> bool:
    reserved = folder / (path.name.partition(".")[0] + LOSSES_SUFFIX)
    return reserved.exists() and reserved.stat().st_size > 0


def _reported_losses(path: Path) -> dict[str, int]:
    try:
        text = path.read_bytes().partition(b"\n")[0].strip(b"\0")
        losses = fit_json(dict[str, int], json.loads(text)) or {}
        return {reason: count for reason, count in losses.items() if count >= 0}
    except (OSError, ValueError, RecursionError):
        return {}


def _is_integer(value: Any) -> bool:
    return type(value) is int and abs(value) <= MAX_INT64


def is_count(value: Any) -> TypeGuard[int]:
    return _is_integer(value) and value >= 0


def _parse_record(process_id: str, record: Any) -> TorchRecord:
    if not isinstance(record, dict):
        raise BadLine("stray_line")
    sequence, time_us, name, extra = (
        record.get("s"),
        record.get("t"),
        record.get("n"),
        record.get("x"),
    )
    context = record.get("c")
    if not is_count(sequence) or sequence > MAX_INT64 - MAX_CONFIGS or not is_count(time_us):
        raise BadLine("bad_envelope")
    if not isinstance(name, str) or not name or not (extra is None or isinstance(extra, dict)):
        raise BadLine("bad_envelope")
    if context is None:
        context = [None] * len(CONTEXT_KEYS)
    elif (
        type(context) is not list
        or len(context) != len(CONTEXT_KEYS)
        or not all(value is None or _is_integer(value) for value in context)
    ):
        raise BadLine("bad_envelope")
    return TorchRecord(
        process_id=process_id,
        sequence=sequence,
        time_us=time_us,
        name=name,
        metadata=record.get("m"),
        payload=record.get("p"),
        extra=extra or {},
        **dict(zip(CONTEXT_KEYS, context, strict=True)),
    )


def lock_spool(folder: Path) -> int | None:
    """Lock a spool until the descriptor is closed; None if another recorder has it."""
    return try_lock(folder / LOCK_NAME)


def writers_alive(folder: Path) -> int:
    """Count the processes that hold the lock of their spool file. The lock is released when they
    die.
    """
    alive = 0
    for path in list_files(folder, RECORDS_SUFFIX):
        try:
            descriptor = try_lock(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        if descriptor is None:
            alive += 1
        else:
            os.close(descriptor)
    return alive


RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class Manifest(RunConfig):
    run_id: str
    started_us: int = 0
    source: str = "live"  # live | bench | trial
    argv: list[str] = field(default_factory=list)
    cwd: str | None = None
    recorder_process_id: str = ""
    # torch's own logs: with --level full, or by the user's TORCH_TRACE.
    trace_folder: str | None = None
    git: Git = field(default_factory=Git)
    ci: CiJob = field(default_factory=CiJob)
    host: Host = field(default_factory=Host)
    gpus: list[Gpu] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    ended_us: int | None = None
    state: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    # From a process that outlived its spool: its run is described and ended elsewhere.
    late: bool = False
    troubles: list[tuple[str, str]] = field(
        default_factory=list
    )  # [kind of collectors.contract.rejects, error]

    def end(
        self, state: str, ended_us: int, exit_code: int | None = None, signal: str | None = None
    ) -> Manifest:
        return replace(self, state=state, ended_us=ended_us, exit_code=exit_code, signal=signal)

    def write(self, folder: Path) -> None:
        replace_file(folder / MANIFEST_NAME, json.dumps(asdict(self)))


def read_manifest(folder: Path) -> Manifest:
    """Read a spool's manifest. Invalid facts are left out and listed in its errors.

    Raises ValueError if it is missing, damaged, or has no run or target.
    """
    path = folder / MANIFEST_NAME
    if not is_file(path):
        raise ValueError(f"{path} does not describe a run: it is not a regular file")
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} does not describe a run: {error}") from None
    if not isinstance(body, dict):
        raise ValueError(
            f"{path} does not describe a run: expected an object, got {str(body)[:80]}"
        )
    values: dict[str, Any] = dict.fromkeys(("run_id", "name", "recorder_process_id"), "")
    values |= {field.name: body[field.name] for field in fields(Manifest) if field.name in body}
    manifest, notes = fit_event(Manifest(**values))
    if manifest is None or not RUN_ID.fullmatch(manifest.run_id):
        raise ValueError(
            f"{path} does not describe a run: its run_id is {body.get('run_id')!r:.80}"
        )
    if not manifest.database and not manifest.server:
        raise ValueError(
            f"{path} does not describe a run: its database is {body.get('database')!r:.80}"
        )
    return replace(
        manifest,
        name=manifest.name or manifest.run_id,
        recorder_process_id=manifest.recorder_process_id or manifest.run_id,
        started_us=manifest.started_us or path.stat().st_mtime_ns // 1000,
        troubles=[*manifest.troubles, *(("bad_fact", note) for note in notes)],
    )


def home(environment: Mapping[str, str]) -> Path:
    """Return $COMPILEBOARD_HOME, by default a folder in the user's state directory."""
    chosen = environment.get("COMPILEBOARD_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    state = environment.get("XDG_STATE_HOME") or os.path.join(
        environment.get("HOME") or "~", ".local", "state"
    )
    return Path(state).expanduser().absolute() / "compileboard"


def replace_file(path: Path, body: str | bytes) -> None:
    """Write a file atomically. Raises OSError, with the old file in place, if that fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(
            body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
        )
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def spool_root(environment: Mapping[str, str]) -> Path:
    return home(environment) / "spool"


def new_run_id(now_ms: int | None = None, lowest: int | None = None) -> str:
    """Return a ULID: 26 characters that sort by time. `lowest` are its last 80 bits, random by
    default.
    """
    value = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) << 80
    value |= secrets.randbits(80) if lowest is None else lowest
    characters = []
    for _ in range(26):
        value, digit = divmod(value, 32)
        characters.append(ULID_ALPHABET[digit])
    return "".join(reversed(characters))


REASON = "reason.txt"
SET_ASIDE = "set-aside"


@dataclass(frozen=True)
class UnrecordedSpool:
    folder: Path
    reason: str

    @property
    def name(self) -> str:
        return clean_text(self.folder.name)

    @property
    def state(self) -> str:
        return "set aside" if self.folder.parent.name == SET_ASIDE else "waiting"


def set_aside(folder: Path, reason: str) -> Path:
    """Move a spool to the set-aside folder; return its new path. Raises OSError if the
    disk is full or not writable.
    """
    root = folder.parent.parent / SET_ASIDE
    root.mkdir(mode=0o700, exist_ok=True)
    moved = _find_free_path(root / folder.name)
    folder.rename(moved)
    note_reason(moved, reason)
    return moved


def note_reason(folder: Path, reason: str) -> bool:
    if _read_reason(folder) == clean_text(reason):
        return False
    (folder / REASON).write_text(clean_text(reason) + "\n", encoding="utf-8")
    return True


def _find_free_path(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


def list_unrecorded(environment: Mapping[str, str]) -> list[UnrecordedSpool]:
    paths = [path for path in (home(environment) / SET_ASIDE).glob("*") if path.is_dir()]
    paths += [path.parent for path in spool_root(environment).glob(f"*/{REASON}")]
    return [
        UnrecordedSpool(path, _read_reason(path) or "not recorded why") for path in sorted(paths)
    ]


def _read_reason(folder: Path) -> str | None:
    try:
        return (folder / REASON).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def put_back(
    environment: Mapping[str, str], names: list[str], database: str | None
) -> list[UnrecordedSpool]:
    """Move spools back from the set-aside folder, all or the named ones, optionally for another
    database, and return them.

    Raises ValueError for an unknown name or a spool without a readable manifest.
    """
    waiting = list_unrecorded(environment)
    newest = max((spool.name for spool in waiting), default="latest")
    names = [newest if name == "latest" else name for name in names]
    chosen = [
        spool
        for spool in waiting
        if not names or any(spool.name.startswith(name) for name in names)
    ]
    if unknown := [
        name for name in names if not any(spool.name.startswith(name) for spool in waiting)
    ]:
        known = ", ".join(spool.name for spool in waiting) or "nothing"
        raise ValueError(f"no run {unknown[0]!r} waits or was set aside; there is: {known}")
    root = spool_root(environment)
    root.mkdir(parents=True, mode=0o700, exist_ok=True)
    for spool in chosen:
        if database is not None:
            replace(
                read_manifest(spool.folder), database=os.path.abspath(database), server=""
            ).write(spool.folder)
        (spool.folder / REASON).unlink(missing_ok=True)
        if spool.state == "set aside":
            spool.folder.rename(_find_free_path(root / spool.folder.name))
    return chosen


def append_event(folder: Path, event: Event) -> None:
    """Append an event to the spool, atomically and immediately. Raises OSError, with nothing
    appended, if the disk is full or not writable.
    """
    line = dump_event(event).encode() + b"\n"
    descriptor = os.open(
        folder / JOURNAL_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )
    try:
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, line) != len(line):  # half a line would damage the next one
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / JOURNAL_NAME))
    finally:
        os.close(descriptor)


def read_journal(reader: SpoolReader) -> Iterator[Event]:
    for number, line in reader.read_lines(reader.folder / JOURNAL_NAME):
        try:
            event, notes = fit_event(load_event(line.decode()))
        except (ValueError, TypeError, AttributeError, RecursionError):
            event, notes = None, []
        if event is None:
            reader.reject(JOURNAL_NAME, "bad_event", number, line)
            continue
        for note in notes:
            reader.reject(JOURNAL_NAME, "bad_field", number, note)
        yield event
