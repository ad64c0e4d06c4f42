"""The first example of every page of the documents: it runs, exits and prints as the page shows."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from compileboard.app.cli.main import main as run_dashboard_command
from tests.tools.documents import INDEX, PAGES, list_pages
from tests.tools.history import record_history
from tests.tools.observed import Workplace

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
BLOCK = re.compile(r"^```console\n(.+?)^```", re.DOTALL | re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.+?)^```", re.DOTALL | re.MULTILINE)
OURS = ("compileboard ", "compileboard-collect ", "python -m benchmarks.faults.frame_stack")
NOT_RUN = {
    "bench-flags.md",  # a GPU and a suite of models
    "cuda-run.md",
    "clickhouse.md",  # a server that is away, a damaged file
    "push.md",
    "bench-export.md",  # a quarter of an hour's work, or a file of models
    "ranks.md",
    "repro-cause.md",  # a failure that was planted
}
COMPILES = {
    "README.md",
    "bench.md",
    "collector.md",
    "compatibility.md",
    "experiments.md",
    "stack-cliff.md",
    "try.md",
}
NUMBERS_VARY = {
    "benchmarks.md",
    "dashboard.md",
    "site.md",
}  # a port, a machine's speed, how many pages there are
EXIT_CODES = {
    "alerts.md": 1,
    "check.md": 1,
}  # of the last command: a variable is not set; a verdict fails
LAST_GOOD_RUN = "01M80KJPYGQRBY2A9CZEZ5B2HC"  # before the history's print
# What of a line differs from run to run: an id, a number with its decimals, the unit of a time.
VARYING = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b|\d[\d.,:]*(?: (?:µs|ms|s)\b)?")
# Of one execution a side, a busy machine may give two times that are close to each other.
NOT_JUDGED = re.compile(r"one sample each: not judged|no clear difference \(one sample each\)")
TRAIN = """
import torch


def scale(x):
    print("scaling")
    return x * 2


step = torch.compile(scale, backend="eager")
for size in (2, 3, 4):
    step(torch.ones(size))
"""
SCRIPT = """#!{python}
import sys
sys.path.insert(0, {root!r})
from {module} import main
sys.exit(main())
"""


def list_examples(page: str) -> list[list[tuple[str, list[str]]]]:
    """Return a page's console blocks that run our commands alone, each as its commands with the
    lines shown.
    """
    examples = []
    for block in BLOCK.findall(PAGES[page].read_text(encoding="utf-8")):
        commands: list[tuple[str, list[str]]] = []
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            else:
                commands[-1][1].append(line)
        if all(command.startswith(OURS) for command, _shown in commands):
            examples.append(commands)
    return examples


EXAMPLES = {
    page: list_examples(page)[0] for page in PAGES if page not in NOT_RUN and list_examples(page)
}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record the demo's history as an H200 measured it, with a baseline from before its first
    regression.
    """
    path = tmp_path_factory.mktemp("history") / "compileboard.db"
    record_history(path)
    assert (
        run_dashboard_command(
            ["baseline", "save", "main", "--run", LAST_GOOD_RUN, "--db", str(path)]
        )
        == 0
    )
    return path


@pytest.fixture
def shell(workplace: Workplace, history: Path) -> dict[str, str]:
    """Make the folder in which an example runs; give the environment for it."""
    for source in history.parent.iterdir():
        shutil.copy(source, workplace.folder)
    (workplace.folder / "train.py").write_text(TRAIN, encoding="utf-8")
    shutil.copyfile(DATA / "repros" / "dynamic_pad.txt", workplace.folder / "repro.py")
    (workplace.folder / "results").mkdir()
    for table in (DATA / "upstream" / "recorded").glob("*.csv"):
        shutil.copy(table, workplace.folder / "results")
    scripts = workplace.folder / "bin"
    scripts.mkdir()
    for name, module in (("compileboard", "app"), ("compileboard-collect", "collectors")):
        script = SCRIPT.format(
            python=sys.executable, root=str(ROOT), module=f"compileboard.{module}.cli.main"
        )
        (scripts / name).write_text(script, encoding="utf-8")
        (scripts / name).chmod(0o755)
    search = os.pathsep.join([str(scripts), os.path.dirname(sys.executable), os.environ["PATH"]])
    return workplace.environ(
        PATH=search,
        COLUMNS="110",
        PYTHONUNBUFFERED="1",
        COMPILEBOARD_PORT="0",
        COMPILEBOARD_FOLLOW="no",
    )


