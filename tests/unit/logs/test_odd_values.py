"""One odd value, line or prefix never costs more than its own record."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compileboard.collectors.store.codec import unpack
from tests.tools.odd_values import ODD_VALUES, TABLES, OddLogs, Record, read_records, surroundings
from tests.unit.decode.recorded_logs import LOGS, log_bytes
from tests.unit.logs.loading import load, query_value, rows
from tests.unit.logs.test_log_loader import HEAD, LOG, record

METRICS = "compilation_metrics"
SYMPTOMS = [
    "cache_size",
    "guard_count",
    "graph_op_count",
    "graph_node_count",
    "graph_input_count",
    "guard_latency_us",
]
SYMPTOMS += ["fail_reason", "restart_reasons"]
KINDS = [METRICS, "dynamo_start", "artifact:recompile_reasons", "artifact:fx_graph_cache_miss"]
KINDS += ["artifact:dynamo_graph_break_reason", "artifact:dynamo_error"]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> OddLogs:
    return OddLogs(tmp_path_factory.mktemp("odd"))


@cache
def targets() -> dict[str, list[tuple[list[Record], int]]]:
    """Find recorded records of each kind, with their logs."""
    records_by_kind: dict[str, list[tuple[list[Record], int]]] = {}
    for name in LOGS:
        records = read_records(log_bytes(name))
        for position, one_record in enumerate(records):
            if (
                one_record.name in KINDS
                and len(records_by_kind.setdefault(one_record.name, [])) < 20
            ):
                records_by_kind[one_record.name].append((records, position))
    return records_by_kind


@cache
def load_whole(logs: OddLogs, kind: str, which: int) -> dict[str, list[int]]:
    """Load a record that is not odd, with those around it; return which of these are in which
    table.
    """
    records, position = targets()[kind][which]
    before, after = surrounding_bytes(records, position)
    return logs.load(before, records[position].write(), after)[1]


def surrounding_bytes(records: list[Record], position: int) -> tuple[bytes, bytes]:
    before, after = surroundings(records, position)
    return b"".join(line.write() for line in before), b"".join(line.write() for line in after)


def losses(logs: OddLogs, kind: str, which: int, odd: bytes) -> tuple[dict[str, int], int]:
    """Count the records around an odd one that are missing, and the rejects."""
    before, after = surrounding_bytes(*targets()[kind][which])
    whole = load_whole(logs, kind, which)
    done, loaded = logs.load(before, odd, after)
    return {
        table: len(set(whole[table]) - set(loaded[table])) for table in TABLES
    }, done.rejects.count("bad_field")


@pytest.mark.parametrize("field", SYMPTOMS)
@pytest.mark.parametrize("value", ODD_VALUES)
def test_an_odd_metric_is_null_kept_aside_and_counted(
    logs: OddLogs, field: str, value: str
) -> None:
    records, position = targets()[METRICS][3]
    odd = records[position].marked(("header", METRICS, field)).write(ODD_VALUES[value])
    lost, rejected = losses(logs, METRICS, 3, odd)
    assert set(lost.values()) == {0}
    bodies = [json.loads(unpack(row[0])) for row in rows(logs.database, "select body from events")]
    odd_ones = [
        body["metrics"] for body in bodies if field in body.get("metrics", {}).get("odd_values", {})
    ]
    assert all(metrics[field] is None for metrics in odd_ones) and rejected >= len(odd_ones)
    assert rejected or value in (
        "below zero",
        "empty list",
        "list",
        "text",
        "empty text",
        "fraction",
    )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=120, deadline=None
)
@given(st.sampled_from(KINDS), st.integers(0, 19), st.integers(0, 10**6), JSON)
def test_any_value_in_any_field_costs_at_most_its_record(
    logs: OddLogs, kind: str, which: int, field: int, value: object
) -> None:
    which %= len(targets()[kind])
    records, position = targets()[kind][which]
    places = list(records[position].places())
    odd = records[position].marked(places[field % len(places)]).write(json.dumps(value))
    lost, _rejected = losses(logs, kind, which, odd)
    assert lost.pop("spans") <= 1 and set(lost.values()) == {0}


def test_half_a_surrogate_pair_around_an_artifact_is_replaced_and_told(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(record({"describe_source": {"source": "\ud800"}}, "text"))
    done = load(tmp_path / "t.db", tmp_path / "x.log")
    assert json.loads(query_value(tmp_path / "t.db", "select metadata from artifacts")) == {
        "source": "\\ud800"
    }
    assert done.rejects.by_kind["bad_field"].count == 1


def test_lines_are_counted_over_blocks_and_what_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compileboard.collectors.logs.log_blocks.BLOCK_BYTES", 700)
    monkeypatch.setattr("compileboard.collectors.logs.log_blocks.MAX_BYTES", 2_000)
    good, odd = (
        record({"aot_forward_graph": {}}, "a\nb"),
        record({"aot_forward_graph": {}, "rank": "x"}, "c"),
    )
    parts = [good, good, odd, record({"aot_forward_graph": {}}, "x\n" * 5_000), good, odd, good]
    (tmp_path / "x.log").write_text("".join(parts))
    load(tmp_path / "t.db", tmp_path / "x.log")
    for kind, line, count in (("bad_field", 7, 2), ("too_large", 9, 1)):
        sql = f"select first_line, reject_count from log_rejects where kind = '{kind}'"
        assert tuple(rows(tmp_path / "t.db", sql)[0]) == (line, count)
    assert query_value(tmp_path / "t.db", "select line_count from logs") == "".join(parts).count(
        "\n"
    )


def test_blank_lines_that_lost_their_tab_stay_in_the_text(tmp_path: Path) -> None:
    text = "one\n\n\ntwo\n\nthree"
    raw = (
        record({"aot_forward_graph": {}}, text)
        + "\n"
        + record({"aot_backward_graph": {}}, "x\n\ny")
        + "\n\n"
    )
    for trimmed in (raw.replace("\t\n", "\n"), raw.replace("\t\n", "\n").replace("\n", "\r\n")):
        (tmp_path / "x.log").write_bytes(trimmed.encode())
        (tmp_path / "t.db").unlink(missing_ok=True)
        assert load(tmp_path / "t.db", tmp_path / "x.log").rejects.by_kind == {}
        recorded = rows(tmp_path / "t.db", "select body from payloads")
        assert {unpack(row["body"]) for row in recorded} == {text, "x\n\ny"}


def test_a_huge_line_before_the_first_record_costs_itself(tmp_path: Path) -> None:
    log, good = tmp_path / "x.log", record({"aot_forward_graph": {}}, "graph") * 5
    for size, kind in ((5 << 20, "stray_line"), (140 << 20, "too_large")):
        log.write_bytes(b"x" * size + b"\n" + good.encode())
        (tmp_path / "t.db").unlink(missing_ok=True)
        done = load(tmp_path / "t.db", log)
        assert query_value(tmp_path / "t.db", "select count(*) from artifacts") == 5
        assert {
            name: (reject.count, reject.first_line) for name, reject in done.rejects.by_kind.items()
        } == {kind: (1, 1)}


def test_threads_of_torch_2_4_are_one_process(tmp_path: Path) -> None:
    # torch 2.4.1, _logging/_internal.py: "{record.thread}" where later ones have the process;
    # autograd's is another.
    main, autograd = b" 139872212080448 ", b" 139868912449088 "
    raw = log_bytes("torch2.11-cuda-hf_Bert_train")
    pid = re.match(rb"V\S+ \S+( \d+ )", raw)
    assert pid is not None
    lines = [
        line.replace(pid[1], autograd if b"bwd_compilation_metrics" in line else main, 1)
        for line in raw.splitlines(keepends=True)
    ]
    (tmp_path / "x.log").write_bytes(b"".join(lines))
    assert load(tmp_path / "t.db", tmp_path / "x.log").rejects.by_kind == {}
    assert [row[0] for row in rows(tmp_path / "t.db", "select pid from processes")] == [None]
    kinds = rows(
        tmp_path / "t.db",
        "select kind, compile_key is not null from compilations order by sequence",
    )
    assert {"forward", "backward"} <= {row[0] for row in kinds} and all(row[1] for row in kinds)


@pytest.mark.parametrize("payloads", [True, False])
def test_versions_that_come_late_are_the_runs_own(tmp_path: Path, payloads: bool) -> None:
    filler = record({"aot_forward_graph": {}}, "x" * (1 << 20)) * 5
    raw = log_bytes(LOG)
    (tmp_path / "x.log").write_bytes(
        filler.replace(HEAD.split()[2], re.split(rb" +", raw)[2].decode()).encode() + raw
    )
    load(tmp_path / "t.db", tmp_path / "x.log", payloads=payloads)
    for table in ("runs", "processes"):
        (row,) = rows(
            tmp_path / "t.db", f"select torch_version, cuda_version, python_version from {table}"
        )
        assert tuple(row) == ("2.11.0+cu130", "13.0", "3.12.3")
    assert query_value(tmp_path / "t.db", "select triton_version from processes") == "3.6.0"


@pytest.mark.parametrize("is_late", [False, True])
def test_versions_are_read_wherever_a_log_has_them(tmp_path: Path, is_late: bool) -> None:
    sql = "select torch_version, torch_git, cuda_version, triton_version from processes"
    filler = record({"aot_forward_graph": {}}, "x" * (5 << 20)).encode() if is_late else b""
    metrics = {"cuda_version": "13.0", "triton_version": "3.6.0", "python_version": "3.12.3 (main)"}
    (tmp_path / "a.log").write_bytes(filler + record({"compilation_metrics": metrics}).encode())
    code = (
        "# torch version: 2.11.0+cu130\n# torch cuda version: 13.0\n# torch git version: "
        "70d99e998b49\n"
    )
    (tmp_path / "b.log").write_bytes(filler + record({"inductor_output_code": {}}, code).encode())
    for name, versions in (
        ("a", (None, None, "13.0", "3.6.0")),
        ("b", ("2.11.0+cu130", "70d99e998b49", "13.0", None)),
    ):
        load(tmp_path / f"{name}.db", tmp_path / f"{name}.log")
        assert [tuple(row) for row in rows(tmp_path / f"{name}.db", sql)] == [versions]


def test_the_records_of_a_log_are_counted_however_often_it_is_read(tmp_path: Path) -> None:
    raw = log_bytes(LOG)
    count = len(read_records(raw))
    for part in (raw[: len(raw) // 2], raw, raw):
        (tmp_path / "x.log").write_bytes(part)
        load(tmp_path / "t.db", tmp_path / "x.log")
    assert query_value(tmp_path / "t.db", "select record_count from logs") == count


def test_a_compile_that_fails_after_a_restart_had_two_attempts(tmp_path: Path) -> None:
    records = {
        name: [line for line in read_records(log_bytes(name)) if line.name == METRICS]
        for name in LOGS
    }
    again = [
        name
        for name, lines in records.items()
        if any(
            line.header[METRICS]["fail_type"] and line.header.get("attempt") == 1 for line in lines
        )
    ]
    (tmp_path / "x.log").write_bytes(log_bytes(again[0]))
    load(tmp_path / "t.db", tmp_path / "x.log")
    sql = (
        "select count(*) from compiles where outcome in ('failed', 'skipped') and attempt_count = 2"
    )
    assert query_value(tmp_path / "t.db", sql) == 1


def test_what_the_store_refuses_is_a_reject_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "compileboard.collectors.decode.decoder.fit_metrics", lambda metrics, notes: metrics
    )
    records, position = targets()[METRICS][3]
    odd = records[position].marked(("header", METRICS, "guard_count")).write('"x"')
    before, after = (
        b"".join(line.write() for line in part) for part in surroundings(records, position)
    )
    (tmp_path / "x.log").write_bytes(before + odd + after)
    load(tmp_path / "t.db", tmp_path / "x.log")
    sql = "select kind, reject_count, first_line, example from log_rejects where kind = 'refused'"
    (reject,) = rows(tmp_path / "t.db", sql)
    assert tuple(reject)[:3] == ("refused", 1, before.count(b"\n") + 1) and reject[
        "example"
    ].startswith("compiled: ")
    assert query_value(tmp_path / "t.db", "select count(*) from compilations") == after.count(
        b'] {"compilation_metrics"'
    )


def test_a_last_text_whose_blank_end_was_trimmed_is_whole(tmp_path: Path) -> None:
    raw = record({"artifact": {"name": "a", "encoding": "string"}}, "one\n\n")
    (tmp_path / "x.log").write_text(raw.rstrip() + "\n")
    assert load(tmp_path / "t.db", tmp_path / "x.log").rejects.by_kind == {}
    (text,) = rows(
        tmp_path / "t.db",
        "select state, body from artifacts join payloads on payloads.id = payload_id",
    )
    assert (text["state"], unpack(text["body"])) == ("kept", "one\n\n")


def test_the_last_text_of_a_log_that_was_edited_is_kept_as_damaged(tmp_path: Path) -> None:
    texts = [
        record({"artifact": {"name": name, "encoding": "string"}}, name, "0" * 32)
        for name in ("a", "b")
    ]
    (tmp_path / "x.log").write_text("".join(texts))
    done = load(tmp_path / "t.db", tmp_path / "x.log")
    assert {name: reject.count for name, reject in done.rejects.by_kind.items()} == {"wrong_md5": 2}
    assert [
        tuple(row)
        for row in rows(tmp_path / "t.db", "select name, state from artifacts order by id")
    ] == [
        ("a", "damaged"),
        ("b", "damaged"),
    ]
