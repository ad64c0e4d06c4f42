"""Run a program under `collectors run`, and read what was recorded."""

from __future__ import annotations

import glob
import json
import os
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from compileboard.collectors.store.codec import unpack
from tests.tools.forks import fork_settings, worker_settings

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"
PYTHON = sys.executable
QUICK = ROOT / "tests" / "tools" / "quick"
STARTS_WORKERS = ("bench", "repro")
SEARCHED = f"{QUICK}{os.pathsep}{ROOT}"  # PYTHONPATH of what tests start


# Inductor asks the compiler first what the processor can, for 15 s in every new cache.
PLAIN_CODE = {"TORCHINDUCTOR_VEC_ISA_OK": "0"}


@dataclass
class Workplace:
    """A folder with a database, a spool home and programs of its own; nothing outside it is
    touched.
    """

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    lossy: bool = False  # the test expects losses; otherwise one fails it

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        USED.append(self)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def database(self) -> Path:
        return self.folder / "test.db"

    @property
    def errors(self) -> Path:
        return self.folder / "stderr.txt"

    @property
    def outbox(self) -> list[str]:
        """List what waits to be pushed; what goes meanwhile is left out, where `Path.glob` would
        raise.
        """
        return glob.glob(f"{self.home}/outbox/*/*")

    @property
    def spools(self) -> list[Path]:
        return sorted((self.home / "spool").glob("*"))

    def environ(self, **changes: str) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(
                ("COMPILEBOARD_", "TORCH_", "PYTHON", "TORCHDYNAMO_", "TORCHINDUCTOR_")
            )
        }
        own = {"PYTHONPATH": SEARCHED, "COMPILEBOARD_HOME": str(self.home), "OMP_NUM_THREADS": "1"}
        return {**inherited, **own, **PLAIN_CODE, **self.environment, **changes}

    def write(self, text: str, name: str = "program.py") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def collect(self, *arguments: Any, env: dict[str, str] | None = None, **options: Any) -> Any:
        """Run one command of the collector to its end."""
        command = [PYTHON, "-m", "compileboard.collectors", *map(str, arguments)]
        if arguments and arguments[0] in STARTS_WORKERS:
            env = {**self.forks(), **(env or {})}
        options = {
            "capture_output": True,
            "text": True,
            "timeout": 200,
            "cwd": self.folder,
            **options,
        }
        return subprocess.run(command, env=self.environ(**(env or {})), **options)

    def run(self, *command: Any, options: tuple[str, ...] = (), **rest: Any) -> Any:
        """Observe a command to its end; a path to a program is run with this interpreter."""
        rest["env"] = {**self.forks_of(command), **(rest.get("env") or {})}
        return self.collect("run", "--db", self.database, *options, "--", *program(command), **rest)

    def plain(self, *command: Any, env: dict[str, str] | None = None, **rest: Any) -> Any:
        """Run the same command without us."""
        rest = {"capture_output": True, "text": True, "timeout": 200, "cwd": self.folder, **rest}
        env = {**self.forks_of(command), **(env or {})}
        return subprocess.run(program(command), env=self.environ(**env), **rest)

    def forks(self) -> dict[str, str]:
        """Return the environment in which our workers are forks of a process that has torch."""
        return worker_settings(self.environ())

    def forks_of(self, command: tuple[Any, ...]) -> dict[str, str]:
        return fork_settings(list(command), self.environ())

    def start(
        self, *command: Any, options: tuple[str, ...] = (), **rest: Any
    ) -> subprocess.Popen[str]:
        """Observe a command and do not wait for it."""
        whole = [
            PYTHON,
            "-m",
            "compileboard.collectors",
            "run",
            "--db",
            str(self.database),
            *options,
            "--",
            *program(command),
        ]
        rest = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "cwd": self.folder,
            **rest,
        }
        return subprocess.Popen(whole, env=self.environ(), **rest)

    def start_command(self, *arguments: Any) -> subprocess.Popen[str]:
        """Start one command of the collector and do not wait for it; `errors` has its stderr."""
        command = [PYTHON, "-m", "compileboard.collectors", *map(str, arguments)]
        with self.errors.open("w") as errors:
            return subprocess.Popen(
                command,
                env=self.environ(),
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                text=True,
            )

    def rows(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        if not self.database.exists():
            return []
        with closing(
            sqlite3.connect(f"{self.database.as_uri()}?mode=ro", uri=True, timeout=10)
        ) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql, values)]

    def value(self, sql: str, **values: Any) -> Any:
        """Return the first column of the only row."""
        (row,) = self.rows(sql, **values)
        return next(iter(row.values()))

    def only_run(self) -> dict[str, Any]:
        (row,) = self.rows("select * from runs join run_totals on run_totals.run_id = runs.id")
        return row

    def losses(self) -> dict[str, int]:
        losses: dict[str, int] = {}
        try:
            rows = self.rows("select losses from processes where losses is not null")
        except sqlite3.Error:  # a test of files that are no database
            rows = []
        for row in rows:
            for reason, count in json.loads(row["losses"]).items():
                losses[reason] = losses.get(reason, 0) + count
        return losses

    def events(self, kind: str) -> list[dict[str, Any]]:
        rows = self.rows(
            "select body from events where kind = :kind order by process_id, sequence", kind=kind
        )
        return [json.loads(unpack(row["body"])) for row in rows]

    def check_integrity(self) -> None:
        assert self.value("pragma integrity_check") == "ok"
        assert self.rows("pragma foreign_key_check") == []

    def all_bytes(self) -> bytes:
        """Return everything that is stored, bodies unpacked: what to look for a secret in."""
        parts = [path.read_bytes() for path in self.home.rglob("*") if path.is_file()]
        parts += [path.read_bytes() for path in self.folder.glob(f"{self.database.name}*")]
        for table in ("events", "configs"):
            parts += [
                unpack(row["body"]).encode() for row in self.rows(f"select body from {table}")
            ]
        return b"\n".join(parts)


USED: list[Workplace] = []


def forking_environ() -> dict[str, str]:
    """Return this process's environment, in which our workers are forks."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        **worker_settings({"PYTHONPATH": SEARCHED}),
    }


def torch_release() -> tuple[int, ...]:
    """Return (2, 13): what torch records differs by version."""
    return tuple(int(part) for part in version("torch").split(".")[:2])


def program(command: tuple[Any, ...]) -> list[str]:
    """Put the interpreter before a Python file."""
    words = [str(word) for word in command]
    return [PYTHON, *words] if words and words[0].endswith(".py") else words


def wait_for(condition: Any, seconds: float = 30.0) -> Any:
    """Wait until a condition holds, and return what it gave; fail after a while."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        time.sleep(0.02)
    return answer


def processes_of(home: Path) -> list[int]:
    """List the processes that were started with this home."""
    mark = f"COMPILEBOARD_HOME={home}\0".encode()
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                pids.append(int(path.parent.name))
        except OSError:
            continue
    return [pid for pid in pids if pid != os.getpid()]
