"""Find logs and results to import in files, folders, archives or standard input, by their first
bytes.
"""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from compileboard.collectors.formats.reader import has_results_name, is_results
from compileboard.collectors.logs.archives import (
    HEAD_BYTES,
    Container,
    Listing,
    find_unpack,
    is_tar,
    is_zip,
    list_tar,
    list_zip,
)
from compileboard.collectors.logs.streams import (
    CHUNK_BYTES,
    ChunkStream,
    Limits,
    LogStream,
    NoSuchLog,
    SourceDamaged,
    SpooledInput,
    StreamLimits,
    clean_name,
    read_chunks,
)

NO_LIMITS = Limits()
NO_NAMES: Mapping[str, str] = {}
STANDARD_INPUT = "standard input"
SAME_JOB_US = (
    10 * 60 * 1_000_000
)  # ranks of one job end within this; an older log is from an older job
_LOOKS_LIKE_LOG = re.compile(
    rb"(?:\[rank\d+\]:)?[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [^\]\n]*\][^{\n]*\{"
)
_NAMED_LIKE_LOG = re.compile(r"^dedicated_log_torch_trace_|\.log$")
_NAMED_LIKE_REPRO = re.compile(
    r"(?:^|[/\\ "
    r"])(?:minifier_launcher\.py|repro\.py|fx_graph_runnable\w*\.(?:py|txt)|checkpoints[/\\]\d+\w*\.py)$"
)
_REPRO_ANSWER = re.compile(
    r"\.repro/[a-z]+-\d+\.(?:json|py)$"
)  # files that `repro` writes beside a script
_PACKED_NAME = re.compile(r"\.(?:gz|zst|xz|bz2)$")
_IS_NEITHER = "is a torch trace log, a file of benchmark results or a repro of torch's"
_RANK = re.compile(r"rank_(\d+)_")


@dataclass(frozen=True)
class LogSource:
    label: str  # "trace.tar.gz: trace/rank_0.log"
    file_name: str
    modified_us: int | None
    size_bytes: int | None  # The size of the log itself, None if it is known only after reading.
    path: Path | None  # The path of a plain file, which can be followed.
    _open: Callable[[], BinaryIO] = field(repr=False, compare=False)

    def open(self) -> BinaryIO:
        """Open the log from its start as a buffered stream, which may not be seekable.

        Sources may be opened in any order and repeatedly, except for a log on standard input.
        Raises NoSuchLog; reading raises SourceDamaged or LimitExceeded after the readable part.
        """
        return self._open()


@dataclass(frozen=True)
class SourceGroup:
    """The logs that become one run, and benchmark results found with them."""

    label: str
    sources: list[LogSource]
    ignored: list[str] = field(default_factory=list)  # names of other files
    results: list[LogSource] = field(default_factory=list)
    repros: list[LogSource] = field(
        default_factory=list
    )  # scripts that torch wrote for failed graphs

    @property
    def is_empty(self) -> bool:
        return not (self.sources or self.results or self.repros)


def find_sources(
    path: str,
    *,
    latest: bool = False,
    limits: Limits = NO_LIMITS,
    stdin: BinaryIO | None = None,
    names: Mapping[str, str] = NO_NAMES,
) -> SourceGroup:
    """Find the logs at a path, in an archive, or in standard input ("-").

    `names` maps names on disk to display names. Raises NoSuchLog if there is none; LimitExceeded if
    an archive is too large.
    """
    gauge = StreamLimits(limits)
    if path == "-":
        if latest:
            raise NoSuchLog("Standard input has no newest log; give a folder.")
        return _find_in_stream(stdin or sys.stdin.buffer, gauge)
    given_path = Path(path)
    name = clean_name(names.get(given_path.name, given_path.name) or path)
    mode = _stat(given_path).st_mode
    if stat.S_ISDIR(mode):
        label = given_path.resolve().name
        group = _find_in_folder(
            given_path, clean_name(names.get(label, label) or path), gauge, names
        )
        if latest and not group.sources:
            raise NoSuchLog(
                f"{clean_name(path)}: it holds no trace log, and only of logs there is a "
                "newest one."
            )
        return (
            SourceGroup(group.label, _find_newest(group.sources), group.ignored)
            if latest
            else group
        )
    if latest:
        raise NoSuchLog(
            f"{clean_name(path)}: it is a file, and only a folder has a newest log; give its "
            "folder."
        )
    if not stat.S_ISREG(mode):
        raise NoSuchLog(
            f"{clean_name(path)}: it is neither a file nor a folder; give a log, or pipe it "
            "into `-`."
        )
    contents = _find_in_file(given_path, name, gauge)
    if contents.is_empty:
        raise NoSuchLog(
            f"{name}: none of the {len(contents.ignored)} files in this archive {_IS_NEITHER}."
        )
    return contents


