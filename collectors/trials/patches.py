"""Apply a fix to copies of source files, as a diff or suggested edits."""

from __future__ import annotations

import ast
import difflib
import io
import json
import os
import platform
import shlex
import shutil
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.contract.secrets import PREFIXES, WITHHELD, can_run_again
from compileboard.collectors.fixes.fix import LineEdit
from compileboard.collectors.record.git import ask_git
from compileboard.collectors.record.program import CannotRun, check_program
from compileboard.collectors.terminal.run_summary import find_run
from compileboard.collectors.terminal.values import collector_command

PATCH_NAME = "patch.diff"
_GIT = ("-c", "core.autocrlf=false", "apply", "--whitespace=nowarn")


class CannotTry(ValueError):
    pass


@dataclass(frozen=True)
class PatchedFile:
    path: Path
    name: str
    copy: Path
    original: bytes = b""  # The file's content when the copy was made.

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
    paths = {name: (root / name).resolve() for name in names}
    files = [
        PatchedFile(path, name, copies / name, path.read_bytes()) for name, path in paths.items()
    ]
    for file in files:
        file.copy.parent.mkdir(parents=True, exist_ok=True)
        file.copy.write_bytes(file.original)
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
        original = path.read_bytes()
        lines = _split_lines(original)
        _check_lines(name, own, lines, recorded)
        for edit in sorted(own, key=lambda edit: edit.line, reverse=True):
            ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
            start = edit.line - 1
            lines[start : start + edit.line_count] = [
                line.rstrip("\r\n") + ending for line in edit.replacement
            ]
        copy.write_bytes("".join(lines).encode())
        files.append(PatchedFile(path, name, copy, original))
    return files


def _split_lines(content: bytes) -> list[str]:
    return io.StringIO(content.decode("utf-8"), newline="").readlines()


def check_recorded(files: Iterable[PatchedFile], recorded: Mapping[tuple[str, int], str]) -> None:
    """Raises CannotTry if a recorded line of a file has changed."""
    for file in files:
        edits = [LineEdit(name, line, 1, ()) for name, line in recorded if name == file.name]
        _check_lines(file.name, edits, _split_lines(file.original), recorded)


