"""Put odd values into every field that is pushed and every column of a bundle, and ask each address
of the run.

python -m tests.tools.odd_records [--way push|bundle] [--names KIND_OR_TABLE …]
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import lzma
import shutil
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from flask import Flask, got_request_exception
from flask.testing import FlaskClient

from compileboard.app import create_app
from compileboard.app.core.settings import Settings
from compileboard.app.runs.pages import FILLS
from compileboard.collectors.contract.events import (
    KINDS,
    CommitsSeen,
    ConfigSeen,
    Event,
    PageFaultsCounted,
    ProcessStarted,
    RecordsLost,
    ReproAnswered,
    RunEnded,
    RunStarted,
    RuntimeFailed,
    UnknownRecordSeen,
    dump_event,
    load_event,
)
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.store.bundles import merge_bundle, write_bundle
from compileboard.collectors.store.connection import NotAStore, open_reader, open_writer
from compileboard.collectors.store.ingest.repro_writer import repro_id
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.run_rows import list_own_rows, read_tables
from compileboard.collectors.store.search import index_run
from compileboard.collectors.store.stream_lines import read_lines
from compileboard.collectors.store.stream_rows import Stream
from compileboard.collectors.store.stream_writer import StreamWriter
from tests.tools.make_db import DATA, plain_log
from tests.tools.trace_logs import read_trace_log
from tests.unit.app.repros.captured import list_events as list_repro_events

RUN, PROCESS, START_US = "01ODD00000000000000000000", "odd-process", 1_795_000_000_000_000
ODD_VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "-1": -1,
    "0": 0,
    "largest": 2**63 - 1,  # one more overflows a sum in SQL
    "least": -(2**63),
    "2^70": 2**70,
    "1e308": 1e308,
    "NaN": float("nan"),
    "empty": "",
    "long": "x" * 100_000,
    "list": ["x", None],
    "object": {"a": {"b": 1}},
    "hostile": "../../etc/passwd\x00<script>alert(1)</script>'; drop table runs; --",
}
_SEQUENCED = (
    "events",
    "artifacts",
    "compilations",
    "failures",
    "cache_lookups",
    "cudagraph_skips",
    "symbols",
)
_DEPTH = 3
Path_ = tuple[str | int, ...]


def read_recorded() -> Iterator[Event]:
    """Read what hooks, torch's own logs and the benchmark recorded, the richest records of each
    kind first.
    """
    for name in ("events/torch2.11-cuda-on_cuda.jsonl.xz", "bench/h200-performance.jsonl.xz"):
        with lzma.open(DATA / name, "rt") as file:
            yield from map(load_event, file)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("zoo_recompiles", "zoo_graph_breaks", "torch2.13-shapes"):
            log = plain_log(DATA / "explored" / f"{name}.xz", Path(folder))
            log = log.rename(f"{log}.log")
            for captured in read_trace_log(log, PROCESS, selects=lambda _name: True):
                yield from Decoder().decode(captured)
    yield from list_repro_events()


@cache
def list_base_events() -> list[Event]:
    """Return one run with an event of every kind, and the events that come before it in its
    process.
    """
    richest: dict[object, Event] = {}
    for event in read_recorded():
        key: object = (
            (event.KIND, getattr(event, "name", ""))
            if event.KIND in ("artifact_seen",)
            else event.KIND
        )
        key = (key, getattr(event, "phase", "")) if event.KIND == "span_seen" else key
        if key not in richest or len(dump_event(event)) > len(dump_event(richest[key])):
            richest[key] = event
    made: list[Event] = list(richest.values())
    made += [
        event for event in made if event.KIND in ("cache_looked_up", "compiled")
    ]  # what is summed, is of two
    made += [
        RunEnded(PROCESS, 0, 0, RUN, "finished", 0),
        CommitsSeen(
            PROCESS,
            0,
            0,
            [["a" * 40, START_US, "A", "one"], ["b" * 40, START_US - 1, "B", "two"]],
            "c" * 40,
        ),
        PageFaultsCounted(PROCESS, -1, 0, 1_000_000, 900_000, 50_000, True),
        RecordsLost(PROCESS, -2, 0, RUN, {"queue": 3}),
        RuntimeFailed(
            PROCESS,
            0,
            0,
            "0/0",
            0,
            0,
            0,
            0,
            1,
            "forward",
            "ValueError",
            "bad",
            "Traceback",
            "f",
            "t.py",
            3,
        ),
        UnknownRecordSeen(
            PROCESS, 0, 0, "0/0", 0, 0, 0, 0, "new_record", {"metadata": {"a": 1}, "payload": None}
        ),
        ReproAnswered(
            PROCESS,
            0,
            0,
            format_id(repro_id(PROCESS, 0)),
            "run",
            "same",
            3.2,
            detail={"rows": [{"a": 1}]},
        ),
    ]
    order = [RunStarted, ProcessStarted, ConfigSeen]
    made.sort(key=lambda event: order.index(type(event)) if type(event) in order else len(order))
    ended = [event for event in made if isinstance(event, RunEnded)][-1]
    made = [event for event in made if not isinstance(event, RunEnded)] + [ended]
    return [_place(event, number) for number, event in enumerate(made)]


def _place(event: Event, number: int) -> Event:
    """Make an event one of this run's process; those of its reader keep their number below zero."""
    changes: dict[str, Any] = {"process_id": PROCESS, "time_us": START_US + number}
    changes["sequence"] = (
        number if event.sequence >= 0 or event.KIND == "config_seen" else event.sequence
    )
    own = {name.name for name in fields(event)}
    changes |= {"run_id": RUN} if "run_id" in own else {}
    changes |= (
        {"compile_id": "0/0", "frame_id": 0, "frame_compile_id": 0, "attempt": 0}
        if "compile_id" in own
        else {}
    )
    return replace(event, **changes)


