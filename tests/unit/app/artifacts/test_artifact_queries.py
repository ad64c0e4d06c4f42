"""Artifacts of whole recorded logs: lists page by page, texts, counterparts of other compiles."""

from __future__ import annotations

import sqlite3

import pytest

from compileboard.app.artifacts import run_queries as artifacts
from compileboard.app.artifacts.run_queries import ArtifactFilter, list_artifacts
from compileboard.collectors.store.codec import pack
from tests.unit.app.seed import add_run, insert


def _run(reader: sqlite3.Connection, name: str = "zoo_recompiles") -> str:
    return str(reader.execute("select id from runs where name = ?", (name,)).fetchone()[0])


def _key(reader: sqlite3.Connection, run_id: str, compile_id: str) -> int:
    cursor = reader.execute(
        "select id from compiles where run_id = ? and compile_id = ?", (run_id, compile_id)
    )
    return int(cursor.fetchone()[0])


def _add(store: sqlite3.Connection, run_id: str, **values: object) -> int:
    given = {
        "process_id": "p",
        "sequence": 1,
        "name": "x",
        "encoding": "string",
        "state": "kept",
        "time_us": 1,
    }
    return insert(store, "artifacts", run_id=run_id, **given | values)


@pytest.mark.parametrize("limit", [1, 7, 500])
@pytest.mark.parametrize("of_compile", [False, True])
def test_pages_of_any_size_have_every_artifact_once(
    explored_reader: sqlite3.Connection, limit: int, of_compile: bool
) -> None:
    run_id = _run(explored_reader)
    key = _key(explored_reader, run_id, "0/1") if of_compile else None
    seen, cursor = [], None
    while True:
        page = list_artifacts(
            explored_reader, run_id, ArtifactFilter(compile_key=key), cursor, limit
        )
        seen += [row.id for row in page.rows]
        cursor = page.next
        if cursor is None:
            break
    expected = (
        "select id from artifacts where run_id = ? and coalesce(compile_key = ?, 1) order by "
        "sequence"
    )
    ids = [row[0] for row in explored_reader.execute(expected, (run_id, key))]
    assert sorted(seen) == sorted(ids) and (not of_compile or seen == ids)


def test_filters_take_name_and_part_of_a_title(explored_reader: sqlite3.Connection) -> None:
    run_id = _run(explored_reader)
    code = list_artifacts(explored_reader, run_id, ArtifactFilter(name="inductor_output_code")).rows
    assert len(code) >= 3 and {row.name for row in code} == {"inductor_output_code"}
    title = code[0].title or ""
    assert title.endswith(".py")
    actual = list_artifacts(explored_reader, run_id, ArtifactFilter(text=title[5:20].upper())).rows
    assert [row.id for row in actual] == [row.id for row in code if row.title == title]
    assert artifacts.count_names(explored_reader, run_id)["inductor_output_code"] == len(code)


def test_text_is_what_torch_wrote(explored_reader: sqlite3.Connection) -> None:
    run_id = _run(explored_reader)
    first = artifacts.list_named(
        explored_reader,
        compile_key=_key(explored_reader, run_id, "0/0"),
        name="dynamo_output_graph",
    )[0]
    artifact = artifacts.get_artifact(explored_reader, run_id, first.id)
    assert artifact is not None and artifact.text is not None
    assert artifact.text.startswith("class GraphModule(torch.nn.Module):")
    assert len(artifact.text.encode()) == artifact.size_bytes
    assert artifact.metadata["sizes"]["l_x_"] == [4, 32]
    assert (
        artifacts.get_artifact(explored_reader, _run(explored_reader, "zoo_graph_breaks"), first.id)
        is None
    )


def test_counterpart_is_the_same_of_another_entry(explored_reader: sqlite3.Connection) -> None:
    run_id = _run(explored_reader)
    here, there = (_key(explored_reader, run_id, compile_id) for compile_id in ("0/0", "0/1"))
    for row in artifacts.list_texts(explored_reader, compile_key=here):
        same = artifacts.find_counterpart(explored_reader, row, there)
        if same is not None:
            assert (same.name, same.compile_key) == (row.name, there)
            assert artifacts.kind_of_title(same.title) == artifacts.kind_of_title(row.title)
    limit = _key(explored_reader, run_id, "0/8")
    assert artifacts.find_counterpart(explored_reader, row, limit) is None


def test_counterparts_keep_place_title_and_last_attempt(store: sqlite3.Connection) -> None:
    add_run(store, "R")
    rows = [("submod_0", 1), ("submod_1", 1), ("c" + "a" * 51 + ".py", 1), ("submod_0", 0)]
    old = [
        _add(store, "R", sequence=n, title=title, attempt=attempt)
        for n, (title, attempt) in enumerate(rows)
    ]
    more = [("c" + "b" * 51 + ".py", 0), ("submod_1", 0), ("submod_0", 0)]
    new = [
        _add(store, "R", sequence=9 + n, title=title, attempt=attempt)
        for n, (title, attempt) in enumerate(more)
    ]
    by_id = {row.id: row for row in list_artifacts(store, "R").rows}
    pairs = artifacts.pair_artifacts(
        [by_id[artifact_id] for artifact_id in old], [by_id[value] for value in new]
    )
    assert {here: there.id for here, there in pairs.items()} == {
        old[0]: new[2],
        old[1]: new[1],
        old[2]: new[0],
    }


def test_neighbours_of_a_text_pass_over_descriptions(explored_reader: sqlite3.Connection) -> None:
    run_id = _run(explored_reader)
    texts = artifacts.list_texts(explored_reader, compile_key=_key(explored_reader, run_id, "0/0"))
    for before, text, after in zip([None, *texts], texts, [*texts[1:], None], strict=False):
        beside = artifacts.get_neighbours(explored_reader, text)
        assert (beside.previous, beside.next) == (before, after)
    described = artifacts.list_named(
        explored_reader, compile_key=texts[0].compile_key or 0, name="describe_tensor"
    )[0]
    assert artifacts.get_neighbours(explored_reader, described).next.name in artifacts.DESCRIPTIONS


def test_a_damaged_payload_is_said_not_raised(store: sqlite3.Connection) -> None:
    add_run(store, "R")
    body = pack("a text" * 50, primed=False)[:-9]
    payload = insert(store, "payloads", digest=b"0" * 16, size_bytes=300, body=body)
    artifact = artifacts.get_artifact(store, "R", _add(store, "R", payload_id=payload))
    assert artifact is not None and artifact.text is None
    assert "damaged" in (artifact.unreadable or "")
