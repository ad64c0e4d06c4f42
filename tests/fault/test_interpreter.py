"""What a Python program finds around itself is what it would find without us."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.tools.observed import ROOT, Workplace, program

pytestmark = pytest.mark.real_start

LOOK = """
import sys
print(sys.path[1:])
print(sys.modules.get("sitecustomize"), sys.modules.get("usercustomize"))
try:
    import sitecustomize
    print("theirs", sitecustomize.MARK, sitecustomize.__file__, sitecustomize.__spec__.origin)
except ImportError as error:
    print(repr(error))
print(sorted(name for name in sys.modules if "compileboard" in name or "collectors" in name))
print([entry for entry in sys.path_importer_cache if "inject" in entry])
"""
MAIN = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
MAIN += "from compileboard.collectors.cli.main import main; sys.exit(main(sys.argv[1:]))"
THEIRS = {
    "works": "MARK = 1\nprint('hello from theirs')",
    "raises": "MARK = 1\nraise ValueError('broken theirs')",
    "imports what is not there": "import no_such_module",
    "is not there": None,
}


def run_command(workplace: Workplace) -> list[Any]:
    # -I: the environment under test is the program's; our own interpreter stays out of it.
    return [sys.executable, "-I", "-c", MAIN, "run", "--quiet", "--db", workplace.database, "--"]


def same(workplace: Workplace, *command: Any, shell: Sequence[str] = (), **rest: Any) -> Any:
    """Run a command with and without us, each as arguments of `shell`, and compare what it
    gives.
    """
    plain = workplace.plain(*shell, *program(command), **rest)
    done = workplace.plain(*shell, *run_command(workplace), *program(command), **rest)
    assert (done.returncode, done.stdout, done.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )
    return plain


@pytest.mark.sampled(2)
@pytest.mark.parametrize("theirs", THEIRS)
def test_a_sitecustomize_of_their_own_runs_as_without_us(workplace: Workplace, theirs: str) -> None:
    text = THEIRS[theirs]
    if text is not None:
        workplace.write(text, "own/sitecustomize.py")
    path = os.pathsep.join([str(workplace.folder / "own"), str(ROOT)])
    plain = same(workplace, workplace.write(LOOK), env={"PYTHONPATH": path})
    assert ("hello from theirs" in plain.stdout) == (theirs == "works")
    assert ("broken theirs" in plain.stderr) == (theirs == "raises")


def test_their_own_pythonpath_is_kept_in_its_order(workplace: Workplace) -> None:
    workplace.write("print('their module')", "own/mine.py")
    path = os.pathsep.join([str(workplace.folder / "own"), str(ROOT), "relative"])
    text = "import sys, mine; print(sys.path[1:])"
    assert (
        "their module"
        in same(workplace, sys.executable, "-c", text, env={"PYTHONPATH": path}).stdout
    )


def test_their_modules_may_be_called_as_ours(workplace: Workplace) -> None:
    workplace.write("print('their collectors')", "collectors.py")
    workplace.write("print('their app')", "app.py")
    path = workplace.write("import app, collectors\nprint(collectors.__file__)\n")
    command = [
        sys.executable,
        "-P",
        "-m",
        "compileboard.collectors",
        "run",
        "--quiet",
        "--db",
        workplace.database,
        "--",
    ]
    done = workplace.plain(*command, sys.executable, path)
    assert done.stdout == f"their app\ntheir collectors\n{workplace.folder / 'collectors.py'}\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("switch", ["-I", "-S", "-E"])
def test_a_switch_that_keeps_us_out_is_said_and_changes_nothing(
    workplace: Workplace, switch: str
) -> None:
    # With -S Python reads PYTHONPATH and runs nothing that could take our folder out of it again.
    text = (
        "import sys; print(sys.flags, [entry for entry in sys.path if not "
        "entry.endswith('observe/inject')])"
    )
    plain = workplace.plain(sys.executable, switch, "-c", text)
    done = workplace.run(sys.executable, switch, "-c", text)
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert f"python {switch} ignores PYTHONPATH or sitecustomize" in done.stderr


def test_a_torch_that_cannot_be_imported_fails_with_its_own_error(workplace: Workplace) -> None:
    workplace.write("", "fake/torch/__init__.py")
    workplace.write("raise RuntimeError('a broken build')", "fake/torch/_dynamo/__init__.py")
    text = (
        "import torch\ntry:\n    import torch._dynamo\nexcept RuntimeError as error:\n    "
        "print(error)\n"
    )
    done = same(
        workplace,
        workplace.write(text),
        env={"PYTHONPATH": str(workplace.folder / "fake") + os.pathsep + str(ROOT)},
    )
    assert done.stdout == "a broken build\n"


def test_a_torch_without_our_names_is_left_alone(workplace: Workplace) -> None:
    workplace.write("__version__ = '9.9'", "fake/torch/__init__.py")
    workplace.write("print('loaded')", "fake/torch/_dynamo/__init__.py")
    look = (
        "import torch._dynamo as d; print(type(d.__spec__.loader).__name__, "
        "type(d.__loader__).__name__)"
    )
    env = {"PYTHONPATH": str(workplace.folder / "fake") + os.pathsep + str(ROOT)}
    assert (
        same(workplace, sys.executable, "-c", look, env=env).stdout
        == "loaded\nSourceFileLoader SourceFileLoader\n"
    )


def test_a_spool_that_cannot_be_written_is_no_matter_of_the_program(workplace: Workplace) -> None:
    workplace.write("__version__ = '9.9'", "fake/torch/__init__.py")
    workplace.write("", "fake/torch/_dynamo/__init__.py")
    env = {"PYTHONPATH": str(workplace.folder / "fake") + os.pathsep + str(ROOT)}
    text = (
        "import os; os.environ['COMPILEBOARD_SPOOL'] = '/proc/nothing'; import torch._dynamo; "
        "print('went on')"
    )
    done = workplace.run(sys.executable, "-c", text, env=env, options=("--quiet",))
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("closed", ["<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_stay_closed(workplace: Workplace, closed: str) -> None:
    text = (
        "import os; os.environ['OUT'] = ' '.join(os.listdir('/proc/self/fd')); "
        "os.mkdir(os.environ['OUT'])"
    )
    path = workplace.write(text)
    shell = ["bash", "-c", f'"$@" {closed}', "bash"]
    workplace.plain(*shell, *program((path,)))
    (plain,) = workplace.folder.glob("[0-9]*")
    plain.rmdir()
    workplace.plain(*shell, *run_command(workplace), *program((path,)))
    assert list(workplace.folder.glob("[0-9]*")) == [plain]


def test_a_deleted_folder_adds_no_line(workplace: Workplace) -> None:
    gone = workplace.folder / "gone"
    gone.mkdir()
    path = workplace.write("import os; os.getcwd()")
    shell = ["bash", "-c", 'cd gone; rmdir "$PWD"; "$@"; mkdir ../gone', "bash"]
    assert "FileNotFoundError" in same(workplace, path, shell=shell).stderr


@pytest.mark.torch
def test_a_spool_takes_no_number_of_a_closed_stream(workplace: Workplace) -> None:
    path = workplace.write(
        "import os, torch, torch._dynamo\ntorch.compile(torch.sin, "
        "backend='eager')(torch.ones(2))\n"
        "os.mkdir(str(os.open(os.devnull, os.O_RDONLY)))"
    )
    done = workplace.plain(
        "bash", "-c", '"$@" <&-', "bash", *run_command(workplace), *program((path,))
    )
    assert done.returncode == 0 and (workplace.folder / "0").exists(), done.stderr
    assert workplace.only_run()["compile_count"] == 1
