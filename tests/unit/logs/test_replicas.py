"""Replicas of recorded logs are whole, have new ids, and the same facts in each copy."""

from __future__ import annotations

import lzma
import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.imports.replicas import ReplicaFacts, make_replica
from compileboard.collectors.contract.events import Event, GraphBroke, Recompiled
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import TorchRecord
from compileboard.collectors.logs.trace_log import ReadStats
from tests.tools.trace_logs import read_trace_log
from tests.unit.decode.recorded_logs import log_bytes

NAMES = (
    "torch2.11-cuda-zoo_graph_breaks",
    "torch2.11-cuda-zoo_recompiles",
    "torch2.11-cuda-ddp-rank1",
)
ROUNDS = 3


def read(path: Path) -> tuple[list[TorchRecord], ReadStats, list[Event]]:
    stats, decoder = ReadStats(), Decoder()
    captured = list(read_trace_log(path, "p", 0, stats))
    return captured, stats, [event for captured in captured for event in decoder.decode(captured)]


def replicate(folder: Path, *, perturb: bool) -> tuple[Path, ReplicaFacts]:
    sources = [folder / f"{name}.log" for name in NAMES]
    for source in sources:
        source.write_bytes(log_bytes(source.stem))
    size = sum(source.stat().st_size for source in sources)
    return folder / "replica.log", make_replica(
        sources, int((ROUNDS - 0.2) * size), folder / "replica.log", perturb=perturb
    )


@pytest.mark.parametrize("perturb", [False, True])
def test_replica_reads_without_a_reject(tmp_path: Path, perturb: bool) -> None:
    path, facts = replicate(tmp_path, perturb=perturb)
    captured, stats, _ = read(path)
    assert facts.rounds == ROUNDS and facts.size_bytes == path.stat().st_size
    assert stats.records == facts.records and stats.end_offset == facts.size_bytes
    assert {(record.process_id, record.rank) for record in captured} == {
        ("p", None)
    } and stats.rejects.by_kind == {}


def test_copies_multiply_events_and_not_breaks_or_causes(tmp_path: Path) -> None:
    path, _ = replicate(tmp_path, perturb=True)
    originals = [event for name in NAMES for event in read(tmp_path / f"{name}.log")[2]]
    copies = read(path)[2]
    assert Counter(e.KIND for e in copies) == {
        kind: ROUNDS * count for kind, count in Counter(e.KIND for e in originals).items()
    }
    for kind in (GraphBroke, Recompiled):
        was, now = (
            {
                str(e.reason if isinstance(e, GraphBroke) else e.guards)
                for e in some
                if isinstance(e, kind)
            }
            for some in (originals, copies)
        )
        assert len(now) == len(was) > 0


def test_ids_and_times_are_new_in_every_copy(tmp_path: Path) -> None:
    path, facts = replicate(tmp_path, perturb=False)
    captured, _, _ = read(path)
    metrics = [c for c in captured if c.name == "compilation_metrics"]
    assert all(c.metadata["compile_id"] == f"{c.frame_id}/{c.frame_compile_id}" for c in metrics)
    assert (
        len({c.frame_id for c in metrics})
        <= facts.frames
        == max(c.frame_id or 0 for c in captured) + 1
    )
    assert all(abs(c.time_us - c.metadata["end_time_us"]) < 2_000_000 for c in metrics)
    assert [c.time_us for c in metrics] == sorted(c.time_us for c in metrics)


def test_perturbed_copies_share_no_payload(tmp_path: Path) -> None:
    path, _ = replicate(tmp_path, perturb=True)
    hashes = Counter(re.findall(rb'"has_payload": "(\w+)"', path.read_bytes()))
    within = Counter(
        re.findall(rb'"has_payload": "(\w+)"', b"".join(log_bytes(name) for name in NAMES))
    )
    assert len(hashes) >= ROUNDS * len(within) * 0.99 and max(hashes.values()) <= max(
        within.values()
    )


def test_packed_and_damaged_sources(tmp_path: Path) -> None:
    raw = log_bytes(NAMES[0])
    (tmp_path / "whole.log.xz").write_bytes(lzma.compress(raw, preset=0))
    assert (
        make_replica([tmp_path / "whole.log.xz"], 1, tmp_path / "out.log", perturb=False).copies
        == 1
    )
    (tmp_path / "torn.log").write_bytes(raw.replace(b"Graph break", b"Graph brake", 1))
    with pytest.raises(SystemExit, match="does not match its md5"):
        make_replica([tmp_path / "torn.log"], 1, tmp_path / "out.log", perturb=False)
