"""Replicate real trace logs with new frame ids until they are large.

    python -m benchmarks.imports.replicas OUT LOG…

A replica reads like one long process: copy follows copy in time, every copy has frame ids of its
own, and what torch writes once a process (interned strings, its version) is there once. Payloads
that change are hashed anew. The sources are held in memory, the replica is streamed. The last line
printed is its facts as JSON.
"""

from __future__ import annotations

import argparse
import calendar
import functools
import hashlib
import json
import lzma
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

_YEAR = 2024  # lines carry none; one with a 29th of February knows every day
_QUARTER_S = 900  # every time zone is a multiple of it
_FLUSH_BYTES = 4_000_000

_LINE = re.compile(
    rb"(?:\[rank\d+\]:)?(?P<level>[VDIWEC])(?P<month>\d\d)(?P<day>\d\d) "
    rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?P<micro>\.\d{6})"
    rb" +(?P<pid>\d+) (?P<place>[^\]]*\] )(?P<body>\{.*\})$"
)
_RANK = re.compile(rb', "rank": \d+(?=[,}])')
# A quote inside a JSON string is escaped, so none of these is found in what a user's program says.
_SLOTS = re.compile(
    rb'"frame_id": (?P<frame>\d+)'
    rb'|"compiled_autograd_id": (?P<autograd>\d+)'
    rb'|"compile_id": "(?:!(?P<of_autograd>\d+)/?)?(?:(?P<of_frame>\d+)/\d+)?'
    rb'|"(?:start_time_us|end_time_us|ts)": (?P<us>\d{16})'
    rb'|"cache_event_time": (?P<ns>\d{19})'
    rb'|"start_time": (?P<s>\d{10})\.'
    rb'|"filename": (?P<string>\d+)'
)
_KINDS = {"of_frame": "frame", "of_autograd": "autograd"}


@dataclass(frozen=True)
class ReplicaFacts:
    """Contents of a replica. `copies` counts copies of single sources, `strings` what is written
    once.
    """

    size_bytes: int
    copies: int
    rounds: int
    records: int
    strings: int
    metrics: int
    payload_bytes: int
    frames: int


@dataclass(frozen=True)
class _Template:
    """A text with `%d` where a number changes from copy to copy, and those numbers."""

    text: bytes
    slots: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, raw: bytes) -> _Template:
        pieces, slots, end = [], [], 0
        for match in _SLOTS.finditer(raw):
            for group, value in sorted(
                match.groupdict().items(), key=lambda item: match.start(item[0])
            ):
                if value is not None:
                    pieces.append(raw[end : match.start(group)].replace(b"%", b"%%"))
                    slots.append((_KINDS.get(group, group), int(value)))
                    end = match.end(group)
        pieces.append(raw[end:].replace(b"%", b"%%"))
        return cls(b"%d".join(pieces), tuple(slots))

    def render(self, shifts: dict[str, Any]) -> bytes:
        return self.text % tuple(value + shifts[kind] for kind, value in self.slots)


@dataclass(frozen=True)
class _Record:
    level: bytes
    second: int
    location: bytes  # microseconds, process, file and line: what stands between second and JSON
    header: _Template
    payload: _Template | bytes | None  # bytes: as they stand in the log, for what never changes
    digest: bytes  # the source's; empty without a payload
    payload_bytes: int
    once: bool


@dataclass
class _Source:
    records: list[_Record]
    first_second: int
    last_second: int
    zone_s: int | None
    highest: dict[str, int] = field(default_factory=dict)
    metrics: int = 0


