"""Functions, breaks, causes and series have one id in every database, made of their content."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app.core.store import FileStore
from compileboard.app.incidents.pending import find_pending_runs
from compileboard.collectors.contract.events import GraphBroke
from compileboard.collectors.contract.fingerprints import content_id, format_id, parse_id
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest import batch
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.trash import delete_run, restore_run


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    migrate(tmp_path / "t.db")
    with closing(open_writer(tmp_path / "t.db")) as connection:
        yield connection


def test_an_id_is_written_as_text_and_read_back() -> None:
    value = content_id("function", "train.py", "forward")
    assert parse_id(format_id(value)) == value < 2**63
    assert format_id(5) == "0000000000000005"
    for text in (
        "",
        "5",
        "0" * 15,
        "0" * 17,
        "8" + "0" * 15,
        "ABCDEFABCDEFABCD",
        "０" * 16,
        "0" * 16 + "\n",
    ):
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
    ]
    contents += [("f", 1), ("f", "1"), ("f", '["a"]'), ("f", "\udc80"), ("f", "a\x1eb")]
    assert len({content_id(*content) for content in contents}) == len(contents)


def test_a_clash_of_ids_costs_one_record(
    store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = content_id("break", "first")
    monkeypatch.setattr(
        batch,
        "content_id",
        lambda *content: shared if content[0] == "break" else content_id(*content),
    )
    events = [
        GraphBroke("p", number, 5, function="f", file="t.py", reason="r", fingerprint=fingerprint)
        for number, fingerprint in enumerate(("first", "second", "first"))
    ]
    result = Ingestor(store).ingest("CLASH", events)
    assert [refused.event.sequence for refused in result.refused] == [1]
    assert "IdClashError" in result.refused[0].reason and "fingerprint" in result.refused[0].reason
    assert (
        store.execute("select break_count from run_breaks where run_id = 'CLASH'").fetchone()[0]
        == 2
    )


def test_every_commit_to_a_run_has_the_next_number_and_what_is_known_has_none(
    store: sqlite3.Connection,
) -> None:
    events = [GraphBroke("p", number, 5, reason="r", fingerprint="f") for number in range(3)]

    def read_pub() -> int:
        (pub,) = store.execute("select pub from runs where id = 'NEW'").fetchone()
        return int(pub)

    Ingestor(store).ingest("NEW", events[:1])
    first = read_pub()
    for _ in range(2):
        Ingestor(store).ingest("NEW", events)
        assert read_pub() == first + 1
    delete_run(store, "NEW")
    assert find_pending_runs(FileStore(store)).needs_full_scan
    restore_run(store, "NEW")
    assert read_pub() == first + 3  # the removal had one too
