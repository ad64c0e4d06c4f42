"""Lines of streams become the rows that a spool's events make, once, however often sent."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import (
    ArtifactSeen,
    ConfigSeen,
    Event,
    GraphBroke,
    ProcessStarted,
    ReproAnswered,
    RunEnded,
    RunStarted,
    SpanSeen,
    UnknownRecordSeen,
)
from compileboard.collectors.contract.fingerprints import config_hash
from compileboard.collectors.store.codec import pack_large, unpack
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.search import index_run
from compileboard.collectors.store.stream_lines import StreamDiffers, TextsMissing, read_lines
from compileboard.collectors.store.stream_rows import (
    DAY_US,
    Stream,
    StreamMoved,
    find_texts,
    get_stream,
    list_unindexed_runs,
    save_dropped_digests,
    save_text,
)
from compileboard.collectors.store.stream_writer import RunDeleted, StreamWriter
from compileboard.collectors.store.trash import delete_run, prune_trash, restore_run
from compileboard.collectors.wire.lines import checksum_of, digest_of, dump_line
from compileboard.collectors.wire.marks import (
    Heartbeat,
    LogRead,
    SourceRead,
    SpoolRejects,
    StreamEnd,
    TracePieces,
    dump_mark,
)

START: list[Event] = [RunStarted("r", 0, 5, "R", "run"), ProcessStarted("p", 0, 6, "R", 42)]
TEXT = "graph " * 2_000
ARTIFACT = ArtifactSeen("p", 900, 7, name="graph", state="kept", text=TEXT)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_writer(tmp_path / "t.db")
    migrate_connection(connection)
    yield connection
    connection.close()


def write(events: list[Event], generation: int | None = None) -> bytes:
    return b"".join(dump_line(event, lambda digest, text: None, generation) for event in events)


def send(store: sqlite3.Connection, lines: bytes, stream_id: str = "s1") -> Stream:
    stream = get_stream(store, "R", stream_id) or Stream("R", stream_id)
    return StreamWriter(store, "t.db").store(read_lines(store, stream, lines))


def save(store: sqlite3.Connection, text: str, now_us: int = 1) -> str:
    body = text.encode()
    save_text(store, digest_of(body), len(body), pack_large(body), now_us)
    return digest_of(body)


def count(store: sqlite3.Connection, *tables: str) -> list[int]:
    return [store.execute(f"select count(*) from {table}").fetchone()[0] for table in tables]


def test_a_stream_moves_with_its_events(store: sqlite3.Connection) -> None:
    lines = dump_mark(Heartbeat("1.2")) + write(START)
    stream = send(store, lines)
    assert (stream.stored_bytes, stream.checksum, stream.event_count) == (
        len(lines),
        checksum_of(lines),
        2,
    )
    assert get_stream(store, "R", "s1") == stream
    assert stream.version == "1.2"
    assert count(store, "runs", "events", "processes") == [1, 2, 1]


def test_a_second_stream_with_everything_again_adds_nothing(store: sqlite3.Connection) -> None:
    save(store, TEXT)
    spans: list[Event] = [
        SpanSeen("p", 10 * at, at, name="x", phase="B" if at % 2 else "E", at_us=at)
        for at in range(9)
    ]
    log = (
        dump_mark(LogRead("p", "a.log"))
        + write([*spans, ARTIFACT], 0)
        + dump_mark(LogRead("p", "a.log", 950, 9, 9))
    )
    everything = write(START) + log
    tables = ("events", "spans", "artifacts", "payloads", "logs", "span_totals")
    send(store, everything[: everything.index(b'"sequence":50')].rpartition(b"\n")[0] + b"\n")
    send(store, everything, "s2")
    first = count(store, *tables)
    totals = [
        tuple(row)
        for row in store.execute("select span_count, ended_count, total_us from span_totals")
    ]
    send(store, everything, "s3")
    assert count(store, *tables) == first
    assert [
        tuple(row)
        for row in store.execute("select span_count, ended_count, total_us from span_totals")
    ] == totals
    assert totals[0][0] == 5
    assert store.execute("select end_offset_bytes, record_count from logs").fetchone()[:] == (
        950,
        9,
    )


def test_another_request_of_the_stream_came_first(store: sqlite3.Connection) -> None:
    first = read_lines(store, Stream("R", "s1"), write(START))
    second = read_lines(store, Stream("R", "s1"), write(START[:1]))
    StreamWriter(store, "t.db").store(first)
    with pytest.raises(StreamMoved):
        StreamWriter(store, "t.db").store(second)


def test_a_bad_line_costs_itself(store: sqlite3.Connection) -> None:
    bad = [
        b"{",
        b"[]",
        b'{"v":1,"kind":"run_ended"}',
        b'{"v":1,"mark":"end","size_bytes":-1,"checksum":0}',
    ]
    refused = write([ReproAnswered("p", 1, 6, repro="0" * 16)])  # the run has no repro
    stream = send(
        store, write(START) + b"\n".join(bad) + b"\n" + refused + write([ARTIFACT])[:-2] + b"\n"
    )
    assert stream.event_count == 3
    rows = store.execute(
        "select file_name, kind, reject_count from run_rejects order by kind"
    ).fetchall()
    assert [tuple(row) for row in rows] == [("s1", "bad_event", 5), ("s1", "refused", 1)]
    assert count(store, "events") == [2]


def test_an_odd_value_costs_its_field_and_is_counted(store: sqlite3.Connection) -> None:
    send(store, write([*START, GraphBroke("p", 1, 7, reason=5, hints="x", gb_id="GB0001")]))  # type: ignore[arg-type]
    assert tuple(store.execute("select gb_id, reason, hints from distinct_breaks").fetchone()) == (
        "GB0001",
        "",
        "[]",
    )
    (body,) = store.execute("select body from events where kind = 'graph_broke'").fetchone()
    assert (json.loads(unpack(body))["reason"], json.loads(unpack(body))["hints"]) == ("", [])
    (row,) = store.execute("select kind, reject_count, example from run_rejects").fetchall()
    assert tuple(row)[:2] == ("bad_field", 1) and row["example"].startswith(
        "graph_broke: reason is 5"
    )


def test_a_configuration_without_a_hash_is_a_bad_line(store: sqlite3.Connection) -> None:
    send(store, write([*START, ConfigSeen("p", 1, 7, None, "dynamo", "{}")]))  # type: ignore[arg-type]
    assert [tuple(row) for row in store.execute("select kind, reject_count from run_rejects")] == [
        ("bad_event", 1)
    ]


def test_texts_come_first_or_were_dropped(store: sqlite3.Connection) -> None:
    lines = write([*START, ARTIFACT])
    with pytest.raises(TextsMissing) as missing:
        send(store, lines)
    save_dropped_digests(store, "R", missing.value.digests)
    assert send(store, lines).dropped_text_count == 1
    assert store.execute("select state, payload_id from artifacts").fetchone()[:] == (
        "left_out",
        None,
    )
    send(store, dump_mark(Heartbeat(lost_count=4)))
    rows = store.execute("select kind, reject_count from run_rejects order by kind").fetchall()
    assert [tuple(row) for row in rows] == [("dropped_text", 1), ("no_room", 4)]


def test_a_text_waits_a_day_for_its_event(store: sqlite3.Connection) -> None:
    used, unused = save(store, TEXT), save(store, TEXT + "!")
    send(store, write([*START, ARTIFACT]))
    assert save_text(store, used, 1, b"", 1) is False
    prune_trash(store, now_us=DAY_US)
    assert set(find_texts(store, [used, unused])) == {used, unused}
    prune_trash(store, now_us=DAY_US + 2)
    assert set(find_texts(store, [used, unused])) == {used}
    assert count(store, "sent_texts") == [0]


def test_marks_become_rows(store: sqlite3.Connection) -> None:
    pieces = [save(store, "a" * (1 << 20)), save(store, "b")]
    rejects = read_lines(store, Stream("R", "x"), b"{\n").rejects
    lines = write(START) + b"".join(
        map(
            dump_mark,
            [
                SourceRead([("train.py", 4, ["a", "b"])]),
                SpoolRejects("p.jsonl", rejects),
                TracePieces("t.log", (1 << 20) + 1, 0, pieces[:1]),
                TracePieces("t.log", (1 << 20) + 1, 1, pieces[1:]),
            ],
        )
    )
    end = StreamEnd(len(lines), checksum_of(lines), 3)
    stream = send(store, lines + dump_mark(end))
    assert stream.ended_us is not None
    assert stream.lost_count == 3
    assert count(store, "run_source_excerpts", "run_rejects", "trace_files", "trace_pieces") == [
        1,
        2,
        1,
        2,
    ]


def test_a_run_that_was_pushed_whole_waits_for_the_search_index(store: sqlite3.Connection) -> None:
    lines = write(START)
    send(store, lines)
    assert list_unindexed_runs(store) == []
    send(store, dump_mark(StreamEnd(len(lines), checksum_of(lines))))
    assert list_unindexed_runs(store) == ["R"]
    index_run(store, "R")
    assert list_unindexed_runs(store) == []


def test_an_end_that_does_not_fit_is_told(store: sqlite3.Connection) -> None:
    send(store, write(START))
    for mark in (StreamEnd(1, 0), StreamEnd(len(write(START)), 0)):
        with pytest.raises(StreamDiffers):
            send(store, dump_mark(mark))


def test_an_event_of_another_runs_process_is_refused(store: sqlite3.Connection) -> None:
    StreamWriter(store, "t.db").store(
        read_lines(store, Stream("other", "s"), write([ProcessStarted("p", 0, 6, "other", 1)]))
    )
    send(store, write(START))
    assert store.execute("select run_id from processes").fetchall()[0][0] == "other"
    assert store.execute("select kind, reject_count from run_rejects").fetchone()[:] == (
        "refused",
        1,
    )


def test_a_deleted_run_takes_nothing_and_a_restored_one_goes_on(store: sqlite3.Connection) -> None:
    writer = StreamWriter(store, "t.db")
    stream = writer.store(read_lines(store, Stream("R", "s1"), write(START[:1])))
    more = read_lines(store, stream, write(START[1:]))
    delete_run(store, "R")
    with pytest.raises(RunDeleted):
        writer.store(more)
    restore_run(store, "R")
    assert writer.store(more).event_count == 2
    assert count(store, "events", "processes") == [2, 1]


def test_a_beat_is_a_sign_of_life_and_no_change(store: sqlite3.Connection) -> None:
    send(store, write(START))
    store.execute("update runs set heartbeat_us = 0")
    (pub,) = store.execute("select pub from runs").fetchone()
    send(store, dump_mark(Heartbeat()))
    row = store.execute("select pub, heartbeat_us from runs").fetchone()
    assert row["pub"] == pub
    assert row["heartbeat_us"] > 0


def test_of_two_events_of_one_number_the_second_is_counted(store: sqlite3.Connection) -> None:
    first, other = (UnknownRecordSeen("p", 3, 7, name="x", body={"a": number}) for number in (1, 2))
    for stream_id, event in (("s1", first), ("s2", first), ("s3", other)):
        send(store, write([*START, event]), stream_id)
    rows = store.execute("select file_name, kind, reject_count from run_rejects").fetchall()
    assert [tuple(row) for row in rows] == [("s3", "number_taken", 1)]
    assert '"a":1' in unpack(
        store.execute("select body from events where sequence = 3").fetchone()["body"]
    )


def test_of_two_artifacts_of_one_number_the_second_is_counted(store: sqlite3.Connection) -> None:
    for stream_id, text in (("s1", "real"), ("s2", "real"), ("s3", None), ("s4", "forged")):
        artifact = replace(ARTIFACT, text=text, state="kept" if text else "left_out")
        send(store, write([*START, artifact]), stream_id)
    rows = store.execute("select file_name, kind, reject_count from run_rejects").fetchall()
    assert [tuple(row) for row in rows] == [("s4", "number_taken", 1)]
    (body,) = store.execute(
        "select body from artifacts join payloads on payloads.id = payload_id"
    ).fetchone()
    assert unpack(body) == "real"


def test_a_configuration_is_that_of_its_hash(store: sqlite3.Connection) -> None:
    right, forged = (
        ConfigSeen("p", -5, 7, config_hash("a = 1"), "dynamo", body) for body in ("a = 1", "a = 2")
    )
    send(store, write([*START, forged]))
    assert count(store, "configs", "run_rejects") == [0, 1]
    send(store, write([right]), "s2")
    assert unpack(store.execute("select body from configs").fetchone()["body"]) == "a = 1"


def test_the_first_end_of_a_recorder_holds_and_of_two_recorders_the_worse(
    store: sqlite3.Connection,
) -> None:
    ends: list[Event] = [
        RunEnded("r", 1, 50, "R", "finished", exit_code=0),
        RunEnded("r", 1, 50, "R", "finished", exit_code=0),  # told again
        RunEnded(
            "r", 1, 90, "R", "interrupted"
        ),  # by who picked the run up later, under the same number
    ]
    send(store, write([*START, *ends]))
    state = "select state, exit_code, ended_us from runs"
    assert tuple(store.execute(state).fetchone()) == ("finished", 0, 50)
    assert count(store, "run_rejects") == [0]
    send(store, write([RunStarted("r2", 0, 60, "R", "run")]), "s2")
    assert store.execute(state).fetchone()["state"] == "running"
    send(store, write([RunEnded("r2", 1, 95, "R", "killed", signal="SIGKILL")]), "s2")
    assert tuple(store.execute(state).fetchone()) == ("killed", None, 95)


def test_a_text_that_went_since_it_was_read_is_asked_for_again(store: sqlite3.Connection) -> None:
    save(store, TEXT)
    lines = read_lines(store, Stream("R", "s1"), write([*START, ARTIFACT]))
    store.execute("delete from payloads")  # another run that had it was sealed
    save(store, "another text under its number")
    with pytest.raises(StreamMoved):
        StreamWriter(store, "t.db").store(lines)
    assert count(store, "runs", "artifacts") == [0, 0]
    with pytest.raises(TextsMissing):
        send(store, write([*START, ARTIFACT]))