def list_places(body: Any, depth: int = 0) -> Iterator[Path_]:
    """List the places of a JSON value: every name of an object, the first of a list."""
    if depth == _DEPTH or not isinstance(body, (dict, list)):
        return
    for key, value in (
        list(body.items())[:40] if isinstance(body, dict) else list(enumerate(body))[:1]
    ):
        yield (key,)
        yield from ((key, *path) for path in list_places(value, depth + 1))


def put(body: Any, path: Path_, value: Any) -> Any:
    """Return a copy of a JSON value with another value at a place."""
    changed = copy.copy(body)
    changed[path[0]] = put(body[path[0]], path[1:], value) if path[1:] else value
    return changed


@dataclass
class Cost:
    """Count what odd values cost."""

    place_count: int = 0
    value_count: int = 0
    address_count: int = 0
    error_count: int = 0  # responses of status 500
    cut_count: int = 0  # answers that break off
    lost_count: int = 0  # other records that are not stored
    refused_count: int = 0  # bundles that are refused as a whole
    examples: dict[str, list[str]] = field(default_factory=dict)

    def note(self, text: str, place: str = "") -> None:
        """Keep what went wrong, and where."""
        self.examples.setdefault(text, []).append(place)


class OddBoard:
    """Boards in a folder, each with one run, asked through one application.

    Of each kind of thing that a run has, the first and the newest `most_things` are asked.
    """

    def __init__(self, folder: Path, most_things: int = 3) -> None:
        self.folder, self.most_things = folder, most_things
        self.empty = folder / "empty.db"
        with closing(open_writer(self.empty)) as connection:
            migrate_connection(connection)
        self.app: Flask = create_app(Settings())
        self.errors: list[str] = []
        got_request_exception.connect(self._note_error, self.app)
        self._number = 0

    def _note_error(self, _app: Flask, exception: Exception, **_more: Any) -> None:
        frames = traceback.extract_tb(exception.__traceback__)
        ours = [
            frame
            for frame in frames
            if "/compileboard/" in frame.filename or "/templates/" in frame.filename
        ]
        frame = (ours or frames)[-1]
        place = f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno}"
        self.errors.append(f"{place} {type(exception).__name__}: {exception}"[:160])

    def new_database(self) -> Path:
        """Return an empty board."""
        for old in self.folder.glob("board*"):
            shutil.rmtree(old, ignore_errors=True)
        self._number += 1
        path = self.folder / f"board{self._number}" / "board.db"
        path.parent.mkdir()
        shutil.copyfile(self.empty, path)
        return path

    def push(self, path: Path, lines: bytes) -> None:
        """Store lines as the server does."""
        with closing(open_writer(path)) as connection:
            writer = StreamWriter(connection, str(path))
            writer.store(read_lines(connection, Stream(RUN, "s1"), lines))
            index_run(connection, RUN)

    def ask(self, path: Path, cost: Cost, label: str) -> None:
        """Ask every address of the run."""
        self.app.config["COMPILEBOARD"] = Settings(db=str(path))
        client = self.app.test_client()
        with closing(open_reader(path)) as reader:
            addresses = list(list_addresses(reader, self.app, self.most_things))
        for address in addresses:
            cost.address_count += 1
            status = self._get(client, address)
            if status == "ok":
                continue
            cost.error_count += status == "500"
            cost.cut_count += status == "cut"
            error = self.errors[-1] if self.errors else "?"
            cost.note(f"{label}: {error} ({status})", address.replace(RUN, "RUN"))

    def _get(self, client: FlaskClient, address: str) -> str:
        self.errors.clear()
        try:
            response = client.get(address)
            body = response.get_data()
        except Exception as error:
            self._note_error(self.app, error)
            return "cut"
        if response.status_code >= 500:
            return "500"
        if response.mimetype == "application/json" and response.status_code == 200:
            try:
                json.loads(body)
            except ValueError as error:
                self._note_error(self.app, error)
                return "cut"
        return "ok"


