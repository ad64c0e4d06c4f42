"""A recorded program that can be run again."""

from __future__ import annotations

import json
import platform
import shlex
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.contract.secrets import PREFIXES, WITHHELD
from compileboard.collectors.runs.program import CannotRun, check_program
from compileboard.collectors.terminal.command_hints import collector_command
from compileboard.collectors.terminal.run_summary import find_run
from compileboard.collectors.trials.patches import CannotTry

# Where torch writes, or what reads its log: of the recorded execution, not of the program.
_LEFT_OUT = ("TORCH_TRACE", "TORCHINDUCTOR_CACHE_DIR", "TORCH_COMPILE_DEBUG_DIR")
_OF_A_RUN = "COMPILEBOARD_"


@dataclass(frozen=True)
class RecordedProgram:
    run_id: str
    name: str
    argv: tuple[str, ...]
    folder: Path
    roots: tuple[
        Path, ...
    ]  # the folder, and the repository's if it has one: names of files are relative to them
    environment: Mapping[str, str]
    keep_source: bool
    has_stack_room: bool
    graph_break_count: int
    recompile_count: int
    warnings: tuple[str, ...] = ()


def load_program(
    connection: sqlite3.Connection,
    given: str,
    environment: Mapping[str, str],
    command: Sequence[str] = (),
) -> RecordedProgram:
    """Load a run's program, optionally with another command. Raises CannotTry."""
    run_id = find_run(connection, given, source="live")
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
        argv=argv,
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
    if source == "bench":
        raise CannotTry(
            f"run {run_id} is a benchmark of many models; record one program with `run` to try "
            "a fix on it"
        )
    if source == "trial":
        raise CannotTry(
            f"run {run_id} is itself one side of a trial; try the fix on the run that it was "
            "made for"
        )
    if not argv:
        raise CannotTry(f"run {run_id} has no command{give}")
    hidden = [word for word in argv if WITHHELD in word]
    if hidden or any(word.startswith("<source withheld") for word in argv):
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
    """Return torch's variables as recorded and the others as they are."""
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


def describe_command(argv: Sequence[str]) -> str:
    """Return a command quoted for a shell."""
    text = shlex.join(argv)
    return text if len(text) <= 200 else text[:199] + "…"
