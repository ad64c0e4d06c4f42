"""The log reader: real logs, torn logs, logs that grow, and bytes that are no log."""

from __future__ import annotations

from datetime import datetime, timezone
from hashlib import md5
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.collectors.decode.records import TorchRecord
from compileboard.collectors.logs.trace_log import ReadStats
from tests.tools.trace_logs import read_trace_log
from tests.unit.decode.recorded_logs import log_bytes

DDP = "torch2.11-cuda-ddp-rank1"
HEAD = "V{stamp} 77 torch/_dynamo/x.py:1] "


def read(path: Path, start: int = 0) -> tuple[list[TorchRecord], ReadStats]:
    stats = ReadStats()
    return list(read_trace_log(path, "p", start, stats)), stats


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "dedicated_log_torch_trace_x.log"
    path.write_bytes(log_bytes(DDP))
    return path


def test_strings_ranks_and_offsets(log: Path) -> None:
    records, stats = read(log)
    raw = log.read_bytes()
    assert {c.rank for c in records if c.rank is not None} == {1} and {
        c.process_id for c in records
    } == {"p"}
    assert stats.end_offset == len(raw) and stats.rejects.total == 0
    assert all(raw[c.sequence : c.sequence + 1] == b"V" for c in records)
    frames = [f for c in records if c.name == "dynamo_start" for f in c.metadata["stack"]]
    assert frames and all(
        f["filename"].endswith(".py") or f["filename"].startswith("<") for f in frames
    )


def test_times_come_from_the_epoch_inside(log: Path) -> None:
    for record in read(log)[0]:
        if record.name.endswith("compilation_metrics") and record.metadata.get("end_time_us"):
            assert abs(record.time_us - record.metadata["end_time_us"]) < 2_000_000


def test_growing_log_is_read_in_parts_without_loss(log: Path) -> None:
    whole, _ = read(log)
    raw = log.read_bytes()
    records: list[TorchRecord] = []
    offset = 0
    for end in range(0, len(raw) + 40_000, 40_000):
        log.write_bytes(raw[:end])
        part, stats = read(log, offset)
        records += part
        assert set(stats.rejects.by_kind) <= {"truncated"}
        offset = stats.end_offset
    # A last record with nothing after it may be cut at a line's end: it is complete only when its
    # payload is.
    assert [(c.sequence, c.name, c.metadata, c.payload) for c in records] == [
        (c.sequence, c.name, c.metadata, c.payload) for c in whole
    ]


@settings(max_examples=40)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=60))
def test_log_that_grows_byte_by_byte(tmp_path: Path, steps: list[int]) -> None:
    head = HEAD.format(stamp="0101 00:00:01.000000")
    frame = '{"line": 3, "name": "f", "filename": 7, "loc": "x"}'
    graph, digest = md5(b"class G:\n    pass").hexdigest(), md5(b"a\nb").hexdigest()
    records = [
        '{"str": ["/r/m.py", 7]}',
        f'{{"dynamo_output_graph": {{}}, "has_payload": "{graph}"}}\n\tclass G:\n\t    pass',
        f'{{"dynamo_start": {{"stack": [{frame}]}}, "frame_id": 0}}',
        f'{{"artifact": {{"name": "dynamo_error"}}, "has_payload": "{digest}"}}\n\ta\n\tb',
    ]
    raw = "".join(f"{head}{record}\n" for record in records).encode()
    path = tmp_path / "x.log"
    captured: list[TorchRecord] = []
    offset = end = 0
    for step in [*steps, len(raw)]:
        end = min(end + step, len(raw))
        path.write_bytes(raw[:end])
        part, stats = read(path, offset)
        captured, offset = captured + part, stats.end_offset
        assert set(stats.rejects.by_kind) <= {"truncated"}
    assert [(c.name, c.payload) for c in captured] == [
        ("dynamo_start", None),
        ("artifact:dynamo_error", "a\nb"),
    ]
    assert captured[0].metadata["stack"][0]["filename"] == "/r/m.py"


