"""Pages of artifacts over whole logs: texts, missing and hostile ones, two compared, changes."""

from __future__ import annotations

import sqlite3

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.artifacts import artifact_labels as labels
from compileboard.app.artifacts import model as changes
from compileboard.app.artifacts.artifact_labels import NAMES, STATES, break_call, guess_language
from compileboard.collectors.store.codec import pack_large
from tests.unit.app.artifacts.recorded_texts import artifacts as recorded_texts
from tests.unit.app.hostile import MARKUP
from tests.unit.app.seed import add_run, insert


def _run(reader: sqlite3.Connection, name: str = "zoo_recompiles") -> str:
    return str(reader.execute("select id from runs where name = ?", (name,)).fetchone()[0])


def _find_id(reader: sqlite3.Connection, compile_id: str, name: str = "dynamo_output_graph") -> int:
    sql = (
        "select id from artifacts where run_id = ? and compile_id = ? and name = ? order by "
        "sequence"
    )
    return int(reader.execute(sql, (_run(reader), compile_id, name)).fetchone()[0])


def _add(store: sqlite3.Connection, text: str | None = None, **values: object) -> str:
    if not store.execute("select 1 from runs").fetchone():
        add_run(store, "R")
    payload = None
    if text is not None:
        body = pack_large(text.encode())
        payload = insert(
            store, "payloads", digest=str(hash(text)).encode()[:16], size_bytes=len(text), body=body
        )
    given = {
        "process_id": "p",
        "sequence": 1,
        "name": "x",
        "encoding": "string",
        "state": "kept",
        "time_us": 1,
    }
    number = insert(store, "artifacts", run_id="R", payload_id=payload, **given | values)
    store.commit()
    return f"/runs/R/artifacts/{number}"


def test_page_has_text_lines_names_and_neighbours(
    explored_client: FlaskClient, explored_reader
) -> None:
    run_id, number = _run(explored_reader), _find_id(explored_reader, "0/1")
    page = explored_client.get(f"/runs/{run_id}/artifacts/{number}").text
    assert NAMES["dynamo_output_graph"][1] in page
    assert 'id="L2"' in page and 'href="#L2"' in page
    assert "sizes · l_x_" in page and "8 × 32" in page
    older, newer = _find_id(explored_reader, "0/0"), _find_id(explored_reader, "0/2")
    for a, b in ((older, number), (number, newer)):
        assert f"/runs/{run_id}/artifacts/diff?a={a}&amp;b={b}" in page
    assert 'rel="next"' in page


def test_raw_text_is_plain_and_may_be_saved(explored_client: FlaskClient, explored_reader) -> None:
    address = f"/runs/{_run(explored_reader)}/artifacts/{_find_id(explored_reader, '0/0')}/raw"
    shown, saved = explored_client.get(address), explored_client.get(f"{address}?download=1")
    assert shown.text.startswith("class GraphModule")
    assert shown.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert shown.headers["X-Content-Type-Options"] == "nosniff"
    assert shown.headers["Content-Disposition"].startswith("inline")
    assert saved.headers["Content-Disposition"].startswith("attachment")


def test_an_aot_graph_is_saved_as_a_program(explored_client: FlaskClient, explored_reader) -> None:
    run_id, number = _run(explored_reader), _find_id(explored_reader, "0/0", "aot_forward_graph")
    address = f"/runs/{run_id}/artifacts/{number}"
    assert f'href="{address}/program"' in explored_client.get(address).text
    saved = explored_client.get(f"{address}/program")
    assert (
        saved.headers["Content-Disposition"]
        == f'attachment; filename="aot_forward_graph_{number}.py"'
    )
    compile(saved.text, "program", "exec")
    assert "aot_graph_input_parser" in saved.text
    other = f"/runs/{run_id}/artifacts/{_find_id(explored_reader, '0/0')}"
    assert "/program" not in explored_client.get(other).text
    assert explored_client.get(f"{other}/program").status_code == 404


@pytest.mark.parametrize("state", sorted(set(STATES) - {"kept"}))
def test_a_text_that_is_not_there_is_explained(
    client: FlaskClient, store: sqlite3.Connection, state: str
) -> None:
    address = _add(store, state=state)
    assert STATES[state].meaning in client.get(address).text.replace("&#39;", "'")
    raw = client.get(f"{address}/raw")
    assert raw.status_code == 404 and "has no text" in raw.text
    diff = client.get(
        f"/runs/R/artifacts/diff?a={address.rpartition('/')[2]}&b={address.rpartition('/')[2]}"
    )
    assert "one is not there" in diff.text


