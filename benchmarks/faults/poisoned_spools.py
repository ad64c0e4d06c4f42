"""Time odd spools and failing steps.

    python -m benchmarks.faults.poisoned_spools [--commands list,run]

A real run is recorded while its database is locked, so that its spool is left behind. Each kind of
damage is done to a copy of it, and each command is run beside that copy: it must end as it ends
without, and every good record must be in the database afterwards. Then a program is started with
each step before it failing.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from compileboard.collectors.record.spool import read_manifest
from compileboard.collectors.store.migrations import migrate
from tests.tools.observed import PROGRAMS, Workplace
from tests.tools.poison import FREE, HOPELESS, poisons

PATIENCE_S = 120
LOG = (
    'V1122 00:00:00.000000 1 torch/_logging/structured.py:28] {"artifact": {"name": "a", '
    '"encoding": "string"}}\n'
)
PROGRAM = [sys.executable, "-c", "print('ran'); raise SystemExit(7)"]


def leave_spool(workplace: Workplace) -> Path:
    """Run a program with breaks and recompiles whose database is locked."""
    migrate(workplace.database)
    with closing(sqlite3.connect(workplace.database, isolation_level=None)) as holder:
        holder.execute("begin immediate")
        done = workplace.run(PROGRAMS / "breaks.py")
        holder.execute("rollback")
    assert done.returncode == 0, done.stderr
    (spool,) = workplace.spools
    return spool


def good_records(database: Path, run_id: str) -> set[tuple[str, int]]:
    """List the run's records, without what was put in."""
    sql = "select process_id, sequence from events where run_id = ? and sequence between 2 and ?"
    with closing(sqlite3.connect(database)) as connection:
        return {tuple(row) for row in connection.execute(sql, (run_id, FREE - 1))}


def command_of(name: str, workplace: Workplace) -> tuple[list[Any], int]:
    """Return a command and the exit code that it has beside a good spool."""
    if name == "run":
        return ["run", "--quiet", "--db", workplace.database, "--", *PROGRAM], 7
    if name == "import":
        return [
            "import",
            "--db",
            workplace.database,
            workplace.write(LOG, "dedicated_log_torch_trace_1.log"),
        ], 0
    return [name, "--db", workplace.database], 0


def measure_poison(
    spool: Path, spoil: Callable[[Path], None] | None, command: str
) -> tuple[bool, set[Any], float]:
    """Run one command beside a spoilt copy; return whether it was stopped, what was recorded, and
    its seconds.
    """
    with tempfile.TemporaryDirectory(prefix="poisoned-") as folder:
        workplace = Workplace(Path(folder), lossy=True)
        copy = workplace.home / "spool" / spool.name
        shutil.copytree(spool, copy)
        manifest = replace(read_manifest(copy), database=str(workplace.database))
        manifest.write(copy)
        migrate(workplace.database)
        if spoil is not None:
            spoil(copy)
        words, expected = command_of(command, workplace)
        began_s = time.monotonic()
        done = workplace.collect(*words, timeout=PATIENCE_S)
        stopped = done.returncode != expected or "Traceback" in done.stderr
        if stopped:
            sys.stderr.write(done.stderr)
        return (
            stopped,
            good_records(workplace.database, manifest.run_id),
            time.monotonic() - began_s,
        )


def measure_poisons(spool: Path, commands: list[str]) -> None:
    """Print a line for each kind of damage."""
    good, clean_s = set(), 0.0
    for command in commands:
        _, good, clean_s = measure_poison(spool, None, command)
    print(f"{len(good)} records; {clean_s:.1f} s beside the spool as it was\n")
    print("| kind | commands stopped | other lines lost | longest command |\n|---|---|---|---|")
    kinds, stopped_count, lost_count = poisons(), 0, 0
    for kind, spoil in kinds.items():
        runs = [measure_poison(spool, spoil, command) for command in commands]
        stopped = sum(run[0] for run in runs)
        lost = 0 if kind in HOPELESS else sum(len(good - run[1]) for run in runs)
        stopped_count, lost_count = stopped_count + stopped, lost_count + lost
        shown = "set aside" if kind in HOPELESS else str(lost)
        print(
            (
                f"| {kind} | {stopped} of {len(runs)} | {shown} | "
                f"{max(run[2] for run in runs):.1f} s |"
            ),
            flush=True,
        )
    print(
        f"\n{len(kinds)} kinds, {len(commands)} commands each: {stopped_count} stopped, "
        f"{lost_count} lines lost\n"
    )


