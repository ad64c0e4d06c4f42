"""`compileboard.open`: what it reads, what it refuses, what it draws."""

from __future__ import annotations

import inspect
import re
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest
from flask.testing import FlaskClient

import compileboard
from compileboard.app.compiles.run_queries import CompileRow
from compileboard.app.core.page import FilterError
from compileboard.app.notebook.board import Board
from compileboard.app.notebook.data_frames import (
    OTHER,
    TruncatedFrameWarning,
    list_columns,
    make_frame,
)
from compileboard.app.notebook.drawings import NothingToDraw
from compileboard.collectors.store.connection import (
    NotAStore,
    StoreMissing,
    StoreNeedsMigration,
    open_writer,
)
from tests.unit.app.benched import BREAK_ID, HOSTILE, RUNS
from tests.unit.app.clickhouse.published import board_on_both_engines
from tests.unit.app.hostile import MARKUP
from tests.unit.app.hostile import RUN as HOSTILE_RUN
from tests.unit.app.recorded import RUN, record_run
from tests.unit.app.seed import add_run


@board_on_both_engines
def test_filters_are_those_of_the_api(board: Board, client: FlaskClient) -> None:
    for query, keywords in (
        ({"suite": "bench_models"}, {"suite": "bench_models"}),
        (
            {"since": "2026-01-01", "until": "2026-12-31"},
            {"since": date(2026, 1, 1), "until": "2026-12-31"},
        ),
        (
            {"since": "2026-01-01T00:00:00+00:00"},
            {"since": datetime(2026, 1, 1, tzinfo=timezone.utc)},
        ),
        ({"sort": "compiles"}, {"sort": "compiles"}),
        ({"name": "none such"}, {"name": "none such", "host": None}),
    ):
        answer: Any = client.get("/api/v1/runs", query_string=query).json
        assert board.runs(**keywords)["id"].tolist() == [run["id"] for run in answer["data"]]


@board_on_both_engines
@pytest.mark.parametrize(
    ("path", "query", "read"),
    [
        ("runs", {"since": "soon"}, lambda board: board.runs(since="soon")),
        ("runs", {"state": "gone"}, lambda board: board.runs(state="gone")),
        ("models", {"status": "bad"}, lambda board: board.models(status="bad")),
        ("graph_breaks", {"sort": "best"}, lambda board: board.graph_breaks(sort="best")),
        ("trend", {"metric": "luck"}, lambda board: board.trend("luck")),
        ("trend", {"break": "1", "function": "1"}, lambda board: board.trend(break_=1, function=1)),
        ("compare", {"base": "nothing", "new": "x"}, lambda board: board.compare("nothing", "x")),
    ],
)
def test_a_keyword_that_cannot_be_used_is_refused_in_the_api_s_words(
    board: Board, client: FlaskClient, path: str, query: dict[str, str], read: Any
) -> None:
    with pytest.raises(FilterError) as refused:
        read(board)
    answer: Any = client.get(f"/api/v1/{path}", query_string=query).json
    assert answer["error"] == str(refused.value)


def test_an_unknown_keyword_names_those_that_there_are(board: Board) -> None:
    with pytest.raises(FilterError, match="nme: there is no such filter; known are q, name, suite"):
        board.runs(nme="x")
    with pytest.raises(FilterError) as refused:
        board.compiles(nme="x")
    names = str(refused.value).partition("known are ")[2].split(", ")
    assert len(names) == len(set(names)) and {"run", "suite", "outcome"} <= set(names)
    with pytest.raises(FilterError, match=r"suite: \['a', 'b'\] is several values; expected one"):
        board.runs(suite=["a", "b"])
    for limit in (0, True, "5", None):
        with pytest.raises(FilterError, match=f"limit: {limit!r} is not a whole number from 1"):
            board.runs(limit=limit)


@board_on_both_engines
def test_what_is_not_there_is_a_lookup_error_in_the_api_s_words(
    board: Board, client: FlaskClient
) -> None:
    for path, read in (
        ("runs/NONE", lambda: board.run("NONE")),
        ("runs/5", lambda: board.run(5)),  # type: ignore[arg-type]
        ("incidents/none", lambda: board.incident("none")),
        ("incidents/5", lambda: board.incident(5)),  # type: ignore[arg-type]
        ("graph_breaks/5", lambda: board.graph_break(5)),  # type: ignore[arg-type]
        ("models?run=NONE", lambda: board.models(run="NONE")),
        ("trend?break=99", lambda: board.trend(break_=99)),
    ):
        with pytest.raises(LookupError) as missing:
            read()
        answer: Any = client.get(f"/api/v1/{path}").json
        assert answer["error"] == missing.value.args[0]
    with pytest.raises(LookupError, match="There is no model none"):
        board.model("none")
    with pytest.raises(LookupError, match="has no compile number 99999"):
        board.run(RUN).phases_figure(99999)


