"""The search index has a run's words once, also when indexed twice or concurrently."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.store import search as search_index
from compileboard.collectors.store.connection import open_writer, write_transaction
from compileboard.collectors.store.search import index_run, kind_tag, list_pending, run_tag
from compileboard.collectors.store.trash import delete_run
from tests.unit.app.explored import explore


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Import two real logs once, not indexed; each test gets its own copy."""
    path = tmp_path_factory.mktemp("search") / "imported.db"
    explore(path)
    with closing(open_writer(path)) as connection:
        for (run_id,) in connection.execute("select id from runs").fetchall():
            with write_transaction(connection):
                search_index.remove_run_words(connection, run_id)
    return path.read_bytes()


@pytest.fixture
def store(tmp_path: Path, imported: bytes) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "t.db"
    path.write_bytes(imported)
    with closing(open_writer(path)) as connection:
        yield connection


def find(store: sqlite3.Connection, match: str) -> list[tuple[str, str]]:
    """List kind and title of what the index finds."""
    rows = store.execute(
        """
        select kind, title
        from search_words
        join search_documents on search_documents.id = search_words.rowid
        where search_words match :match
        order by search_documents.id
        """,
        {"match": match},
    )
    return [(row["kind"], row["title"]) for row in rows]


def count_words(store: sqlite3.Connection) -> int:
    return int(store.execute("select count(*) from search_words").fetchone()[0])


def index_all(store: sqlite3.Connection) -> None:
    for run_id in list_pending(store):
        assert index_run(store, run_id).complete


def test_reasons_graphs_code_guards_and_file_names_are_found(store: sqlite3.Connection) -> None:
    index_all(store)
    kinds = {kind for kind, _title in find(store, "torch OR forward OR py")}
    assert {"artifact", "graph_break", "recompile", "function", "frame"} <= kinds
    assert ("artifact", "dynamo_output_graph") in find(store, "body : GraphModule")
    assert {title for _kind, title in find(store, 'body : "TREE_GUARD_MANAGER"')} == {
        "dynamo_cpp_guards_str"
    }
    assert [kind for kind, _title in find(store, '"tensor" AND "size mismatch"')].count(
        "recompile"
    ) > 0


def test_identifier_is_found_whole_by_its_parts_and_by_its_beginning(
    store: sqlite3.Connection,
) -> None:
    index_all(store)
    whole = find(store, '"torch.ops.aten.addmm.default"')
    assert whole
    assert set(whole) <= set(find(store, "addm*"))
    assert set(whole) <= set(find(store, '"ops.ate" *'))
    assert find(store, '"addmm.aten.ops"') == []
    assert find(store, "GraphModul*")


def test_indexing_again_adds_nothing(store: sqlite3.Connection) -> None:
    index_all(store)
    before = count_words(store)
    assert list_pending(store) == []
    for (run_id,) in store.execute("select id from runs").fetchall():
        assert index_run(store, run_id).document_count == 0
    assert count_words(store) == before == len(find(store, f'"{kind_tag("artifact")}" OR kind*'))


def test_a_text_of_two_artifacts_is_one_document(store: sqlite3.Connection) -> None:
    index_all(store)
    rows = store.execute(
        "select run_id, payload_id from search_documents where payload_id is not null"
    ).fetchall()
    assert len(rows) == len({tuple(row) for row in rows}) > 20


def test_what_a_log_grows_by_is_added(store: sqlite3.Connection) -> None:
    run_id = list_pending(store)[0]
    later = "select max(id) from artifacts where run_id = :id and payload_id is not null"
    (last,) = store.execute(later, {"id": run_id}).fetchone()
    store.execute(
        "update artifacts set run_id = (select min(id) from runs where id != :id) where id = :last",
        {"id": run_id, "last": last},
    )
    index_run(store, run_id)
    store.execute(
        "update artifacts set run_id = :id where id = :last", {"id": run_id, "last": last}
    )
    store.execute(
        "update logs set read_us = :now where run_id = :id",
        {"id": run_id, "now": time.time_ns() // 1000},
    )
    assert run_id in list_pending(store)
    assert index_run(store, run_id).document_count == 1
    assert run_id not in list_pending(store)


def test_out_of_time_it_goes_on_when_called_again(
    store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "BATCH_DOCUMENTS", 5)
    run_id = list_pending(store)[0]
    first = index_run(store, run_id, max_s=0)
    assert (first.complete, first.document_count) == (False, 5)
    assert run_id in list_pending(store)
    seen: list[int] = []
    assert index_run(store, run_id, progress=seen.append).complete
    assert seen == sorted(seen)
    assert len(seen) > 2


def test_a_deleted_run_leaves_no_word_and_the_others_keep_theirs(store: sqlite3.Connection) -> None:
    index_all(store)
    deleted, *others = (
        row[0] for row in store.execute("select id from runs order by id").fetchall()
    )
    before = set(find(store, f"torch NOT {run_tag(deleted)}"))
    delete_run(store, deleted)
    assert find(store, run_tag(deleted)) == []
    assert set(find(store, "torch")) == before != set()
    store.execute("insert into search_words (search_words) values ('integrity-check')")
    assert all(delete_run(store, run_id) for run_id in others)
    assert (count_words(store), find(store, "torch")) == (0, [])


def test_a_run_deleted_meanwhile_is_not_indexed(
    store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "BATCH_DOCUMENTS", 5)
    run_id = list_pending(store)[0]

    def delete_it(_bytes: int) -> None:
        delete_run(store, run_id)

    assert not index_run(store, run_id, progress=delete_it).complete
    assert find(store, run_tag(run_id)) == []


def test_a_damaged_text_stops_neither_indexing_nor_deletion(store: sqlite3.Connection) -> None:
    store.execute("update payloads set body = x'03ff' where id = (select max(id) from payloads)")
    index_all(store)
    runs = [row["id"] for row in store.execute("select id from runs order by id").fetchall()]
    store.execute(
        "update payloads set body = x'03ff' where id = (select min(payload_id) from "
        "search_documents)"
    )
    assert all(delete_run(store, run_id) for run_id in runs)
    assert (count_words(store), list_pending(store)) == (0, [])


def test_another_writer_comes_in_between_batches(
    store: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "BATCH_DOCUMENTS", 5)
    written: list[int] = []

    def write_at_once(done_bytes: int) -> None:
        with closing(sqlite3.connect(tmp_path / "t.db", timeout=0, isolation_level=None)) as other:
            other.execute("update runs set heartbeat_us = heartbeat_us")
        written.append(done_bytes)

    index_run(store, list_pending(store)[0], progress=write_at_once)
    assert len(written) > 5


def test_two_at_once_index_a_text_once(store: sqlite3.Connection, tmp_path: Path) -> None:
    run_id = list_pending(store)[0]

    def index_too() -> None:
        with closing(open_writer(tmp_path / "t.db")) as other:
            index_run(other, run_id)

    thread = threading.Thread(target=index_too)
    thread.start()
    index_run(store, run_id)
    thread.join()
    (documents,) = store.execute("select count(*) from search_documents").fetchone()
    assert count_words(store) == documents == len(find(store, run_tag(run_id)))