def write_files(files: Sequence[PatchedFile]) -> None:
    """Replace each file atomically by its patched copy. Raises CannotTry if a file was changed
    after it was patched, or cannot be written.
    """
    for file in files:
        if file.path.read_bytes() != file.original:
            raise CannotTry(f"{file.path} was changed while the fix was tried; nothing was written")
    for file in files:
        temporary = file.path.with_name(f".{file.path.name}.{os.getpid()}")
        try:
            shutil.copyfile(file.copy, temporary)
            shutil.copymode(file.path, temporary)
            os.replace(temporary, file.path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise CannotTry(f"{file.path} cannot be written: {error.strerror}") from None


def find_import_of_torch(text: str) -> int | None:
    """Return the last line of a module's own `import torch`, None if it has none."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return None
    for node in body:
        if isinstance(node, ast.Import) and any(
            alias.name.partition(".")[0] == "torch" and alias.asname is None for alias in node.names
        ):
            return node.end_lineno
    return None


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


# Where torch writes, or what reads its log: of the recorded execution, not of the program.
_LEFT_OUT = ("TORCH_TRACE", "TORCHINDUCTOR_CACHE_DIR", "TORCH_COMPILE_DEBUG_DIR")
_OF_A_RUN = "COMPILEBOARD_"


@dataclass(frozen=True)
class RecordedProgram:
    run_id: str
    name: str
    source: str
    argv: tuple[str, ...]
    command: str  # The displayed command; for a benchmark, the name of a model and its experiment.
    folder: Path
    roots: tuple[
        Path, ...
    ]  # the folder, and the repository's if it has one: names of files are relative to them
    environment: Mapping[str, str]
    keep_source: bool
    has_stack_room: bool
    graph_break_count: int | None
    recompile_count: int | None
    warnings: tuple[str, ...] = ()


def load_program(
    connection: sqlite3.Connection,
    given: str,
    environment: Mapping[str, str],
    command: Sequence[str] = (),
    sources: Sequence[str] = ("live", "bench"),
) -> RecordedProgram:
    """Load a run's program, optionally with another command. With `latest`, it is the newest run of
    some `sources`. Raises CannotTry if there is no such run or its program cannot be started here.
    """
    # Where there is none of them, the newest of the others says why it is refused.
    run_id = find_run(connection, given, *sources) or find_run(connection, given)
    if run_id is None:
        raise CannotTry(f"there is no run {given!r}; `{collector_command('list')}` names them")
    row = connection.execute(
        """
        select name, source, cwd, keep_source, stack_room, facts, host, graph_break_count,
        recompile_count
        from runs join run_totals on run_id = id
        where id = :id
        """,
        {"id": run_id},
    ).fetchone()
    facts = json.loads(row["facts"])
    argv = tuple(command or facts.get("argv") or ())
    _check_command(run_id, row["source"], argv, given_by_person=bool(command))
    folder = Path(row["cwd"] or ".")
    if not row["cwd"] or not folder.is_dir():
        elsewhere = f" on {row['host']}" if row["host"] and row["host"] != platform.node() else ""
        raise CannotTry(
            f"the folder of run {run_id}, {row['cwd'] or 'which was not recorded'}, is not "
            "here; it was "
            f"recorded{elsewhere}. Run `try` where the program is"
        )
    _check_program(argv[0], folder, environment)
    root = (facts.get("git") or {}).get("root")
    recorded = facts.get("environment") or {}
    withheld = sorted(name for name, value in recorded.items() if WITHHELD in value)
    return RecordedProgram(
        run_id=run_id,
        name=row["name"],
        source="live" if command else row["source"],
        argv=argv,
        command=shlex.join(argv),
        folder=folder,
        roots=tuple(
            dict.fromkeys([folder, *([Path(root)] if root and Path(root).is_dir() else [])])
        ),
        environment=join_environment(environment, recorded),
        keep_source=bool(row["keep_source"]),
        has_stack_room=bool(row["stack_room"]),
        graph_break_count=row["graph_break_count"],
        recompile_count=row["recompile_count"],
        warnings=tuple(
            f"{name} was recorded without its value; it is as it is here" for name in withheld
        ),
    )


def _check_command(run_id: str, source: str, argv: Sequence[str], *, given_by_person: bool) -> None:
    if given_by_person:
        return
    give = "; give the command after `--`"
    if source == "import":
        raise CannotTry(f"run {run_id} is an imported log, which has no command to run again{give}")
    if source == "trial":
        raise CannotTry(
            f"run {run_id} is itself one side of a trial; try the fix on the run that it was "
            "made for"
        )
    if not argv:
        raise CannotTry(f"run {run_id} has no command{give}")
    if not can_run_again("live", " ".join(argv)):
        shown = shlex.join(argv)
        raise CannotTry(
            f"the command of run {run_id} was recorded without its secrets or code: {shown}{give}"
        )


def _check_program(word: str, folder: Path, environment: Mapping[str, str]) -> None:
    try:
        check_program([str(folder / word) if Path(word).parent != Path() else word], environment)
    except CannotRun as error:
        raise CannotTry(str(error)) from None


def join_environment(current: Mapping[str, str], recorded: Mapping[str, str]) -> dict[str, str]:
    """Return torch's variables as recorded, and the other variables unchanged."""
    own = {
        name: value
        for name, value in current.items()
        if not name.startswith(_OF_A_RUN) and (recorded.get(name) or not name.startswith(PREFIXES))
    }
    known = {
        name: value
        for name, value in recorded.items()
        if WITHHELD not in value and not name.startswith(_OF_A_RUN)
    }
    joined = {**own, **known}
    home = current.get("COMPILEBOARD_HOME")
    if home:
        joined["COMPILEBOARD_HOME"] = home
    return {name: value for name, value in joined.items() if name not in _LEFT_OUT}
