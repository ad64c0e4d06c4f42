"""Repros: the list of failures, a run's tab, one with programs and results, downloads."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import sqlite3
import time
from pathlib import Path

import pyarrow.parquet
import pytest
from flask.testing import FlaskClient

from compileboard.app.cli.main import main
from compileboard.app.repros.model import describe_message
from compileboard.collectors.cli.main import main as collect
from compileboard.collectors.cli.run import list_summary_lines
from compileboard.collectors.contract.events import ReproCaptured
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.contract.repros import MAX_PROGRAM_CHARS
from compileboard.collectors.formats.repro_archive import read_archive
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.ingest.repro_writer import repro_id
from compileboard.collectors.store.repros import ReproResult, save_result
from compileboard.collectors.store.search import index_run
from compileboard.collectors.store.trash import delete_run
from tests.unit.app.benched import RUNS, bench_suite
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.repros.captured import (
    ACCURACY_REPRO,
    COMPILE_REPRO,
    DIGEST,
    MANIFEST,
    MINIMAL,
    PROGRAM,
    ROWS,
    RUN,
    START_US,
    VALUES,
    WRONG,
    capture_repros,
)
from tests.unit.app.series_changes import keep_one_of_each


@pytest.fixture(autouse=True)
def run(store: sqlite3.Connection) -> None:
    capture_repros(store)


def read_text(client: FlaskClient, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text))


def add_repro(store: sqlite3.Connection, run_id: str, **manifest: object) -> str:
    event = ReproCaptured(
        f"p{run_id}", 1, 1_795_000_100_000_000, manifest={**WRONG, **manifest}, program="graph"
    )
    Ingestor(store).ingest(run_id, [event])
    return format_id(repro_id(f"p{run_id}", 0))


def test_failures_are_grouped_over_runs(client: FlaskClient, store: sqlite3.Connection) -> None:
    add_repro(
        store, "R2", device="NVIDIA H200", versions={"torch": "2.11.0"}, message="bad accuracy 0.5"
    )
    wrong, broken = client.get("/api/v1/repros").get_json()["data"]
    assert (wrong["operation"], wrong["repro_count"], wrong["run_count"]) == (
        "aten.atan.default",
        2,
        2,
    )
    assert (wrong["torch_versions"], wrong["devices"]) == (
        ["2.11.0", "2.13.0"],
        ["NVIDIA H200", "cpu"],
    )
    assert (wrong["node_count"], wrong["minimal_node_count"], wrong["id"]) == (5, 1, ACCURACY_REPRO)
    assert (broken["repro_count"], broken["minimal_node_count"], broken["id"]) == (
        1,
        None,
        COMPILE_REPRO,
    )
    text = read_text(client, "/repros")
    assert (
        "AccuracyError in aten.atan.default" in text
        and "5 → 1" in text
        and "2.11.0, 2.13.0" in text
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("kind=compile", ["CppCompileError"]),
        ("q=ATAN", ["AccuracyError"]),
        ("q=tower.forward&device=cpu&torch=2.13.0", ["AccuracyError", "CppCompileError"]),
        ("torch=2.4", []),
        ("sort=first.asc", ["CppCompileError", "AccuracyError"]),
    ],
)
def test_failures_are_filtered_and_ordered(
    client: FlaskClient, query: str, expected: list[str]
) -> None:
    rows = client.get(f"/api/v1/repros?{query}").get_json()["data"]
    assert [row["error_type"] for row in rows] == expected
    assert client.get(f"/repros?{query}").status_code == 200


def test_pages_of_failures_follow_one_another(client: FlaskClient) -> None:
    for sort in ("last", "runs", "repros.asc"):
        first = client.get(f"/api/v1/repros?limit=1&sort={sort}").get_json()
        second = client.get(f"/api/v1/repros?limit=1&sort={sort}&cursor={first['next']}").get_json()
        assert {row["error_type"] for row in first["data"] + second["data"]} == {
            "AccuracyError",
            "CppCompileError",
        }
        assert second["next"] is None


@pytest.mark.parametrize("query", ["kind=odd", "sort=size", "color=red", "cursor=x"])
def test_a_filter_that_is_none_is_refused(client: FlaskClient, query: str) -> None:
    assert client.get(f"/repros?{query}").status_code == 400


def test_a_run_has_a_tab_of_its_repros(client: FlaskClient, store: sqlite3.Connection) -> None:
    assert f"/runs/{RUN}/repros" in client.get(f"/runs/{RUN}").text.split("more-tabs")[0]
    text = read_text(client, f"/runs/{RUN}/repros")
    assert text.index("AccuracyError in aten.atan.default") < text.index(
        "CppCompileError in aten.relu.default"
    )
    store.execute("delete from repros")
    assert f"/runs/{RUN}/repros" in client.get(f"/runs/{RUN}").text.split("more-tabs")[1]
    assert "The failures of this run left no graph" in read_text(client, f"/runs/{RUN}/repros")


def test_a_repro_answers_first_what_is_wrong(client: FlaskClient) -> None:
    text = read_text(client, f"/repros/{ACCURACY_REPRO}")
    assert "aten.atan.default is wrong by 1.0e-2 (eager: 2.7e-8)" in text
    assert "explains the output" in text and "lowerings" in text and "epilogue_fusion" in text
    assert text.index("Minimal program") < text.index("Whole program")
    assert f"compileboard-collect repro minify {ACCURACY_REPRO} --db" in text


def test_a_later_pass_elsewhere_hides_no_answer(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    passed = {"status": "not_reproduced", "judged_count": 2, "trial_count": 1, "rows": ROWS[1:]}
    for number, command in enumerate(("analyze", "bisect")):
        result = ReproResult(
            command, "not_reproduced", 1.0, START_US + 90 + number, START_US + 99, detail=passed
        )
        save_result(store, ACCURACY_REPRO, result)
        save_result(store, COMPILE_REPRO, result)
    assert "aten.atan.default is wrong by 1.0e-2" in read_text(client, f"/repros/{ACCURACY_REPRO}")
    text = read_text(client, f"/repros/{COMPILE_REPRO}")
    assert (
        "Passed when it was run again" in text
        and "Bisection 1 trial It does not fail there" in text
    )
    assert (
        text.index("Every operation is right there")
        < text.index("Judged operations")
        < text.index("aten.mul")
    )


def test_a_repro_shows_what_became_of_its_inputs(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    text = read_text(client, f"/repros/{COMPILE_REPRO}")
    assert "1 of 3 tensors with values" in text and "symint s77 = 5" in text
    assert "float32 [s77, 8]" in text and "offset 4" in text and "freed" in text
    store.execute("delete from repro_storages")
    assert "0 of 3 tensors with values" in read_text(client, f"/repros/{COMPILE_REPRO}")


def test_a_repro_leads_to_its_failure_and_its_compile(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    failures = [row[0] for row in store.execute("select id from failures order by phase")]
    for repro, failure in zip((COMPILE_REPRO, ACCURACY_REPRO), failures):
        assert f"tab=failures#failure-{failure}" in client.get(f"/repros/{repro}").text
    key = store.execute("select id from compiles").fetchone()[0]
    assert f"/runs/{RUN}/compiles/{key}" in client.get(f"/repros/{COMPILE_REPRO}").text


def test_failures_and_compiles_lead_to_their_repros(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    page = client.get(f"/runs/{RUN}?tab=failures").text
    assert page.count(f"/repros/{COMPILE_REPRO}") == page.count(f"/repros/{ACCURACY_REPRO}") == 1
    key = store.execute("select id from compiles").fetchone()[0]
    assert f"/repros/{COMPILE_REPRO}" in client.get(f"/runs/{RUN}/compiles/{key}").text
    rows = client.get(f"/api/v1/runs/{RUN}/failures").get_json()["data"]
    assert {row["error_type"]: row["repro_id"] for row in rows} == {
        "CppCompileError": COMPILE_REPRO,
        "AccuracyError": ACCURACY_REPRO,
    }


def test_reports_name_the_repros_of_failures(client: FlaskClient) -> None:
    for format in ("html", "md"):
        text = client.get(f"/runs/{RUN}/report.{format}").text
        assert COMPILE_REPRO in text and ACCURACY_REPRO in text, format


@pytest.mark.nightly
def test_a_static_site_has_repros_unless_it_has_no_source(database: Path, tmp_path: Path) -> None:
    for name, options in (("with", []), ("without", ["--no-source"])):
        assert (
            main(["export", "--site", str(tmp_path / name), "--db", str(database), *options]) == 0
        )
        pages = {
            path.relative_to(tmp_path / name).as_posix()
            for path in (tmp_path / name).rglob("*.html")
        }
        assert "repros/index.html" in pages
        assert any(ACCURACY_REPRO in page for page in pages) == (name == "with")


@on_both_engines
def test_a_model_and_an_incident_lead_to_their_runs_repros(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    bench_suite(store)
    keep_one_of_each(store)
    incident, run_id = store.execute(
        "select id, first_bad_run_id from incidents order by id"
    ).fetchone()
    pages = ("/models/Breaky", f"/incidents/{incident}")
    assert not any('id="repros"' in client.get(page).text for page in pages)
    for bad_run in {run_id, RUNS[-1]}:
        event = ReproCaptured(
            f"{bad_run}/Breaky-performance", 90, 2, manifest=WRONG, program="graph"
        )
        Ingestor(store).ingest(bad_run, [event])
    for page, of_run in zip(pages, (RUNS[-1], run_id)):
        text = client.get(page).text
        assert f"/repros/{format_id(repro_id(f'{of_run}/Breaky-performance', 0))}" in text, page
    assert 'id="repros"' not in client.get("/models/Mlp").text


def test_programs_are_downloaded_as_text(client: FlaskClient) -> None:
    for name, text in (("program", PROGRAM), ("minimal", MINIMAL)):
        answer = client.get(f"/repros/{ACCURACY_REPRO}/{name}.py")
        assert (answer.text, answer.mimetype) == (text, "text/plain")
        assert "attachment" in answer.headers["Content-Disposition"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert client.get(f"/repros/{ACCURACY_REPRO}/dynamo.py").status_code == 404


def test_an_archive_has_the_programs_and_the_values(client: FlaskClient) -> None:
    parts = read_archive(io.BytesIO(client.get(f"/repros/{COMPILE_REPRO}/archive.tar.gz").data))
    assert (parts.program, parts.dynamo_program, parts.values) == (
        PROGRAM,
        PROGRAM,
        {DIGEST: VALUES},
    )
    assert (parts.manifest.operation, parts.manifest.inputs[3].shape) == (
        "aten.relu.default",
        ("s77", 8),
    )


@pytest.mark.parametrize("address", ["0000000000000000", "zz", "6d", "../x", f"{ACCURACY_REPRO}0"])
def test_no_repro_is_404(client: FlaskClient, address: str) -> None:
    for prefix in ("", "/api/v1"):
        assert client.get(f"{prefix}/repros/{address}").status_code == 404


def test_a_deleted_run_takes_its_repros_along(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    assert delete_run(store, RUN)
    assert client.get(f"/repros/{ACCURACY_REPRO}").status_code == 404
    assert "No repros" in read_text(client, "/repros")


def test_a_huge_hostile_program_is_shown_in_part(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    text = "<script>alert(1)</script>\n" * (MAX_PROGRAM_CHARS // 26)
    event = ReproCaptured("huge", 1, 2, manifest=MANIFEST, program=text)
    Ingestor(store).ingest("R3", [event])
    key = format_id(repro_id("huge", 0))
    page = client.get(f"/repros/{key}").text
    assert "<script>alert" not in page and len(page) < 4_000_000
    assert f"of {len(text):,} characters" in page
    assert client.get(f"/repros/{key}/program.py").text == text


def test_an_answer_that_is_none_breaks_no_page(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    for detail in (
        {"rows": 5},
        {"rows": [{"node": 1}]},
        {"notes": [1], "operations": "x"},
        {"settings": [[]]},
    ):
        for command in ("analyze", "bisect"):
            save_result(
                store, COMPILE_REPRO, ReproResult(command, "odd_status", 1.0, 1, 2, detail=detail)
            )
            assert "odd status" in read_text(client, f"/repros/{COMPILE_REPRO}")


@pytest.mark.nightly
def test_ten_thousand_repros_take_no_time(client: FlaskClient, store: sqlite3.Connection) -> None:
    events = [
        ReproCaptured(
            "many",
            number,
            1_795_000_000_000_000 + number,
            position=number,
            manifest={**MANIFEST, "operation": f"aten.op{number % 2_000}.default"},
            program="graph",
        )
        for number in range(10_000)
    ]
    Ingestor(store).ingest("MANY", events)
    for address in ("/repros", "/repros?q=op19", "/runs/MANY/repros", f"/repros/{COMPILE_REPRO}"):
        client.get(address)
        started = time.process_time()
        assert client.get(address).status_code == 200
        # 0.15 s; a statement for each of them takes seconds.
        assert time.process_time() - started < 1.5, address


def test_a_wrong_answers_figures_have_names(client: FlaskClient, store: sqlite3.Connection) -> None:
    text = read_text(client, f"/repros/{ACCURACY_REPRO}")
    assert (
        "Eager's error 2.7e-08" in html.unescape(text) and "Wrong values output 0, input 1" in text
    )
    hostile = add_repro(
        store, "R9", message="other", accuracy={"wrong": 7, "error": ["<b>"], "limit": None}
    )
    assert "Wrong values 7" in read_text(client, f"/repros/{hostile}")


def test_a_run_ends_with_the_command_for_its_repros(
    store: sqlite3.Connection, database: Path
) -> None:
    assert f" repro list --run {RUN} --db " in list_summary_lines(str(database), RUN)[-1]
    store.execute("delete from repros where position = 0")
    store.commit()
    assert f" repro run {ACCURACY_REPRO} --db " in list_summary_lines(str(database), RUN)[-1]


def test_a_graph_of_the_programs_own_compiler_is_not_offered_to_run_again(
    store: sqlite3.Connection, database: Path
) -> None:
    add_repro(store, RUN, compiler="own")
    assert list_summary_lines(str(database), RUN)[-1].startswith("2 graphs that failed")


def test_the_list_on_the_terminal_names_the_functions(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collect(["repro", "list", "--db", str(database)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all("  Tower.forward  " in line for line in lines[1:])


def test_a_wrong_result_comes_before_the_fixes(
    client: FlaskClient, store: sqlite3.Connection, database: Path
) -> None:
    store.execute("delete from failures")
    store.execute("update compiles set outcome = 'compiled'")
    store.execute("update run_totals set failure_count = 0")
    store.execute("update runs set state = 'finished', exit_code = 0")
    store.commit()
    first, *others = list_summary_lines(str(database), RUN)
    assert first == "wrong result of Tower.forward (train.py:9): bad accuracy 0.01"
    assert not any("Nothing to fix" in line for line in others)
    text = read_text(client, f"/runs/{RUN}")
    assert "1 problem; no graph breaks, no recompiles Wrong result: the compiled graph" in text
    assert f"repro analyze {ACCURACY_REPRO}" in text and "Nothing to fix" not in text


def test_search_finds_a_repro_by_its_failure_and_its_graph(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    index_run(store, RUN)
    for words in ("bad accuracy", "aten.atan.default", "torch.ops.aten.relu"):
        [group] = [
            group
            for group in client.get(f"/api/v1/search?q={words}").get_json()["data"]["groups"]
            if group["kind"] == "repro"
        ]
        assert {hit["ref_id"] for hit in group["hits"]} <= {ACCURACY_REPRO, COMPILE_REPRO}, words
    assert (
        f'href="/repros/{ACCURACY_REPRO}"' in client.get("/search?q=bad+accuracy&kind=repro").text
    )
    settings = client.get("/api/v1/search?q=isolate_fails_code_str&kind=repro").get_json()["data"][
        "groups"
    ]
    assert settings == []  # the same in every script: not indexed


def test_reports_have_a_run_s_repros(client: FlaskClient) -> None:
    rows = client.get(f"/api/v1/runs/{RUN}/repros").get_json()["data"]
    assert json.loads(client.get(f"/runs/{RUN}/report.json").data)["repros"] == rows
    table = list(
        csv.DictReader(io.StringIO(client.get(f"/runs/{RUN}/report.csv?table=repros").text))
    )
    assert [(row["id"], row["minimal_node_count"], row["operation"]) for row in table] == [
        (ACCURACY_REPRO, "1", "aten.atan.default"),
        (COMPILE_REPRO, "", "aten.relu.default"),
    ]
    body = client.get(f"/runs/{RUN}/report.parquet?table=repros").data
    frame = pyarrow.parquet.read_table(io.BytesIO(body))
    assert frame.column("node_count").to_pylist() == [5, 5]
    assert str(frame.schema.field("time_us").type) == "timestamp[us, tz=UTC]"


def test_a_message_is_shown_without_addresses_and_wrappers() -> None:
    text = (
        "backend='<function f at 0x7f12>' raised:\nTypeError: <object at 0x7f34ab> is "
        "odd\n\nSet TORCHDYNAMO_VERBOSE=1"
    )
    assert describe_message(text) == "TypeError: <object at 0x…> is odd"
    assert describe_message("backend='x' raised:\n") == "backend='x' raised:"
    assert describe_message("") == ""