def limit(kind: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def measure_starts() -> None:
    """Print how a program ends with each step before it failing."""
    print("| step that fails | exit code | output | our lines |\n|---|---|---|---|")
    ended = 0
    for step, arrange in STARTS.items():
        with tempfile.TemporaryDirectory(prefix="start-") as folder:
            workplace = Workplace(Path(folder), lossy=True)
            options, rest = arrange(workplace)
            done = workplace.collect("run", "--quiet", *options, "--", *PROGRAM, **rest)
            messages = [
                line for line in done.stderr.splitlines() if line.startswith("compileboard: ")
            ]
            same = (done.returncode, done.stdout, done.stderr.count("\n")) == (
                7,
                "ran\n",
                len(messages),
            )
            ended += same
            print(
                (
                    f"| {step} | {done.returncode} | {done.stdout.strip() or 'none'} | "
                    f"{len(messages)} |"
                ),
                flush=True,
            )
    print(f"\n{ended} of {len(STARTS)} ran with their own output and exit code")


def _blocked(module: str) -> Callable[[Workplace], Any]:
    def arrange(workplace: Workplace) -> Any:
        workplace.write(
            f"raise ModuleNotFoundError('none', name={module!r})", f"blocked/{module}.py"
        )
        path = os.pathsep.join(
            [str(workplace.folder / "blocked"), workplace.environ()["PYTHONPATH"]]
        )
        return [], {"env": {"PYTHONPATH": path}}

    return arrange


def _program(name: str, text: str) -> Callable[[Workplace], Any]:
    def arrange(workplace: Workplace) -> Any:
        workplace.write(f"#!/bin/sh\n{text}\n", f"bin/{name}").chmod(0o755)
        return [], {"env": {"PATH": f"{workplace.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}}

    return arrange


def _database(make: Callable[[Path], object]) -> Callable[[Workplace], Any]:
    def arrange(workplace: Workplace) -> Any:
        make(workplace.database)
        return ["--db", workplace.database], {}

    return arrange


def _environment(**values: str) -> Callable[[Workplace], Any]:
    return lambda workplace: ([], {"env": values})


def _left_behind(workplace: Workplace) -> Any:
    for name, text in (("half", "{"), ("list", "[]")):
        (workplace.home / "spool" / name).mkdir(parents=True)
        (workplace.home / "spool" / name / "run.json").write_text(text)
    return [], {}


def _spool_file(workplace: Workplace) -> Any:
    (workplace.home / "spool").write_text("")
    return [], {}


ODD = os.fsdecode(b"caf\xe9")
STARTS: dict[str, Callable[[Workplace], Any]] = {
    "none": lambda workplace: ([], {}),
    "the home cannot be made": _environment(COMPILEBOARD_HOME="/proc/none"),
    "the home is no folder": _environment(COMPILEBOARD_HOME="/dev/null"),
    "the home is nobody's": _environment(COMPILEBOARD_HOME="~no-such-user/x"),
    "the folder of spools is a file": _spool_file,
    "spools left behind are damaged": _left_behind,
    "no file may grow (as on a full disk)": lambda workplace: (
        [],
        {"preexec_fn": limit(resource.RLIMIT_FSIZE, 0)},
    ),
    "no further descriptor": lambda workplace: (
        [],
        {"preexec_fn": limit(resource.RLIMIT_NOFILE, 6)},
    ),
    "the database is a folder": _database(lambda path: path.mkdir()),
    "the database is a text": _database(lambda path: path.write_text("no database\n" * 100)),
    "the database's folder is away": lambda workplace: (
        ["--db", workplace.folder / "no" / "t.db"],
        {},
    ),
    "the database has no name": lambda workplace: (["--db", ""], {}),
    "zstandard is not installed": _blocked("zstandard"),
    "sqlite-utils is not installed": _blocked("sqlite_utils"),
    "git fails": _program("git", "exit 3"),
    "git is killed": _program("git", "kill -9 $$"),
    "git writes what is no text": _program("git", "printf 'caf\\351\\n'"),
    "the driver writes what is no table": _program("nvidia-smi", "head -c 1000000 /dev/zero"),
    "the run's id is none": _environment(COMPILEBOARD_RUN_ID="../../x"),
    "the name and a tag are not UTF-8": lambda workplace: (
        ["--name", ODD, "--tag", f"{ODD}={ODD}"],
        {},
    ),
}


def main() -> None:
    """Measure both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--commands", default="list,import,run", help="which commands run beside each spoilt spool"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="poisoned-") as folder:
        measure_poisons(
            leave_spool(Workplace(Path(folder), lossy=True)), arguments.commands.split(",")
        )
    measure_starts()


if __name__ == "__main__":
    main()
