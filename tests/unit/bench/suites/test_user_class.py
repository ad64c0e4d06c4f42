"""A class that a file cannot have is refused before anything runs; others go to the child."""

from __future__ import annotations

from pathlib import Path

import pytest

from compileboard.collectors.bench.suites.user import OnlyError, parse_only

MARK = "open({!r}, 'w').close()\n"  # running the file would leave this


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("class Net: ...\nclass Big: ...", "has no class 'Nett'; its classes are Net, Big"),
        ("x = 1", "its classes are none"),
        ("class Nett:\n  def f(:", "cannot be imported: SyntaxError in line 3: "),
        ("\0", "cannot be imported: "),
    ],
)
def test_what_is_not_there_is_said_and_the_file_is_not_run(
    tmp_path: Path, body: str, message: str
) -> None:
    (tmp_path / "nets.py").write_text(MARK.format(str(tmp_path / "ran")) + body)
    with pytest.raises(OnlyError, match=message):
        parse_only(f"path:{tmp_path / 'nets.py'},class:Nett")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "body",
    [
        "if True:\n    class Nett: ...",
        "from others import Net as Nett",
        "from others import *",
        "Nett = type('Nett', (), {})",
        "globals()['Ne' + 'tt'] = type('Nett', (), {})",
        "def __getattr__(name): ...",
        "x = '\\d'\nclass Nett: ...",
    ],
)
def test_what_may_be_there_passes(tmp_path: Path, body: str) -> None:
    (tmp_path / "nets.py").write_text(body)
    assert [ref.name for ref in parse_only(f"path:{tmp_path / 'nets.py'},class:Nett")] == ["Nett"]
