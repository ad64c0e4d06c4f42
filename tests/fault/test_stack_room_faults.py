"""`run --stack-room`: the program has room, and is otherwise as it is without us."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.tools.observed import PROGRAMS, ROOT, Workplace

pytestmark = pytest.mark.real_start

ROOM = ("--stack-room", "--quiet")
SLOW = """
    import multiprocessing, sys, threading
    sys.path.insert(0, {root!r})
    from benchmarks.faults.frame_stack import SLOW_FAULTS, measure_depths

    def slow(_=None):
        return sum(it.faults >= SLOW_FAULTS for it in measure_depths(200, 2))

    def in_thread():
        found = []
        thread = threading.Thread(target=lambda: found.append(slow()))
        thread.start()
        thread.join()
        return found[0]

    if __name__ == "__main__":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(slow(), in_thread(), *pool.map(slow, [0]))
"""
ENDS = {
    "raises": "def f(): raise ValueError('x')\nf()",
    "chained": "try: 1/0\nexcept ZeroDivisionError: raise KeyError('x')",
    "hook_fails": (
        "import sys\ndef hook(*_): raise KeyError('y')\nsys.excepthook = hook\nraise "
        "ValueError('x')"
    ),
    "exits": "import atexit, sys\natexit.register(print, 'bye')\nsys.exit(3)",
    "exits_with_words": "raise SystemExit('words')",
    "interrupted": (
        "import atexit, os\natexit.register(print, 'bye')\nos.kill(os.getpid(), 2)\nwhile "
        "True: pass"
    ),
    "no_python": "def f(:",
    "late_thread": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), "
        "print('late'))).start()"
    ),
    "main_names": "import sys\nprint(__name__, __file__, __spec__, sys.argv, sorted(globals()))",
    "pickles": (
        "import pickle, sys\nclass A: pass\nprint(pickle.loads(pickle.dumps(A())).__class__ is A)"
    ),
    "traced": (
        "import sys\nn = []\nsys.settrace(lambda f, e, a: "
        "n.append(f.f_code.co_name))\n(lambda: 0)()\nprint(n)"
    ),
}


def test_stack_room_leaves_no_slow_depth_in_program_thread_and_spawned_process(
    workplace: Workplace,
) -> None:
    program = workplace.write(SLOW.format(root=str(ROOT)))
    without = workplace.plain(program).stdout.split()
    if without == ["0", "0", "0"]:
        pytest.skip(f"CPython {sys.version.split()[0]} has no frame-stack cliff")
    assert workplace.run(program, options=ROOM).stdout.split() == ["0", "0", "0"]
    assert workplace.run(program, options=("--quiet",)).stdout.split() == without
    assert [
        row["stack_room"] for row in workplace.rows("select stack_room from runs order by id")
    ] == [1, 0]


@pytest.mark.nightly
@pytest.mark.torch
def test_stack_room_reaches_the_backward_pass_in_a_thread_that_autograd_starts(
    workplace: Workplace,
) -> None:
    program = PROGRAMS / "pool_backward.py"
    without = workplace.run(program, options=("--quiet",)).stdout.split()
    if without == ["True", "0"]:
        pytest.skip(f"CPython {sys.version.split()[0]} has no frame-stack cliff")
    assert without[0] == "True", "the innermost backward ran in the main thread"
    assert workplace.run(program, options=ROOM).stdout.split() == ["True", "0"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("end", ENDS)
def test_stack_room_ends_a_program_as_python_does(workplace: Workplace, end: str) -> None:
    program = workplace.write(ENDS[end])
    plain, room = workplace.plain(program, "a"), workplace.run(program, "a", options=ROOM)
    assert (room.stdout, room.stderr, room.returncode) == (
        plain.stdout,
        plain.stderr,
        plain.returncode,
    )
    if end == "interrupted":
        assert room.returncode == -signal.SIGINT and room.stdout == "bye\n"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words", [("-m", "program", "a"), ("-c", "import program", "a"), ("-X", "dev", "program.py")]
)
def test_stack_room_takes_a_module_a_text_and_switches(
    workplace: Workplace, words: tuple[str, ...]
) -> None:
    workplace.write(
        "import sys\nprint(__name__, __spec__ and __spec__.name, sys.argv, sys.path[0])\nf = 1 / 0"
    )
    command = (sys.executable, *words)
    plain, room = workplace.plain(*command), workplace.run(*command, options=ROOM)
    assert (room.stdout, room.stderr, room.returncode) == (
        plain.stdout,
        plain.stderr,
        plain.returncode,
    )
    assert "ZeroDivisionError" in room.stderr


def test_stack_room_leaves_a_command_alone_that_is_no_python(workplace: Workplace) -> None:
    done = workplace.run("/bin/sh", "-c", "echo $1; exit 4", "sh", "words", options=ROOM)
    assert (done.stdout, done.returncode) == ("words\n", 4)
