"""The timeline: its windows and sums over recorded logs, the page, the trace file, and what torch
might never write.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from itertools import pairwise
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.timeline import run_queries as timeline
from compileboard.app.timeline.model import find_busy_window, find_phase, name_instant
from compileboard.app.timeline.run_queries import Lane
from compileboard.collectors.contract.events import SpanSeen
from compileboard.collectors.store.ingest.ingestor import Ingestor
from tests.unit.app.plan import assert_no_scan
from tests.unit.app.recorded import MARKUP, PROCESS, RUN, START_US, record_run


@pytest.fixture
def lane(explored_reader: sqlite3.Connection) -> Lane:
    runs = explored_reader.execute("select run_id from lanes order by span_count desc").fetchall()
    (lane,) = timeline.list_lanes(explored_reader, runs[0]["run_id"])
    return lane


def address(lane: Lane, reader: sqlite3.Connection, more: str = "") -> str:
    run_id = reader.execute("select run_id from lanes where id = ?", (lane.id,)).fetchone()[
        "run_id"
    ]
    return f"/runs/{run_id}/timeline{more}"


def tell(store: sqlite3.Connection, *told: tuple[str, str, int]) -> None:
    """Record a run and (name, phase, time since its start) of its process."""
    record_run(store)
    events = [
        SpanSeen(
            PROCESS, 1000 + n, START_US, name=name, phase=phase, at_us=START_US + at_us, thread=0
        )
        for n, (name, phase, at_us) in enumerate(told)
    ]
    Ingestor(store).ingest(RUN, events)


def test_window_gives_what_is_wide_enough_parents_first(
    explored_reader: sqlite3.Connection, lane: Lane
) -> None:
    from_us, to_us = lane.first_us, lane.last_us + 1
    window = timeline.get_window(explored_reader, lane, from_us, to_us, 500)
    wide_us = round((to_us - from_us) / 500)
    sql = "select id from spans where lane_id = ? and duration_us >= ? and instant = 0"
    wide = {row["id"] for row in explored_reader.execute(sql, (lane.id, wide_us))}
    assert {span.id for span in window.spans} == wide
    assert [(span.begin_us, span.depth) for span in window.spans] == sorted(
        (span.begin_us, span.depth) for span in window.spans
    )
    assert window.short and window.marks and not window.is_coarse


def test_nothing_of_a_window_is_lost(explored_reader: sqlite3.Connection, lane: Lane) -> None:
    window = timeline.get_window(explored_reader, lane, lane.first_us, lane.last_us + 1, 50)
    sql = (
        "select count(*), sum(duration_us) from spans where lane_id = ? and instant = 0 and "
        "duration_us >= ?"
    )
    floor_us = round((lane.last_us + 1 - lane.first_us) / 50) // 64
    count, time_us = explored_reader.execute(sql, (lane.id, floor_us)).fetchone()
    assert len(window.spans) + sum(short_spans.span_count for short_spans in window.short) == count
    assert (
        sum(span.duration_us or 0 for span in window.spans)
        + sum(short_spans.busy_us for short_spans in window.short)
        == time_us
    )
    marks = explored_reader.execute(
        "select count(*) from spans where lane_id = ? and instant = 1", (lane.id,)
    )
    assert sum(mark.mark_count for mark in window.marks) == marks.fetchone()[0]


def test_a_window_shows_phases_that_began_before_it(
    explored_reader: sqlite3.Connection, lane: Lane
) -> None:
    whole = timeline.get_window(explored_reader, lane, lane.first_us, lane.last_us, 100_000).spans
    longest = max(whole, key=lambda span: span.duration_us or 0)
    middle = longest.begin_us + (longest.duration_us or 0) // 2
    seen = timeline.get_window(explored_reader, lane, middle, middle + 100, 1000).spans
    across = [
        span.id
        for span in whole
        if span.begin_us <= middle < span.begin_us + (span.duration_us or 0)
    ]
    assert [span.id for span in seen if span.begin_us <= middle] == across
    assert longest.id in across


def test_crowded_windows_give_the_longest(
    explored_reader: sqlite3.Connection, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = explored_reader, lane, lane.first_us, lane.last_us + 1, 400
    calm = timeline.get_window(*args)
    monkeypatch.setattr(
        timeline, "READ", 0
    )  # at least 1000 are looked at, so many lanes share that
    monkeypatch.setattr(timeline, "_MIN_READ", 20)
    crowded = timeline.get_window(*args)
    assert crowded.spans == calm.spans
    assert (
        crowded.is_coarse and 0 < sum(short_spans.span_count for short_spans in crowded.short) <= 40
    )


def test_busy_times_hold_every_compile(explored_reader: sqlite3.Connection, lane: Lane) -> None:
    gap_us = (lane.last_us - lane.first_us) // 200
    busy = timeline.list_busy(explored_reader, [lane], gap_us)
    assert all(later[0] - sooner[1] > gap_us for sooner, later in pairwise(busy))
    sql = (
        "select begin_us, begin_us + duration_us from spans where lane_id = ? and duration_us >= ?"
    )
    for begin_us, end_us in explored_reader.execute(sql, (lane.id, gap_us)):
        assert any(start <= begin_us and end_us <= end for start, end in busy)


@pytest.mark.parametrize("way", ["begin", "longest"])
def test_windows_read_indexes_alone(
    explored_reader: sqlite3.Connection, lane: Lane, way: str
) -> None:
    values = dict.fromkeys(
        (
            "from_us",
            "to_us",
            "least_us",
            "most_us",
            "bucket_us",
            "deepest",
            "scanned",
            "most",
            "lane_id",
        ),
        1,
    )
    for sql in (timeline.WIDE_SQL[way], timeline.SHORT_SQL[way], timeline.COUNT_SQL):
        assert_no_scan(explored_reader, sql, values)
        plan = " ".join(
            row["detail"] for row in explored_reader.execute(f"explain query plan {sql}", values)
        )
        index = (
            "spans_duration" if way == "longest" and sql != timeline.COUNT_SQL else "spans_depth"
        )
        assert f"COVERING INDEX {index}" in plan


def test_totals_link_to_the_longest(explored_reader: sqlite3.Connection, lane: Lane) -> None:
    run_id = address(lane, explored_reader).split("/")[2]
    totals = {total.name: total for total in timeline.list_totals(explored_reader, run_id)}
    sql = "select * from spans where compile_key = ? and begin_us = ? and duration_us = ?"
    for total in totals.values():
        if total.ended_count:
            assert explored_reader.execute(
                sql, (total.longest_compile_key, total.longest_begin_us, total.longest_us)
            ).fetchone()
    assert totals["dynamo"].exclusive_us < totals["dynamo"].total_us
    assert totals["fx_graph_cache_miss"].instant_count == totals["fx_graph_cache_miss"].span_count


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("compile_attempt_0", "dynamo"),
        ("compile_attempt_1", "dynamo"),
        ("pass.post_grad_passes.decompose_triton_kernel_wrapper_functional", "inductor"),
        ("async_compile.wait", "triton"),
        ("Scheduler.codegen", "codegen"),
        ("create_aot_dispatcher_function", "aot"),
        ("gc", "other"),
        (MARKUP, "other"),
    ],
)
def test_names_belong_to_phases(name: str, phase: str) -> None:
    assert find_phase(name).name == phase


def test_the_attempts_before_the_last_one_are_drawn_as_restarts(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    sql = """
        select c.run_id, c.compile_id, c.attempt_count
        from spans as s
        join span_names as n on n.id = s.name_id
        join compiles as c on c.id = s.compile_key
        where n.name = 'compile_attempt_1'
        order by c.id
        limit 1
    """
    run_id, compile_id, attempt_count = explored_reader.execute(sql).fetchone()
    events = trace(explored_client, f"/runs/{run_id}/timeline")["traceEvents"]
    phases = {
        event["name"]: event["cat"]
        for event in events
        if event["name"].startswith("compile_attempt_")
        and event["args"]["compile_id"] == compile_id
    }
    before = {f"compile_attempt_{number}": "restart" for number in range(attempt_count - 1)}
    assert phases == before | {f"compile_attempt_{attempt_count - 1}": "dynamo"}


def trace(client: FlaskClient, path: str) -> dict[str, Any]:
    answer = client.get(f"/api/v1{path}?download=1", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    document: dict[str, Any] = json.loads(gzip.decompress(answer.data))
    return document


def test_trace_file_is_as_viewers_read_it(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection, lane: Lane
) -> None:
    events = trace(explored_client, address(lane, explored_reader))["traceEvents"]
    assert all({"name", "ph", "ts", "pid", "tid"} <= event.keys() for event in events)
    told = [event for event in events if event["ph"] != "M"]
    assert len(told) == lane.span_count
    assert all(event["dur"] >= 0 for event in told if event["ph"] == "X")
    open_until: list[
        int
    ] = []  # by ts, as viewers sort them, those of one moment as they stand in the file
    for event in sorted(
        (event for event in told if event["ph"] == "X" and event["dur"]),
        key=lambda event: event["ts"],
    ):
        while open_until and open_until[-1] <= event["ts"]:
            open_until.pop()
        assert not open_until or event["ts"] + event["dur"] <= open_until[-1], event
        open_until.append(event["ts"] + event["dur"])
    assert {"process_name", "thread_name"} <= {
        event["name"] for event in events if event["ph"] == "M"
    }
    assert any(event["args"].get("compile_id") == "0/0" for event in told)


def test_the_wrapped_trace_is_the_same(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection, lane: Lane
) -> None:
    path = address(lane, explored_reader)
    wrapped = explored_client.get(f"/api/v1{path}").json
    assert wrapped == {"ok": True, "data": trace(explored_client, path), "next": None}


def test_a_phase_without_an_end_is_shown_as_such(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    tell(store, ("dynamo", "B", 0), ("inner", "B", 10), ("inner", "E", 30), ("note", "i", 40))
    (lane,) = client.get(f"/api/v1/runs/{RUN}/timeline/window").json["data"]["lanes"]
    assert lane["spans"] == [0, 0, -1, 0, 0, 1, 10, 20, 1, 0]
    assert lane["last"] == 40
    assert b"1 without an end" in client.get(f"/runs/{RUN}/timeline").data
    kinds = [event["ph"] for event in trace(client, f"/runs/{RUN}/timeline")["traceEvents"]]
    assert kinds == ["M", "M", "M", "B", "X", "i"]


def test_hostile_names_stay_text(client: FlaskClient, store: sqlite3.Connection) -> None:
    name = f"</script>{MARKUP}\x00\u2028"
    tell(store, (name, "B", 0), (name, "E", 10))
    page = client.get(f"/runs/{RUN}/timeline").text
    assert "<b onclick" not in page and "</script><b" not in page
    assert any(
        event["name"] == name for event in trace(client, f"/runs/{RUN}/timeline")["traceEvents"]
    )


def test_a_run_without_phases_says_so(client: FlaskClient, store: sqlite3.Connection) -> None:
    record_run(store)
    assert "No timed phases" in client.get(f"/runs/{RUN}/timeline").text
    assert client.get(f"/api/v1/runs/{RUN}/timeline/window").json["data"]["lanes"] == []
    assert trace(client, f"/runs/{RUN}/timeline")["traceEvents"] == []


@pytest.mark.parametrize(
    "query",
    ["from=x", "from=5&to=5", "from=-1", f"to={'9' * 30}", "from=1e3", "from=%C2%B2&to=%C2%B3"],
)
def test_bad_windows_are_refused_in_words(
    client: FlaskClient, store: sqlite3.Connection, query: str
) -> None:
    tell(store, ("dynamo", "B", 0), ("dynamo", "E", 10))
    answer = client.get(f"/runs/{RUN}/timeline?{query}")
    assert answer.status_code == 400
    assert "whole number" in answer.text or "is not after" in answer.text


def test_all_but_the_largest_names_are_folded(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    tell(
        store,
        *(
            told
            for n in range(20)
            for told in ((f"name{n:02}", "B", 900 * n), (f"name{n:02}", "E", 901 * n))
        ),
    )
    shown, folded = client.get(f"/runs/{RUN}/timeline").text.split(
        '<details class="fold" id="more-names">'
    )
    assert "5 more phases" in folded
    assert ">name19<" in shown and ">name05<" in shown and ">name04<" not in shown
    assert ">name04<" in folded and ">name00<" in folded


def test_the_opening_holds_most_of_the_work_and_cuts_no_stretch() -> None:
    assert find_busy_window([(0, 10), (1000, 1980), (5000, 5010)]) == (1000, 1980)
    assert find_busy_window([(5, 9)]) == (5, 9)
    assert find_busy_window([(0, 50), (60, 110)]) == (0, 110)


def test_a_timeline_opens_on_the_work_with_idle_time_folded(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection, lane: Lane
) -> None:
    page = explored_client.get(address(lane, explored_reader)).text
    busy = timeline.list_busy(explored_reader, [lane], 0)
    from_us, to_us = find_busy_window(busy)
    assert f'data-from="{from_us}" data-to="{to_us}"' in page and 'data-idle="shown"' not in page
    assert (
        'data-idle="shown"'
        in explored_client.get(address(lane, explored_reader, "?idle=shown")).text
    )
    assert explored_client.get(address(lane, explored_reader, "?idle=x")).status_code == 400


def test_the_legend_has_only_phases_that_are_there(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    tell(store, ("dynamo", "B", 0), ("fx_graph_cache_hit", "i", 3), ("dynamo", "E", 10))
    legend = (
        client.get(f"/runs/{RUN}/timeline")
        .text.partition('id="flame-legend"')[2]
        .partition("</ul>")[0]
    )
    shown = [item for item in legend.split("<li") if "hidden>" not in item]
    assert [
        word
        for word in ("dynamo", "inductor", "cache hit", "cache miss")
        if word in " ".join(shown)
    ] == [
        "dynamo",
        "cache hit",
    ]
    names = ("fx_graph_cache_miss", "a_hit b", "automatic_dynamic")
    assert [name_instant(name) for name in names] == ["miss", "hit", ""]
