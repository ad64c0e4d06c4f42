"""Apply a fix to copies of source files, as a diff or suggested edits."""

from __future__ import annotations

import difflib
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.fixes.fix import LineEdit
from compileboard.collectors.runs.git import ask_git

PATCH_NAME = "patch.diff"
_GIT = ("-c", "core.autocrlf=false", "apply", "--whitespace=nowarn")


class CannotTry(ValueError):
    pass


@dataclass(frozen=True)
class PatchedFile:
    path: Path
    name: str
    copy: Path

    def diff(self) -> str:
        old, new = (
            path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
            for path in (self.path, self.copy)
        )
        lines = difflib.unified_diff(old, new, f"a/{self.name}", f"b/{self.name}")
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def apply_patch(text: str, roots: Sequence[Path], folder: Path) -> list[PatchedFile]:
    """Apply a unified diff with git to copies; paths are relative to one of `roots`.

    Raises CannotTry if it is invalid or does not apply without fuzz.
    """
    folder.mkdir(parents=True, exist_ok=True)
    patch = folder / PATCH_NAME
    patch.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
    if not text.strip():
        raise CannotTry("the patch is empty; make one with `git diff > fix.patch`")
    reasons: dict[str, None] = {}
    for strip in ("-p1", "-p0"):
        names = _list_names(patch, folder, strip, reasons)
        for root in roots if names else ():
            missing = [name for name in names if not _is_inside(root, name)]
            if not missing:
                return _apply(patch, names, root, folder, strip)
            reasons[f"there is no file {missing[0]} in {root}"] = None
    raise CannotTry(
        f"the patch cannot be used: {'; '.join(reasons)}. It takes a unified diff of files below "
        f"{' or '.join(map(str, roots))}"
    )


def _git(words: Sequence[str], folder: Path) -> tuple[int, str, str]:
    try:
        # No repository around the folder is asked: one would hide the files that it does not know.
        completed = ask_git(
            [*_GIT, *words], str(folder), also={"GIT_CEILING_DIRECTORIES": str(folder.parent)}
        )
    except OSError as error:
        raise CannotTry(f"git is needed to apply a patch: {error}") from None
    return completed.returncode, completed.stdout, completed.stderr


def _list_names(patch: Path, folder: Path, strip: str, reasons: dict[str, None]) -> list[str]:
    code, output, errors = _git([strip, "--numstat", "-z", str(patch)], folder)
    if code:
        reasons[
            errors.strip().removeprefix("error: ").splitlines()[0]
            if errors.strip()
            else "git refuses it"
        ] = None
        return []
    fields = [record.split("\t") for record in output.split("\0") if record]
    names = [parts[2] for parts in fields if len(parts) == 3]
    if any(parts[0] == "-" for parts in fields):
        raise CannotTry("the patch changes a binary file; only source files can be tried")
    summary = _git([strip, "--summary", str(patch)], folder)[1].split()
    if (
        len(names) != len(fields)
        or any(not name for name in names)
        or {"create", "delete", "rename"} & set(summary)
    ):
        raise CannotTry(
            "the patch adds, deletes or renames files; only changes of files that are there "
            "can be tried"
        )
    return names


def _is_inside(root: Path, name: str) -> bool:
    path = (root / name).resolve()
    return path.is_file() and path.is_relative_to(root.resolve())


def _apply(
    patch: Path, names: Sequence[str], root: Path, folder: Path, strip: str
) -> list[PatchedFile]:
    copies = folder / "files"
    files = [PatchedFile((root / name).resolve(), name, copies / name) for name in names]
    for file in files:
        file.copy.parent.mkdir(parents=True, exist_ok=True)
        file.copy.write_bytes(file.path.read_bytes())
    code, _, errors = _git([strip, "--verbose", str(patch)], copies)
    if code:
        words = [
            line.removeprefix("error: ")
            for line in errors.splitlines()
            if not line.startswith("Checking patch")
        ]
        raise CannotTry(
            (
                f"the patch does not fit the files in {root} as they are now; nothing was run. git "
                "says:\n"
            )
            + "\n".join(f"  {line}" for line in words if line.strip())
            + "\nMake the patch anew from these files (`git diff`)."
        )
    return files


def apply_edits(
    edits: Iterable[LineEdit],
    recorded: Mapping[tuple[str, int], str],
    roots: Sequence[Path],
    folder: Path,
) -> list[PatchedFile]:
    by_file: dict[str, list[LineEdit]] = {}
    for edit in edits:
        by_file.setdefault(edit.file, []).append(edit)
    files = []
    for name, own in by_file.items():
        path = _find(name, roots)
        copy = folder / "files" / (path.name if Path(name).is_absolute() else name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        lines = io.StringIO(path.read_bytes().decode("utf-8"), newline="").readlines()
        _check_lines(name, own, lines, recorded)
        for edit in sorted(own, key=lambda edit: edit.line, reverse=True):
            ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
            start = edit.line - 1
            lines[start : start + edit.line_count] = [
                line.rstrip("\r\n") + ending for line in edit.replacement
            ]
        copy.write_bytes("".join(lines).encode())
        files.append(PatchedFile(path, name, copy))
    return files


def _find(name: str, roots: Sequence[Path]) -> Path:
    for root in roots:
        if _is_inside(root, name):
            return (root / name).resolve()
    raise CannotTry(
        f"there is no file {name} in {' or '.join(map(str, roots))}; run it where the program "
        "is, or use --patch"
    )


def _check_lines(
    name: str,
    edits: Iterable[LineEdit],
    lines: Sequence[str],
    recorded: Mapping[tuple[str, int], str],
) -> None:
    for edit in edits:
        for number in range(edit.line, edit.line + max(edit.line_count, 1)):
            expected = recorded.get((name, number))
            came = lines[number - 1].strip() if number <= len(lines) else None
            if (expected is not None and came != expected.strip()) or (
                edit.line_count and came is None
            ):
                raise CannotTry(
                    f"{name} has changed since the run was recorded: line {number} is "
                    f"{'not there' if came is None else repr(came)}, expected "
                    f"{(expected or '').strip()!r}. "
                    "Record the program again, then try its fix; or use --patch"
                )


def join_diffs(files: Iterable[PatchedFile]) -> str:
    return "".join(file.diff() for file in files)


def map_copies(files: Iterable[PatchedFile]) -> dict[str, str]:
    return {os.path.realpath(file.path): str(file.copy) for file in files}