def make_replica(sources: list[Path], size_bytes: int, out: Path, *, perturb: bool) -> ReplicaFacts:
    """Write copies of the logs, in turn, until the file has the size; with `perturb` no two copies
    share a payload.

    Raises: SystemExit if a source has no records or is damaged.
    """
    pid = _first_pid(sources)
    parsed = [
        _read_source(path, pid, perturb, tells_version=path is sources[0]) for path in sources
    ]
    zones = [source.zone_s for source in parsed if source.zone_s is not None]
    cursor, bases = parsed[0].first_second, {"frame": 0, "autograd": 0}
    written = copies = records = strings = metrics = payload_bytes = 0
    with out.open("wb") as file:
        while written < size_bytes:
            number = copies % len(parsed)
            source = parsed[number]
            later = cursor - source.first_second
            epoch_later = later + (zones[0] - source.zone_s if source.zone_s is not None else 0)
            shifts = {
                **bases,
                "s": epoch_later,
                "us": epoch_later * 1_000_000,
                "ns": epoch_later * 1_000_000_000,
                "string": sum(
                    source_log.highest.get("string", -1) + 1 for source_log in parsed[:number]
                ),
                "copy": copies,
                "nothing": b"",
            }
            first = copies < len(parsed)
            copied = [record for record in source.records if first or not record.once]
            written += _write(file, copied, later, shifts)
            records += len(copied)
            strings += sum(record.once for record in copied)
            payload_bytes += sum(record.payload_bytes for record in copied)
            metrics += source.metrics
            copies += 1
            cursor += source.last_second - source.first_second + 1
            for kind in bases:
                bases[kind] += source.highest.get(kind, -1) + 1
    rounds = -(-copies // len(parsed))
    return ReplicaFacts(
        written, copies, rounds, records, strings, metrics, payload_bytes, bases["frame"]
    )


def _write(file: BinaryIO, records: list[_Record], later_s: int, shifts: dict[str, Any]) -> int:
    written, size = 0, 0
    chunks: list[bytes] = []
    for record in records:
        header, payload = record.header.render(shifts), record.payload
        if isinstance(payload, _Template):
            raw = payload.render(shifts)
            header = header.replace(
                record.digest, hashlib.md5(raw, usedforsecurity=False).hexdigest().encode()
            )
            payload = _wire(raw)
        chunks += (
            record.level,
            _stamp(record.second + later_s),
            record.location,
            header,
            b"\n",
            payload or b"",
        )
        size += len(record.location) + len(header) + len(payload or b"") + 15
        if size > _FLUSH_BYTES:
            written += file.write(b"".join(chunks))
            size, chunks = 0, []
    return written + file.write(b"".join(chunks))


def _wire(raw: bytes) -> bytes:
    return b"\t" + raw.replace(b"\n", b"\n\t") + b"\n"


@functools.lru_cache(maxsize=1024)
def _stamp(second: int) -> bytes:
    return time.strftime("%m%d %H:%M:%S", time.gmtime(second)).encode()


def _open(path: Path) -> BinaryIO:
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")  # type: ignore[return-value]


def _first_pid(sources: list[Path]) -> bytes:
    with _open(sources[0]) as file:
        match = _LINE.match(next(iter(file), b"").rstrip(b"\n"))
    if match is None:
        raise SystemExit(f"{sources[0]} does not begin with a record of a trace log")
    return match["pid"]


def read_records(path: Path) -> Iterator[tuple[re.Match[bytes], bytes | None]]:
    """Split a log into its records' lines and payloads."""
    match, lines = None, []
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if line[:1] == b"\t":
                lines.append(line[1:].rstrip(b"\n"))
                continue
            if match is not None:
                yield match, b"\n".join(lines) if lines else None
            match, lines = _LINE.match(line.rstrip(b"\n")), []
            if match is None:
                raise SystemExit(f"{path}:{number} is no record; replicate whole logs only")
    if match is not None:
        yield match, b"\n".join(lines) if lines else None


def _read_source(path: Path, pid: bytes, perturb: bool, *, tells_version: bool) -> _Source:
    records, highest, zone, metrics = [], dict[str, int](), None, 0
    for match, raw in read_records(path):
        body = _RANK.sub(
            b"", match["body"]
        )  # one process of one rank: tlparse passes over the others
        digest = (
            b"" if raw is None else hashlib.md5(raw, usedforsecurity=False).hexdigest().encode()
        )
        if digest not in body:
            raise SystemExit(f"{path}: a payload does not match its md5; replicate whole logs only")
        name = body[2 : body.index(b'"', 2)]
        header = _string_header(body) if name == b"str" else _Template.of(body)
        payload = _payload(raw, perturb)
        second = calendar.timegm(
            (
                _YEAR,
                *(
                    int(match[name_part])
                    for name_part in ("month", "day", "hour", "minute", "second")
                ),
            )
        )
        for kind, value in (
            *header.slots,
            *(payload.slots if isinstance(payload, _Template) else ()),
        ):
            if kind in ("frame", "autograd", "string"):
                highest[kind] = max(highest.get(kind, 0), value)
            if zone is None and kind == "us":
                zone = round((value // 1_000_000 - second) / _QUARTER_S) * _QUARTER_S
        location = b"%s %s %s" % (match["micro"], pid, match["place"])
        version = body.startswith(b'{"artifact": {"name": "torch_version"')
        if version and not tells_version:
            continue
        records.append(
            _Record(
                match["level"],
                second,
                location,
                header,
                payload,
                digest,
                len(raw or b""),
                version or name == b"str",
            )
        )
        metrics += name.endswith((b"compilation_metrics", b"compilation_metrics_runtime"))
    if not records:
        raise SystemExit(f"{path} has no record; replicate whole logs only")
    seconds = [record.second for record in records]
    return _Source(records, min(seconds), max(seconds), zone, highest, metrics)


def _string_header(body: bytes) -> _Template:
    """Make the number of an interned string one that changes: every source has its own table."""
    text, number = json.loads(body)["str"]
    return _Template(
        b'{"str": [' + json.dumps(text).encode().replace(b"%", b"%%") + b", %d]}",
        (("string", number),),
    )


def _payload(raw: bytes | None, perturb: bool) -> _Template | bytes | None:
    if raw is None:
        return None
    template = _Template.of(raw) if raw[:1] == b"{" else _Template(raw.replace(b"%", b"%%"), ())
    if template.slots or not perturb:
        return template if template.slots else _wire(raw)
    copy = (("copy", 0),)
    is_json = _is_json(raw)
    if not is_json and b"\n" in raw:
        return _Template(template.text + b"\n# copy %d", copy)
    if is_json and raw[:1] == b"{":
        empty = not json.loads(raw)
        return _Template(b'{"copy": %d' + (b"" if empty else b", ") + template.text[1:], copy)
    # A sentence or a list of them is a reason, whose meaning must stay: white space differs, and
    # JSON stays JSON.
    return _Template(template.text + b"\n%*s", (*copy, ("nothing", b"")))


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    return True


def main(argv: list[str] | None = None) -> int:
    """Make one replica and print its facts."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.imports.replicas", description=__doc__
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("logs", type=Path, nargs="+", metavar="LOG")
    parser.add_argument("--size-mb", type=float, default=100)
    parser.add_argument("--perturb", action="store_true", help="let no two copies share a payload")
    arguments = parser.parse_args(argv)
    size_bytes = int(arguments.size_mb * 1e6)
    facts = make_replica(arguments.logs, size_bytes, arguments.out, perturb=arguments.perturb)
    print(json.dumps(asdict(facts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