def is_log(head: bytes, name: str) -> bool:
    return bool(
        _LOOKS_LIKE_LOG.match(head)
        or _NAMED_LIKE_LOG.search(_PACKED_NAME.sub("", _base_name(name)))
    )


def is_repro(name: str) -> bool:
    return bool(_NAMED_LIKE_REPRO.search(name))


def _holds_results(head: bytes, name: str, is_given: bool) -> bool:
    if _LOOKS_LIKE_LOG.match(head):
        return False
    return is_results(head, name) or (is_given and has_results_name(name))


def _is_hidden(name: str) -> bool:
    return any(
        part.startswith(".") and part not in (".", "..") for part in re.split(r"[/\\]", name)
    )


def _base_name(name: str) -> str:
    return re.split(r"[/\\]", name.rstrip("/\\"))[-1]


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except FileNotFoundError:
        raise NoSuchLog(
            f"{clean_name(str(path))}: there is no such file or folder; give a torch trace "
            "log, a folder of them or an "
            "archive."
        ) from None
    except (OSError, ValueError) as error:
        raise _unreadable_error(path, error) from None


def _unreadable_error(path: Path, error: Exception) -> NoSuchLog:
    reason = getattr(error, "strerror", None) or str(error)
    return NoSuchLog(
        f"{clean_name(str(path))}: it cannot be read ({reason}); check the path and who may "
        "read it."
    )


def _find_in_folder(
    folder: Path, label: str, gauge: StreamLimits, names: Mapping[str, str]
) -> SourceGroup:
    sources: list[LogSource] = []
    ignored: list[str] = []
    results: list[LogSource] = []
    repros: list[LogSource] = []
    count = 0
    for path in _walk_files(folder, ignored):
        count += 1
        relative = path.relative_to(folder).as_posix()
        name = clean_name(names.get(relative, relative))
        try:
            group = _find_in_file(path, name, gauge, is_given=False)
        except NoSuchLog as error:  # unreadable, or removed in the meantime
            group = SourceGroup(name, [], [name])
            if is_log(b"", name):
                group = SourceGroup(name, [_broken_source(name, SourceDamaged(str(error)))])
        sources += group.sources
        ignored += [] if _REPRO_ANSWER.search(relative) else group.ignored
        results += group.results
        repros += group.repros
    if not sources and not results and not repros:
        raise NoSuchLog(
            f"{clean_name(str(folder))}: none of the {count} files in this folder {_IS_NEITHER}; "
            "give the folder that TORCH_TRACE or --output-directory named."
        )
    return SourceGroup(label, sources, ignored, results, repros)


