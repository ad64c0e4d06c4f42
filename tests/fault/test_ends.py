"""A program ends under observation as it ends without: its output, exit code, signal and messages
are its own.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest

from tests.tools.observed import Workplace, wait_for

ENDS = {
    "normal": "print('out'); print('err', file=sys.stderr)",
    "exception": "print('out'); raise ValueError('mine')",
    "exit number": "sys.exit(7)",
    "exit text": "sys.exit('a last word')",
    "exit none": "sys.exit()",
    "os._exit": "print('out', flush=True); os._exit(9)",
    "atexit": "import atexit; atexit.register(print, 'at exit'); sys.exit(3)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL); time.sleep(9)",
    "SIGSEGV": "os.kill(os.getpid(), signal.SIGSEGV); time.sleep(9)",
    "SIGABRT": "os.abort()",
    "SIGINT": "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
    "warning": "import warnings; warnings.warn('careful')",
    "syntax": "exec('1 +')",
    "reads stdin": "print(sys.stdin.read().upper(), sys.stdin.isatty())",
    "argv": "print(sys.argv[1:], sys.flags, __file__ == sys.argv[0])",
    "path": "print(sys.path, 'sitecustomize' in sys.modules, 'collectors' in sys.modules)",
    "descriptors": "print(sorted(os.listdir('/proc/self/fd')))",
    "signals": (
        "print(signal.pthread_sigmask(0, []), [signal.getsignal(s) for s in "
        "signal.valid_signals()])"
    ),
    "threads": (
        "import threading; print(threading.active_count(), sys.gettrace(), sys.getprofile())"
    ),
    "meta path": "print(len([f for f in sys.meta_path if f.__class__.__name__ != '_Finder']))",
}
STATES = {
    "SIGTERM": "killed",
    "SIGKILL": "killed",
    "SIGSEGV": "killed",
    "SIGABRT": "killed",
    "SIGINT": "killed",
}
PREFIX = (
    "import os, resource, signal, sys, time\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ENDS)
def test_a_program_ends_as_without_us(workplace: Workplace, how: str) -> None:
    path = workplace.write(PREFIX + ENDS[how] + "\n")
    rest: dict[str, Any] = {"input": "typed in"}
    plain = workplace.plain(path, "--lr", "3", **rest)
    observed = workplace.run(path, "--lr", "3", options=("--quiet",), **rest)
    assert (observed.returncode, observed.stdout, observed.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )
    run = workplace.only_run()
    expected = STATES.get(how) or ("finished" if plain.returncode == 0 else "failed")
    assert (run["state"], run["ended_us"] is not None) == (expected, True)
    ended = signal.Signals(-plain.returncode).name if plain.returncode < 0 else plain.returncode
    assert (run["signal"] or run["exit_code"]) == ended
    assert workplace.spools == []


def test_our_own_lines_are_ours_alone(workplace: Workplace) -> None:
    path = workplace.write(PREFIX + ENDS["normal"] + "\n")
    done = workplace.run(path)
    assert done.stdout == "out\n"
    others = [line for line in done.stderr.splitlines() if not line.startswith("compileboard: ")]
    assert others == ["err"]


COUNTING = """
import signal, sys, time
seen = []
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(one, lambda number, frame: seen.append(number))
print("ready", flush=True)
deadline = time.monotonic() + 20
while not seen and time.monotonic() < deadline:
    time.sleep(0.02)
