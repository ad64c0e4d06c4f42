"""A crawl of two checkouts finds what differs, and nothing where nothing does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.tools.crawl import compare, main
from tests.tools.crawl_side import Answers, to_text
from tests.tools.observed import ROOT

CODE = ("app", "collectors", "compileboard", "static", "templates")


@pytest.mark.nightly
def test_a_changed_word_and_a_page_that_fails_are_found_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in CODE:
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True)
    page = tmp_path / "templates" / "runs" / "index.html"
    page.write_text(page.read_text().replace("Runs", "Races"))
    (tmp_path / "templates" / "incidents" / "index.html").unlink()
    assert main([str(ROOT), str(tmp_path), "--pages", "5"]) == 1
    shown = capsys.readouterr().out
    assert "/incidents: 200, now 500" in shown
    assert "old: <title>Runs · CompileBoard\n    new: <title>Races · CompileBoard" in shown
    assert "JSON that differs: 0," in shown


def test_a_lost_column_is_named_by_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (b'{"data": [{"id": "a", "host": "box"}]}', b'{"data": [{"id": "a"}]}')
    for name, body in zip(("old", "new"), rows):
        (tmp_path / name).mkdir()
        answers = Answers(tmp_path / name, client=None)
        answers.keep("/api/v1/runs", "JSON", 200, to_text(body, "application/json"))
        answers.keep(f"/{name}", "page", 200, "the same")
        answers.store.commit()
        answers.store.close()
    assert compare([tmp_path / "old", tmp_path / "new"]) == 3
    shown = capsys.readouterr().out
    assert 'old: .data[0].host = "box"\n    new: .data[0].id = "a"' in shown
    assert "old side alone: 1\n  /old\n" in shown and "new side alone: 1\n  /new\n" in shown
