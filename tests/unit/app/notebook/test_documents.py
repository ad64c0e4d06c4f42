"""docs/notebook.md, docs/frames.md and docs/notebook.ipynb say what the program does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.tools.history import record_history
from tests.tools.observed import ROOT
from tests.unit.app.notebook.documents import FRAMES, NOTEBOOK, fill_tables, run_notebook


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    text = FRAMES.read_text(encoding="utf-8")
    assert fill_tables(text) == text, "write it anew: python -m tests.unit.app.notebook.documents"


def test_the_first_example_of_the_page_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")
    code, shown = (
        re.findall(f"```{language}\n(.*?)```", text, re.DOTALL)[0]
        for language in ("python", "text")
    )
    record_history(tmp_path / "compileboard.db")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out == shown


def test_every_cell_of_the_notebook_runs_and_gives_what_it_shows(tmp_path: Path) -> None:
    shown, executed = nbformat.read(NOTEBOOK, as_version=4), run_notebook(tmp_path)
    assert sum(cell.cell_type == "code" for cell in executed.cells) > 12
    for cell, run in zip(shown.cells, executed.cells, strict=True):
        assert list_outputs(run) == list_outputs(cell), cell.source
    assert str(tmp_path) not in NOTEBOOK.read_text(encoding="utf-8")


def list_outputs(cell: Any) -> list[Any]:
    return [dict(output) for output in cell.get("outputs", ())]