_ACROSS_RUNS = (
    "/",
    "/runs",
    "/models",
    "/graph_breaks",
    "/recompiles",
    "/repros",
    "/trends",
    "/api/v1/overview",
)
_IDS = {
    "artifact_id": "select id from artifacts",
    "guards_id": "select artifact_id from guard_sets",
    "lookup_id": "select id from cache_lookups",
    "key": "select id from compiles",
    "config_hash": "select config_hash from process_configs",
    "model": "select model from series",
    "distinct_id": "select printf('%016x', id) from distinct_breaks",
    "cause_id": "select printf('%016x', id) from recompile_causes",
    "repro_id": "select printf('%016x', id) from repros",
}


def list_addresses(reader: sqlite3.Connection, app: Flask, most_things: int) -> Iterator[str]:
    """List the addresses of a board's one run, with a few of the things that it has."""
    values = {name: [str(row[0]) for row in reader.execute(sql)] for name, sql in _IDS.items()}
    few = {
        name: list(dict.fromkeys([*ids[:1], *ids[-most_things:]])) for name, ids in values.items()
    }
    few["format"], few["name"] = ["html", "md"], [*few["model"][:1]]
    adapter = app.url_map.bind("localhost")
    for rule in app.url_map.iter_rules():
        wanted = rule.arguments - {"run_id"}
        if "GET" not in (rule.methods or ()) or len(wanted) > 1 or wanted - few.keys():
            continue
        if not rule.arguments and rule.rule not in _ACROSS_RUNS:
            continue
        for value in few[next(iter(wanted))] if wanted else [""]:
            own = {"run_id": RUN} if "run_id" in rule.arguments else {}
            try:
                yield adapter.build(rule.endpoint, {**own, **dict.fromkeys(wanted, value)})
            except Exception:
                continue
    yield from (
        f"/runs/{RUN}?tab={tab}{more}" for tab in FILLS if tab for more in ("", "&view=each")
    )
    yield f"/compare?base={RUN}&new={RUN}"
    yield f"/api/v1/compare?base={RUN}&new={RUN}"
    yield f"/runs/{RUN}/stacks?library=shown"
    yield f"/runs/{RUN}/report.html"
    yield "/search?q=torch"
    row = reader.execute("select min(first_us), max(last_us) from lanes").fetchone()
    yield f"/api/v1/runs/{RUN}/timeline/window?from_us={row[0] or 0}&to_us={row[1] or 1}&width=9"
    first, last = (values["artifact_id"] or ["1"])[0], (values["artifact_id"] or ["1"])[-1]
    yield f"/runs/{RUN}/artifacts/diff?a={first}&b={last}"
    first, last = (values["guards_id"] or ["1"])[0], (values["guards_id"] or ["1"])[-1]
    yield f"/runs/{RUN}/guards/diff?a={first}&b={last}"


