"""A project with packages of its own called `app` and `collectors`: theirs are theirs, and ours work beside them."""

from __future__ import annotations

import ast
import lzma
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.tools.observed import PYTHON, ROOT, Workplace
from tests.tools.serving import serving
from tests.tools.uploading import send_and_wait

ENTRY = ROOT / "compileboard.py"
THEIRS = """
import app, collectors, collectors.observe, app.settings
assert (app.NAME, app.settings.NAME) == ("app", "settings")
assert (collectors.NAME, collectors.observe.NAME) == ("collectors", "observe")
"""
WORK = "\nimport torch\ntorch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\nprint('worked')\n"
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


@pytest.fixture
def project(place: Workplace) -> Workplace:
    for path, name in (("app/__init__", "app"), ("app/settings", "settings"), ("collectors/observe", "observe")):
        place.write(f"NAME = {name!r}", f"{path}.py")
    place.write("NAME = 'collectors'", "collectors/__init__.py")
    # Everything of theirs is before ours, and ours is not on the path at all.
    place.environment["PYTHONPATH"] = str(place.folder)
    return place


def console_script(module: str) -> str:
    code = f"import importlib.util, sys; sys.argv[0] = 'compileboard-x'; sys.path.append({str(ROOT)!r})\n"
    return code + f"import compileboard; sys.exit(compileboard.{module}())"


def ours(project: Workplace, module: str, *words: Any, **rest: Any) -> Any:
    """Call a command as its console script does."""
    return project.plain(PYTHON, "-c", console_script(module), *words, **rest)


def test_commands_find_ours_and_the_program_theirs(project: Workplace) -> None:
    program = project.write(THEIRS + "print('theirs')\n")
    done = ours(project, "collect", "run", "--quiet", "--db", project.database, "--", PYTHON, program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "theirs\n", "")
    run = project.only_run()["id"]
    for words in (["list"], ["show", run], ["index"]):
        done = ours(project, "collect", *words, "--db", project.database)
        assert done.returncode == 0, done.stderr
    log = ROOT / "tests" / "data" / "trace"
    assert ours(project, "collect", "import", "--db", project.database, log).stderr.count("Traceback") == 0
    done = ours(
        project, "dashboard", "export", "--db", project.database, "--run", run, "--format", "html", "--output", "r.html"
    )
    assert done.returncode == 0, done.stderr


def test_a_process_of_our_own_finds_ours(project: Workplace) -> None:
    for module, words in (("collectors", ["--version"]), ("app", ["--version"])):
        done = project.plain(PYTHON, ENTRY, module, *words)
        assert (done.returncode, "ompile" in done.stdout) == (0, True), done.stderr


def test_serve_answers_and_imports_among_theirs(project: Workplace) -> None:
    front = ("-c", console_script("dashboard"))
    log = lzma.decompress((ROOT / "tests" / "data" / "trace" / "torch2.13-breaks.log.xz").read_bytes())
    with serving(project.database, front=front, PYTHONPATH=str(project.folder)) as server:
        with urllib.request.urlopen(f"{server.address}/runs", timeout=10) as answer:
            assert answer.status == 200
        assert send_and_wait(server.address, [("a.log", log)])["state"] == "done"
    assert "Traceback" not in server.output
    assert project.only_run()["compile_count"] > 0


@pytest.mark.parametrize("switch", ["-P", "-B"])  # as `pytest` starts, without the folder; as `python -m pytest` does
def test_pytest_gives_tests_their_packages_and_our_fixture(project: Workplace, switch: str) -> None:
    project.write(THEIRS + "\ndef test_theirs(compileboard):\n    assert compileboard.observe\n", "test_theirs.py")
    code = f"import sys; sys.path.append({str(ROOT)!r}); import compileboard, pytest\n"
    code += "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider'], plugins=[compileboard.plugin]))"
    env = {"PYTHONPATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = project.plain(PYTHON, switch, "-c", code, env=env)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr


def test_pytest_gets_our_plugin_beside_theirs(project: Workplace) -> None:
    text = f"import sys; sys.path.append({str(ROOT)!r}); import compileboard; plugin = compileboard.plugin; "
    text += "import collectors; print(plugin.__file__, collectors.NAME, 'app' in sys.modules)"
    done = project.plain(PYTHON, "-c", text)
    assert done.stdout.split() == [str(ROOT / "collectors" / "pytest_plugin.py"), "collectors", "False"], done.stderr


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
                names = [base.with_suffix(".py"), *(base / f"{alias.name}.py" for alias in node.names)]
                todo += [name for name in names if name.is_file()]
    return seen


def test_the_hooks_import_nothing_by_the_names_of_our_packages() -> None:
    modules = closure(ROOT / "collectors" / "observe" / "hooks.py") | {ROOT / "collectors" / "__init__.py"}
    assert len(modules) >= 10
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            named = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in named if (name or "").partition(".")[0] in ("app", "collectors")], path


@pytest.mark.torch
def test_observed_and_observing_programs_keep_their_own(project: Workplace) -> None:
    program = project.write(THEIRS + WORK)
    done = ours(project, "collect", "run", "--quiet", "--db", project.database, "--", PYTHON, program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "worked\n", "")
    assert project.only_run()["compile_count"] == 1
    path = project.write(f"import sys; sys.path.append({str(ROOT)!r})\nimport compileboard\n{THEIRS}")
    path.write_text(
        path.read_text()
        + f"with compileboard.observe(db='two.db') as run:\n    {WORK.strip()!r}\n    exec({WORK!r})\n"
        + THEIRS
    )
    done = project.plain(path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "worked\n", "")
    other = Workplace(project.folder)
    listed = ours(project, "collect", "list", "--db", other.folder / "two.db")
    assert "finished  " in listed.stdout and listed.stdout.splitlines()[1].split().count("1") >= 1


@pytest.mark.torch
def test_the_plugin_sees_what_hooks_under_our_usual_name_see(place: Workplace) -> None:
    text = """
    import collectors, torch
    def test_both(compileboard):
        with collectors.observe(db="two.db"), compileboard.observe() as seen:
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        assert len(seen.compiles) == 1 and compileboard.__module__ == "_compileboard.pytest_plugin"
    """
    place.write(text, "test_both.py")
    code = "import compileboard, pytest, sys\n"
    code += "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider'], plugins=[compileboard.plugin]))"
    done = place.plain(PYTHON, "-c", code, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    listed = place.collect("list", "--db", place.folder / "two.db").stdout.splitlines()[1]
    assert "finished" in listed and " 1 " in listed


@pytest.mark.torch
@pytest.mark.parametrize("only", ["", ",class:Model"])
def test_bench_measures_a_model_whose_file_imports_theirs(project: Workplace, only: str) -> None:
    path = project.write(MODELS.format(theirs=THEIRS), "models.py")
    words = ["--only", f"path:{path}{only}", "--backend", "eager", "--quick", "--device", "cpu"]
    done = ours(project, "collect", "bench", "--db", project.database, *words, cwd=project.home)
    assert done.returncode == 0, done.stderr + done.stdout
    assert project.one("select status from results") == "measured"