@board_on_both_engines
def test_a_run_is_named_by_the_beginning_of_its_id_or_as_the_latest(board: Board) -> None:
    assert board.run(RUN[:20]).id == RUN
    assert board.run().id == board.run("latest").id == board.runs()["id"][0]
    with pytest.raises(FilterError, match="'01' fits several runs"):
        board.run("01")
    assert set(board.compiles(run="latest")["run_id"]) == {board.run().id}


def test_a_frame_that_is_cut_says_so(board: Board) -> None:
    whole = board.compiles()
    assert not whole.attrs["is_cut"]
    for method, count in (
        (board.compiles, 3),
        (board.compiles, len(whole) - 1),
        (board.runs, 2),
        (board.models, 2),
    ):
        with pytest.warns(
            TruncatedFrameWarning, match=rf"these are the first {count} rows; there are more"
        ) as warned:
            frame = method(limit=count)
        assert len(frame) == count and frame.attrs["is_cut"]
        assert warned[0].filename == __file__
    assert not board.compiles(limit=len(whole)).attrs["is_cut"]


def test_pages_are_followed_to_the_end(store: sqlite3.Connection, database: Path) -> None:
    for number in range(1001):
        add_run(store, f"R{number:05d}", started_us=number)
    with compileboard.open(database) as board:
        assert board.runs()["id"].is_unique and len(board.runs()) == 1001
        assert len(board.compiles()) == 0


def test_a_board_sees_what_a_recorder_writes_and_never_writes(
    store: sqlite3.Connection, database: Path
) -> None:
    board = compileboard.open(database)
    assert len(board.runs()) == 0
    record_run(store)
    assert board.runs()["id"].tolist() == [RUN] and len(board.run().compiles()) == 4
    with board.reading() as opened, pytest.raises(sqlite3.OperationalError, match="readonly"):
        opened.board.execute("delete from runs")
    with closing(open_writer(database)) as writer:  # nothing of the board's is in its way
        writer.execute("begin exclusive")
        writer.execute("rollback")


def test_threads_share_a_board(board: Board) -> None:
    expected = board.compiles()
    with ThreadPoolExecutor(8) as pool:
        for frame in pool.map(lambda _number: board.compiles(), range(24)):
            pd.testing.assert_frame_equal(frame, expected)


def test_a_closed_board_reads_no_more(filled: Path) -> None:
    with compileboard.open(str(filled)) as board:
        assert len(board.runs()) and repr(board) == f"<Board {str(filled)!r}>"
    with pytest.raises(
        ValueError, match=re.escape(f"this board is closed; compileboard.open({str(filled)!r})")
    ):
        board.runs()
    assert "closed" in repr(board)


