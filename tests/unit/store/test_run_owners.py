"""Whose runs are: of who sent them first, and of this machine where nobody did."""

from __future__ import annotations

import sqlite3

import pytest

from compileboard.collectors.contract.events import UnknownRecordSeen
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.runs import NotOwner, RunSender, may_add

BOX = RunSender("token:box-2", may_add_to_all=False)


def test_a_run_is_of_who_sent_it_first() -> None:
    store = sqlite3.connect(":memory:", isolation_level=None)
    store.row_factory = sqlite3.Row
    migrate_connection(store)
    senders = {
        "local": RunSender(),
        "sent": RunSender("token:box-1", may_add_to_all=False),
        "written": RunSender("token:ann"),
    }
    for run_id, sender in senders.items():
        for other in (sender, RunSender("token:bob")):  # the scope write makes nothing its own
            Ingestor(store, sender=other).ingest(
                run_id, [UnknownRecordSeen(run_id, 1, 1, name="x")]
            )
        with pytest.raises(NotOwner, match="box-2 did not send it"):
            Ingestor(store, sender=BOX).ingest(run_id, [UnknownRecordSeen(run_id, 2, 2, name="x")])
        assert may_add(store, run_id, sender) and not may_add(
            store, run_id, RunSender("login:box-1", False)
        )
    rows = store.execute("select run_id, owner from run_owners order by run_id").fetchall()
    assert [tuple(row) for row in rows] == [("sent", "token:box-1"), ("written", "token:ann")]
    assert may_add(store, "never seen", BOX)
