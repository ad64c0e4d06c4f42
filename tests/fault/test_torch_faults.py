"""With real torch: what a program does to itself, or we do wrong, never changes the program."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from tests.tools.observed import PROGRAMS, Workplace

pytestmark = pytest.mark.torch
SCENARIOS = PROGRAMS / "scenarios.py"


def same(workplace: Workplace, *words: str, **rest: Any) -> Any:
    """Run with and without us; output, messages and exit code must be equal."""
    plain = workplace.plain(SCENARIOS, *words, **rest)
    done = workplace.run(SCENARIOS, *words, options=("--quiet",), **rest)
    # From Python 3.12 on a warning about `os.fork` names the process.
    errors, plain_errors = (re.sub(r"pid=\d+", "", one.stderr) for one in (done, plain))
    assert (done.returncode, done.stdout, errors) == (plain.returncode, plain.stdout, plain_errors)
    return done


def test_the_same_output_and_exceptions_with_and_without_us(workplace: Workplace) -> None:
    # bad_functions: what torch is handed cannot be evaluated, and we count that.
    workplace.lossy = True
    done = same(
        workplace,
        "failing",
        "fullgraph",
        "callbacks",
        "bad_functions",
        "fork_while_compiling",
        "daemon",
    )
    assert "BackendCompilerFailed True" in done.stdout
    assert done.stdout.count("nothing raised") == 2
    assert (workplace.folder / "theirs.txt").read_text() == "mine alone"
    assert workplace.losses() == {"hook: ValueError: bad function": 2}
    assert workplace.only_run()["loss_count"] == 2
    last = workplace.rows("select outcome from compiles order by id desc limit 1")[0]
    assert last["outcome"] == "compiled", (
        "what was compiled after every descriptor was closed is there too"
    )


def test_functions_that_raise_do_so_in_torchs_own_log_too(workplace: Workplace) -> None:
    same(workplace, "bad_functions", env={"TORCH_TRACE": str(workplace.folder / "trace")})
    assert workplace.only_run()["compile_count"] == 1


def test_a_hook_that_fails_is_a_loss_that_is_shown(workplace: Workplace) -> None:
    workplace.lossy = True
    done = workplace.run(SCENARIOS, "tampered")
    assert (done.returncode, done.stdout) == (0, "tensor([3., 3.])\n")
    losses = workplace.losses()
    assert losses == {"hook: ZeroDivisionError: division by zero": sum(losses.values())}
    shown = workplace.collect("show", workplace.only_run()["id"], "--db", workplace.database).stdout
    assert f"{sum(losses.values())} records were dropped" in shown


@pytest.mark.nightly
def test_a_silenced_trace_logger_is_said(workplace: Workplace) -> None:
    workplace.lossy = True
    env = {"TORCH_TRACE": str(workplace.folder / "trace")}
    assert workplace.run(SCENARIOS, "logging_config", env=env).returncode == 0
    assert list(workplace.losses()) == [
        "torch's trace logger was disabled by the program's logging configuration"
    ]
    assert workplace.value("select count(*) from compilations") == 1, "the metrics come another way"


@pytest.mark.nightly
def test_a_spool_that_cannot_grow_is_no_matter_of_the_program(workplace: Workplace) -> None:
    workplace.lossy = True
    limited = f"ulimit -f 16; exec {sys.executable} {SCENARIOS} many"
    # Before Python 3.14 a half-written .pyc stays, and every later program would stumble over it.
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    done = workplace.run("bash", "-c", limited, options=("--quiet",), env=env)
    assert (done.returncode, done.stdout) == (0, "")
    run = workplace.only_run()
    assert 0 < run["compile_count"] < 100
    assert run["loss_count"] > 50


SECRET = "hunter2Xyzzy"
SENTINEL = "sentinelZq9"
SECRETIVE = f"""
import torch

def function(x, k):
    y = x + 1  # {SENTINEL}_comment
    torch._dynamo.graph_break()  # {SENTINEL}_break
    return y * k  # {SENTINEL}_guard

def branching(x, n):
    if x.sum() > 0: return x * n  # {SENTINEL}_branch
    return x - n