def test_what_is_no_database_is_refused_at_once(tmp_path: Path, database: Path) -> None:
    with pytest.raises(
        StoreMissing, match=r"There is no database at .*none.db. `compileboard migrate --db "
    ):
        compileboard.open(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    for path, problem in (
        ("", "expected a path"),
        (tmp_path / "none" / "x.db", "there is no folder .*none"),
    ):
        with pytest.raises(StoreMissing, match=f"There is no database at .*: {problem}"):
            compileboard.open(path)
    (tmp_path / "text.db").write_text("text" * 1000)
    with pytest.raises(NotAStore, match=r"text.db is not a CompileBoard database"):
        compileboard.open(tmp_path / "text.db")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("pragma user_version = 0")
    with pytest.raises(StoreNeedsMigration, match=r"Run `compileboard migrate --db .*`"):
        compileboard.open(database)


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    for name in ("pandas", "plotly", "numpy"):
        code = (
            f"import sys; sys.modules[{name!r}] = None; import compileboard; "
            "compileboard.open('t.db')"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )
        message = (
            f"ImportError: {name} is not installed; pip install 'compileboard[server]', which "
            "reads databases"
        )
        assert done.stderr.splitlines()[-1] == message


def test_help_says_what_a_method_takes_and_gives(board: Board) -> None:
    assert list(inspect.signature(board.runs).parameters)[-2:] == ["sort", "limit"]
    assert "run" in inspect.signature(board.compiles).parameters
    text = inspect.getdoc(board.runs) or ""
    assert "suite: A run's suite, whole; else" in text
    assert "duration_us (Int64): From start to end" in text
    assert "started (datetime64[us, UTC]): Start." in text


def test_values_of_another_type_are_kept_beside_the_columns() -> None:
    row: dict[str, Any] = {column.path[0]: None for column in list_columns(CompileRow)}
    rows = [
        row | {"id": 1, "line": 2**70},
        row | {"id": 2, "line": "x", "started_us": 2**62},
        row | {"id": 3},
    ]
    frame = make_frame(list_columns(CompileRow), rows)
    assert (
        frame["line"].isna().all()
        and frame["started"].isna().all()
        and frame["id"].tolist() == [1, 2, 3]
    )
    assert frame[OTHER][0] == '{"line":"1180591620717411303424"}' and frame[
        OTHER
    ].isna().tolist() == [
        False,
        False,
        True,
    ]


FIGURES: dict[str, Any] = {
    "trend": lambda board: board.trend("speedup", suite="bench_models").figure(),
    "trend of a model": lambda board: board.trend(
        "compilation_latency_s", model="GPT2x4", axis="torch"
    ).figure(),
    "trend of a hostile model": lambda board: board.trend(model=HOSTILE).figure(),
    "trend of a break": lambda board: board.trend(break_=BREAK_ID).figure(),
    "comparison": lambda board: board.compare(RUNS[0], RUNS[1]).figure(),
    "comparison of a metric": lambda board: board.compare(RUNS[0], RUNS[1]).figure(
        "compilation_latency_s"
    ),
    "graph breaks": lambda board: board.graph_breaks_figure(),
    "recompiles": lambda board: board.recompiles_figure(suite="captures"),
    "graph break": lambda board: board.graph_break(
        board.graph_breaks(suite="bench_models")["id"][0]
    ).figure(),
    "recompile": lambda board: board.recompile(
        board.recompiles(suite="bench_models")["id"][0]
    ).figure(),
    "compiles": lambda board: board.run(RUN).compiles_figure(),
    "compiles of a hostile run": lambda board: board.run(HOSTILE_RUN).compiles_figure(),
    "phases": lambda board: board.run(RUN).phases_figure(board.run(RUN).compiles()["id"][0]),
    "guards": lambda board: board.run(board.runs(name="zoo_recompiles")["id"][0]).guards_figure(),
    "ranks": lambda board: board.run(board.runs(name="train_ddp")["id"][0]).ranks_figure(),
    "incident": lambda board: board.incident(board.incidents(model="Breaky")["id"][0]).figure(),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_draw_without_a_page(board: Board, name: str) -> None:
    figure = FIGURES[name](board)
    assert isinstance(figure, go.Figure) and figure.layout.title.text
    assert " opens " not in (figure.layout.title.subtitle.text or "")  # as a bar of a page does
    drawn = [trace for trace in figure.data if trace.x is not None and len(trace.x)]
    assert drawn and all("color" not in (trace.meta or {}) for trace in figure.data)
    html = figure.to_html(include_plotlyjs=False)
    assert MARKUP not in html and "<img" not in html and "onclick=x>" not in html


def test_sets_of_figures_have_a_title_each(board: Board) -> None:
    for figures in (board.overview_figures(), board.model("GPT2x4").figures()):
        assert len(figures) >= 4
        assert [figure.layout.title.text for figure in figures.values()] == list(figures)
    assert board.overview_figures(name="none such") == {}


@board_on_both_engines
def test_a_trend_draws_the_values_of_its_frame(board: Board, client: FlaskClient) -> None:
    trend = board.trend("speedup", suite="bench_models")
    answer: Any = client.get("/api/v1/trend?metric=speedup&suite=bench_models").json
    frame, points = (
        trend.frame(),
        [point for series in answer["data"]["series"] for point in series["points"]],
    )
    assert frame["value"].tolist() == [point["value"] for point in points]
    assert frame["run_id"].tolist() == [point["run_id"] for point in points]
    (line,) = [trace for trace in trend.figure().data if trace.name]
    assert list(line.y) == pytest.approx(frame["value"].tolist(), rel=1e-4)
    assert [pd.Timestamp(at, unit="ms", tz="UTC") for at in line.x] == frame["started"].tolist()
    assert line.line.color.startswith("#")


@board_on_both_engines
def test_a_comparison_has_the_api_s_verdicts(board: Board, client: FlaskClient) -> None:
    compared = board.compare(RUNS[0], RUNS[2])
    answer: Any = client.get(f"/api/v1/compare?base={RUNS[0]}&new={RUNS[2]}").json["data"]  # type: ignore[index]
    rows = {
        (model["model"], name): delta
        for model in answer["models"]
        for name, delta in model["metrics"].items()
    }
    frame = compared.frame()
    assert len(frame) == len(rows) > 20
    for row in frame.itertuples():
        assert (row.base, row.new, row.verdict) == tuple(
            rows[row.model, row.metric][key] for key in ("base", "new", "verdict")
        )
    assert str(frame["verdict"].dtype) == "category"
    for name in ("models", "metrics", "functions", "environment"):
        assert len(getattr(compared, name)()) == len(answer[name])
    for name in ("graph_breaks", "recompile_causes", "rerecording_reasons"):
        assert len(getattr(compared, name)()) == len(answer[name]["changes"])
    assert compared.refused == answer["refused"] and compared.warnings == answer["warnings"]


@board_on_both_engines
def test_a_model_has_the_api_s_points(board: Board, client: FlaskClient) -> None:
    answer: Any = client.get("/api/v1/models/GPT2x4").json["data"]  # type: ignore[index]
    points = [point["speedup"] for series in answer["series"] for point in series["points"]]
    assert board.model("GPT2x4").frame()["speedup"].tolist() == points
    assert (
        len(board.model("GPT2x4", world_size=1, dynamic=False, run=RUNS[0]).screen.selected.points)
        == 3
    )
    assert board.model("GPT2x4", run=RUNS[0]).screen.point.row.run_id == RUNS[0]
    for series in ({"dtype": "float16"}, {"dynamic": True}, {"run": "none"}):
        with pytest.raises(LookupError, match=r"was never measured so|has no result of this model"):
            board.model("GPT2x4", **series)
    with pytest.raises(
        FilterError, match="dtyp: there is no such filter; known are suite, mode, dtype"
    ):
        board.model("GPT2x4", dtyp="float16")


def test_what_has_nothing_to_draw_says_so(board: Board, database: Path) -> None:
    with pytest.raises(NothingToDraw, match="This run has fewer than two ranks"):
        board.run(RUN).ranks_figure()
    with compileboard.open(database) as empty:
        for read in (
            empty.graph_breaks_figure,
            empty.recompiles_figure,
            lambda: empty.trend().figure(),
        ):
            with pytest.raises(NothingToDraw):
                read()
        with pytest.raises(LookupError, match="There is nothing to compare with"):
            empty.compare()
        with pytest.raises(LookupError, match="there is no run in this database; record one"):
            empty.run()


def test_a_run_shows_itself_and_hostile_text_is_text(board: Board) -> None:
    run = board.run(HOSTILE_RUN)
    html = run._repr_html_()
    assert "<img" not in html and "&lt;img src=x" in html
    assert repr(run) == f"<run {HOSTILE_RUN} of {board.path!r}>"
    assert board.run(RUN).detail.compile_count == len(board.run(RUN).compiles())
    assert (run.compiles()["function"].str.contains(MARKUP, regex=False)).any()


@board_on_both_engines
def test_a_trend_marks_the_changes_of_its_series(board: Board, client: FlaskClient) -> None:
    trend = board.trend("speedup", model="Breaky")
    incidents = board.incidents(model="Breaky", metric="speedup", state="any", status="any")
    assert {change.incident_id for change in trend.changes} <= set(
        incidents["id"]
    ) and trend.changes
    assert len(board.incident(incidents["id"][0]).frame()) == incidents["change_count"][0]
    marks = [
        text
        for trace in trend.figure().data
        if trace.yaxis == "y2"
        for text in trace.hovertext or ()
    ]
    page = client.get("/trends?model=Breaky&metric=speedup&suite=bench_models").text
    assert marks and all(text.partition(":")[0] in page for text in marks)
    assert board.trend(break_=BREAK_ID).changes == []


@board_on_both_engines
def test_a_graph_break_and_a_cause_have_the_api_s_history(
    board: Board, client: FlaskClient
) -> None:
    for path, frame, get_reason in (
        ("graph_breaks", board.graph_breaks(), board.graph_break),
        ("recompiles", board.recompiles(), board.recompile),
    ):
        reason = get_reason(frame["id"][0])
        answer: Any = client.get(f"/api/v1/{path}/{frame['id'][0]}").json["data"]  # type: ignore[index]
        assert reason.frame()["count"].tolist() == [point["count"] for point in answer["history"]]
        assert (reason.detail.reason, reason.detail.run_count) == (
            answer["reason"],
            answer["run_count"],
        )
        with pytest.raises(
            LookupError, match=r"There is no (graph break|cause of recompiles) none"
        ):
            get_reason("none")
