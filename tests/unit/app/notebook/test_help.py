"""What `help()` says of the package, and that its examples run."""

from __future__ import annotations

import doctest
import pydoc
from pathlib import Path

import pytest

import compileboard
from compileboard.app.notebook.board import Board, BoardRun
from compileboard.collectors import bench
from tests.tools.make_db import DATA
from tests.tools.make_db import main as make_db


def test_help_names_each_method_with_a_sentence() -> None:
    for owner in (Board, BoardRun):
        text = pydoc.plain(pydoc.render_doc(owner))
        assert "FrameMethod object" not in text and "compiles(" in text
    assert "one row per compile of a function" in text


def test_examples_give_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_db(["compileboard.db", str(DATA / "trace" / "torch2.13-breaks.log.xz")])
    for module in (compileboard, bench):
        found = doctest.testmod(module)
        assert found.attempted >= 2 and found.failed == 0, module.__name__
