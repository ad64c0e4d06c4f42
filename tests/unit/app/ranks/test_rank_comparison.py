"""Where ranks part: a real two-rank training, and ranks made by hand for what no capture has."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.ranks.model import (
    build_ranks,
    describe_caches,
    describe_divergence,
    describe_times,
    list_verdicts,
    name_ranks,
)
from compileboard.app.ranks.rank_differences import (
    CollectiveSchedule,
    compare_ranks,
    list_outliers,
    list_schedules,
    list_undecided_texts,
    normalize,
)
from compileboard.app.ranks.run_queries import TEXTS, CompilePosition, RankCompile, RankSequence
from compileboard.collectors.terminal.run_summary import summarize
from tests.unit.app.hostile import BAD
from tests.unit.app.recorded import RUN, record_run

NAMES = {1: ("step", "train.py"), 2: ("loss", "train.py")}


def compiled(key: int, compile_id: str, function_id: int = 1, **more: Any) -> RankCompile:
    given = more.pop("texts", {})
    texts = tuple(given.get(aspect, ()) for aspect in TEXTS)
    values = {
        "outcome": "compiled",
        "total_us": 100,
        "causes": (),
        "breaks": (),
        "caches": (),
        "sizes": (),
    } | more
    return RankCompile(
        key=key,
        position=CompilePosition(0, 0, compile_id),
        function_id=function_id,
        texts=texts,
        **values,
    )


def ranks(*compiles: list[RankCompile]) -> list[RankSequence]:
    return [RankSequence(rank, compiles=some) for rank, some in enumerate(compiles)]


@pytest.fixture
def ddp(explored_reader: sqlite3.Connection) -> str:
    return str(
        explored_reader.execute("select id from runs where name = 'train_ddp'").fetchone()[0]
    )


def test_the_capture_says_that_rank_1_recompiled_and_why(
    explored_client: FlaskClient, ddp: str
) -> None:
    page = explored_client.get(f"/runs/{ddp}/ranks").text
    assert "Rank 1 recompiled inner as 0/1; rank 0 compiled nothing after 4/1." in page
    assert "The 6 compiles before it are the same on every rank." in page
    assert "tensor &#39;args[0]&#39; size mismatch at index 1. expected 128, actual 96" in page
    assert '#fix">Fix</a>' in page
    assert "Rank 1 spent 21.5 s compiling, 10.8 s more than rank 0." in page


def test_the_api_gives_the_same_divergence(explored_client: FlaskClient, ddp: str) -> None:
    data = explored_client.get(f"/api/v1/runs/{ddp}/ranks").json["data"]
    assert [rank["recompile_count"] for rank in data["ranks"]] == [1, 4]
    assert data["divergence"]["aspect"] == "compiles"
    assert [group["compile_id"] for group in data["divergence"]["groups"]] == [None, "0/1"]
    guard = data["divergence"]["recompiles"][0]["guards"][0]
    assert (guard["category"], guard["expected"], guard["actual"]) == ("tensor_size", "128", "96")
    assert [row["compile_id"] for row in data["rows"]] == ["0/1", "4/2", "4/3"]
    assert len(explored_client.get(f"/api/v1/runs/{ddp}/ranks?rows=all").json["data"]["rows"]) == 9


def test_a_runs_summary_says_where_its_ranks_diverge(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection, ddp: str
) -> None:
    ranks = explored_client.get(f"/api/v1/runs/{ddp}/ranks").json["data"]  # type: ignore[index]
    run = explored_client.get(f"/api/v1/runs/{ddp}").json["data"]  # type: ignore[index]
    (problem,) = (problem for problem in run["problems"] if problem["kind"] == "ranks")
    assert ranks["divergence"]["sentence"] in problem["advice"]
    database = explored_reader.execute("pragma database_list").fetchone()["file"]
    (summary,) = filter(None, [summarize(database, ddp)])
    assert [(row.text, row.count) for row in summary.ranks] == [
        (
            f"rank {rank['rank']}: compiles {rank['compile_count']}, recompiles "
            f"{rank['recompile_count']}, graph breaks {rank['graph_break_count']}",
            1,
        )
        for rank in ranks["ranks"]
    ]
    page = explored_client.get(f"/runs/{ddp}").text
    assert "The ranks diverge" in page and f'href="/runs/{ddp}/ranks" aria-label="Details' in page


def test_every_cell_leads_to_its_compile(explored_client: FlaskClient, ddp: str) -> None:
    data = explored_client.get(f"/api/v1/runs/{ddp}/ranks?rows=all").json["data"]
    keys = [key for row in data["rows"] for key in row["compile_keys"] if key]
    page = explored_client.get(f"/runs/{ddp}/ranks?rows=all").text
    assert len(keys) == 15
    assert [key for key in keys if f'href="/runs/{ddp}/compiles/{key}"' not in page] == []


def test_a_comparison_is_kept_until_more_is_recorded(
    explored_reader: sqlite3.Connection, ddp: str
) -> None:
    first, second = (build_ranks(explored_reader, ddp) for _time in range(2))
    assert first is not None
    assert second is not None
    assert second.comparison is first.comparison


def test_more_of_a_run_is_compared_anew(client: FlaskClient, store: sqlite3.Connection) -> None:
    record_run(store)
    assert "No ranks to compare" in client.get(f"/runs/{RUN}/ranks").text
    store.execute("update processes set rank = 0")
    store.execute(
        "insert into processes (id, run_id, rank, started_us, last_seen_us, last_sequence, "
        "capabilities, environment)"
        " select 'other', run_id, 1, 1, 1, 1, '{}', '{}' from processes limit 1"
    )
    store.execute("update run_totals set process_count = 2")
    store.commit()
    assert "rank 1 compiled nothing" in client.get(f"/runs/{RUN}/ranks").text


def test_a_run_without_ranks_says_so(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    run = explored_reader.execute("select id from runs where name = 'zoo_recompiles'").fetchone()[0]
    assert "No ranks to compare" in explored_client.get(f"/runs/{run}/ranks").text
    data = explored_client.get(f"/api/v1/runs/{run}/ranks").json["data"]
    assert (data["ranks"], data["divergence"]) == ([], None)
    assert f"/runs/{run}/ranks" not in explored_client.get(f"/runs/{run}").text


@pytest.mark.parametrize("query", ["rows=some", "start=-1", "column=x", "start=99999999999"])
def test_a_bad_filter_is_a_400(explored_client: FlaskClient, ddp: str, query: str) -> None:
    assert explored_client.get(f"/runs/{ddp}/ranks?{query}").status_code == 400


def test_device_numbers_and_made_up_paths_are_no_difference() -> None:
    code = (
        "x: 'f32[8]cuda:{0}' index={0} _DeviceGuard({0}) stream{0} /tmp/torchinductor/{1}/c"
        + "a" * 51
        + ".py at 0x{0}f"
    )
    assert normalize(code.format(0, "xa"), "code") == normalize(code.format(3, "zz"), "code")
    assert normalize("f32[8]", "graphs") != normalize("f32[9]", "graphs")
    a, b = (
        json.dumps({"ops": [{"name": "x", "estimated_runtime_ns": ns, "outputs": []}]})
        for ns in (1, 2)
    )
    assert normalize(a, "tensors") == normalize(b, "tensors")


def test_an_odd_rank_of_four_is_named_and_the_others_share_a_column() -> None:
    usual, hit = (
        [compiled(1, "0/0", caches=("fx_graph miss",))],
        [compiled(2, "0/0", caches=("fx_graph hit",))],
    )
    comparison = compare_ranks(ranks(usual, usual, hit, usual), {})
    assert comparison.columns == ((0, 1, 3), (2,))
    assert [(ranks, verdicts["caches"]) for ranks, verdicts in list_verdicts(comparison)] == [
        ((2,), "differs"),
        ((0, 1, 3), "same"),
    ]
    assert comparison.divergence is not None
    divergence_text = describe_divergence(comparison.divergence, NAMES)
    assert divergence_text.sentence == (
        "Rank 2 found in the caches for step (0/0): FX graph 1 × hit; "
        "ranks 0, 1, 3 found in the caches for step (0/0): FX graph 1 × miss."
    )


def test_collectives_in_another_order_are_a_difference() -> None:
    a = [compiled(1, "0/0", texts={"collectives": (7,)})]
    b = [compiled(2, "0/0", texts={"collectives": (8,)})]
    digests = {
        7: normalize('["all_reduce", "all_gather"]', "collectives"),
        8: normalize('["all_gather", "all_reduce"]', "collectives"),
    }
    assert list_undecided_texts(ranks(a, b)) == [("collectives", 7), ("collectives", 8)]
    assert compare_ranks(ranks(a, b), digests).aspects["collectives"] == "differs"
    assert compare_ranks(ranks(a, a), digests).aspects["collectives"] == "same"


def test_texts_that_were_not_read_are_not_called_different() -> None:
    comparison = compare_ranks(
        ranks(
            [compiled(1, "0/0", texts={"graphs": (7,)})],
            [compiled(2, "0/0", texts={"graphs": (8,)})],
        ),
        {},
    )
    assert comparison.aspects["graphs"] == "not compared"
    assert comparison.divergence is None
    assert comparison.aspects["collectives"] == "not recorded"


def test_rows_keep_each_ranks_order_around_what_only_one_has() -> None:
    a = [compiled(1, "0/0"), compiled(2, "1/0"), compiled(3, "2/0")]
    b = [
        compiled(4, "0/0"),
        compiled(5, "0/1", causes=(9,)),
        compiled(6, "1/0"),
        compiled(7, "2/0"),
    ]
    comparison = compare_ranks(ranks(a, b), {})
    assert [row.position.compile_id for row in comparison.rows] == ["0/0", "0/1", "1/0", "2/0"]
    assert [row.position.compile_id for row in comparison.rows if row.differs] == ["0/1"]
    assert [rank_compile.key for rank_compile in comparison.partial] == [5]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=6),
        min_size=2,
        max_size=5,
    )
)
def test_every_compile_of_every_rank_is_in_one_row(
    given_ranks: list[list[tuple[str, int]]],
) -> None:
    sequences = ranks(
        *(
            [compiled(n, f"{frame}/{n}", number) for n, (frame, number) in enumerate(some)]
            for some in given_ranks
        )
    )
    comparison = compare_ranks(sequences, {})
    assert sum(row.rank_count for row in comparison.rows) == sum(
        len(sequence.compiles) for sequence in sequences
    )
    assert sorted(rank for some in comparison.columns for rank in some) == list(
        range(len(sequences))
    )
    assert (comparison.divergence is None) == (len({tuple(some) for some in given_ranks}) == 1)


def test_words_for_ranks_caches_and_majorities() -> None:
    assert name_ranks([5, 0, 1, 2, 7, 8]) == "ranks 0–2, 5, 7, 8"
    assert name_ranks([3], capital=True) == "Rank 3"
    assert name_ranks(range(0, 64, 2)).endswith("18, and 22 more")
    assert list_outliers({0: "a", 1: "a", 2: "b"}) == [2]
    assert list_outliers({0: "a", 1: "b"}) == [0, 1]
    assert (
        describe_caches(("fx_graph hit", "fx_graph hit", "aot_autograd miss"))
        == "FX graph 2 × hit; AOTAutograd 1 × miss"
    )
    assert describe_times(compare_ranks(ranks([], []), {}).ranks) is None


def test_hostile_names_stay_text(client: FlaskClient, store: sqlite3.Connection) -> None:
    record_run(store)
    store.execute("update processes set rank = 0")
    columns = [row["name"] for row in store.execute("pragma table_info(processes)")]
    other = {"id": "'other'", "rank": "1", "local_rank": "1", "world_size": "2"}
    values = ", ".join(other.get(column, column) for column in columns)
    store.execute(f"insert into processes select {values} from processes limit 1")
    store.execute("update functions set name = ? || id", (BAD,))
    store.commit()
    page = client.get(f"/runs/{RUN}/ranks?rows=all").text
    assert "compiled nothing" in page
    assert BAD not in page


def test_ranks_with_the_same_collectives_share_a_schedule() -> None:
    first, second = (
        compiled(1, "0/0", texts={"collectives": (7,)}),
        compiled(2, "1/0", texts={"collectives": (8,)}),
    )
    texts = {7: '["all_reduce", "all_reduce", "wait"]', 8: '["all_gather"]', 9: "{"}
    schedules = list_schedules(ranks([first, second], [first, second], [second, first]), texts)
    assert [(schedule.ranks, schedule.count) for schedule in schedules] == [((0, 1), 4), ((2,), 4)]
    assert schedules[0].steps == (("all_reduce", 2), ("wait", 1), ("all_gather", 1))
    assert (
        list_schedules(
            ranks([compiled(1, "0/0")], [compiled(2, "0/0", texts={"collectives": (9,)})]), texts
        )
        == ()
    )


def test_a_rank_that_alone_breaks_is_told_by_its_break() -> None:
    whole, broken = compiled(1, "0/0"), compiled(2, "0/0", outcome="broke", breaks=(4,))
    compared = compare_ranks(ranks([whole], [broken]), {})
    assert compared.divergence and compared.divergence.aspect == "breaks"
    text = describe_divergence(compared.divergence, NAMES)
    assert (
        text.sentence
        == "Rank 0 had no graph break in step (0/0); rank 1 had 1 graph break in step (0/0)."
    )


def test_breaks_and_ddps_pieces_are_counted_by_rank() -> None:
    cut = compiled(1, "0/0", breaks=(4, 5), texts={"graphs": (1,)}, piece_count=3)
    summaries = compare_ranks(
        ranks([cut, cut._replace(position=CompilePosition(0, 0, "1/0"))], [cut]), {}
    ).ranks
    assert [(rank.graph_break_count, rank.piece_count) for rank in summaries] == [(4, 6), (2, 3)]
    (without, _other) = compare_ranks(ranks([compiled(1, "0/0")], [compiled(2, "0/0")]), {}).ranks
    assert (without.graph_break_count, without.piece_count) == (0, None)


def test_the_page_and_the_api_list_collectives_in_order(
    explored_client: FlaskClient,
    explored_reader: sqlite3.Connection,
    ddp: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedules = (
        CollectiveSchedule((0,), (("all_reduce", 2), ("wait", 1))),
        CollectiveSchedule((1,), ()),
    )
    monkeypatch.setattr("compileboard.app.ranks.model.list_schedules", lambda *_given: schedules)
    screen = "compileboard.app.ranks.model"
    monkeypatch.setattr(f"{screen}.cached_for_run", lambda reader, run, make: make(reader, run))
    page = explored_client.get(f"/runs/{ddp}/ranks").text
    assert (
        "Rank 0: 3 collectives" in page
        and "all_reduce × 2" in page
        and "Rank 1: 0 collectives" in page
    )
    data = explored_client.get(f"/api/v1/runs/{ddp}/ranks").json["data"]
    steps = [{"operation": "all_reduce", "count": 2}, {"operation": "wait", "count": 1}]
    assert [schedule["steps"] for schedule in data["schedules"]] == [steps, []]
    assert [rank["graph_break_count"] for rank in data["ranks"]] == [3, 4]
