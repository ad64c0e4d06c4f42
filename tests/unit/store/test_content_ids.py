"""Functions, breaks, causes and series have one id in every database; a database of before gets the same ids."""

from __future__ import annotations

import json
import lzma
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app.engines.store import SingleFile
from compileboard.app.incidents import pending as pending_runs
from compileboard.app.incidents.pending import find_pending_runs
from compileboard.app.incidents.update import update_incidents
from compileboard.app.queries.dashboard.alerts import list_deliveries
from compileboard.app.queries.dashboard.incidents import find_incident_of, get_stored_incident, list_comments
from compileboard.collectors.contract.events import GraphBroke
from compileboard.collectors.contract.fingerprints import content_digest, content_id, format_id, parse_id
from compileboard.collectors.store import content_ids, migrations
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.connection import DATABASE_VERSION, open_writer
from compileboard.collectors.store.dashboard.trash import delete_run, restore_run, trash_path
from compileboard.collectors.store.errors import StoreError
from compileboard.collectors.store.ingest import batch
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate
from tests.tools.make_db import DATA
from tests.tools.make_db import main as make_db
from tests.unit.app.benched import DAY_US, list_break
from tests.unit.app.incidents.test_incidents_update import STEPPED, N, record, run_of
from tests.unit.app.seed import START_US

DELETED = "69E7E1C641AFBCFFE9361313E1"
LOGS = ("torch2.13-breaks", "torch2.11-cuda-zoo_recompiles", "torch2.11-cuda-zoo_graph_breaks")
BASELINE = "select body from baselines where name = 'main'"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "team.db"
    stored = DATA / "schema_7"
    path.write_bytes(lzma.decompress((stored / "team.db.xz").read_bytes()))
    trash = trash_path(str(path), DELETED)
    trash.parent.mkdir()
    trash.write_bytes(lzma.decompress((stored / "deleted_run.db.xz").read_bytes()))
    return path


@pytest.fixture
def store(old: Path) -> Iterator[sqlite3.Connection]:
    assert migrate(old) == DATABASE_VERSION - 7
    with closing(open_writer(old)) as connection:
        yield connection


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """Record the same anew; the module's tests read it alone."""
    path = tmp_path_factory.mktemp("fresh") / "team.db"
    make_db([str(path), *(str(DATA / "trace" / f"{name}.log.xz") for name in LOGS)])
    with closing(open_writer(path)) as connection:
        record(connection, STEPPED, others=("a",))
        for day in range(N, N + 4):
            at_us = START_US + day * DAY_US
            events = list_break(f"{run_of(day)}/mlp-performance", at_us)
            Ingestor(connection).ingest(run_of(day), events, now_us=at_us)
        record(connection, [1.6], first=N + 4, others=("a",))
        yield connection


THINGS = (
    "select id, file, name from functions",
    "select id, fingerprint, gb_id, reason, function_id, line from distinct_breaks",
    "select id, fingerprint, category, source, reason, suggestion, function_id from recompile_causes",
    "select * from series",
)
OF_RUNS = (
    "select * from run_functions",
    "select * from run_breaks",
    "select * from run_causes",
    "select run_id, series_id, experiment, status, speedup from results",
    "select process_id, sequence, distinct_id, function_id from graph_breaks",
    "select process_id, sequence, function_id from recompiles",
    "select process_id, sequence, function_id from compilations",
    "select process_id, generation, compile_id, function_id from compiles",
    "select process_id, sequence, position, cause_id from guard_failures join recompiles on id = recompile_id",
    "select process_id, sequence, function_id from failures",
)


def read(store: sqlite3.Connection, queries: tuple[str, ...]) -> dict[str, list[tuple[object, ...]]]:
    return {query: sorted(map(tuple, store.execute(query)), key=repr) for query in queries}


def test_a_database_of_before_gets_the_ids_that_recording_it_anew_gives(
    store: sqlite3.Connection, fresh: sqlite3.Connection
) -> None:
    restore_run(store, DELETED)  # from the trash of before
    assert read(store, THINGS) == read(fresh, THINGS)
    assert read(store, OF_RUNS) == read(fresh, OF_RUNS)
    assert store.execute("pragma foreign_key_check").fetchall() == []
    assert store.execute("pragma integrity_check").fetchone()[0] == "ok"


