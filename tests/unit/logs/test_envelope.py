"""What stands around a record is kept: stacks of records outside any compile, names of subgraphs,
keys nobody knows.
"""

from __future__ import annotations

import json
import lzma
import re
from dataclasses import replace
from pathlib import Path

from compileboard.app import create_app
from compileboard.app.core.settings import Settings
from compileboard.collectors.store.codec import unpack
from tests.tools.trace_logs import read_trace_log
from tests.unit.decode.recorded_logs import FOLDER
from tests.unit.logs.loading import load, query_value, rows
from tests.unit.logs.test_log_loader import record

AOTI = FOLDER / "torch2.13-aoti.trace.xz"  # has no compile: tests of the other recordings need one
LOOSE = (
    "select name, envelope, stack_id from artifacts where compile_key is null and stack_id is "
    "not null"
)


def import_log(tmp_path: Path, *parts: str) -> Path:
    (tmp_path / "x.log").write_text("".join(parts))
    load(tmp_path / "t.db", tmp_path / "x.log")
    return tmp_path / "t.db"


def test_every_stack_of_an_aotinductor_log_is_in_the_tree(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(lzma.decompress(AOTI.read_bytes()))
    load(tmp_path / "t.db", tmp_path / "x.log")
    records = read_trace_log(tmp_path / "x.log", "p", selects=lambda name: True)
    told = [captured for captured in records if captured.envelope and "stack" in captured.envelope]
    of_artifacts = rows(tmp_path / "t.db", LOOSE)
    symbols = query_value(
        tmp_path / "t.db", "select count(*) from symbols where stack_id is not null"
    )
    assert len(told) == 9
    names = {captured.name.removeprefix("artifact:") for captured in told} - {
        "chromium_event",
        "compilation_metrics",
    }
    assert {row["name"] for row in of_artifacts} | {"create_symbol"} == names and symbols == 1
    outermost = rows(
        tmp_path / "t.db", "select file, name from stack_nodes where parent_id is null"
    )
    assert [tuple(row) for row in outermost] == [("record_aoti.py", "<module>")]


def test_the_stacks_page_shows_records_outside_any_compile(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(lzma.decompress(AOTI.read_bytes()))
    run_id = load(tmp_path / "t.db", tmp_path / "x.log").run_id
    client = create_app(replace(Settings(), db=str(tmp_path / "t.db"))).test_client()
    page = client.get(f"/runs/{run_id}/stacks").text
    assert (
        "Stacks outside any compile" in page
        and "aot_inference_graph" in page
        and "created symbol" in page
    )
    assert ">export_tower<" in page and "record_aoti.py:" in page
    tree = client.get(f"/api/v1/runs/{run_id}/trie?limit=1000").get_json()["data"]
    told = {
        captured["name"]: captured["record_count"] for row in tree for captured in row["records"]
    }
    shown = set(
        re.findall(r'<li>(?:<a class="mono" href="[^"]*"|<span class="mono")>([^<]*)<', page)
    )
    assert told.keys() == shown and "export_tower" in {row["name"] for row in tree}
    offline = client.get(f"/runs/{run_id}/report.html").text
    assert "Stacks outside any compile" in offline and "Callers of compiles" not in offline
    report = client.get(f"/runs/{run_id}/report.json").get_json()
    assert [row["records"] for row in report["stacks"] if row["records"]] == [
        row["records"] for row in tree if row["records"]
    ]
    number = query_value(
        tmp_path / "t.db", "select id from artifacts where name = 'aot_inference_graph'"
    )
    answer = client.get(f"/api/v1/runs/{run_id}/artifacts/{number}").get_json()["data"]
    assert answer["stack_id"] and not answer["envelope"]


def test_keys_that_nobody_knows_are_kept_with_every_kind_of_record(tmp_path: Path) -> None:
    around = {
        "frame_id": 0,
        "frame_compile_id": 0,
        "attempt": 0,
        "subgraph_name": "region_1",
        "later": {"a": 1},
    }
    span = json.dumps({"name": "n", "ts": 1, "args": {}, "ph": "i", "cat": "c", "tid": 0, "pid": 1})
    database = import_log(
        tmp_path,
        record({"dynamo_start": {"stack": []}, **around}),
        record({"aot_forward_graph": {}, **around}, "graph"),
        record({"create_symbol": {"symbol": "s0"}, **around}),
        record({"chromium_event": {}, **around}, span),
    )
    unknown_keys = {"subgraph_name": "region_1", "later": {"a": 1}}
    assert json.loads(query_value(database, "select envelope from artifacts")) == unknown_keys
    assert (
        json.loads(unpack(query_value(database, "select detail from symbols")))["envelope"]
        == unknown_keys
    )
    assert json.loads(query_value(database, "select args from spans"))["envelope"] == unknown_keys
    assert (
        json.loads(
            unpack(query_value(database, "select body from events where kind = 'compile_started'"))
        )["envelope"]
        == unknown_keys
    )


def test_an_odd_envelope_costs_its_number_alone(tmp_path: Path) -> None:
    database = import_log(
        tmp_path,
        record({"a": {}, "frame_id": 0, "frame_compile_id": 0}, "one"),
        record({"b": {}, "frame_id": "x", "stack": 3, "rank": [1]}, "two"),
    )
    recorded = rows(
        database, "select name, compile_id, envelope, stack_id from artifacts order by sequence"
    )
    assert [tuple(row)[:2] for row in recorded] == [("a", "0/0"), ("b", None)]
    assert json.loads(recorded[1]["envelope"]) == {"frame_id": "x", "stack": 3, "rank": [1]}
    assert tuple(rows(database, "select kind, reject_count, first_line from log_rejects")[0]) == (
        "bad_field",
        2,
        3,
    )


def test_redaction_keeps_no_line_and_no_key_that_nobody_knows(tmp_path: Path) -> None:
    frame = {"line": 3, "name": "f", "filename": 7, "loc": "password = 'secret'"}
    log = tmp_path / "x.log"
    log.write_text(
        record({"str": ["/r/m.py", 7]})
        + record({"aot_forward_graph": {}, "stack": [frame], "later": "secret"}, "graph")
    )
    load(tmp_path / "t.db", log, redact_source=True)
    assert query_value(tmp_path / "t.db", "select envelope from artifacts") is None
    assert "secret" not in str(
        query_value(tmp_path / "t.db", "select code from stack_nodes where name = 'f'")
    )