def failing(x):
    {SENTINEL}_name = x + 1
    return {SENTINEL}_name.no_such_method()  # {SENTINEL}_raise

f = torch.compile(function, backend="eager")
for k in ("one", "two"):
    f(torch.ones(2), len(k) if k == "one" else 2.5)
    f(torch.ones(2), 7)
torch.compile(branching, backend="eager")(torch.ones(2), 3)
for one in (failing,):
    try:
        torch.compile(one, backend="eager", fullgraph=True)(torch.ones(2))
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def with_and_without_source(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Workplace, Workplace]:
    places = []
    for options in ((), ("--no-source",)):
        workplace = Workplace(tmp_path_factory.mktemp("secret"))
        # The spool is kept, to be searched as well.
        folder = workplace.folder / "kept"
        keep = f'mkdir -p {folder}; {sys.executable} "$@"; cp -r $COMPILEBOARD_SPOOL/. {folder}'
        command = [
            "bash",
            "-c",
            keep,
            "x",
            workplace.write(SECRETIVE),
            "--token",
            SECRET,
            f"--api-key={SECRET}",
        ]
        urls = [
            f"https://me:{SECRET}@host/x",
            f"HF_TOKEN={SECRET}",
            f"-HAuthorization: Bearer {SECRET}",
        ]
        env = {"TORCH_TOKEN": SECRET, "MY_URL": f"https://u:{SECRET}@h/", "MY_PASSWORD": SECRET}
        capture = ("--capture-env", "MY_URL", "--capture-env", "MY_PASSWORD")
        git = f"git init -q . && git remote add origin https://u:{SECRET}@host/x.git"
        workplace.plain("bash", "-c", git)
        done = workplace.run(*command, *urls, options=(*options, *capture), env=env)
        assert done.returncode == 0, done.stderr
        places.append(workplace)
    return places[0], places[1]


def kept_bytes(workplace: Workplace) -> bytes:
    spooled = [
        path.read_bytes() for path in (workplace.folder / "kept").rglob("*") if path.is_file()
    ]
    assert any(b"process_started" in data for data in spooled)
    return b"\n".join([workplace.all_bytes(), *spooled])


def test_no_secret_is_in_the_spool_or_the_database(
    with_and_without_source: tuple[Workplace, Workplace],
) -> None:
    for workplace in with_and_without_source:
        stored = kept_bytes(workplace)
        assert SECRET.encode() not in stored
        assert b"--token" in stored
        assert b"host/x.git" in stored
        facts = json.loads(workplace.only_run()["facts"])
        assert (
            facts["environment"]["TORCH_TOKEN"]
            == facts["environment"]["MY_PASSWORD"]
            == "<withheld>"
        )


def test_without_source_no_line_of_the_program_is_kept(
    with_and_without_source: tuple[Workplace, Workplace],
) -> None:
    stored, withheld = (kept_bytes(workplace) for workplace in with_and_without_source)
    assert SENTINEL.encode() in stored
    index = withheld.find(SENTINEL.encode())
    assert index < 0, withheld[max(index - 300, 0) : index + 100]
    assert b"source withheld" in withheld


@pytest.mark.nightly
def test_without_source_a_program_on_the_command_line_is_not_kept(workplace: Workplace) -> None:
    code = (
        f"import torch; torch.compile(lambda {SENTINEL}: {SENTINEL} + 1, "
        "backend='eager')(torch.ones(2))"
    )
    done = workplace.run(sys.executable, "-c", code, "argument", options=("--no-source", "--quiet"))
    assert (done.returncode, done.stdout) == (0, "")
    assert SENTINEL.encode() not in workplace.all_bytes()
    assert workplace.only_run()["command"].startswith(f"{sys.executable} -c <source withheld ")
    assert workplace.only_run()["command"].endswith("> argument")
    assert (workplace.only_run()["name"], workplace.only_run()["compile_count"]) == ("python -c", 1)


def test_fingerprints_are_the_same_with_and_without_source(
    with_and_without_source: tuple[Workplace, Workplace],
) -> None:
    first, other = with_and_without_source
    for table in ("distinct_breaks", "recompile_causes"):
        sql = f"select fingerprint from {table} order by fingerprint"
        assert first.rows(sql) == other.rows(sql) != []
