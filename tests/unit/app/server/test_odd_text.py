"""Half a surrogate pair, valid in JSON but not in UTF-8, is replaced everywhere."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.app.cli.main import main
from compileboard.collectors.store.codec import pack, pack_large, unpack
from compileboard.collectors.store.connection import checkpoint
from tests.unit.app.hostile import RUN, record_hostile_run
from tests.unit.app.seed import insert
from tests.unit.app.server.test_hostile_text import LISTS, PAGES

HALF = "alert(1)\\ud800"  # as JSON writes it
JSON_COLUMNS = {
    "runs": ["facts"],
    "processes": ["capabilities", "environment", "counters", "compile_times", "losses"],
    "distinct_breaks": ["hints"],
}
REPORTS = [f"/runs/{RUN}/report.{kind}" for kind in ("html", "json", "md")]
TABLES = ("compilations", "graph_breaks", "recompiles")
REPORTS += [
    f"/runs/{RUN}/report.{kind}?table={table}" for kind in ("csv", "parquet") for table in TABLES
]
DETAILS = [f"/api/v1/runs/{RUN}{part}" for part in LISTS]


@pytest.fixture(autouse=True)
def artifact(store: sqlite3.Connection) -> str:
    """Put half a pair into every JSON text of the hostile run, and beside it an artifact of
    JSON.
    """
    record_hostile_run(store)
    for table, columns in JSON_COLUMNS.items():
        for column in columns:
            store.execute(
                f"update {table} set {column} = replace({column}, 'alert(1)', :half)",
                {"half": HALF},
            )
    for row in store.execute("select rowid, body from events").fetchall():
        body = unpack(row["body"]).replace("alert(1)", HALF)
        assert (json.loads(body) and HALF in body) or "alert" not in body
        store.execute("update events set body = ? where rowid = ?", (pack(body), row["rowid"]))
    text = json.dumps(
        {"key": "k\ud800", "components": ["[x] inner: 1\ud800"], "ops": "\ud800"}
    ).encode()
    payload = insert(
        store, "payloads", digest=b"0" * 16, size_bytes=len(text), body=pack_large(text)
    )
    given = {
        "process_id": "c" * 32,
        "encoding": "json",
        "state": "kept",
        "time_us": 1,
        "payload_id": payload,
    }
    for sequence, name in enumerate(
        ("odd", "fx_graph_cache_miss", "inductor_runtime_and_tensor_meta")
    ):
        metadata = '{"sizes": {"x\\ud800": ["\\ud800"]}, "big": 1e999}'
        number = insert(
            store, "artifacts", run_id=RUN, name=name, metadata=metadata, sequence=sequence, **given
        )
    store.commit()
    return f"/runs/{RUN}/artifacts/{number}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("address", [*PAGES, *DETAILS, *REPORTS, f"/runs/{RUN}/timeline"])
def test_an_answer_is_whole_and_utf8(client: FlaskClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 200 or ("alert" in address and answer.status_code < 500)
    if not address.split("?")[0].endswith("parquet"):
        assert "\ud800" not in answer.data.decode()
    if answer.content_type.startswith("application/json"):
        assert json.dumps(json.loads(answer.data), ensure_ascii=False).encode()


def test_an_artifact_is_shown_raw_and_compared(client: FlaskClient, artifact: str) -> None:
    number = int(artifact.rsplit("/", 1)[1])
    for address in (
        artifact,
        f"{artifact}/raw",
        f"/runs/{RUN}/artifacts/diff?a={number}&b={number - 1}",
    ):
        assert client.get(address).status_code == 200, address
    answer = client.get(f"/api/v1/runs/{RUN}/artifacts/{number}")
    assert answer.status_code == 200 and answer.get_json()


def test_a_stored_text_is_read_as_utf8() -> None:
    half = "a\ud800b"
    raw = half.encode("utf-8", "surrogatepass")
    for blob in (pack(half), pack_large(raw)):
        assert unpack(blob) == "a?b"


@pytest.mark.nightly
def test_a_static_copy_goes_past_it(
    store: sqlite3.Connection, database: Path, tmp_path: Path, artifact: str
) -> None:
    checkpoint(store)
    assert main(["export", "--site", str(tmp_path / "site"), "--db", str(database)]) == 0
    assert len([page.read_text() for page in (tmp_path / "site").rglob("*.html")]) > 5