def test_damage_is_counted_and_passed_over(log: Path) -> None:
    raw = log.read_bytes()
    whole, _ = read(log)
    places = [c.sequence for c in whole if c.name == "artifact:dynamo_graph_break_reason"]
    broken = bytearray(raw)
    broken[places[0] + 200] ^= 0x80  # inside the record's line or payload
    log.write_bytes(b"garbage\n\n\xff\xfe\n" + bytes(broken))
    records, stats = read(log)
    assert stats.rejects.count("stray_line") == 2
    assert sum(map(stats.rejects.count, ("bad_utf8", "wrong_md5", "bad_json"))) >= 1
    assert len(records) >= len(whole) - 1


def test_changed_payload_is_kept_and_counted(log: Path) -> None:
    raw = log.read_bytes()
    log.write_bytes(raw.replace(b"Graph Break Reason", b"Graph Break reason", 1))
    records, stats = read(log)
    assert stats.rejects.count("wrong_md5") == 1 and len(records) == len(read(log)[0])


@pytest.mark.parametrize("text", ["if x:\n\ty = 1\n", "\ta\tb", "\n\n\tc\n", "plain\n text"])
def test_tabs_of_a_text_are_its_own(tmp_path: Path, text: str) -> None:
    log, lines = tmp_path / "trace.log", text.replace("\n", "\n\t")
    digest = md5(text.encode(), usedforsecurity=False).hexdigest()
    prefix = HEAD.format(stamp="1121 03:27:48.524000")
    log.write_text(
        (
            f'{prefix}{{"artifact": {{"name": "dynamo_error"}}, "has_payload": '
            f'"{digest}"}}\n\t{lines}\n'
        )
        * 2
    )
    records, stats = read(log)
    assert [record.payload for record in records] == [text, text]
    assert stats.rejects.total == 0


def test_year_passes_in_a_log(tmp_path: Path) -> None:
    ts = int(datetime(2025, 12, 31, 23, 59, 58, tzinfo=timezone.utc).timestamp() * 1e6)
    path = tmp_path / "x.log"
    lines = [
        HEAD.format(stamp="0101 00:59:58.000000") + '{"chromium_event": {}}',
        f'\t{{\n\t"name": "dynamo",\n\t"ts": {ts}.5,\n\t}}',
        HEAD.format(stamp="0101 00:59:59.000000")
        + '{"artifact": {"name": "dynamo_error", "encoding": "string"}}',
        HEAD.format(stamp="1231 23:00:00.000000")
        + '{"artifact": {"name": "dynamo_error", "encoding": "string"}}',
        HEAD.format(stamp="0101 00:00:01.000000")
        + '{"artifact": {"name": "dynamo_error", "encoding": "string"}}',
    ]
    path.write_text("\n".join(lines) + "\n")
    first, two, three = (c.time_us for c in read(path)[0])
    assert first == ts + 1_000_000 and two < three and three - two < 2 * 3_600_000_000


@pytest.mark.parametrize("content", [b"", b"\n", b"\t\n\tx\n", b"\x00" * 99, b"V", b"{}\n" * 3])
def test_what_is_no_log_gives_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    assert read(path)[0] == []


@settings(max_examples=60)
@given(st.integers(0, 300_000), st.binary(max_size=30), st.integers(0, 60))
def test_any_damage_is_survived(
    tmp_path: Path, position: int, inserted: bytes, dropped: int
) -> None:
    raw = log_bytes("torch2.11-cuda-zoo_backend_failure")
    position %= len(raw)
    path = tmp_path / "x.log"
    path.write_bytes(raw[:position] + inserted + raw[position + dropped :])
    records, stats = read(path)
    assert (
        len({c.sequence for c in records}) == len(records)
        and stats.end_offset <= path.stat().st_size
    )
