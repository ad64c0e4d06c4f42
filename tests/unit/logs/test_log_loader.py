"""Importing: once is enough, a longer copy adds the rest, and what is damaged is counted."""

from __future__ import annotations

import json
from contextlib import closing
from hashlib import md5
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.contract.rejects import KINDS
from compileboard.collectors.logs.discovery import find_sources
from compileboard.collectors.logs.log_loader import LoadOptions, LogLoader
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.trash import delete_run
from tests.unit.decode.recorded_logs import log_bytes
from tests.unit.logs.loading import DDP, counts, load, query_value, rows

LOG = "torch2.11-cuda-zoo_recompiles"
HEAD = "V1121 03:27:48.524000 77 torch/_dynamo/x.py:1] "


def record(header: dict[str, object], text: str | None = None, digest: str | None = None) -> str:
    """Write one record as torch does."""
    if text is None:
        return f"{HEAD}{json.dumps(header)}\n"
    header = {**header, "has_payload": digest or md5(text.encode()).hexdigest()}
    return "".join([f"{HEAD}{json.dumps(header)}\n", *(f"\t{line}\n" for line in text.split("\n"))])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "trace.log"
    path.write_bytes(log_bytes(LOG))
    return path


def test_importing_twice_adds_nothing(tmp_path: Path, log: Path) -> None:
    first = load(tmp_path / "t.db", log)
    before = counts(tmp_path / "t.db")
    second = load(tmp_path / "t.db", log)
    assert counts(tmp_path / "t.db") == before
    assert (second.run_id, second.known_run, second.record_count) == (first.run_id, True, 0)


def test_a_copy_under_another_name_is_the_same_log(tmp_path: Path, log: Path) -> None:
    first = load(tmp_path / "t.db", log)
    copy = tmp_path / "elsewhere" / "other.log"
    copy.parent.mkdir()
    copy.write_bytes(log.read_bytes())
    assert load(tmp_path / "t.db", copy).run_id == first.run_id
    assert load(tmp_path / "other.db", copy).run_id == first.run_id


@pytest.mark.parametrize("cut", [20_000, 60_001, 99_999])
def test_a_longer_copy_adds_only_what_is_new(tmp_path: Path, log: Path, cut: int) -> None:
    whole = log.read_bytes()
    load(tmp_path / "whole.db", log)
    log.write_bytes(whole[:cut])
    load(tmp_path / "t.db", log)
    log.write_bytes(whole)
    load(tmp_path / "t.db", log)
    assert counts(tmp_path / "t.db") == counts(tmp_path / "whole.db")
    torn = rows(tmp_path / "t.db", "select kind, reject_count from log_rejects")
    assert [tuple(row) for row in torn] == []


def test_a_rank_that_comes_later_joins_the_run(tmp_path: Path) -> None:
    with closing(open_writer(tmp_path / "x.db")):
        sources = find_sources(str(DDP)).sources
    folder = tmp_path / "ddp"
    folder.mkdir()
    for source in sources:
        with source.open() as file:
            (folder / source.file_name).write_bytes(file.read())
    first = load(tmp_path / "t.db", sorted(folder.iterdir())[1])
    both = load(tmp_path / "t.db", folder)
    assert both.run_id == first.run_id and counts(tmp_path / "t.db")["processes"] == 2
    assert load(tmp_path / "t.db", DDP).record_count == 0


def test_ranks_imported_one_by_one_stay_apart_and_it_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "ddp"
    folder.mkdir()
    for source in find_sources(str(DDP)).sources:
        with source.open() as file:
            (folder / source.file_name).write_bytes(file.read())
    one_by_one = [load(tmp_path / "t.db", path).run_id for path in sorted(folder.iterdir())]
    before = counts(tmp_path / "t.db")
    both = load(tmp_path / "t.db", folder)
    assert [run_id for _label, run_id in both.elsewhere] == [
        run_id for run_id in one_by_one if run_id != both.run_id
    ]
    assert counts(tmp_path / "t.db") == before and both.log_count == 1


def test_logs_given_one_by_one_of_one_folder_are_one_run(tmp_path: Path, log: Path) -> None:
    other = tmp_path / "second.log"
    other.write_bytes(log.read_bytes().replace(b" 4386 ", b" 4387 ").replace(b" 17952", b" 17953"))
    lines: list[str] = []
    import_paths(
        [str(log), str(other)],
        str(tmp_path / "t.db"),
        LoadOptions(),
        print_line=lines.append,
        index=False,
    )
    assert counts(tmp_path / "t.db")["runs"] == 1 and counts(tmp_path / "t.db")["processes"] == 2
    assert any("the logs lie apart" in line for line in lines)