def test_hostile_text_stays_text(client: FlaskClient, store: sqlite3.Connection) -> None:
    values = {
        "name": MARKUP,
        "title": MARKUP,
        "metadata": '{"<b>": {"<i>": "<img src=x>"}}',
        "compile_id": MARKUP,
    }
    first = _add(store, MARKUP, **values)
    second = _add(store, MARKUP + "\n<script>", sequence=2, **values)
    a, b = (address.rpartition("/")[2] for address in (first, second))
    for address in (
        first,
        f"/runs/R/artifacts/diff?a={a}&b={b}",
        f"/runs/R/artifacts/diff?a={a}",
        "/runs/R/directory",
    ):
        page = client.get(address)
        assert page.status_code == 200
        assert (
            "<img" not in page.text
            and "<script>" not in page.text
            and "onerror=alert(1)&gt;" in page.text
        )


@pytest.mark.parametrize("number", ["0", "x", "-1", "9" * 30, "1%0A"])
def test_unknown_artifacts_are_404(
    explored_client: FlaskClient, explored_reader, number: str
) -> None:
    for more in ("", "/raw"):
        answer = explored_client.get(f"/runs/{_run(explored_reader)}/artifacts/{number}{more}")
        assert answer.status_code == 404 and "has no artifact number" in answer.text


def test_an_artifact_is_shown_under_its_own_run_only(
    explored_client: FlaskClient, explored_reader
) -> None:
    other, number = _run(explored_reader, "zoo_graph_breaks"), _find_id(explored_reader, "0/0")
    assert explored_client.get(f"/runs/{other}/artifacts/{number}").status_code == 404
    assert explored_client.get(f"/api/v1/runs/{other}/artifacts/{number}").status_code == 404
    mine = explored_reader.execute(
        "select min(id) from artifacts where run_id = ? and state = 'kept'", (other,)
    )
    page = explored_client.get(f"/runs/{other}/artifacts/diff?a={mine.fetchone()[0]}&b={number}")
    assert page.status_code == 200 and "(different runs)" in page.text


def test_a_very_long_text_shows_its_beginning(
    client: FlaskClient, store: sqlite3.Connection, monkeypatch
) -> None:
    monkeypatch.setattr(labels, "SHOWN_CHARS", 1000)
    address = _add(store, "\n".join(f"line {number}" for number in range(1000)))
    page = client.get(address).text
    assert "This is the beginning" in page and "line 50<" in page and "line 500<" not in page
    assert client.get(f"{address}/raw").text.endswith("line 999")


def test_diff_says_what_changed_and_swaps(explored_client: FlaskClient, explored_reader) -> None:
    run_id, a, b = (
        _run(explored_reader),
        _find_id(explored_reader, "0/0"),
        _find_id(explored_reader, "0/1"),
    )
    page = explored_client.get(f"/runs/{run_id}/artifacts/diff?a={a}&b={b}").text
    assert "4 lines changed" in page and "<del>" in page
    assert f"/artifacts/diff?a={b}&amp;b={a}" in page
    assert (
        "The texts are the same."
        in explored_client.get(f"/runs/{run_id}/artifacts/diff?a={a}&b={a}").text
    )
    key = explored_reader.execute(
        "select compile_key from artifacts where id = ?", (b,)
    ).fetchone()[0]
    assert (
        "4 lines changed"
        in explored_client.get(f"/runs/{run_id}/artifacts/diff?a={a}&against={key}").text
    )


@pytest.mark.parametrize(
    ("query", "status"),
    [("", 400), ("a=x", 400), ("a=999999&b=999998", 404), ("a={a}&against=77777", 404)],
)
def test_a_bad_comparison_is_refused(
    explored_client: FlaskClient, explored_reader, query: str, status: int
) -> None:
    given = query.format(a=_find_id(explored_reader, "0/0"))
    for position in ("", "/api/v1"):
        if "against" not in query or not position:
            answer = explored_client.get(
                f"{position}/runs/{_run(explored_reader)}/artifacts/diff?{given}"
            )
            assert answer.status_code == status, answer.text


