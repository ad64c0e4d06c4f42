"""A token of the scope `ingest` changes no run of another sender, whichever way it comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.push.two_senders import count_changes


@pytest.mark.parametrize("seed", [1, 2])
def test_forged_and_replayed_requests_change_no_run_of_another_sender(
    tmp_path: Path, seed: int
) -> None:
    senders, changed = count_changes(tmp_path, seed)
    assert changed == []
    assert 403 in senders.statuses and not {201, 204} & set(senders.statuses)
    assert senders.refused_imports > 0
