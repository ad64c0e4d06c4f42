"""Patched texts reach a program however it loads its files, and the files stay byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compileboard.collectors.observe.trial_plan import PLAN_VARIABLE, TrialPlan
from compileboard.collectors.record.live import INJECT

SCRIPT = (
    "import net\n\nif __name__ == '__main__':\n    print('script', 1, __file__)\n    "
    "print(net.value())\n"
)
MODULE = "def value():\n    return 'module 1'\n"
PATCHED = {
    "script.py": SCRIPT.replace("1, __file__", "2, __file__"),
    "net.py": MODULE.replace("1'", "2'"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "copies").mkdir(parents=True)
    (project / "pack").mkdir()
    (project / "pack" / "__init__.py").write_text("")
    for name, text in (("script.py", SCRIPT), ("net.py", MODULE), ("pack/net.py", MODULE)):
        (project / name).write_text(text)
    for name, text in PATCHED.items():
        (project / "copies" / name).write_text(text)
    return project


def run(
    project: Path,
    *words: str,
    patched: tuple[str, ...] = ("script.py", "net.py"),
    **environment: str,
):
    notes = project / "notes"
    notes.mkdir(exist_ok=True)
    files = {str(project / name): str(project / "copies" / Path(name).name) for name in patched}
    plan = TrialPlan(str(notes), files).write()
    own = {
        PLAN_VARIABLE: str(plan),
        "PYTHONPATH": str(INJECT),
        "COMPILEBOARD_SPOOL": str(project / "spool"),
    }
    finished = subprocess.run(
        [sys.executable, *words],
        cwd=project,
        env={**os.environ, **own, "COMPILEBOARD_DEBUG": "1", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    loaded = {
        json.loads(line)[1]
        for path in notes.glob("notes-*")
        for line in path.read_text().splitlines()
    }
    return finished, {Path(path).name for path in loaded}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words",
    [
        ("script.py",),
        ("-m", "script"),
        ("-m", "cProfile", "script.py"),
        ("-c", "import runpy; runpy.run_path('script.py', run_name='__main__')"),
        ("-c", "import subprocess, sys; sys.exit(subprocess.call([sys.executable, 'script.py']))"),
        ("-OO", "script.py"),
    ],
    ids=lambda words: " ".join(words)[:24],
)
def test_every_way_to_load_a_file(project, words):
    finished, loaded = run(project, *words)
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert [line.rsplit("/", 1)[-1] for line in lines if line.startswith(("script", "module"))] == [
        "script.py" if "/" in lines[0] else "script 2 script.py",
        "module 2",
    ]
    assert "script 2 " in finished.stdout
    assert loaded == {"script.py", "net.py"}
    assert finished.stderr == ""


def test_the_files_and_their_compiled_files_stay(project):
    before = {path: path.read_bytes() for path in project.glob("*.py")}
    writing = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(
        [sys.executable, "script.py"], cwd=project, check=True, capture_output=True, env=writing
    )
    compiled = {path: path.read_bytes() for path in project.rglob("*.pyc")}
    assert compiled
    finished, _ = run(project, "script.py", PYTHONDONTWRITEBYTECODE="")
    assert "module 2" in finished.stdout
    assert {path: path.read_bytes() for path in project.glob("*.py")} == before
    assert {path: path.read_bytes() for path in project.rglob("*.pyc")} == compiled


def test_a_module_of_the_same_name_elsewhere_is_not_patched(project):
    finished, loaded = run(
        project, "-c", "import pack.net, net; print(pack.net.value(), net.value())"
    )
    assert (finished.stdout, loaded) == ("module 1 module 2\n", {"net.py"})


def test_source_lines_and_tracebacks_are_those_of_the_patched_text(project):
    (project / "copies" / "net.py").write_text("# a new line\ndef value():\n    return 1 / 0\n")
    code = (
        "import inspect, linecache, net; linecache.clearcache(); "
        "print(inspect.getsource(net.value)); net.value()"
    )
    finished, _ = run(project, "-c", code)
    assert "return 1 / 0" in finished.stdout
    assert f'File "{project / "net.py"}", line 3, in value\n    return 1 / 0' in finished.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("raise ValueError('no')", 1, "line 6, in <module>\n    raise ValueError('no')"),
    ],
)
def test_a_patched_script_ends_as_a_script_does(project, ending, code, message):
    (project / "copies" / "script.py").write_text(f"{PATCHED['script.py']}{ending}\n")
    finished, _ = run(project, "script.py")
    assert finished.returncode == code
    assert message in finished.stderr
    assert "source_overlay" not in finished.stderr


def test_a_patched_script_with_a_syntax_error_says_so(project):
    (project / "copies" / "script.py").write_text("def f(:\n")
    finished, _ = run(project, "script.py")
    assert (finished.returncode, "SyntaxError" in finished.stderr) == (1, True)


@pytest.mark.nightly
def test_a_patched_script_has_its_room_on_the_frame_stack(project):
    room = (
        "import sys\nframe, sizes = sys._getframe(), []\nwhile frame:\n"
        "    sizes.append(frame.f_code.co_stacksize)\n    frame = "
        "frame.f_back\nprint(max(sizes) > 100000)\n"
    )
    (project / "copies" / "script.py").write_text(room)
    finished, _ = run(project, "script.py", COMPILEBOARD_STACK_ROOM="1")
    assert finished.stdout == f"{sys.version_info >= (3, 11)}\n", finished.stderr


@pytest.mark.nightly
def test_spawned_workers_read_the_patched_text(project):
    text = (
        "import multiprocessing, net\n\nif __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n        "
        "print(pool.apply(net.value))\n"
    )
    (project / "script.py").write_text(text.replace("print", "str"))
    (project / "copies" / "script.py").write_text(text)
    finished, loaded = run(project, "script.py")
    assert (finished.stdout, loaded) == ("module 2\n", {"script.py", "net.py"}), finished.stderr


def test_a_plan_that_cannot_be_read_leaves_the_program_alone(project):
    finished, _ = run(project, "script.py", **{PLAN_VARIABLE: str(project / "absent.json")})
    assert "script 1" in finished.stdout
    assert "cannot try a fix in this process" in finished.stderr
