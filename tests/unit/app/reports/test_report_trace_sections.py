"""A report's sections of torch's logs, over real ones: each text once, and as text."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from compileboard.app.artifacts.run_queries import PAYLOADS_SQL, STORED_TEXTS_SQL
from compileboard.app.cli.main import main
from compileboard.app.core.settings import Settings
from compileboard.app.reports.html import choose_texts, iterate_texts
from compileboard.collectors.store.codec import pack
from compileboard.collectors.store.connection import checkpoint, open_writer
from tests.unit.app.hostile import BAD, FORMULA
from tests.unit.app.plan import assert_no_scan
from tests.unit.app.recorded import RUN, record_run

SECTIONS = ("timeline", "stacks", "guards", "aot", "directory")


def _find(reader: sqlite3.Connection, name: str) -> str:
    return str(reader.execute("select id from runs where name = ?", (name,)).fetchone()["id"])


def _ids(page: str) -> list[str]:
    return re.findall(r'<section class="panel" id="([\w-]+)"', page)


def test_html_has_a_section_of_what_there_is(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    page = explored_client.get(f"/runs/{_find(explored_reader, 'zoo_recompiles')}/report.html").text
    ids = _ids(page)
    assert set(SECTIONS) <= set(ids) and "divergence" not in ids and "texts" not in ids
    toc = page[page.index('class="report__toc"') : page.index("</nav>")]
    assert [
        link for link in re.findall(r'href="#([\w-]+)"', toc) if f'id="{link}"' not in page
    ] == []
    assert "style=" not in page[page.index("<main") : page.index("</main>")]
    assert page.count("<rect class=") > 50 and "dynamo_output_graph" in page


def test_a_plain_runs_report_has_none_of_it(client: FlaskClient, store: sqlite3.Connection) -> None:
    record_run(store)
    store.execute("update compiles set stack_id = null")
    store.execute("delete from stack_nodes")
    page = client.get(f"/runs/{RUN}/report.html").text
    assert not {*SECTIONS, "shapes", "rejects", "ranks", "texts"} & set(_ids(page)), _ids(page)
    assert ".directory__entry" not in page
    assert "HTML report with graphs and code" not in client.get(f"/runs/{RUN}").text


def test_the_ranks_sentence_leads(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    run = _find(explored_reader, "train_ddp")
    page, text = (
        explored_client.get(f"/runs/{run}/report.{format}").text for format in ("html", "md")
    )
    for rendering in (page, text):
        assert "Rank 1 recompiled" in rendering and "compiled nothing after" in rendering
    assert _ids(page)[:3] == ["fixes", "divergence", "ranks"]
    assert "### Ranks" in text and "because" in text


def test_texts_are_there_once_and_every_link_leads_to_one(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    run = _find(explored_reader, "zoo_recompiles")
    assert "HTML report with graphs and code" in explored_client.get(f"/runs/{run}").text
    page = explored_client.get(f"/runs/{run}/report.html?payloads=yes").text
    anchors, links = re.findall(r'id="text-(\d+)"', page), re.findall(r'href="#text-(\d+)"', page)
    sql = "select count(distinct payload_id) as n from artifacts where run_id = ?"
    assert len(anchors) == len(set(anchors)) == explored_reader.execute(sql, (run,)).fetchone()["n"]
    assert set(links) <= set(anchors) and len(links) > len(set(links))
    assert "async_compile" in page


def test_texts_that_would_make_it_too_large_are_left_out(
    explored_reader: sqlite3.Connection,
) -> None:
    run = _find(explored_reader, "zoo_recompiles")
    whole, some = choose_texts(explored_reader, run), choose_texts(explored_reader, run, 20_000)
    assert 0 < some.text_bytes <= 20_000
    assert (len(some.texts) + some.left_count, some.text_bytes + some.left_bytes) == (
        len(whole.texts),
        whole.text_bytes,
    )
    assert (
        sum(len((text or "").encode()) for _it, text in iterate_texts(explored_reader, whole))
        == whole.text_bytes
    )


def test_texts_are_found_without_a_scan(explored_reader: sqlite3.Connection) -> None:
    assert_no_scan(explored_reader, STORED_TEXTS_SQL, {"run_id": "x", "limit": 1})
    assert_no_scan(explored_reader, PAYLOADS_SQL, {"ids": "[1, 2]", "limit": 2})


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("html?payloads=yes&source=0", "source=0"),
        ("json?payloads=yes", "no texts"),
        ("html?payloads=1", "not one of"),
    ],
)
def test_texts_are_refused_where_they_cannot_be(
    explored_client: FlaskClient, query: str, word: str
) -> None:
    run = explored_client.get("/api/v1/runs").get_json()["data"][0]["id"]
    answer = explored_client.get(f"/runs/{run}/report.{query}")
    assert (answer.status_code, word in answer.text) == (400, True)


def test_json_has_the_rows_of_the_api(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    run = _find(explored_reader, "train_ddp")
    report = json.loads(explored_client.get(f"/runs/{run}/report.json").data)
    api = f"/api/v1/runs/{run}"
    assert report["guards"] == explored_client.get(f"{api}/guards?limit=200").get_json()["data"]
    assert report["ranks"] == explored_client.get(f"{api}/ranks").get_json()["data"]
    assert report["aot"] == explored_client.get(f"{api}/aot?limit=200").get_json()["data"]["graphs"]
    for key in ("artifacts", "spans_by_name", "stacks", "symbols", "caches", "rejects"):
        assert isinstance(report[key], list), key
    assert all("text" not in artifact for artifact in report["artifacts"])


def test_rejects_are_in_every_form(explored: Path, tmp_path: Path, shared_app: Flask) -> None:
    client, run = _spoiled(explored, tmp_path, shared_app)
    page, text = (client.get(f"/runs/{run}/report.{format}").text for format in ("html", "md"))
    assert (
        "rejects" in _ids(page)
        and "a line that is not a record" in page
        and "a line that is not a record" in text
    )
    rows = list(
        csv.DictReader(io.StringIO(client.get(f"/runs/{run}/report.csv?table=rejects").text))
    )
    assert [(row["kind"], row["count"], row["example"]) for row in rows] == [
        ("stray_line", "3", f"'{FORMULA}")
    ]


def _spoiled(explored: Path, folder: Path, app: Flask) -> tuple[FlaskClient, str]:
    """Copy the logs' database, and let names, texts and rejects of a run be hostile."""
    path = folder / "spoiled.db"
    shutil.copy(explored, path)
    with closing(open_writer(path)) as store, store:
        run = _find(store, "zoo_recompiles")
        bad, body = {"run": run, "bad": BAD}, f"\n</pre></details></script>{BAD}"
        store.execute(
            "update stack_nodes set name = :bad, file = :bad, code = :bad where run_id = :run", bad
        )
        store.execute("update artifacts set title = :bad where run_id = :run", bad)
        store.execute("update span_names set name = :bad || id", {"bad": BAD})
        store.execute(
            "update guard_sets set summary = json_object('kinds', json_object(:bad, 1))",
            {"bad": BAD},
        )
        store.execute("update payloads set body = :body", {"body": pack(body)})
        process = store.execute("select process_id from logs where run_id = ?", (run,)).fetchone()[
            "process_id"
        ]
        row = {"process": process, "example": FORMULA}
        store.execute(
            "insert into log_rejects values (:process, 'stray_line', 3, 7, :example)", row
        )
    with closing(open_writer(path)) as store:
        checkpoint(store)
    app.config["COMPILEBOARD"] = Settings(db=str(path))
    return app.test_client(), run


