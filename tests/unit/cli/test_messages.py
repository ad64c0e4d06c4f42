"""The collector's messages: hints to type as they stand, complete summaries and lists."""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.cli.listing import list_text
from compileboard.collectors.cli.main import main
from compileboard.collectors.contract.events import RunEnded
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.terminal import values as command_hints
from compileboard.collectors.terminal.run_summary import duration_text, printable, summarize
from tests.tools.observed import Workplace

TRUE = (sys.executable, "-c", "print('ran')")


@pytest.mark.parametrize(
    ("invoked", "on_path", "collect", "serve"),
    [
        (
            ["/x/collectors/__main__.py"],
            True,
            "py -m compileboard.collectors show R",
            "py -m compileboard.app serve",
        ),
        (
            ["/usr/bin/compileboard-collect"],
            True,
            "compileboard-collect show R",
            "compileboard serve",
        ),
        (
            ["/v e/compileboard-collect"],
            False,
            "'/v e/compileboard-collect' show R",
            "'/v e/compileboard' serve",
        ),
        (["train.py"], True, "compileboard-collect show R", "compileboard serve"),
        (
            ["train.py"],
            False,
            "python -m compileboard.collectors show R",
            "python -m compileboard.app serve",
        ),
    ],
)
def test_a_hint_has_the_form_that_was_invoked(
    monkeypatch: pytest.MonkeyPatch, invoked: list[str], on_path: bool, collect: str, serve: str
) -> None:
    monkeypatch.setattr(sys, "argv", invoked)
    monkeypatch.setattr(sys, "orig_argv", ["py", *invoked])
    monkeypatch.setattr("shutil.which", lambda name: name if on_path else None)
    assert (
        command_hints.collector_command("show", "R"),
        command_hints.dashboard_command("serve"),
    ) == (collect, serve)
    assert (
        command_hints.collector_command("list", database="my db")
        == f"{collect.removesuffix(' show R')} list --db 'my db'"
    )