def _walk_files(folder: Path, ignored: list[str]) -> Iterator[Path]:
    def unreadable(error: OSError) -> None:
        if error.filename == str(folder):
            raise _unreadable_error(folder, error) from None
        ignored.append(clean_name(os.path.relpath(error.filename, folder)))

    for root, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(root, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _find_newest(sources: list[LogSource]) -> list[LogSource]:
    by_age = sorted(
        sources, key=lambda source: (source.modified_us or 0, source.label), reverse=True
    )
    newest = by_age[0]
    if not _RANK.search(newest.file_name):
        return [newest]
    of_rank: dict[int, LogSource] = {}
    for source in by_age:
        rank = _RANK.search(source.file_name)
        if rank and (newest.modified_us or 0) - (source.modified_us or 0) <= SAME_JOB_US:
            of_rank.setdefault(int(rank[1]), source)
    return [of_rank[rank] for rank in sorted(of_rank)]


def _find_in_file(path: Path, name: str, gauge: StreamLimits, is_given: bool = True) -> SourceGroup:
    status = _stat(path)
    container = Container(name, status.st_size, partial(_open_raw, path), gauge)
    modified_us = status.st_mtime_ns // 1000
    with container.chunks() as chunks:
        head = chunks.peek(HEAD_BYTES)
        if chunks.damage is not None:
            raise _unreadable_error(path, chunks.damage)
    packed = find_unpack(head) is not None
    if not packed and not is_zip(head) and not is_tar(head):
        opening = partial(_open_plain, path)
        source = LogSource(name, _base_name(name), modified_us, status.st_size, path, opening)
        return _classify_source(source, head, is_given)
    return _find_in_container(container, packed, _base_name(name), modified_us, is_given)


def _classify_source(source: LogSource, head: bytes, is_given: bool) -> SourceGroup:
    if is_repro(source.label):
        return SourceGroup(source.label, [], repros=[source])
    if _holds_results(head, source.label, is_given):
        return SourceGroup(source.label, [], [], [source])
    if is_given or is_log(head, source.label):
        return SourceGroup(source.label, [source])
    return SourceGroup(source.label, [], [source.label])


def _open_raw(path: Path) -> io.RawIOBase:
    try:
        return open(path, "rb", buffering=0)
    except OSError as error:
        raise _unreadable_error(path, error) from None


def _open_plain(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise _unreadable_error(path, error) from None


def _open_stream(make: Callable[[], ChunkStream], container: Container, number: int) -> BinaryIO:
    chunks = make()
    # The outermost layer is the log itself and counts towards the total; the layers below only for
    # themselves.
    chunks.watch = container.gauge.log(container.name, number, container.size_bytes)
    return LogStream(chunks)


def _find_in_container(
    container: Container, packed: bool, file_name: str, modified_us: int | None, is_given: bool
) -> SourceGroup:
    with container.peeled() as stream:
        head = stream.peek(HEAD_BYTES)
    try:
        if not packed and is_zip(head):
            return _group_container(container, list_zip(container), is_given)
        if is_tar(head):
            return _group_container(container, list_tar(container, packed), is_given)
    except SourceDamaged as error:
        return SourceGroup(container.name, [_broken_source(container.name, error)])
    opening = partial(_open_stream, container.peeled, container, 0)
    return _classify_source(
        LogSource(container.name, file_name, modified_us, None, None, opening), head, is_given
    )


def _group_container(container: Container, listing: Listing, is_given: bool) -> SourceGroup:
    sources: list[LogSource] = []
    results: list[LogSource] = []
    repros: list[LogSource] = []
    ignored = [f"{container.name}: {clean_name(name)}" for name in listing.passed_over]
    for number, member in enumerate(listing.members):
        label = f"{container.name}: {clean_name(member.name)}"
        holds_results = _holds_results(member.head, member.name, is_given=False)
        is_script = is_repro(member.name)
        if _is_hidden(member.name) or not (
            is_script or holds_results or is_log(member.head, member.name)
        ):
            ignored.append(label)
            continue
        opening = partial(_open_stream, member.open, container, number)
        file_name = clean_name(_base_name(member.name))
        log_source = LogSource(
            label, file_name, member.modified_us, member.size_bytes, None, opening
        )
        (repros if is_script else results if holds_results else sources).append(log_source)
    if listing.damage is not None and (sources or results or is_given):
        (sources or results or sources).append(_broken_source(container.name, listing.damage))
    return SourceGroup(container.name, sources, ignored, results, repros)


def _broken_source(name: str, error: ValueError) -> LogSource:
    return LogSource(
        name, _base_name(name), None, None, None, lambda: LogStream(ChunkStream((), damage=error))
    )


def _find_in_stream(stdin: BinaryIO, gauge: StreamLimits) -> SourceGroup:
    read = getattr(stdin, "read1", stdin.read)  # read1 returns the available part of a growing log.
    chunks = ChunkStream(iter(lambda: read(CHUNK_BYTES), b""))
    head = chunks.peek(HEAD_BYTES)
    chunks.check()
    packed = find_unpack(head) is not None
    if not packed and not is_zip(head) and not is_tar(head):
        once = iter([chunks])
        opening = partial(_open_once, once, gauge)
        return _classify_source(
            LogSource(STANDARD_INPUT, "-", None, None, None, opening), head, is_given=True
        )
    spooled = SpooledInput()
    chunks.watch = gauge.layer(STANDARD_INPUT, None)
    for chunk in read_chunks(chunks):
        spooled.write(chunk)
    chunks.check()
    container = Container(STANDARD_INPUT, spooled.size_bytes, spooled.open, gauge)
    group = _find_in_container(container, packed, "-", None, is_given=True)
    if group.is_empty:
        raise NoSuchLog(
            f"Standard input: none of the {len(group.ignored)} files in this archive {_IS_NEITHER}."
        )
    return group


def _open_once(once: Iterator[ChunkStream], gauge: StreamLimits) -> BinaryIO:
    chunks = next(once, None)
    if chunks is None:
        raise NoSuchLog(
            "Standard input was read already and cannot be read again; save it to a file first."
        )
    chunks.watch = gauge.log(STANDARD_INPUT, 0, None)
    return LogStream(chunks)