def test_what_points_elsewhere_to_a_thing_follows_it(old: Path) -> None:
    with closing(sqlite3.connect(old)) as before:
        numbers = dict(before.execute("select fingerprint, id from distinct_breaks"))
        documents = before.execute("select count(*) from search_documents where kind in ('function', 'graph_break')")
        (document_count,) = documents.fetchone()
    migrate(old)
    with closing(open_writer(old)) as store:
        renamed = dict(map(tuple, store.execute("select old_id, id from old_ids where kind = 'break'")))
        ids = dict(map(tuple, store.execute("select fingerprint, id from distinct_breaks")))
        assert {fingerprint: renamed[number] for fingerprint, number in numbers.items()} == ids
        (match_count,) = store.execute(
            """
            select count(*) from search_documents
            where kind = 'function' and ref_id in (select id from functions)
              or kind = 'graph_break' and ref_id in (select id from distinct_breaks)
            """
        ).fetchone()
        assert match_count == document_count > 0
        causes = [
            cause
            for match_count in store.execute("select evidence from series_changes")
            for cause in json.loads(match_count["evidence"])["causes"]
        ]
        linked = [parse_id(cause["break_id"]) for cause in causes if cause["kind"] == "graph_break"]
        assert linked and set(linked) <= set(ids.values())
        (baseline,) = store.execute(BASELINE)
        fingerprints = {cause["fingerprint"] for cause in json.loads(unpack(baseline["body"]))["causes"]}
        assert fingerprints == {content_digest("cause", "size-x", "bench_models.py", "Breaky.forward")[:32]}


def test_detection_goes_on_where_it_was(store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_runs, "VERSION", 3)  # as it was then
    pending = find_pending_runs(SingleFile(store))
    assert (pending.run_ids, pending.needs_full_scan) == ([run_of(N + 4)], False)


def test_detection_of_before_looks_at_everything_where_a_run_it_had_seen_was_deleted(old: Path) -> None:
    with closing(sqlite3.connect(old)) as before:
        before.execute("delete from runs where id = ?", (run_of(3),))
        before.commit()
    migrate(old)
    with closing(open_writer(old)) as store:
        assert find_pending_runs(SingleFile(store)).needs_full_scan


def test_causes_that_become_one_add_up(old: Path) -> None:
    with closing(sqlite3.connect(old)) as before:
        (number,) = before.execute("select id from recompile_causes where reason like 'tensor %x%mismatch%'").fetchone()
        before.execute(
            """
            insert into recompile_causes (id, fingerprint, category, source, reason, suggestion, function_id)
            select 9999, 'made otherwise', category, source, reason, suggestion, function_id
            from recompile_causes
            where id = ?
            """,
            (number,),
        )
        before.execute(
            "insert into run_causes select run_id, 9999, 10, 20, 30 from run_causes where cause_id = ?", (number,)
        )
        before.execute(
            """
            update guard_failures set cause_id = 9999
            where recompile_id = (select max(recompile_id) from guard_failures where cause_id = ?)
            """,
            (number,),
        )
        before.commit()
        sums = before.execute(
            """
            select run_id, 10 + guard_failure_count, 20 + recompile_count, 30 + compile_us
            from run_causes
            where cause_id = ?
            order by run_id
            """,
            (number,),
        ).fetchall()
        (failure_count,) = before.execute(
            "select count(*) from guard_failures where cause_id in (9999, ?)", (number,)
        ).fetchone()
    migrate(old)
    with closing(open_writer(old)) as store:
        cursor = store.execute(
            "select distinct id from old_ids where kind = 'cause' and old_id in (9999, ?)", (number,)
        )
        ((cause_id,),) = cursor.fetchall()
        rows = store.execute(
            """
            select run_id, guard_failure_count, recompile_count, compile_us
            from run_causes
            where cause_id = ?
            order by run_id
            """,
            (cause_id,),
        )
        assert [tuple(row) for row in rows] == sums
        failures = store.execute("select count(*) from guard_failures where cause_id = ?", (cause_id,))
        assert failures.fetchone()[0] == failure_count
        assert store.execute("select count(*) from recompile_causes where id = ?", (cause_id,)).fetchone()[0] == 1


def test_a_cause_whose_event_cannot_be_read_keeps_an_id_of_its_own(old: Path) -> None:
    with closing(sqlite3.connect(old)) as before:
        before.execute("update events set body = x'09' where kind = 'recompiled'")
        before.commit()
        (count,) = before.execute("select count(*) from recompile_causes").fetchone()
    migrate(old)
    with closing(open_writer(old)) as store:
        assert store.execute("select count(*) from recompile_causes where id > 1000000").fetchone()[0] == count


