"""The wheel in its own environment, beside packages called `app` and `collectors`."""

from __future__ import annotations

import ast
import lzma
import re
import subprocess
import sys
import urllib.request
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.tools.observed import ROOT, Workplace
from tests.tools.serving import serving
from tests.tools.uploading import send_and_wait

pytestmark = pytest.mark.real_start

THEIRS = """
import app, collectors, collectors.observe, app.settings
assert (app.NAME, app.settings.NAME) == ("app", "settings")
assert (collectors.NAME, collectors.observe.NAME) == ("collectors", "observe")
"""
WORK = (
    "\nimport torch\ntorch.compile(lambda x: x + 1, "
    "backend='eager')(torch.ones(2))\nprint('worked')\n"
)
MODELS = """
import compileboard, torch
{theirs}
@compileboard.bench.model(batch_size=2)
def tiny(batch_size):
    return torch.nn.Linear(4, 4), (torch.ones(batch_size, 4),)

class Model(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
    def get_example_inputs(self):
        return (torch.ones(2, 4),)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and install it alone; what it depends on comes from this interpreter's
    environment.
    """
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    tree = folder / "tree"
    subprocess.run(["git", "clone", "--quiet", ROOT, tree], check=True)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(tree)]
    subprocess.run([*pip, *build], check=True, capture_output=True)
    venv.create(folder / "env", with_pip=False)
    (wheel,) = folder.glob("*.whl")
    python = str(folder / "env" / "bin" / "python")
    subprocess.run(
        [*pip, "--python", python, "install", "--no-deps", "--no-index", str(wheel)], check=True
    )
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    used = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "dependencies.pth").write_text("\n".join(used))
    return folder / "env" / "bin"


@pytest.fixture
def project(workplace: Workplace, environment: Path) -> Workplace:
    for path, name in (
        ("app/__init__", "app"),
        ("app/settings", "settings"),
        ("collectors/observe", "observe"),
    ):
        workplace.write(f"NAME = {name!r}", f"{path}.py")
    workplace.write("NAME = 'collectors'", "collectors/__init__.py")
    workplace.environment["PYTHONPATH"] = str(workplace.folder)  # all of theirs comes before ours
    workplace.environment["BIN"] = str(environment)
    return workplace


def ours(project: Workplace, script: str, *arguments: Any, **rest: Any) -> Any:
    return project.plain(f"{project.environment['BIN']}/{script}", *arguments, **rest)


def python(project: Workplace, *arguments: Any, **rest: Any) -> Any:
    return ours(project, "python", *arguments, **rest)


def test_the_wheel_has_one_name_at_the_top(project: Workplace) -> None:
    code = (
        "import importlib.metadata as m; print(*{str(path).split('/')[0] for path in "
        "m.files('compileboard')})"
    )
    names = python(project, "-P", "-c", code).stdout.split()
    assert {name for name in names if not name.endswith(".dist-info") and name != ".."} == {
        "compileboard"
    }


@pytest.mark.parametrize("script", ["compileboard", "compileboard-collect"])
@pytest.mark.nightly
def test_every_command_of_the_wheel_starts(project: Workplace, script: str) -> None:
    usage = ours(project, script, "--help").stdout
    names = re.findall(r"^ {2}([a-z][\w-]+)  ", usage, re.MULTILINE)
    assert len(names) >= 8
    for name in names:
        done = ours(project, script, name, "--help")
        assert (done.returncode, "usage: " in done.stdout.lower()) == (0, True), done.stderr


@pytest.mark.nightly
def test_commands_find_ours_and_the_program_theirs(project: Workplace) -> None:
    program = project.write(THEIRS + "print('theirs')\n")
    run_python = f"{project.environment['BIN']}/python"
    collect, database = "compileboard-collect", ("--db", project.database)
    done = ours(project, collect, "run", "--quiet", *database, "--", run_python, program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "theirs\n", "")
    run = project.only_run()["id"]
    log = ROOT / "tests" / "data" / "trace"
    for words in (["list"], ["show", run], ["index"], ["doctor"], ["import", log]):
        done = ours(project, collect, *words, *database)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    export = ("export", "--run", run, "--format", "html", "--output", "r.html")
    for words in (
        export,
        ("check", "--rule", "speedup"),
        ("incidents",),
        ("baseline", "list"),
        ("activity",),
    ):
        assert "Traceback" not in ours(project, "compileboard", *words, *database).stderr
    assert (project.folder / "r.html").stat().st_size > 1000


@pytest.mark.nightly
def test_a_process_of_our_own_finds_ours(project: Workplace) -> None:
    command = "import subprocess, sys; from compileboard.start import own_command\n"
    command += "subprocess.run(own_command(*sys.argv[1:]))"
    for module in ("compileboard.collectors", "compileboard.app"):
        done = python(project, "-c", command, module, "--version")
        assert "ompile" in done.stdout and not done.stderr