def write_lines(events: Iterable[Event]) -> list[bytes]:
    """Write events as lines, their long texts in place."""
    return [dump_event(event).encode() + b"\n" for event in events]


def count_base(path: Path, most: int) -> dict[str, int]:
    """Count the rows of the events that are not odd."""
    with closing(open_reader(path)) as reader:
        rows = {
            table: reader.execute(
                f"select count(*) from {table} where process_id = ? and sequence < ?",
                (PROCESS, most),
            ).fetchone()[0]
            for table in _SEQUENCED
        }
        rows["runs"] = reader.execute("select count(*) from runs").fetchone()[0]
    return rows


def measure_push(board: OddBoard, kind: str, values: Iterable[str]) -> Cost:
    """Push each odd value in each field of a kind of event."""
    cost, base, names = Cost(), list_base_events(), list(values)
    path = board.new_database()
    board.push(path, b"".join(write_lines(base)))
    whole = count_base(path, len(base))
    places = [
        (event, place)
        for event in base
        if kind == event.KIND
        for place in list_places(json.loads(dump_event(event)))
        if place[0] not in ("v", "kind")
    ]
    cost.place_count, cost.value_count = len(places), len(places) * len(names)
    for label, lines, most_lost in list_pushes(kind, places, names):
        path = board.new_database()
        board.push(path, b"".join(lines))
        now = count_base(path, len(base))
        lost = {table: whole[table] - now[table] for table in whole if whole[table] > now[table]}
        if sum(lost.values()) > most_lost:
            cost.lost_count += 1
            cost.note(f"lost {label}: {lost}")
        board.ask(path, cost, label)
    return cost


# The first, the last or the newest of them is what counts: a second event would hide an odd one.
_ONCE = ("run_started", "run_ended", "snapshot_taken", "page_faults_counted", "records_lost")


def list_pushes(
    kind: str, places: list[tuple[Event, Path_]], names: list[str]
) -> Iterator[tuple[str, list[bytes], int]]:
    """List what is pushed to a board each: a label, lines, and how many of the other records may be
    missing.

    Odd events come after the others, all of a value in one board. Of a kind that counts once, the
    one event has an odd value in each field that it can do without, each field another one a turn;
    a field that it must have is odd alone.
    """
    base = list_base_events()
    if kind not in _ONCE:
        for name in names:
            odd = []
            for number, (event, place) in enumerate(places):
                body = json.loads(dump_event(event)) | {"sequence": len(base) + number}
                odd.append(json.dumps(put(body, place, ODD_VALUES[name])).encode() + b"\n")
            yield f"{kind} {name}", [*write_lines(base), *odd], 0
        return
    owed = {
        own.name
        for own in fields(KINDS[kind])
        if own.default is MISSING and own.default_factory is MISSING
    }
    for event, place in places:
        for name in names if place[0] in owed else ():
            body = put(json.loads(dump_event(event)), place, ODD_VALUES[name])
            yield f"{kind} {place[0]} {name}", _replace_lines(base, {id(event): body}), 1
    for turn, name in enumerate(names):
        bodies = {id(event): json.loads(dump_event(event)) for event, _place in places}
        for number, (event, place) in enumerate(places):
            with suppress(LookupError, TypeError):  # what is around it is odd already
                if place[0] not in owed:
                    odd_value = ODD_VALUES[names[(turn + number) % len(names)]]
                    bodies[id(event)] = put(bodies[id(event)], place, odd_value)
        yield f"{kind} {name} …", _replace_lines(base, bodies), 1


