"""The folder of a copy: it takes its own files away and nobody else's, and appears together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compileboard.app.site import folder
from compileboard.app.site.folder import MARKER, STAGE, FolderError, publish, staging


def _write(target: Path, *names: str) -> None:
    with staging(target) as stage:
        for name in names:
            stage.write(name, b"new")
        publish(target, stage, set(names))


def _list(target: Path) -> set[str]:
    return {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()} - {
        MARKER
    }


def test_second_copy_takes_away_what_only_the_first_had(tmp_path: Path) -> None:
    target = tmp_path / "new" / "site"
    _write(target, "index.html", "runs/A/index.html")
    (target / "CNAME").write_text("example.org")
    _write(target, "index.html", "runs/B/index.html")
    assert _list(target) == {"index.html", "runs/B/index.html", "CNAME"}
    assert not (target / "runs" / "A").exists()
    assert json.loads((target / MARKER).read_text())["complete"] is True


def test_folder_with_other_files_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FolderError, match=r"files that no export wrote \(notes\.txt\)"):
        _write(tmp_path, "index.html")
    assert _list(tmp_path) == {"notes.txt"}


def test_second_export_at_once_is_refused_and_the_first_ends_whole(tmp_path: Path) -> None:
    target = tmp_path / "site"
    with staging(target) as first:
        first.write("index.html", b"first")
        with pytest.raises(FolderError, match=r"another export is writing .*; wait for it"):
            _write(target, "index.html")
        publish(target, first, {"index.html"})
    assert (target / "index.html").read_bytes() == b"first"


def test_export_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    code = (
        f"import os\nfrom pathlib import Path\nfrom compileboard.app.site.folder import staging\n"
        f"with staging(Path({str(tmp_path)!r})):\n    os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert (tmp_path / STAGE).is_dir()
    _write(tmp_path, "index.html")
    assert _list(tmp_path) == {"index.html"}


def test_checkout_without_files_is_taken(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    _write(tmp_path, "index.html")
    assert _list(tmp_path) == {"index.html"}


def test_file_in_the_way_is_refused_before_anything_changes(tmp_path: Path) -> None:
    _write(tmp_path, "index.html")
    (tmp_path / "about.html").write_text("mine")
    with pytest.raises(FolderError, match=r"about\.html is in the way and no export wrote it"):
        _write(tmp_path, "index.html", "about.html")
    assert (tmp_path / "about.html").read_text() == "mine"


@pytest.mark.parametrize(
    "files", [["../outside"], ["/etc/passwd"], "index.html", [1], ["a\\..\\b"]]
)
def test_marker_of_somebody_else_removes_nothing(tmp_path: Path, files: object) -> None:
    target = tmp_path / "site"
    target.mkdir()
    (tmp_path / "outside").write_text("mine")
    (target / MARKER).write_text(json.dumps({"files": files}))
    with pytest.raises(FolderError, match="does not list files as this command writes it"):
        _write(target, "index.html")
    assert (tmp_path / "outside").read_text() == "mine"


def test_interrupted_copy_leaves_what_was_there(tmp_path: Path) -> None:
    _write(tmp_path, "index.html")
    with pytest.raises(KeyboardInterrupt), staging(tmp_path) as stage:
        stage.write("index.html", b"half")
        raise KeyboardInterrupt
    assert (tmp_path / "index.html").read_bytes() == b"new"
    assert not (tmp_path / STAGE).exists()


def test_folder_made_for_a_copy_that_failed_goes_again(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), staging(tmp_path / "site"):
        raise OSError(28, "full")
    assert list(tmp_path.iterdir()) == []


def test_copy_that_stops_half_way_says_so_and_the_next_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, moved = folder.os.replace, []

    def replace(source: Path, target: Path) -> None:
        if moved and target.name != MARKER:
            raise OSError(28, "No space left on device")
        if target.name != MARKER:
            moved.append(target)
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(folder.os, "replace", replace)
        with pytest.raises(
            FolderError, match="No space left on device; 1 of 2 files of the new copy are in place"
        ):
            _write(tmp_path, "index.html", "a/index.html")
    _write(tmp_path, "index.html")
    assert _list(tmp_path) == {"index.html"}
