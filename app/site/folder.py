"""The folder of a static copy. Its files are replaced together, and other files are not changed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from compileboard.app.core.resources import __version__

MARKER = ".compileboard-site"
STAGE = ".compileboard-site.part"
# Contents of a branch for pages before the first copy.
_IGNORED = frozenset((MARKER, STAGE, ".git"))


class FolderError(Exception):
    """The folder cannot be used for a copy."""


@dataclass(frozen=True)
class Stage:
    """The temporary folder in which a copy is written before it is published."""

    path: Path

    def write(self, name: str, body: bytes) -> None:
        """Write one file and its parent folders. Raises OSError if it cannot be written."""
        file = self.path / name
        try:
            file.write_bytes(body)
        except FileNotFoundError:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(body)


@contextmanager
def staging(folder: Path) -> Iterator[Stage]:
    """Yield a temporary folder inside the target folder and remove it afterwards.

    A target folder created here is removed if it is still empty. Raises FolderError if the target
    is a file, contains files that no earlier export wrote, or is in use by another export; OSError
    if it is not writable.
    """
    made = not folder.exists()
    if not made and not folder.is_dir():
        raise FolderError(
            f"{folder} is a file; --site needs a folder, which may be missing or empty"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        _check_folder(folder)
        stage = folder / STAGE
        shutil.rmtree(stage, ignore_errors=True)  # Left by a killed copy.
        try:
            stage.mkdir()
            yield Stage(stage)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
            if made and not any(folder.iterdir()):
                folder.rmdir()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(
        folder, os.O_RDONLY | os.O_DIRECTORY
    )  # the folder itself, so that no lock file is published
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise FolderError(
            f"another export is writing {folder}; wait for it, or give --site another folder"
        ) from None
    except OSError:
        pass  # NFS cannot lock folders: continue without
    try:
        yield
    finally:
        os.close(descriptor)


def _check_folder(folder: Path) -> None:
    others = sorted(path.name for path in folder.iterdir() if path.name not in _IGNORED)
    if others and not (folder / MARKER).is_file():
        raise FolderError(
            f"{folder} has files that no export wrote "
            f"({', '.join(others[:3])}{', …' if len(others) > 3 else ''}); "
            "give --site a folder that is empty, missing or holds an earlier export"
        )


def read_written_files(folder: Path) -> set[str]:
    """Return the files that earlier copies wrote, from their marker file.

    Raises FolderError if the marker is not valid.
    """
    marker = folder / MARKER
    if not marker.exists():
        return set()
    try:
        names = json.loads(marker.read_text(encoding="utf-8"))["files"]
        if all(isinstance(name, str) and _is_inside(name) for name in names):
            return set(names)
    except (ValueError, KeyError, TypeError):
        pass
    raise FolderError(
        f"{marker} does not list files as this command writes it; remove the folder or choose "
        "another"
    )


def publish(folder: Path, stage: Stage, names: set[str]) -> int:
    """Move a finished copy into its folder, remove files that only earlier copies had, and return
    the number removed.

    Raises FolderError if a file that no export wrote is in the way, or something cannot be moved.
    """
    before = read_written_files(folder)
    foreign = [name for name in sorted(names - before) if os.path.lexists(folder / name)]
    if foreign:
        raise FolderError(
            f"{folder / foreign[0]} is in the way and no export wrote it; move it, or give "
            "--site another folder"
        )
    # Listed before they exist: if this is interrupted, the next copy knows that they are its own.
    _write_marker(folder, before | names, complete=False)
    moved, stale = 0, sorted(before - names)
    try:
        for name in sorted(
            names, key=lambda name: (name.endswith(".html"), name == "index.html", name)
        ):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(stage.path / name, target)
            moved += 1
        for name in stale:
            _remove(folder, name)
    except OSError as error:
        raise FolderError(
            f"cannot write {folder}: {error.strerror or error}; {moved} of {len(names)} files "
            "of the new copy are in "
            "place, the others are missing or of the copy before: run the command again"
        ) from error
    _write_marker(folder, names, complete=True)
    return len(stale)


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return (
        not path.is_absolute() and ".." not in path.parts and bool(path.parts) and "\\" not in name
    )


def _remove(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    for above in PurePosixPath(name).parents:
        if str(above) == ".":
            return
        try:
            (folder / above).rmdir()
        except OSError:
            return  # not empty, or already gone


def _write_marker(folder: Path, names: set[str], *, complete: bool) -> None:
    marker = {"compileboard": __version__, "complete": complete, "files": sorted(names)}
    temporary = folder / f"{MARKER}.new"
    temporary.write_text(json.dumps(marker, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    os.replace(temporary, folder / MARKER)