time.sleep(0.6)
print(len(seen), signal.Signals(seen[0]).name)
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
@pytest.mark.parametrize("whom", ["us", "all"])
def test_a_signal_reaches_the_program_once(workplace: Workplace, name: str, whom: str) -> None:
    started = workplace.start(workplace.write(COUNTING), start_new_session=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    (os.kill if whom == "us" else os.killpg)(started.pid, signal.Signals[name])
    out, _ = started.communicate(timeout=30)
    assert (out, started.returncode) == (f"1 {name}\n", 0)


def test_an_interrupt_to_the_group_ends_both_as_it_ends_the_program(workplace: Workplace) -> None:
    path = workplace.write("import time\nprint('ready', flush=True)\ntime.sleep(20)\n")
    started = workplace.start(path, options=("--quiet",), start_new_session=True)
    assert started.stdout is not None
    started.stdout.readline()
    os.killpg(started.pid, signal.SIGINT)
    _, err = started.communicate(timeout=30)
    assert started.returncode == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert (workplace.only_run()["state"], workplace.only_run()["signal"]) == ("killed", "SIGINT")


def test_a_program_in_the_background_goes_on_after_its_parent(workplace: Workplace) -> None:
    waits = (
        "for _ in range(3000):\n    if os.path.exists('go'):\n        break\n    time.sleep(0.02)\n"
    )
    text = f"import os, time\n{waits}open('done', 'w').close()\n"
    child = workplace.write(text, "child.py")
    done = workplace.run("sh", "-c", f"{sys.executable} {child} >child.log 2>&1 & echo started")
    assert not (workplace.folder / "done").exists()
    assert (done.returncode, done.stdout) == (0, "started\n")
    (workplace.folder / "go").touch()
    wait_for((workplace.folder / "done").exists, 20)


def test_a_pipeline_and_an_environment_stay_as_typed(workplace: Workplace) -> None:
    line = "echo one two | tr a-z A-Z; echo $MINE; exit 4"
    done = workplace.run("bash", "-c", line, env={"MINE": "kept"}, options=("--quiet",))
    assert (done.returncode, done.stdout, done.stderr) == (4, "ONE TWO\nkept\n", "")


def test_a_closed_stdout_is_the_programs_own_matter(workplace: Workplace) -> None:
    observe = f"{sys.executable} -m compileboard.collectors run --quiet"
    command = f"{observe} --db {workplace.database} -- yes | head -1; echo ${{PIPESTATUS[0]}}"
    done = workplace.plain("bash", "-c", command)
    assert done.stdout == "y\n141\n"
    assert done.stderr == ""


@pytest.mark.parametrize("stderr", ["2>&-", "2>&1 >/dev/null | true"])
def test_a_stderr_that_nobody_reads_is_no_reason_to_stop(workplace: Workplace, stderr: str) -> None:
    path = workplace.write(
        "import time\ntime.sleep(0.5)\nopen('done', 'w').close()\nprint('out')\n"
    )
    command = (
        f"{sys.executable} -m compileboard.collectors run --db {workplace.database} -- "
        f"{sys.executable} {path} {stderr}"
    )
    done = workplace.plain("bash", "-c", command)
    assert (done.returncode, done.stdout) == (0, "out\n" if "|" not in stderr else "")
    assert (workplace.folder / "done").exists()
    assert (workplace.only_run()["state"], workplace.spools) == ("finished", [])


def test_a_run_inside_a_run_is_a_run_of_its_own(workplace: Workplace) -> None:
    inner = [
        sys.executable,
        "-m",
        "compileboard.collectors",
        "run",
        "--db",
        workplace.database,
        "--name",
        "inner",
        "--",
    ]
    done = workplace.run(
        *inner, sys.executable, "-c", "import sys; print(sys.path[1:])", options=("--name", "outer")
    )
    plain = workplace.plain(sys.executable, "-c", "import sys; print(sys.path[1:])")
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert [row["name"] for row in workplace.rows("select name from runs order by name")] == [
        "inner",
        "outer",
    ]
    assert workplace.spools == []


def test_two_nodes_that_share_an_id_are_one_run(workplace: Workplace) -> None:
    shared = {"COMPILEBOARD_RUN_ID": "01SHAREDBYTWONODES00000000"}
    workplace.run(sys.executable, "-c", "pass", options=("--name", "first"), env=shared)
    workplace.run(
        sys.executable, "-c", "raise SystemExit(5)", options=("--name", "second"), env=shared
    )
    run = workplace.only_run()
    assert (run["id"], run["name"], run["state"], run["exit_code"]) == (
        shared["COMPILEBOARD_RUN_ID"], "first", "failed", 5,
    )  # fmt: skip