def read_whole(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [line for line in connection.iterdump() if "search_words" not in line]


def test_a_migration_that_is_cut_off_changes_nothing_and_can_be_done_again(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_whole(old)

    def stop(_connection: sqlite3.Connection) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(migrations, "number_runs", stop)
        migrate(old)
    assert read_whole(old) == before
    assert migrate(old) == DATABASE_VERSION - 7


@pytest.mark.parametrize("fault", ["clash", "sum"])
def test_ids_that_do_not_add_up_change_nothing(old: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    before = read_whole(old)
    if fault == "clash":
        monkeypatch.setattr(content_ids, "content_id", lambda kind, *_: content_id(kind))
    else:
        real = content_ids._replace

        def lose(connection: sqlite3.Connection, table: str, column: str, kind: str) -> None:
            real(connection, table, column, kind)
            connection.execute("update graph_breaks set function_id = null")

        monkeypatch.setattr(content_ids, "_replace", lose)
    with pytest.raises(StoreError):
        migrate(old)
    assert read_whole(old) == before


def test_findings_of_before_are_incidents_with_what_people_said(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection, connection:
        (finding_id, first_run_id), *_others = connection.execute("select id, first_run_id from findings order by id")
        connection.execute("update findings set handling = 'ignored' where id = ?", (finding_id,))
        connection.execute("insert into finding_words values (901, ?, 'ignore', 'Ada', 'known', 5)", (finding_id,))
        connection.execute(
            "insert into alert_deliveries values ('r', 'c', ?, 'sent', null, 1, null, 1, 1, 1)", (finding_id,)
        )
    migrate(old)
    with closing(open_writer(old)) as store:
        incident = get_stored_incident(store, finding_id)
        assert incident is not None
        assert (incident.status, incident.owner, incident.reason) == ("ignored", "Ada", "known")
        assert incident.first_bad_run_id == first_run_id
        assert [row.text for row in list_comments(store, finding_id)] == ["known"]
        assert [(row.incident_id, row.event, row.state) for row in list_deliveries(store).rows] == [
            (finding_id, "opened", "sent")
        ]
        update_incidents(old)
        assert [row.text for row in list_comments(store, str(find_incident_of(store, finding_id)))] == ["known"]


def test_two_processes_may_migrate_a_database_of_before_at_once(old: Path) -> None:
    code = "import sys; from compileboard.collectors.store.migrations import migrate; print(migrate(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(old)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sorted(process.communicate(timeout=60)[0].strip() for process in started) == ["0", str(DATABASE_VERSION - 7)]
    with closing(open_writer(old)) as store:
        assert store.execute("pragma user_version").fetchone()[0] == DATABASE_VERSION


def test_a_recorder_of_before_that_runs_on_can_write_no_numbers(old: Path) -> None:
    before = "select 1 from deleted_runs where run_id = :id"  # of version 7, the first of each transaction
    with closing(open_writer(old)) as store:
        store.execute(before, {"id": "LIVE"})
        migrate(old)
        with pytest.raises(sqlite3.OperationalError, match="no such table"):  # no fault of an event: it tries again
            store.execute(before, {"id": "LIVE"})


def test_an_id_is_written_as_text_and_read_back() -> None:
    value = content_id("function", "train.py", "forward")
    assert parse_id(format_id(value)) == value < 2**63
    assert format_id(5) == "0000000000000005"
    for text in ("", "5", "0" * 15, "0" * 17, "8" + "0" * 15, "ABCDEFABCDEFABCD", "０" * 16, "0" * 16 + "\n"):
        with pytest.raises(ValueError, match="expected 16 digits"):
            parse_id(text)


def test_contents_that_differ_have_ids_that_differ() -> None:
    contents = [
        ("f", "a", "b"),
        ("f", "ab", ""),
        ("f", "a", None),
        ("f", "a", ""),
        ("f", "a"),
        ("g", "a", "b"),
        ("f", 1),
    ]
    contents += [("f", "1"), ("f", '["a"]'), ("f", "\udc80"), ("f", "a\x1eb")]
    assert len({content_id(*content) for content in contents}) == len(contents)


def test_a_clash_of_ids_costs_one_record(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate(old)
    shared = content_id("break", "first")
    monkeypatch.setattr(batch, "content_id", lambda *content: shared if content[0] == "break" else content_id(*content))
    events = [
        GraphBroke("p", number, 5, function="f", file="t.py", reason="r", fingerprint=fingerprint)
        for number, fingerprint in enumerate(("first", "second", "first"))
    ]
    with closing(open_writer(old)) as store:
        result = Ingestor(store).ingest("CLASH", events)
        assert [refused.event.sequence for refused in result.refused] == [1]
        assert "IdClashError" in result.refused[0].reason and "fingerprint" in result.refused[0].reason
        assert store.execute("select break_count from run_breaks where run_id = 'CLASH'").fetchone()[0] == 2


def test_every_commit_to_a_run_has_the_next_number_and_what_is_known_has_none(old: Path) -> None:
    migrate(old)
    shutil.rmtree(trash_path(str(old), DELETED).parent)
    events = [GraphBroke("p", number, 5, reason="r", fingerprint="f") for number in range(3)]

    def read_pub(store: sqlite3.Connection) -> int:
        (pub,) = store.execute("select pub from runs where id = 'NEW'").fetchone()
        assert store.execute("select max(pub) from runs").fetchone()[0] == pub
        return int(pub)

    with closing(open_writer(old)) as store:
        Ingestor(store).ingest("NEW", events[:1])
        first = read_pub(store)
        Ingestor(store).ingest("NEW", events)
        assert read_pub(store) == first + 1
        Ingestor(store).ingest("NEW", events)
        assert read_pub(store) == first + 1
        delete_run(store, "NEW")
        assert find_pending_runs(SingleFile(store)).needs_full_scan
        restore_run(store, "NEW")
        assert read_pub(store) == first + 3  # the removal had one too
