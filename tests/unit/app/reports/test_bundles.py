"""A run as one portable file: out of one database, into another, served by itself, and refused
where it is hostile.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

import compileboard
from compileboard.app.cli.main import main
from compileboard.app.core.settings import Settings
from compileboard.app.server.gunicorn_server import create_app
from compileboard.collectors.cli.main import main as collect
from compileboard.collectors.store.codec import measure_unpacked, pack, pack_large
from compileboard.collectors.store.connection import UNRELEASED_APPLICATION_IDS, open_writer
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.trash import delete_run
from tests.unit.app.seed import add_run


@pytest.fixture(scope="module")
def bundle(explored: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "run.bundle.db"
    assert (
        main(
            [
                "export",
                "--db",
                str(explored),
                "--run",
                find_id(explored),
                "--format",
                "bundle",
                "--output",
                str(path),
            ]
        )
        == 0
    )
    return path


def find_id(database: Path, name: str = "zoo_graph_breaks") -> str:
    with closing(sqlite3.connect(database)) as connection:
        (run_id,) = connection.execute("select id from runs where name = ?", (name,)).fetchone()
    return str(run_id)


def dump(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [
            line
            for line in connection.iterdump()
            if not line.startswith('INSERT INTO "search_runs"')
        ]


def serve(app: Flask, database: Path) -> FlaskClient:
    app.config["COMPILEBOARD"] = Settings(db=str(database))
    return app.test_client()


def read_api(client: FlaskClient, run_id: str) -> dict[str, object]:
    """Read every answer of the API about a run that its id alone asks for, and those of each
    compile and artifact.
    """
    paths = client.get("/api/v1/openapi.json").get_json()["paths"]
    names = [
        path.replace("{run_id}", run_id)
        for path in paths
        if path.startswith("/api/v1/runs/{run_id}")
    ]
    asked = [name for name in names if "{" not in name]
    for kind, key in (("compiles", "key"), ("artifacts", "artifact_id")):
        rows = client.get(f"/api/v1/runs/{run_id}/{kind}").get_json()["data"]
        assert rows and f"/api/v1/runs/{run_id}/{kind}/{{{key}}}" in names
        asked += [f"/api/v1/runs/{run_id}/{kind}/{row['id']}" for row in rows]
    return {name: client.get(name).get_json() for name in asked}


def test_every_answer_about_a_run_is_the_same_in_the_bundle_and_where_it_was_imported(
    explored: Path, bundle: Path, tmp_path: Path
) -> None:
    run_id, app = find_id(explored), create_app()
    other = tmp_path / "other.db"
    assert collect(["import", str(bundle), "--db", str(other)]) == 0
    before = read_api(serve(app, explored), run_id)
    assert (
        len(before) > 20
        and sum("error" not in answer for answer in before.values() if isinstance(answer, dict))
        > 15
    )
    for database in (bundle, other):
        after = read_api(serve(app, database), run_id)
        assert {name for name in before if before[name] != after[name]} == set(), database
    assert [run["id"] for run in compileboard.open(bundle).runs().to_dict("records")] == [run_id]


def test_the_same_run_makes_the_same_bundle_and_comes_once(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, again = tmp_path / "other.db", tmp_path / "again.bundle.db"
    assert collect(["import", str(bundle), "--db", str(other)]) == 0
    run_id, content = find_id(other), dump(other)
    assert collect(["import", str(bundle), "--db", str(other), "--progress-lines"]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (line["state"], line["run_id"], line["known_run"], line["record_count"]) == (
        "done",
        run_id,
        True,
        0,
    )
    assert dump(other) == content
    assert (
        main(
            [
                "export",
                "--db",
                str(other),
                "--run",
                run_id,
                "--format",
                "bundle",
                "--output",
                str(again),
            ]
        )
        == 0
    )
    assert dump(again) == dump(bundle)
    assert sorted(path.name for path in tmp_path.iterdir() if "bundle" in path.name) == [
        "again.bundle.db"
    ]


def test_a_run_goes_beside_others_under_its_own_id_and_stays_deleted_where_it_was(
    explored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both, other, team = (
        tmp_path / "both.bundle.db",
        find_id(explored, "zoo_recompiles"),
        tmp_path / "team.db",
    )
    ids = f"{find_id(explored)},{other}"
    assert (
        main(
            [
                "export",
                "--db",
                str(explored),
                "--run",
                ids,
                "--format",
                "bundle",
                "--output",
                str(both),
            ]
        )
        == 0
    )
    assert (
        collect(["import", str(explored), "--db", str(team)]) == 0
    )  # a whole database is a bundle too
    with closing(open_writer(team)) as store:
        delete_run(store, other)
    assert collect(["import", str(both), "--db", str(team)]) == 0
    assert "it was deleted from this database" in capsys.readouterr().err
    assert collect(["import", str(both), "--db", str(team), "--again"]) == 0
    app = create_app()
    assert read_api(serve(app, team), other) == read_api(serve(app, explored), other)
    with closing(sqlite3.connect(team)) as store:
        assert store.execute("pragma foreign_key_check").fetchall() == []


def add_trigger(store: sqlite3.Connection) -> None:
    store.execute("create trigger odd after insert on runs begin delete from runs; end")


def add_view(store: sqlite3.Connection) -> None:
    store.execute("create view odd as select load_extension('x')")


def add_table(store: sqlite3.Connection) -> None:
    store.execute("create table odd (a)")


def add_index(store: sqlite3.Connection) -> None:
    store.execute("create index odd on runs (upper(name))")


def add_column(store: sqlite3.Connection) -> None:
    store.execute("alter table runs add column odd text")


def add_bomb(store: sqlite3.Connection) -> None:
    store.execute("update payloads set body = ?", (pack_large(bytes(300 << 20)),))


def point_nowhere(store: sqlite3.Connection) -> None:
    store.execute("update compiles set function_id = 5")


def add_text(store: sqlite3.Connection) -> None:
    store.execute("update runs set command = ?", ("a" * (257 << 20),))


def become_newer(store: sqlite3.Connection) -> None:
    store.execute("pragma user_version = 99")


def become_unreleased(store: sqlite3.Connection) -> None:
    store.execute(f"pragma application_id = {UNRELEASED_APPLICATION_IDS[-1]}")


def become_another(store: sqlite3.Connection) -> None:
    store.execute("pragma application_id = 7")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (add_trigger, "has a trigger, which no bundle of CompileBoard has; it is refused."),
        (add_view, "has a view, which no bundle"),
        (add_table, "differs from a CompileBoard database in 'odd'; it is refused."),
        (add_index, "differs from a CompileBoard database in 'odd'"),
        (add_column, "differs from a CompileBoard database in 'runs'"),
        (add_bomb, "has a text of 268,435,456 bytes or more; it is refused."),
        (add_text, "hostile.db has a text of 268,435,456 bytes or more; it is refused."),
        (point_nowhere, "is damaged or cut off; send it again, or export it anew."),
        (become_newer, "has database version 99; this CompileBoard knows versions up to"),
        (become_another, "is an SQLite database of another program, not CompileBoard's."),
        (become_unreleased, "was made by an unreleased build of CompileBoard"),
    ],
)
def test_a_hostile_file_is_refused_and_changes_nothing(
    bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[sqlite3.Connection], None],
    sentence: str,
) -> None:
    hostile, team = tmp_path / "hostile.db", tmp_path / "team.db"
    shutil.copy(bundle, hostile)
    with closing(sqlite3.connect(hostile)) as store, store:
        change(store)
    migrate(team)
    before = dump(team)
    assert collect(["import", str(hostile), "--db", str(team)]) == 2
    assert sentence in capsys.readouterr().err
    assert dump(team) == before


def test_a_file_that_breaks_off_is_refused(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for size in (16, 100, 5_000, bundle.stat().st_size // 2):
        (tmp_path / "cut.db").write_bytes(bundle.read_bytes()[:size])
        assert (
            collect(["import", str(tmp_path / "cut.db"), "--db", str(tmp_path / "team.db")]) == 2
        ), size
        error = capsys.readouterr().err
        assert (
            size == 16 or "cut.db is damaged or cut off; send it again, or export it anew." in error
        ), (size, error)


def test_a_file_of_an_older_version_is_taken_as_its_migrated_self(
    bundle: Path, tmp_path: Path, migrate_to_next: Callable[[str], None]
) -> None:
    run_id, before = find_id(bundle), bundle.read_bytes()
    migrate_to_next("alter table runs add column next_fact text not null default 'old';")
    assert collect(["import", str(bundle), "--db", str(tmp_path / "team.db")]) == 0
    assert bundle.read_bytes() == before
    with closing(sqlite3.connect(tmp_path / "team.db")) as team:
        assert team.execute("select id, next_fact from runs").fetchall() == [(run_id, "old")]


def test_a_file_that_was_uploaded_is_called_by_its_own_name(
    bundle: Path, tmp_path: Path, capsys
) -> None:
    (tmp_path / "0001").write_bytes(bundle.read_bytes()[:5_000])
    names, team = tmp_path / "names.json", tmp_path / "team.db"
    names.write_text('{"0001": "from ann.db"}')
    migrate(team)
    asked = [
        "import",
        str(tmp_path / "0001"),
        "--db",
        str(team),
        "--names",
        str(names),
        "--progress-lines",
    ]
    assert collect(asked) == 2
    assert json.loads(capsys.readouterr().out)["message"].startswith(
        "from ann.db is damaged or cut off"
    )
    assert collect([*asked, "--name", "x"]) == 2
    assert json.loads(capsys.readouterr().out)["message"].startswith(
        "from ann.db is a bundle, which is taken as"
    )


def test_texts_are_measured_without_unpacking_them() -> None:
    for text in ("", "a", "é" * 70_000):
        assert measure_unpacked(pack(text), 1 << 30) == len(text.encode())
    assert (
        measure_unpacked(pack("a" * 9_000, primed=False), 100) == 100
        and measure_unpacked(b"?", 9) == 0
    )


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--output", "-"], "a bundle is a database, which stdout cannot take"),
        (["--output", "x.db", "--no-source"], "a bundle has all that was recorded, source too"),
        (["--output", "."], "cannot write .: it is a folder"),
        (["--output", "x.db", "--run", "nothing"], "there is no run 'nothing'"),
    ],
)
def test_what_cannot_be_a_bundle_says_why(
    explored: Path, capsys: pytest.CaptureFixture[str], more: list[str], sentence: str
) -> None:
    asked = [] if "--run" in more else ["--run", find_id(explored)]
    assert main(["export", "--db", str(explored), "--format", "bundle", *asked, *more]) == 2
    assert sentence in capsys.readouterr().err


def test_a_run_is_a_bundle_once_its_recorder_is_silent(
    database: Path, store: sqlite3.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_run(store, "A", state="running", heartbeat_us=time.time_ns() // 1000)
    add_run(store, "B", state="running")  # its machine was switched off
    asked = [
        "export",
        "--db",
        str(database),
        "--format",
        "bundle",
        "--output",
        str(tmp_path / "b.db"),
        "--run",
    ]
    assert main([*asked, "A"]) == 2
    assert "run A is still running; a bundle has whole runs" in capsys.readouterr().err
    assert main([*asked, "B"]) == 0 and find_id(tmp_path / "b.db", "train") == "B"


def test_a_page_of_a_run_sends_its_bundle(
    explored: Path, explored_client: FlaskClient, tmp_path: Path
) -> None:
    run_id = find_id(explored)
    assert f"/runs/{run_id}/report.bundle" in explored_client.get(f"/runs/{run_id}").text
    answer = explored_client.get(f"/runs/{run_id}/report.bundle")
    assert answer.headers["Content-Disposition"].endswith(".bundle.db")
    (tmp_path / "sent.db").write_bytes(answer.data)
    answer.close()
    assert find_id(tmp_path / "sent.db") == run_id
    assert explored_client.get(f"/runs/{run_id}/report.bundle?source=0").status_code == 400
    assert explored_client.get("/runs/nothing/report.bundle").status_code == 404