def test_changes_of_a_recompile_have_guards_graph_and_code(
    explored_client: FlaskClient, explored_reader
) -> None:
    run_id = _run(explored_reader)
    rows = explored_reader.execute(
        "select compile_id, id from compiles where run_id = ?", (run_id,)
    )
    keys = {row["compile_id"]: row["id"] for row in rows}
    page = explored_client.get(f"/runs/{run_id}/compiles/{keys['0/1']}/changes").text
    for part in (
        'id="why"',
        'id="guards"',
        'id="graph"',
        'id="code"',
        "2 guards changed",
        "4 lines changed",
    ):
        assert part in page, part
    first = explored_client.get(f"/runs/{run_id}/compiles/{keys['0/0']}/changes").text
    assert "first compile of its function" in first
    compile_page = explored_client.get(f"/runs/{run_id}/compiles/{keys['0/1']}").text
    assert f"/runs/{run_id}/compiles/{keys['0/1']}/changes" in compile_page


def test_long_texts_are_compared_on_their_own_page(
    explored_client: FlaskClient, explored_reader, monkeypatch
) -> None:
    monkeypatch.setattr(changes, "TOGETHER_CHARS", 100)
    run_id = _run(explored_reader)
    key = explored_reader.execute(
        "select compile_key from artifacts where id = ?", (_find_id(explored_reader, "0/1"),)
    )
    page = explored_client.get(f"/runs/{run_id}/compiles/{key.fetchone()[0]}/changes").text
    assert "Too long to be compared here" in page and "Compare on its own page" in page


@pytest.mark.parametrize("name", sorted(recorded_texts()))
def test_language_is_found_by_content(name: str) -> None:
    text = recorded_texts()[name]
    language = guess_language("", text)
    assert language == ("cpp" if text.startswith("#include") else language)
    assert guess_language("inductor_output_code", '#include "x.h"\nint a;') == "cpp"
    assert guess_language("anything", '{"a": 1}') == "json"


def test_a_long_call_is_laid_out_over_lines() -> None:
    text = "Meta(inputs=[Info(a=1, b='x, (y'), Info(a=2)], none=[], d={1: 2})"
    laid = break_call(text, 2)
    assert laid.split("\n")[:4] == [
        "Meta(",
        "  inputs=[",
        "    Info(a=1, b='x, (y'),",
        "    Info(a=2)",
    ]
    assert (
        "".join(line.strip() for line in laid.split("\n")).replace(",", ", ").replace(",  ", ", ")
        == text
    )


@given(st.text(alphabet="()[]{}, '\"ab=\n", max_size=200))
def test_laying_out_changes_blanks_alone(text: str) -> None:
    assert "".join(break_call(text).split()) == "".join(text.split())


@given(
    st.text(max_size=300), st.sampled_from([*NAMES, "x"]), st.sampled_from(["string", "json", "?"])
)
def test_any_text_can_be_shown(text: str, name: str, encoding: str) -> None:
    view = labels.view_text(name, text, encoding)
    assert len(view.lines) >= 1 and not view.remark


def test_api_counts_what_the_page_counts(explored_client: FlaskClient, explored_reader) -> None:
    run_id, a, b = (
        _run(explored_reader),
        _find_id(explored_reader, "0/0"),
        _find_id(explored_reader, "0/1"),
    )
    json = explored_client.get(
        f"/api/v1/runs/{run_id}/artifacts/diff?a={a}&b={b}&context=1&ignore=addresses"
    ).json
    changed = [row for row in json["data"]["rows"] if row["kind"] == "changed"]
    assert len(changed) == json["data"]["changed_count"] == 4
    assert "f32[4, 32]" in changed[0]["left_text"] and "f32[8, 32]" in changed[0]["right_text"]
    assert any(row["kind"] == "fold" and row["count"] > 1 for row in json["data"]["rows"])
    assert (
        explored_client.get(f"/api/v1/runs/{run_id}/artifacts/{a}")
        .json["data"]["text"]
        .startswith("class Graph")
    )


def test_a_runnable_graph_says_how_to_make_a_repro_of_it(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    sql = (
        "select run_id, id, name from artifacts where name in ('fx_graph_runnable', "
        "'inductor_output_code')"
    )
    for run_id, artifact_id, name in explored_reader.execute(sql).fetchmany(6):
        text = explored_client.get(f"/runs/{run_id}/artifacts/{artifact_id}").text
        assert (f"repro run artifact-{artifact_id}.txt" in text) == (name == "fx_graph_runnable")