def test_hostile_names_and_texts_stay_text(
    explored: Path, tmp_path: Path, shared_app: Flask
) -> None:
    client, run = _spoiled(explored, tmp_path, shared_app)
    page = client.get(f"/runs/{run}/report.html?payloads=yes").text
    assert "<img" not in page and "<script>alert" not in page
    assert page.count("</pre>") == page.count("<pre") and page.count("</details>") == page.count(
        "<details"
    )
    assert "&lt;/pre&gt;&lt;/details&gt;&lt;/script&gt;" in page
    table = client.get(f"/runs/{run}/report.csv?table=spans_by_name").text
    assert not [
        row
        for row in csv.reader(io.StringIO(table))
        for cell in row
        if cell.startswith(("=", "@", "+"))
    ]


def test_export_writes_texts_when_asked(
    explored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(open_writer(explored)) as store:
        run = _find(store, "zoo_graph_breaks")
    fixed = [
        "export",
        "--db",
        str(explored),
        "--run",
        run,
        "--output",
        str(tmp_path / "report.html"),
        "--format",
    ]
    assert main([*fixed, "html", "--payloads"]) == 0
    assert 'id="texts"' in (tmp_path / "report.html").read_text()
    assert main([*fixed, "json", "--payloads"]) == 2
    assert main([*fixed, "html", "--payloads", "--no-source"]) == 2
    assert capsys.readouterr().err.count("compileboard: --payloads") == 2
