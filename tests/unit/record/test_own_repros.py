"""Which repros this machine recorded itself: all of what would run must be known."""

from __future__ import annotations

from pathlib import Path

import pytest

from compileboard.collectors.record.left_files import is_own_repro, note_own_repro

MANIFEST = {
    "kind": "compile",
    "preload": ["mine.py"],
    "settings": {"inductor": {"cpp.cxx": "g++"}},
    "message": "a",
}


def test_repro_is_own_as_long_as_nothing_of_it_that_runs_was_changed(tmp_path: Path) -> None:
    note_own_repro(tmp_path, "RUN", MANIFEST, ("program", None))
    note_own_repro(tmp_path, "RUN", MANIFEST, ("", "of dynamo"))
    assert is_own_repro(tmp_path, "RUN", {**MANIFEST, "message": "b"}, ("program", "of dynamo"))
    for change in (
        {"preload": ["/tmp/x.py"]},
        {"settings": {"inductor": {"cpp.cxx": "x"}}},
        {"backend": "x"},
    ):
        assert not is_own_repro(tmp_path, "RUN", {**MANIFEST, **change}, ("program", None))
    assert not is_own_repro(tmp_path, "RUN", MANIFEST, ("program ", None))
    assert not is_own_repro(tmp_path, "OTHER", MANIFEST, ("program", None))


@pytest.mark.parametrize("run_id", ["../../x", "", "a/b", "\0", "x\n"])
def test_run_with_a_hostile_name_is_nobodys(tmp_path: Path, run_id: str) -> None:
    note_own_repro(tmp_path, run_id, MANIFEST, ("program",))
    assert not is_own_repro(tmp_path, run_id, MANIFEST, ("program",)) and not list(
        tmp_path.rglob("*")
    )
