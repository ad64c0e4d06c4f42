"""Which repros this machine recorded itself: all of what would run must be known."""

from __future__ import annotations

from pathlib import Path

import pytest

from compileboard.collectors.record.own_repros import find_own_folders, note_own_repro

MANIFEST = {
    "kind": "compile",
    "preload": ["mine.py"],
    "settings": {"inductor": {"cpp.cxx": "g++"}},
    "message": "a",
}


def test_repro_is_own_as_long_as_nothing_of_it_that_runs_was_changed(tmp_path: Path) -> None:
    folders = ("/home/me/a b", "/home/me/ü\n")
    note_own_repro(tmp_path, "RUN", MANIFEST, ("program", None), folders)
    note_own_repro(tmp_path, "RUN", MANIFEST, ("", "of dynamo"))
    changed = {**MANIFEST, "message": "b"}
    assert find_own_folders(tmp_path, "RUN", changed, ("program", "of dynamo")) == folders
    for change in (
        {"preload": ["/tmp/x.py"]},
        {"settings": {"inductor": {"cpp.cxx": "x"}}},
        {"backend": "x"},
    ):
        assert find_own_folders(tmp_path, "RUN", {**MANIFEST, **change}, ("program", None)) is None
    assert find_own_folders(tmp_path, "RUN", MANIFEST, ("program ", None)) is None
    assert find_own_folders(tmp_path, "OTHER", MANIFEST, ("program", None)) is None


@pytest.mark.parametrize("run_id", ["../../x", "", "a/b", "\0", "x\n"])
def test_run_with_a_hostile_name_is_nobodys(tmp_path: Path, run_id: str) -> None:
    note_own_repro(tmp_path, run_id, MANIFEST, ("program",))
    assert find_own_folders(tmp_path, run_id, MANIFEST, ("program",)) is None
    assert not list(tmp_path.rglob("*"))