def test_a_deleted_run_stays_away_until_it_is_asked_for(tmp_path: Path, log: Path) -> None:
    run_id = load(tmp_path / "t.db", log).run_id
    with closing(open_writer(tmp_path / "t.db")) as connection:
        delete_run(connection, run_id)
    assert load(tmp_path / "t.db", log).deleted and counts(tmp_path / "t.db")["runs"] == 0
    assert load(tmp_path / "t.db", log, again=True).event_count > 0


def test_every_text_is_kept_and_checked(tmp_path: Path) -> None:
    texts = ["graph one", "a\n\n\tb\n", "émigré ☃", ""]
    log = tmp_path / "x.log"
    log.write_text(
        "".join(
            record({"artifact": {"name": f"a{i}", "encoding": "string"}}, t)
            for i, t in enumerate(texts)
        )
    )
    load(tmp_path / "t.db", log)
    recorded = rows(
        tmp_path / "t.db",
        "select body from artifacts join payloads on payloads.id = payload_id order by name",
    )
    assert [unpack(row["body"]) for row in recorded] == texts


def test_damage_is_counted_by_kind_with_its_line(tmp_path: Path) -> None:
    parts = [
        record({"dynamo_start": {"stack": []}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}),
        "a stray line\n",
        record(
            {"artifact": {"name": "x", "encoding": "string"}, "frame_id": 0},
            "text",
            digest="0" * 32,
        ),
        record({"artifact": {"name": "y", "encoding": "string"}, "frame_id": -5}, "more"),
        f'{HEAD}{{"artifact": {{"name": \n',
        record({"describe_tensor": {"stack": [{"filename": 9, "line": 1}]}, "frame_id": 0}),
        record({"artifact": {"name": "z", "encoding": "string"}}, "the end")[:-5],
    ]
    log = tmp_path / "x.log"
    log.write_text("".join(parts))
    load(tmp_path / "t.db", log)
    recorded = rows(
        tmp_path / "t.db",
        "select kind, reject_count, first_line from log_rejects order by first_line",
    )
    assert [tuple(row) for row in recorded] == [
        ("stray_line", 1, 2),
        ("wrong_md5", 1, 3),
        ("bad_field", 1, 5),
        ("bad_json", 1, 7),
        ("unknown_file", 1, 8),
        ("truncated", 1, 9),
    ]
    assert [row[0] for row in rows(tmp_path / "t.db", "select state from artifacts order by id")][
        :2
    ] == [
        "damaged",
        "kept",
    ]


@pytest.mark.parametrize("process_count", [1, 2])
def test_a_changed_copy_of_a_log_is_a_run_of_its_own(
    tmp_path: Path, log: Path, process_count: int
) -> None:
    whole = log.read_bytes()
    first = load(tmp_path / "t.db", log, process_count=process_count)
    log.write_bytes(whole.replace(b'"guard_count": ', b'"guard_count": 1', 1))
    changed = load(tmp_path / "t.db", log, process_count=process_count)
    assert (changed.known_run, changed.record_count) == (
        False,
        first.record_count,
    ) and changed.run_id != first.run_id
    assert changed.changed == [(log.name, first.run_id)]
    again = load(tmp_path / "t.db", log)
    assert (again.run_id, again.record_count) == (changed.run_id, 0)
    log.write_bytes(
        whole + record({"artifact": {"name": "more", "encoding": "string"}}, "x").encode()
    )
    longer = load(tmp_path / "t.db", log)
    assert (longer.run_id, longer.record_count) == (first.run_id, 1)


def test_two_logs_in_one_file_are_two_processes(tmp_path: Path, log: Path) -> None:
    raw = log.read_bytes()
    log.write_bytes(raw + raw.replace(b" 4386 ", b" 4387 "))
    load(tmp_path / "t.db", log)
    load(tmp_path / "once.db", log)
    (reject,) = rows(tmp_path / "t.db", "select kind, reject_count, first_line from log_rejects")
    assert tuple(reject) == ("second_log", 1, raw.count(b"\n") + 1)
    assert [
        row[0] for row in rows(tmp_path / "t.db", "select pid from processes order by pid")
    ] == [4386, 4387]
    per_process = rows(tmp_path / "t.db", "select count(*) from compilations group by process_id")
    assert [row[0] for row in per_process] == [11, 11]


