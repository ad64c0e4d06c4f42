"""What cannot be asked for is said before the first model."""

from __future__ import annotations

from pathlib import Path

import pytest

from compileboard.collectors.cli.bench import make_output


def test_a_folder_for_files_is_made_and_left_empty(tmp_path: Path) -> None:
    make_output("--output", str(tmp_path / "a" / "b"))
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "afile"
    file.touch()
    for name, fault in (
        (str(file), "it is a file"),
        (str(file / "inside"), "Not a directory"),
        ("/proc/xx", "No such"),
    ):
        with pytest.raises(
            ValueError, match=f"--output-directory {name}: expected a folder.*{fault}"
        ):
            make_output("--output-directory", name)
