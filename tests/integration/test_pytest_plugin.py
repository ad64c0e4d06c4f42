"""The pytest plugin in a project's own tests, with real torch.compile, in a pytest of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.store.connection import open_reader
from tests.tools.observed import SEARCHED
from tests.tools.serving import serving

TESTS = """
import pytest
import torch

def model(x):
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2

def compiled():
    return torch.compile(model, backend="eager")

def test_breaks(compileboard):
    with compileboard.observe() as seen:
        compiled()(torch.ones(2))
    assert [it.line for it in seen.graph_breaks] == [7] and len(seen.compiles) == 2
    compileboard.assert_no_new_graph_breaks()

class TestModel:
    def test_call(self, compileboard):
        assert compileboard.assert_no_new_graph_breaks(compiled(), torch.ones(2)).sum() == 8

def test_recompiles(compileboard):
    function = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with compileboard.observe() as seen:
        for size in (2, 3, 4):
            function(torch.ones(size))
    assert len(seen.recompiles) == 2
    compileboard.assert_max_recompiles(2)
    compileboard.assert_max_recompiles(1)

def test_after_a_break(compileboard):
    def split(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2
    with compileboard.observe():
        for size in (2, 3):
            torch.compile(split, backend="eager", dynamic=False)(torch.ones(size))
    compileboard.assert_max_recompiles(0)

def test_nothing_is_left(compileboard):
    import torch._dynamo.utils
    before = torch._dynamo.utils.log_compilation_event, torch._logging._internal.trace_structured
    with compileboard.observe() as outer:
        compiled()(torch.ones(2))
        with compileboard.observe() as inner:
            compiled()(torch.ones(3))
    after = torch._dynamo.utils.log_compilation_event, torch._logging._internal.trace_structured
    assert after == before
    assert len(outer.graph_breaks) == 2 and len(inner.graph_breaks) == 1

def test_inside_the_block(compileboard):
    with compileboard.observe():
        compiled()(torch.ones(2))
        compileboard.assert_no_new_graph_breaks()

def changing(*sizes):
    function = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    return [function(torch.ones(size)).numel() for size in sizes]

def test_a_call_counts_alone(compileboard):
    assert compileboard.assert_max_recompiles(2, changing, 2, 3, 4) == [2, 3, 4]
    compileboard.assert_max_recompiles(0, changing, 2)
    with compileboard.observe(), compileboard.observe():
        changing(5, 6)
        compileboard.assert_max_recompiles(3)
    compileboard.assert_max_recompiles(3)

@pytest.mark.parametrize("name", ["a/b", "c/b"])
def test_of(name, compileboard):
    compileboard.assert_no_new_graph_breaks(compiled(), torch.ones(2))
    compileboard.assert_no_new_graph_breaks(changing, 2)

def test_asserts_need_a_block(compileboard):
    compileboard.assert_no_new_graph_breaks()
"""
FAILING = {"test_recompiles", "test_after_a_break", "test_asserts_need_a_block"}
BREAKING = {"test_breaks", "test_call", "test_inside_the_block", "test_of[a/b]", "test_of[c/b]"}


def _pytest(
    folder: Path, *more: str, front: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHONPATH": SEARCHED,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "COMPILEBOARD_HOME": str(folder / "home"),
    }
    command = [
        sys.executable,
        *front,
        "-m",
        "pytest",
        "-p",
        "compileboard.collectors.pytest_plugin",
        "-q",
        "-rf",
        "-W",
        "error",
    ]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *more],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


def _failed(done: subprocess.CompletedProcess[str]) -> set[str]:
    return {
        line.split(" - ")[0].rpartition("::")[2]
        for line in done.stdout.splitlines()
        if line.startswith("FAILED ")
    }


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "test_model.py").write_text(TESTS)
    return tmp_path


@pytest.mark.torch
def test_new_breaks_fail_until_they_are_kept(project: Path) -> None:
    done = _pytest(project)
    assert _failed(done) == FAILING | BREAKING, done.stdout + done.stderr
    for sentence in (
        "1 new graph break (0 known)",
        "at suite/test_model.py:7 in model",
        "suite/test_model.py:7 in model: torch._dynamo.graph_break()",
        "hint: ",
        "pytest --compileboard-update writes it to",
        "2 recompiles, at most 1 expected",
        "because 0/1 failed: ",
        "Remove the graph break before this code",
        "nothing was observed; run the model inside",
    ):
        assert sentence in done.stdout
    assert re.search(r"2\. compile 1/1, because 1/0 failed: tensor '(L\['y'\]|y)'", done.stdout)
    assert "dimension 0 of y" not in done.stdout
    assert "_pytest/" not in done.stdout and "pytest_plugin.py" not in done.stdout
    assert _failed(_pytest(project, "--compileboard-update")) == FAILING
    baseline = json.loads((project / "suite" / "graph_breaks.json").read_text())
    assert {
        test_name.removeprefix("test_model.py::").removeprefix("TestModel::")
        for test_name in baseline
    } == BREAKING
    assert baseline["test_model.py::test_breaks"][0]["where"] == "suite/test_model.py in model"
    moved = (
        (project / "suite" / "test_model.py")
        .read_text()
        .replace("def model", "# a line more\n\ndef model")
    )
    (project / "suite" / "test_model.py").write_text(moved.replace("== [7]", "== [9]"))
    assert _failed(_pytest(project)) == FAILING  # a moved line is the same break


@pytest.mark.torch
@pytest.mark.nightly
def test_workers_of_xdist_write_one_file(project: Path) -> None:
    pytest.importorskip("xdist")
    done = _pytest(project, "-p", "xdist", "-n", "2", "--compileboard-update")
    assert _failed(done) == FAILING, done.stdout + done.stderr
    assert len(json.loads((project / "suite" / "graph_breaks.json").read_text())) == len(BREAKING)
    assert sorted(path.name for path in (project / "suite").iterdir() if path.is_file()) == [
        "graph_breaks.json",
        "test_model.py",
    ]


@pytest.mark.nightly
@pytest.mark.torch
def test_a_test_that_is_recorded_at_once_is_seen_too(project: Path) -> None:
    pytest.importorskip("sqlite_utils")
    run = (
        "-m",
        "compileboard.collectors",
        "run",
        "--db",
        str(project / "x.db"),
        "--",
        sys.executable,
    )
    done = _pytest(project, "--compileboard-update", front=run)
    assert _failed(done) == FAILING, done.stdout + done.stderr
    assert "graph breaks" in done.stderr, "the run is recorded as well"


@pytest.mark.nightly
@pytest.mark.torch
def test_a_session_that_is_pushed_at_once_is_a_run_of_the_server(
    project: Path, tmp_path: Path
) -> None:
    database = tmp_path / "server" / "board.db"
    database.parent.mkdir()
    with serving(database) as server:
        run = (
            "-m",
            "compileboard.collectors",
            "run",
            "--server",
            server.address,
            "--",
            sys.executable,
        )
        done = _pytest(project, "--compileboard-update", front=run)
        assert _failed(done) == FAILING, done.stdout + done.stderr
        assert f"pushed to {server.address}/runs/" in done.stderr
        with closing(open_reader(database)) as reader:
            state, break_count = reader.execute(
                "select state, graph_break_count from runs join run_totals on run_id = id"
            ).fetchone()
    assert (state, break_count > 0) == ("failed", True)


def test_a_suite_that_does_not_use_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "import sys\n\ndef test_own():\n"
        "    ours = {f'compileboard.collectors.{name}' for name in ('watch', 'api')}\n"
        "    assert not {'torch', 'numpy', 'pandas', *ours} & set(sys.modules)\n"
    )
    done = _pytest(tmp_path)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    assert not (tmp_path / "graph_breaks.json").exists()


@pytest.mark.parametrize("more", [(), ("--compileboard-update",)])
def test_without_torch_one_line_says_what_to_do(tmp_path: Path, more: tuple[str, ...]) -> None:
    (tmp_path / "test_own.py").write_text(
        "import sys\n\ndef test_torch(compileboard, monkeypatch):\n"
        "    monkeypatch.setitem(sys.modules, 'torch', None)\n"
        "    compileboard.assert_max_recompiles(0, len, [])\n"
    )
    done = _pytest(tmp_path, *more)
    assert (
        "the model's torch is what is observed: install it" in done.stdout
        and "Traceback" not in done.stdout
    )


@pytest.mark.parametrize("text", ["[1]", "{", '{"test": ["x"]}', "<<<<<<< HEAD"])
def test_a_damaged_baseline_is_said(tmp_path: Path, text: str) -> None:
    from compileboard.collectors.pytest_plugin import _load, _update

    path = tmp_path / "graph_breaks.json"
    path.write_text(text)
    for work in (lambda: _load(path), lambda: _update(path, "test", [])):
        with pytest.raises(
            pytest.fail.Exception,
            match="fix it, or delete it and create it again with `pytest --comp",
        ):
            work()
    assert path.read_text() == text