def test_without_payloads_the_tables_are_the_same(tmp_path: Path) -> None:
    load(tmp_path / "with.db", DDP)
    load(tmp_path / "without.db", DDP, payloads=False)
    full, light = counts(tmp_path / "with.db"), counts(tmp_path / "without.db")
    assert light.pop("payloads") == 0 < full.pop("payloads")
    assert light == full
    assert {
        row[0] for row in rows(tmp_path / "without.db", "select distinct state from artifacts")
    } == {
        "none",
        "left_out",
    }


def test_no_line_of_the_users_code_is_stored_when_it_is_redacted(tmp_path: Path) -> None:
    load(tmp_path / "t.db", DDP, redact_source=True)
    bodies = [unpack(row[0]) for row in rows(tmp_path / "t.db", "select body from payloads")]
    bodies += [unpack(row[0]) for row in rows(tmp_path / "t.db", "select body from events")]
    bodies += [unpack(row[0]) for row in rows(tmp_path / "t.db", "select detail from symbols")]
    bodies += [row[0] or "" for row in rows(tmp_path / "t.db", "select code from stack_nodes")]
    bodies += [row[0] or "" for row in rows(tmp_path / "t.db", "select args from spans")]
    code = (
        "return x + s.f(x)",
        "y = s.n(x); y, _ = s.a(y, y, y, need_weights=False)",
        "l = c(torch.randn",
    )
    assert [line for line in code if any(line in body for body in bodies)] == []
    assert any("source withheld" in body for body in bodies)


def test_a_log_that_grows_is_followed(tmp_path: Path, log: Path) -> None:
    whole = log.read_bytes()
    load(tmp_path / "whole.db", log)
    log.write_bytes(whole[:30_000])
    with closing(open_writer(tmp_path / "t.db")) as connection:
        from compileboard.collectors.store.migrations import migrate_connection

        migrate_connection(connection)
        loader = LogLoader(connection, "t.db", find_sources(str(log)), LoadOptions())
        loader.read()
        for end in (30_001, 70_000, len(whole)):
            log.write_bytes(whole[:end])
            loader.read()
        loader.finish()
    assert counts(tmp_path / "t.db") == counts(tmp_path / "whole.db")


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.binary(max_size=40), st.integers(0, 4000))
def test_any_damage_gives_counted_rejects_and_never_an_exception(
    tmp_path: Path, log: Path, position: int, inserted: bytes, dropped: int
) -> None:
    raw = log_bytes(LOG)
    position = 400 + position % (len(raw) - 400)
    log.write_bytes(raw[:position] + inserted + raw[position + dropped :])
    (tmp_path / "t.db").unlink(missing_ok=True)
    done = load(tmp_path / "t.db", log)
    assert set(done.rejects.by_kind) <= set(KINDS)
    assert query_value(tmp_path / "t.db", "select count(*) from compilations") <= 11


def test_the_users_triton_kernels_are_not_kept_when_redacting(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    kernel = "@triton_heuristics.user_autotune(\n)\n@triton.jit\ndef secret_kernel(a):\n    pass"
    texts = {
        "inductor_output_code": {"filename": "/tmp/a.py"},
        "artifact": {"name": "fx_graph_runnable"},
    }
    log.write_text("".join(record({name: title}, kernel) for name, title in texts.items()))
    load(tmp_path / "t.db", log, redact_source=True)
    assert [
        tuple(row) for row in rows(tmp_path / "t.db", "select state, payload_id from artifacts")
    ] == [
        ("withheld", None),
        ("withheld", None),
    ]


def test_what_others_than_torch_write_is_kept_unless_the_source_is_not(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(
        record({"theirs": {"line": "y = f(x)"}}, "z = g(y)")
        + record({"list": [1, "a"]})
        + record({"n": 5})
    )
    load(tmp_path / "t.db", log)
    sql = "select name, metadata, state from artifacts order by id"
    assert [tuple(row) for row in rows(tmp_path / "t.db", sql)] == [
        ("theirs", '{"line":"y = f(x)"}', "kept"),
        ("list", '{"value":[1,"a"]}', "none"),
        ("n", '{"value":5}', "none"),
    ]
    load(tmp_path / "redacted.db", log, redact_source=True)
    assert [tuple(row) for row in rows(tmp_path / "redacted.db", sql)] == [
        ("theirs", None, "withheld"),
        ("list", None, "none"),
        ("n", None, "none"),
    ]
