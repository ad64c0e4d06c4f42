"""Boxes push over a faulty network to a killed server: every event is stored exactly once."""

from __future__ import annotations

import lzma
from pathlib import Path

from tests.tools.observed import ROOT
from tests.tools.push.fleet import push_all

EVENTS = ROOT / "tests/data/events/torch2.11-cuda-on_cuda.jsonl.xz"


def test_every_event_is_stored_once_whatever_the_network_and_the_server_do(tmp_path: Path) -> None:
    recorded = lzma.decompress(EVENTS.read_bytes()).decode().splitlines()
    result = push_all(tmp_path, recorded, box_count=4, kill_count=2, share=0.25, seed=3)
    assert result.differing == []
    assert len(result.faults) > 4