def _replace_lines(base: list[Event], bodies: dict[int, Any]) -> list[bytes]:
    return [
        json.dumps(bodies[id(event)]).encode() + b"\n" if id(event) in bodies else line
        for event, line in zip(base, write_lines(base))
    ]


class OddColumn(NamedTuple):
    """A column of a bundle, and the name of the value that it gets in one row."""

    column: str
    declared: str
    value: str


def make_base_bundle(board: OddBoard) -> Path:
    """Make a bundle of the run."""
    path = board.new_database()
    board.push(path, b"".join(write_lines(list_base_events())))
    bundle = board.folder / "base.bundle"
    with closing(open_reader(path)) as reader:
        write_bundle(reader, [RUN], str(bundle))
    return bundle


def to_column(value: Any, declared: str) -> Any:
    """Return an odd value as a column can have it; None where none can."""
    if isinstance(value, (list, dict)):
        value = json.dumps(value)
    if isinstance(value, int) and abs(value) >= 2**63:
        value = float(value) if declared == "REAL" else str(value)
    return value.encode() if isinstance(value, str) and declared == "BLOB" else value


def measure_bundle(
    board: OddBoard, bundle: Path, table: str, values: Iterable[str], only: Collection[str] = ()
) -> Cost:
    """Merge a bundle with each odd value in each column of a table.

    Columns that tell rows apart have one at a time: most of these bundles are refused. The others
    have them together, each another value a turn, and one by one where that fails.
    """
    cost, names = Cost(), list(values)
    with closing(open_reader(bundle)) as reader:
        columns = [
            (row["name"], row["type"]) for row in reader.execute(f"pragma table_info({table})")
        ]
        known = read_tables(reader)[table]
        keys = {*known.parents, *known.unique, "id"}
        keys |= {row["name"] for row in reader.execute(f"pragma table_info({table})") if row["pk"]}
    columns = [column for column in columns if not only or column[0] in only]
    cost.place_count = len(columns)
    others = [column for column in columns if column[0] not in keys]
    waiting = [
        [OddColumn(*column, name)] for column in columns if column[0] in keys for name in names
    ]
    for turn in range(len(names)):
        waiting.append(
            [
                OddColumn(*column, names[(turn + at) % len(names)])
                for at, column in enumerate(others)
            ],
        )
    for group in waiting:
        before = cost.error_count
        made = _merge(board, bundle, table, group, cost)
        if len(group) > 1 and (made is None or cost.error_count > before):
            cost.error_count = before
            waiting += [[column] for column in group]
            continue
        cost.refused_count += made is None
        cost.value_count += len(group)
    return cost


