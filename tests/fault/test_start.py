"""Each step beside the program fails in turn: it runs with its own output and exit code,
unless the database can never take it.
"""

from __future__ import annotations

import os
import resource
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.cli.main import main
from compileboard.exit_codes import REFUSED
from tests.tools.observed import ROOT, Workplace

PROGRAM = [
    sys.executable,
    "-c",
    "import sys; sys.stdout.write('ran\\n'); sys.stderr.write('theirs\\n'); sys.exit(7)",
]
SHORT = [
    "/bin/sh",
    "-c",
    "echo ran; echo theirs >&2; exit 7",
]  # the same without an interpreter's start


def ran(
    workplace: Workplace, *options: Any, command: list[Any] = PROGRAM, **rest: Any
) -> list[str]:
    """Observe the program and see that it ended as it does alone; return what we said."""
    alone = workplace.plain(*command, text=False)
    done = workplace.collect("run", *options, "--", *command, text=False, **rest)
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
    lines = done.stderr.decode(errors="backslashreplace").splitlines()
    assert [
        line for line in lines if not line.startswith("compileboard: ")
    ] == alone.stderr.decode().splitlines()
    return [
        line.removeprefix("compileboard: ") for line in lines if line.startswith("compileboard: ")
    ]


def limit(kind: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def fake(workplace: Workplace, name: str, text: str) -> dict[str, str]:
    """Put a program before those of the same name."""
    workplace.write(text, f"bin/{name}").chmod(0o755)
    return {"PATH": f"{workplace.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def block(workplace: Workplace, module: str) -> dict[str, str]:
    workplace.write(f"raise ModuleNotFoundError('none', name={module!r})", f"blocked/{module}.py")
    return {"PYTHONPATH": os.pathsep.join([str(workplace.folder / "blocked"), str(ROOT)])}


def test_home_cannot_be_made(workplace: Workplace) -> None:
    for home in ("/proc/none", "/dev/null", "\udce9" * 300):
        *_, line = ran(workplace, "--quiet", env={"COMPILEBOARD_HOME": home})
        assert line.startswith("this run is not recorded: the spool folder ")


def test_home_is_not_known(workplace: Workplace) -> None:
    env = {"COMPILEBOARD_HOME": "~no-such-user/x", "HOME": ""}
    lines = ran(workplace, "--quiet", env=env)
    assert lines and all("home" in line for line in lines)


def test_the_folder_of_spools_is_a_file(workplace: Workplace) -> None:
    (workplace.home / "spool").write_text("")
    assert len(ran(workplace, "--quiet")) == 1


@pytest.mark.parametrize("how", ["folder", "text", "theirs", "newer", "away", "bytes"])
def test_a_database_that_cannot_be_opened_is_refused_before_the_program(
    workplace: Workplace, how: str
) -> None:
    database: str = str(workplace.database)
    if how == "folder":
        workplace.database.mkdir()
    elif how == "text":
        workplace.database.write_text("this is no database\n" * 50)
    elif how in ("theirs", "newer"):
        with closing(sqlite3.connect(workplace.database)) as connection:
            connection.execute("create table theirs (x)")
            connection.execute(f"pragma application_id = {0x43425244 if how == 'newer' else 0}")
            connection.execute("pragma user_version = 99")
    else:
        database = {"away": "no/t.db", "bytes": "no\udce9/t.db"}[how]
    done = workplace.collect("run", "--quiet", "--db", database, "--", *SHORT)
    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("compileboard: ")
    assert workplace.spools == []


def test_the_database_is_locked(workplace: Workplace) -> None:
    with closing(sqlite3.connect(workplace.database, isolation_level=None)) as holder:
        holder.execute("begin exclusive")
        (line,) = ran(workplace, "--quiet", "--db", workplace.database)
    assert "locked by another program" in line


@pytest.mark.parametrize("module", ["zstandard", "sqlite_utils"])
def test_a_package_is_not_installed(workplace: Workplace, module: str) -> None:
    lines = ran(workplace, "--quiet", env=block(workplace, module))
    assert f"{module.replace('_', '-')} is not installed" in "\n".join(lines)


def test_the_current_folder_is_gone(workplace: Workplace) -> None:
    folder = workplace.folder / "gone"
    script = f"mkdir {folder} && cd {folder} && rmdir {folder} && "
    observe = f"{sys.executable} -m compileboard.collectors run --quiet --db "
    for database in ("t.db", workplace.database):
        done = workplace.plain("bash", "-c", f"{script}{observe}{database} -- echo ran; exit $?")
        assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (0, "ran\n", False)
    assert workplace.only_run()["cwd"] is None


@pytest.mark.sampled(4)
@pytest.mark.parametrize("most", [*range(6, 15), 20])
def test_there_are_no_more_descriptors(workplace: Workplace, most: int) -> None:
    command = [
        sys.executable,
        "-m",
        "compileboard.collectors",
        "run",
        "--quiet",
        "--",
        "/bin/echo",
        "ran",
    ]
    done = workplace.plain("bash", "-c", 'ulimit -n "$0"; exec "$@"', most, *command)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_no_file_may_grow(workplace: Workplace) -> None:
    lines = ran(workplace, "--quiet", preexec_fn=limit(resource.RLIMIT_FSIZE, 0))
    assert "File too large" in lines[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "text", ["exit 3", "printf 'caf\\351\\n'", "head -c 3000000 /dev/zero", "kill -9 $$"]
)
def test_git_and_the_driver_answer_oddly(workplace: Workplace, text: str) -> None:
    env = fake(workplace, "git", f"#!/bin/sh\n{text}\n") | fake(
        workplace, "nvidia-smi", f"#!/bin/sh\n{text}\n"
    )
    ran(workplace, "--quiet", "--db", workplace.database, env=env)
    assert workplace.only_run()["exit_code"] == 7


def test_bytes_that_are_no_text(workplace: Workplace) -> None:
    odd = os.fsdecode(b"caf\xe9")
    (workplace.folder / odd).mkdir()
    path = workplace.folder / odd / f"{odd}.py"
    path.write_text(
        "import os, sys; print(os.fsencode(sys.argv[1]), os.fsencode(os.getcwd()), "
        "os.environb[b'TORCH_X'])"
    )
    options = [
        "--db",
        workplace.database,
        "--name",
        odd,
        "--suite",
        odd,
        "--tag",
        f"{odd}={odd}",
        "--capture-env",
        odd,
    ]
    env = {"TORCH_X": odd, "COMPILEBOARD_HOME": str(workplace.folder / odd / "home")}
    done = workplace.collect(
        "run", *options, "--", sys.executable, path, odd, env=env, cwd=path.parent
    )
    assert (done.returncode, done.stdout.count("caf\\xe9")) == (0, 3), done.stderr
    run = workplace.only_run()
    assert (run["name"], run["suite"], run["cwd"]) == (
        r"caf\xe9",
        r"caf\xe9",
        rf"{workplace.folder}/caf\xe9",
    )
    assert run["command"].endswith(r"caf\xe9")
    listed = workplace.collect(
        "list", "--db", workplace.database, "--tag", f"{odd}={odd}", "--suite", odd, env=env
    )
    assert run["id"] in listed.stdout


STEPS = [
    "compileboard.collectors.record.recover_spools.recover_spools",
    "compileboard.collectors.record.recover_spools.spool_root",
    "compileboard.collectors.record.live.describe_run",
    "compileboard.collectors.record.live.joined_run_id",
    "compileboard.collectors.record.live.default_name",
    "compileboard.collectors.record.live.program_folder",
    "compileboard.collectors.record.live.spool_folder",
    "compileboard.collectors.record.live.make_spool",
    "compileboard.collectors.record.live.child_environment",
    "compileboard.collectors.record.facts.git_facts",
    "compileboard.collectors.record.facts.gpu_facts",
    "compileboard.collectors.record.facts.host_facts",
    "compileboard.collectors.record.facts.scrub_environment",
    "compileboard.collectors.record.facts.scrub_argv",
    "compileboard.collectors.record.spool.Manifest.write",
    "compileboard.collectors.record.live.lock_spool",
    "compileboard.collectors.record.live.open_recorder",
    "compileboard.collectors.record.live.writers_alive",
    "compileboard.collectors.logs.sqlite_sink.open_writer",
    "compileboard.collectors.logs.sqlite_sink.migrate_connection",
    "compileboard.collectors.record.recorder.Recorder.start",
    "compileboard.collectors.record.recorder.Recorder.step",
    "compileboard.collectors.record.recorder.Recorder.end",
    "compileboard.collectors.record.recorder.Recorder.close",
    "compileboard.collectors.record.recorder.Recorder.discard_spool",
    "compileboard.collectors.record.recorder.build_history_event",
    "compileboard.collectors.logs.sqlite_sink.index_run",
    "compileboard.collectors.record.facts.unreachable",
    "compileboard.collectors.record.program.hold_closed_streams",
    "compileboard.collectors.terminal.run_summary.summarize",
    "compileboard.collectors.cli.run.progress_line",
]
# A task beside the recording is a reject of the run; what is closed or looked at last has nothing
# more to lose.
SILENT = {
    "compileboard.collectors.record.recorder.build_history_event",
    "compileboard.collectors.logs.sqlite_sink.index_run",
    "compileboard.collectors.record.recorder.Recorder.close",
    "compileboard.collectors.record.live.writers_alive",
}
RECORDED = SILENT | {
    "compileboard.collectors.record.facts.unreachable",
    "compileboard.collectors.record.program.hold_closed_streams",
    "compileboard.collectors.cli.run.progress_line",
}


@pytest.fixture
def in_place(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workplace]:
    monkeypatch.chdir(workplace.folder)
    monkeypatch.setenv("COMPILEBOARD_HOME", str(workplace.home))
    monkeypatch.setattr(sys, "argv", ["compileboard-collect"])
    yield workplace
    workplace.lossy = True


@pytest.mark.sampled(8)
@pytest.mark.parametrize("error", [RuntimeError, OSError, MemoryError])
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_raises_is_one_line_and_the_program_runs(
    in_place: Workplace,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    step: str,
    error: type[Exception],
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error(28, "boom")

    monkeypatch.setattr(step, fail)
    assert main(["run", "--db", str(in_place.database), "--", *SHORT]) == 7
    out, err = capfd.readouterr()
    assert (out, err.count("theirs"), "Traceback" in err) == ("ran\n", 1, False)
    assert all(line.startswith("compileboard: ") for line in err.splitlines() if line != "theirs")
    assert err.count("boom") == (step not in SILENT), err
    if step in RECORDED:
        assert in_place.only_run()["state"] == "failed"


def test_what_could_not_be_asked_for_is_a_state_of_the_run(
    in_place: Workplace, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("compileboard.collectors.record.facts.gpu_facts", lambda _: 1 / 0)
    assert main(["run", "--quiet", "--db", str(in_place.database), "--", *PROGRAM]) == 7
    words = "the GPUs cannot be asked for: ZeroDivisionError: division by zero"
    assert capfd.readouterr().err.splitlines() == [f"compileboard: {words}", "theirs"]
    (reject,) = in_place.rows("select file_name, kind, example from run_rejects")
    assert reject == {"file_name": "run.json", "kind": "not_asked", "example": words}


def test_no_further_process_can_be_started(workplace: Workplace, tmp_path: Path) -> None:
    """Popen fails at fork alone: the program then takes our place, and its spool waits."""
    text = (
        "import errno, subprocess, sys\n"
        "from compileboard.collectors.cli.main import main\n"
        "def fail(*a, **k): raise BlockingIOError(errno.EAGAIN, 'Resource temporarily "
        "unavailable')\n"
        "subprocess.Popen.__init__ = fail\n"
        f"sys.exit(main(['run', '--quiet', '--db', {str(workplace.database)!r}, '--', "
        f"*{PROGRAM!r}]))"
    )
    done = workplace.plain(sys.executable, "-W", "ignore", "-c", text)
    assert (done.returncode, done.stdout) == (7, "ran\n")
    assert "Traceback" not in done.stderr
    workplace.collect("list", "--db", workplace.database)
    assert (workplace.only_run()["state"], workplace.spools) == ("interrupted", [])