def run_command(command: str, folder: Path, environment: dict[str, str]) -> tuple[int, list[str]]:
    """Run one command of an example; a server is stopped once it serves. Return exit status and
    lines.
    """
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}" if " serve" in command else command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    assert process.stdout is not None
    lines = []
    with process:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if address := re.search(r"at (http://\S+) \(Ctrl\+C", line):
                with urllib.request.urlopen(
                    address[1], timeout=60
                ):  # a worker that answers can be stopped
                    process.send_signal(signal.SIGINT)
    return process.returncode, lines


def write_pattern(shown: list[str], clean: Callable[[str], str]) -> str:
    """Return what the output must match: `…` alone on a line is any lines, inside a line any
    text.
    """
    return "".join(
        r"(?:.*\n)*?" if line == "…" else re.escape(clean(line)).replace("…", ".*") + r"\n"
        for line in shown
    )


def strip_numbers(line: str) -> str:
    """Return a line without what differs from one run or machine to the next."""
    return " ".join(NOT_JUDGED.sub("not judged", VARYING.sub("0", line)).split())


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.torch] if page in COMPILES else [])
        for page in EXAMPLES
    ],
)
def test_first_example_runs_as_its_page_shows(
    page: str, workplace: Workplace, shell: dict[str, str]
) -> None:
    clean = strip_numbers if page in COMPILES | NUMBERS_VARY else str.rstrip
    expected = [0] * (len(EXAMPLES[page]) - 1) + [EXIT_CODES.get(page, 0)]
    for (command, shown), exit_code in zip(EXAMPLES[page], expected):
        status, lines = run_command(command, workplace.folder, shell)
        assert status == exit_code, (command, lines)
        text = "".join(f"{clean(line)}\n" for line in lines)
        assert not shown or re.fullmatch(write_pattern(shown, clean), text), (command, shown, lines)


@pytest.mark.torch
@pytest.mark.parametrize("page", ["api.md", "collector.md", "stack-cliff.md"])
def test_python_examples_that_need_nothing_run(
    page: str, workplace: Workplace, shell: dict[str, str]
) -> None:
    """Those of notebook.md have a test of their own; the others are parts of a program."""
    program = "\n".join(PYTHON.findall(PAGES[page].read_text(encoding="utf-8")))
    command = [sys.executable, "-W", "error", workplace.write(program)]
    ended = subprocess.run(
        command, cwd=workplace.folder, env=shell, capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


def test_a_busy_machine_shows_the_same_but_for_its_times() -> None:
    quick = "  Compile time  390 → 142 ms  one sample each: not judged"
    slow = "  Compile time  1.05 → 1.04 s  no clear difference (one sample each)"
    assert strip_numbers(quick) == strip_numbers(slow) == "Compile time 0 → 0 not judged"


def test_most_pages_begin_with_an_example() -> None:
    without = {
        INDEX,
        *NOT_RUN,
        "cuda-graphs.md",
        "development.md",
        "github-action.md",  # it has a test of its own
        "import.md",
        "links.md",
        "new-guard-category.md",
        "new-page.md",
        "provenance.md",
        "quick-start.md",
        "steps.md",
        "testing.md",
        "upgrading.md",
    }
    assert list_pages("Guides") - set(EXAMPLES) <= without