@pytest.mark.nightly
def test_code_reads_a_database_among_theirs(project: Workplace) -> None:
    log = ROOT / "tests" / "data" / "trace" / "torch2.13-breaks.log.xz"
    ours(project, "compileboard-collect", "import", log, "--db", project.database)
    code = THEIRS + "import compileboard, sys\nboard = compileboard.open(sys.argv[1])\n"
    code += "print(len(board.compiles()), board.run().compiles_figure().layout.title.text)"
    done = python(project, project.write(code), project.database)
    assert (done.stdout, done.stderr) == (
        f"{project.only_run()['compile_count']} Compile time\n",
        "",
    )


@pytest.mark.nightly
def test_serve_answers_and_imports_among_theirs(project: Workplace) -> None:
    log = lzma.decompress(
        (ROOT / "tests" / "data" / "trace" / "torch2.13-breaks.log.xz").read_bytes()
    )
    script = f"{project.environment['BIN']}/compileboard"
    with serving(project.database, front=(script,), PYTHONPATH=str(project.folder)) as server:
        with urllib.request.urlopen(f"{server.address}/runs", timeout=10) as answer:
            assert answer.status == 200
        assert send_and_wait(server.address, [("a.log", log)])["state"] == "done"
    assert "Traceback" not in server.output
    assert project.only_run()["compile_count"] > 0


@pytest.mark.parametrize(
    "switch", ["-P", "-B"]
)  # as `pytest` starts, without the folder; as `python -m pytest` does
def test_pytest_gives_tests_their_packages_and_our_fixture(project: Workplace, switch: str) -> None:
    project.write(
        THEIRS + "\ndef test_theirs(compileboard):\n    assert compileboard.observe\n",
        "test_theirs.py",
    )
    done = python(
        project, switch, "-m", "pytest", "-q", "-p", "no:cacheprovider", env={"PYTHONPATH": ""}
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr


def closure(start: Path) -> set[Path]:
    """Follow the relative imports of a module of ours."""
    seen: set[Path] = set()
    todo = [start]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = path.parents[node.level - 1].joinpath(
                    *(node.module or "").split(".")[: bool(node.module) and None]
                )
                names = [
                    base.with_suffix(".py"),
                    *(base / f"{alias.name}.py" for alias in node.names),
                ]
                todo += [name for name in names if name.is_file()]
    return seen


def test_the_hooks_import_nothing_by_the_name_of_our_package() -> None:
    modules = closure(ROOT / "collectors" / "observe" / "hooks.py") | {
        ROOT / "collectors" / "__init__.py"
    }
    assert len(modules) >= 10
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            named = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in named if (name or "").startswith("compileboard")], path


@pytest.mark.nightly
@pytest.mark.torch
def test_observed_and_observing_programs_keep_their_own(project: Workplace) -> None:
    program = project.write(THEIRS + WORK)
    words = (
        "run",
        "--quiet",
        "--db",
        project.database,
        "--",
        f"{project.environment['BIN']}/python",
        program,
    )
    done = ours(project, "compileboard-collect", *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "worked\n", "")
    assert project.only_run()["compile_count"] == 1
    block = f"with compileboard.observe(db='two.db') as run:\n    exec({WORK!r})\n"
    done = python(project, project.write(f"import compileboard\n{THEIRS}{block}{THEIRS}"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "worked\n", "")
    listed = ours(project, "compileboard-collect", "list", "--db", project.folder / "two.db")
    assert "finished  " in listed.stdout and listed.stdout.splitlines()[1].split().count("1") >= 1


@pytest.mark.torch
@pytest.mark.nightly
def test_the_plugin_sees_what_observe_records(project: Workplace) -> None:
    text = """
    import compileboard as board, torch
    def test_both(compileboard):
        with board.observe(db="two.db"), compileboard.observe() as seen:
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        assert len(seen.compiles) == 1
    """
    project.write(text, "test_both.py")
    done = python(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    listed = ours(
        project, "compileboard-collect", "list", "--db", project.folder / "two.db"
    ).stdout.splitlines()[1]
    assert "finished" in listed and " 1 " in listed


@pytest.mark.torch
@pytest.mark.parametrize("only", ["", ",class:Model"])
@pytest.mark.nightly
def test_bench_measures_a_model_whose_file_imports_theirs(project: Workplace, only: str) -> None:
    path = project.write(MODELS.format(theirs=THEIRS), "models.py")
    words = ["--only", f"path:{path}{only}", "--backend", "eager", "--quick", "--device", "cpu"]
    done = ours(
        project, "compileboard-collect", "bench", "--db", project.database, *words, cwd=project.home
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert project.value("select status from results") == "measured"