def test_the_closing_hint_can_be_typed_as_it_stands(workplace: Workplace) -> None:
    database = workplace.folder / "my runs.db"
    done = workplace.collect(
        "run", "--db", database, "--", sys.executable, "-c", "raise SystemExit(3)"
    )
    last = done.stderr.splitlines()[-1]
    assert "nothing was compiled" not in last
    words = shlex.split(last.rpartition("; ")[2])
    shown = subprocess.run(
        words,
        env=workplace.environ(),
        cwd=workplace.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "failed (exit code 3) · started " in shown.stdout
    unknown = workplace.collect("show", "nope", "--db", database).stderr
    assert f"list --db '{database}'` names them" in unknown


def test_a_run_whose_start_is_not_known_took_no_half_century(tmp_path: Path) -> None:
    database = str(tmp_path / "a.db")
    migrate(database)
    with closing(open_writer(database)) as store:
        Ingestor(store).ingest(
            "R", [RunEnded("p", 0, 0, run_id="R", state="finished", exit_code=0)]
        )
        store.execute("update runs set ended_us = 1795271411600717")
        store.commit()
    assert (
        "not recorded" in (listed := list_text(database, 5))
        and "1970" not in listed
        and " h " not in listed
    )
    summary = summarize(database, "R")
    assert (
        summary is not None
        and "start not recorded" in summary.ending()
        and "took" not in summary.ending()
    )


def test_a_run_without_torch_says_not_recorded_and_why(workplace: Workplace) -> None:
    done = workplace.run(*TRUE)
    assert "python -I, -S or -E, a container, another machine" in done.stderr.splitlines()[-1]
    shown = workplace.collect("show", "0", "--db", workplace.database).stdout
    assert "0.00 s" not in shown
    assert "CPU" not in shown
    assert [line.split()[-2:] for line in shown.splitlines() if line.startswith("  compile")] == [
        ["not", "recorded"],
        ["not", "recorded"],
    ]


def test_a_signal_a_suite_and_tags_are_on_the_runs_line(workplace: Workplace) -> None:
    options = ("--suite", "llm", "--tag", "b=2", "--tag", "a=x y")
    workplace.run(sys.executable, "-c", "import os; os.kill(os.getpid(), 15)", options=options)
    shown = workplace.collect(
        "show", "0", "--db", workplace.database, env={"COLUMNS": "200"}
    ).stdout.splitlines()[1]
    assert shown.startswith("  killed (SIGTERM) · started 2")
    assert shown.endswith("suite llm · tags a=x y, b=2")


def test_list_finds_by_suite_and_tags(workplace: Workplace) -> None:
    for name, options in {
        "one": ("--suite", "s", "--tag", "gpu=h200", "--tag", "b="),
        "two": ("--suite", "s", "--tag", "gpu=a100"),
        "three": ("--tag", "gpu=h200"),
    }.items():
        workplace.run("true", options=("--name", name, *options))
    names_by_options = {}
    for asked in (
        "--suite s",
        "--tag gpu",
        "--tag gpu=h200",
        "--tag gpu=h200 --tag b",
        "--suite t",
        "--tag b=c",
    ):
        out = workplace.collect(
            "list", "--db", workplace.database, *asked.split()
        ).stdout.splitlines()
        names_by_options[asked] = {line.split()[3] for line in out[1:]}
    assert names_by_options == {
        "--suite s": {"one", "two"},
        "--tag gpu": {"one", "two", "three"},
        "--tag gpu=h200": {"one", "three"},
        "--tag gpu=h200 --tag b": {"one"},
        "--suite t": set(),
        "--tag b=c": set(),
    }


def test_list_fits_a_terminal_of_a_hundred_columns(workplace: Workplace) -> None:
    for name in ("a_training_script_with_a_long_name.py", "b.py"):
        workplace.run("true", options=("--name", name, "--suite", "a long suite's name"))
    wide = list_text(str(workplace.database), 5)
    narrow = list_text(str(workplace.database), 5, columns=100)
    assert max(map(len, narrow.splitlines())) <= 100 < max(map(len, wide.splitlines()))
    short = narrow.splitlines()[1].split()[0]
    assert workplace.collect("show", short, "--db", workplace.database).returncode == 0
    assert "a_training_sc…" in narrow


@pytest.mark.torch
def test_show_names_failures_and_recompile_limits_within_the_width(workplace: Workplace) -> None:
    text = """
    import torch
    torch._dynamo.config.recompile_limit = 2
    @torch.compile(backend="eager", dynamic=False)
    def grows(x):
        return x + 1
    for n in range(2, 7):
        grows(torch.ones(n))
    def refuse(graph, inputs):
        raise RuntimeError("this backend says no")
    def fails(x):
        return x * 2
    torch.compile(fails, backend=refuse)(torch.ones(2))
    """
    workplace.run(workplace.write(text))
    shown = workplace.collect("show", "0", "--db", workplace.database, env={"COLUMNS": "60"}).stdout
    assert (
        max(
            len(line)
            for line in shown.splitlines()
            if "See it" not in line and str(workplace.folder) not in line
        )
        <= 60
    )
    failures = shown[shown.index("Failures:") :]
    assert "1 ×  fails: BackendCompilerFailed" in failures
    assert "this backend says no" in " ".join(failures.split())
    fixes = " ".join(shown[shown.index("Fix this first (") : shown.index("Failures:")].split())
    assert "in grows; runs eagerly" in fixes


def test_no_command_prints_the_help(capsys: Any) -> None:
    assert main([]) == 2
    assert "run       Observe a command and everything it starts." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0.00 s"),
        (420_000, "0.42 s"),
        (12_345_678, "12.3 s"),
        (245_000_000, "4 m 05 s"),
        (7_800_000_000, "2 h 10 m"),
    ],
)
def test_a_duration_is_short(microseconds: int, text: str) -> None:
    assert duration_text(microseconds) == text


def test_a_name_moves_no_cursor() -> None:
    assert printable("a\x1b[2Jb\nc") == "a [2Jb c"