def _merge(
    board: OddBoard, bundle: Path, table: str, group: list[OddColumn], cost: Cost
) -> bool | None:
    """Return None where the bundle is refused, False where no column can have the value."""
    odd = board.folder / "odd.bundle"
    shutil.copyfile(bundle, odd)
    label, changed = table, 0
    with closing(sqlite3.connect(odd, isolation_level=None)) as writer:
        keys = [row[1] for row in writer.execute(f"pragma table_info({table})") if row[5]]
        row_count = writer.execute(f"select count(*) from {table}").fetchone()[0]
        for position, (column, declared, name) in enumerate(group):
            values = {
                "value": to_column(ODD_VALUES[name], declared),
                "position": position % max(row_count, 1),
            }
            find = f"select {', '.join(keys)} from {table} order by 1 limit 1 offset :position"
            with suppress(sqlite3.Error):
                changed += writer.execute(
                    f"update {table} set {column} = :value where ({', '.join(keys)}) = ({find})",
                    values,
                ).rowcount
                label += f" {column}={name}" if len(group) == 1 else ""
    if not changed:
        return False
    path = board.new_database()
    try:
        with closing(open_writer(path)) as connection:
            made = list(merge_bundle(connection, str(odd)))
    except NotAStore:
        return None
    except Exception as error:
        if len(group) > 1:
            return None
        board._note_error(board.app, error)
        cost.error_count += 1
        cost.note(f"merge {label}: {board.errors[-1]}")
        return True
    if [run.state for run in made] != ["new"]:
        cost.note(f"merge {label}: {[run.state for run in made]}")
    lost = _count_lost(bundle, path, table, changed)
    if lost:
        cost.lost_count += 1
        cost.note(f"lost {label}: {lost}")
    board.ask(path, cost, label)
    return True


def _count_lost(bundle: Path, path: Path, table: str, most: int) -> dict[str, int]:
    """Count the rows of each table that are not there, but for one a value in the odd table."""
    with closing(open_reader(bundle)) as before, closing(open_reader(path)) as after:
        counts = {
            name: before.execute(f"select count(*) from {name}").fetchone()[0]
            - after.execute(f"select count(*) from {name}").fetchone()[0]
            for name in list_own_rows(read_tables(before))
            if not name.startswith("search")
        }
    return {name: count for name, count in counts.items() if count > (most if name == table else 0)}


def list_tables(bundle: Path) -> list[str]:
    """List the tables of a bundle that have rows."""
    with closing(open_reader(bundle)) as reader:
        return [
            name
            for name in read_tables(reader)
            if not name.startswith(("search", "_"))
            and reader.execute(f"select 1 from {name} limit 1").fetchone()
        ]


def main(argv: list[str] | None = None) -> int:
    """Print the table; 1 if an address failed or a value cost more than its record."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.odd_records", description=__doc__)
    parser.add_argument("--way", choices=("push", "bundle"), nargs="*", default=["push", "bundle"])
    parser.add_argument("--names", nargs="*", help="kinds of events, tables")
    parser.add_argument("--values", nargs="*", default=list(ODD_VALUES))
    arguments = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    failed = False
    with tempfile.TemporaryDirectory() as name:
        board = OddBoard(Path(name))
        bundle = make_base_bundle(board)
        tasks = [("push", kind) for kind in sorted({event.KIND for event in list_base_events()})]
        tasks += [("bundle", table) for table in list_tables(bundle)]
        for way, name in tasks:
            if way not in arguments.way or (arguments.names and name not in arguments.names):
                continue
            if way == "push":
                cost = measure_push(board, name, arguments.values)
            else:
                cost = measure_bundle(board, bundle, name, arguments.values)
            counts = (cost.place_count, cost.value_count, cost.address_count)
            print(
                f"{way:7}{name:24}{counts[0]:5} fields{counts[1]:7} values{counts[2]:7} addresses",
                end="",
            )
            print(
                f"{cost.error_count:5} × 500{cost.cut_count:5} cut{cost.lost_count:5} lost", end=""
            )
            print(f"{cost.refused_count:5} refused", flush=True)
            for example, places in sorted(cost.examples.items(), key=lambda item: -len(item[1]))[
                :20
            ]:
                print(f"        {len(places)} × {example}, first at {places[0]}", flush=True)
            failed |= bool(cost.error_count or cost.cut_count or cost.lost_count)
    missing = KINDS.keys() - {event.KIND for event in list_base_events()}
    print(f"kinds without a record: {sorted(missing) or 'none'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
