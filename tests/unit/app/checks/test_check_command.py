"""`compileboard check` and `baseline`: what they find, print and write, and exit codes."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from flask.testing import FlaskClient

from compileboard.app.cli.main import main
from compileboard.collectors.cli.main import main as collect
from compileboard.collectors.contract.events import (
    GraphBroke,
    GuardFailure,
    ProcessStarted,
    Recompiled,
)
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.trash import delete_run
from tests.unit.app.benched import ACCURACY, add_results, measure
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.seed import START_US

DATA = Path(__file__).parents[3] / "data" / "checks"
CSV = str(DATA / "pr_time_expected.csv")
DAY_US = 86_400_000_000


def _record(
    store: sqlite3.Connection,
    run_id: str,
    day: int = 0,
    breaks: tuple[str, ...] = ("x",),
    **changes: Any,
) -> None:
    """Record a run of two models: mlp with performance and accuracy, and cnn, whose process breaks
    and recompiles.
    """
    values = {"values": {"speedup": 1.2, "speedup_low": 1.19, "speedup_high": 1.21}} | changes
    events = (
        measure(**values),
        measure(**ACCURACY),
        measure(model="cnn", task="cnn", values={"speedup": 1.5}),
    )
    add_results(store, run_id, *events, started_us=START_US + day * DAY_US)
    process = f"{run_id}/torch"
    events_of_cnn: list[Any] = [
        ProcessStarted(
            process, 0, START_US, run_id=run_id, pid=9, task="cnn", torch_version="2.13.0"
        )
    ]
    for n, name in enumerate(breaks, 1):
        events_of_cnn.append(
            GraphBroke(
                process,
                n,
                START_US,
                reason=f"break {name}",
                fingerprint=name,
                function="f",
                file="m.py",
                line=n,
            )
        )
    guard = GuardFailure(
        "0/0", "tensor size mismatch", "size", source="L['x']", fingerprint="guard"
    )
    events_of_cnn.append(Recompiled(process, 90, START_US, guards=[guard]))
    Ingestor(store).ingest(run_id, events_of_cnn, now_us=START_US)


def _check(database: Path, *more: str) -> int:
    return main(["check", "--db", str(database), *more])


def test_a_run_equals_itself(
    database: Path, store: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(store, "A")
    assert _check(database, "--run", "latest", "--baseline", "A") == 0
    out = capsys.readouterr().out
    assert out.startswith("PASS: run A against run A, ")
    assert "speedup         2 PASS" in out and "new-breaks      1 PASS" in out


def test_what_got_worse_fails_with_its_words_first(
    database: Path, store: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(store, "A")
    _record(
        store,
        "B",
        1,
        breaks=("x", "y"),
        values={"speedup": 0.8, "speedup_low": 0.79, "speedup_high": 0.81},
    )
    assert _check(database, "--run", "B", "--baseline", "previous") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "FAIL: 2 verdicts of run B against run A fail"
    assert [line.split()[:3] for line in lines[2:4]] == [
        ["NEW_BREAK", "new-breaks", "cnn"],
        ["SLOWER", "speedup", "mlp"],
    ]
    assert "break y at m.py:2 in f, once" in lines[2]
    assert "speedup=0.800x [0.790, 0.810], expected=1.200x [1.190, 1.210], -33.3%" in lines[3]
    assert (
        _check(database, "--run", "B", "--baseline", "A", "--rule", "speedup", "--model", "cnn")
        == 0
    )


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--run", "Z"], "there is no run 'Z' in this database; expected latest,"),
        (
            ["--baseline", "nothing"],
            "'nothing' is not a run, commit or stored baseline of this database",
        ),
        (["--baseline", "baseline:x"], "there is no stored baseline 'x'; known: none yet"),
        (["--baseline", "previous"], "there is no earlier run named 'bench' of the same suite"),
        (
            ["--baseline", "A", "--rule", "sped"],
            "there is no rule 'sped'; the rules are default, accuracy",
        ),
        (
            ["--baseline", "A", "--rule", "memory"],
            "memory cannot be decided: the results of run A have no compression_ratio",
        ),
        ([], "rule accuracy needs a baseline: a run"),
        (
            ["--baseline", "A", "--threshold", "1"],
            "--threshold is what --rule performance compares with",
        ),
        (["--baseline", "missing.csv"], "cannot read missing.csv: No such file"),
        (
            ["--baseline", str(DATA / "breaks_expected.csv")],
            "have no model in common: cnn, mlp against",
        ),
        (
            ["--baseline", "A", "--model", "mlp", "--model", "typo"],
            "no model 'typo' in run A; there are cnn, mlp",
        ),
        (
            ["--baseline", "A", "--mode", "training"],
            "mode training leaves none of run A's 2 results; they have mode inf",
        ),
        (
            ["--baseline", "A", "--dynamic"],
            "dynamic yes leaves none of run A's 2 results; they have dynamic no",
        ),
        (["--baseline", "A", "--github-summary"], "$GITHUB_STEP_SUMMARY names no file"),
        (
            ["--baseline", "A", "--json", "/nowhere/x.json"],
            "--json: cannot write /nowhere/x.json: there is no folder",
        ),
        (["--run", "Z", "--junit", "/"], "--junit: cannot write /: it is a folder"),
        (
            ["--baseline", "A", "--json", "-", "--junit", "-"],
            "--junit and --json both go to stdout",
        ),
        (
            ["--baseline", "A", "--json", "x.json", "--markdown", "./x.json"],
            "--markdown and --json both go to x.json",
        ),
    ],
)
def test_what_cannot_be_compared_exits_with_2(
    database: Path,
    store: sqlite3.Connection,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
    sentence: str,
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    _record(store, "A")
    assert _check(database, *more) == 2
    assert sentence in capsys.readouterr().err


def test_speeds_of_other_machines_are_not_compared_unasked(
    database: Path, store: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(store, "A")
    add_results(
        store, "B", measure(hardware="NVIDIA H200"), measure(**ACCURACY, hardware="NVIDIA H200")
    )
    assert _check(database, "--run", "B", "--baseline", "A", "--model", "mlp") == 2
    assert "hardware: NVIDIA H200 against AMD EPYC 9654" in capsys.readouterr().err
    asked = ("--run", "B", "--baseline", "A", "--model", "mlp")
    assert _check(database, *asked, "--allow-environment-change") == 0
    assert "warning: the surroundings differ: hardware" in capsys.readouterr().out
    assert _check(database, *asked, "--rule", "accuracy") == 0


def test_an_unknown_gpu_is_not_called_a_cpu(
    database: Path, store: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(store, "A")
    for run_id, changes in (("B", {"device": "cuda", "hardware": None}), ("C", {"hardware": None})):
        add_results(store, run_id, measure(**changes), measure(**{**ACCURACY, **changes}))
    with store:
        store.execute("update runs set gpu_name = null")
    asked = ("--baseline", "A", "--rule", "speedup", "--model", "mlp")
    assert _check(database, "--run", "B", *asked) == 2
    assert "device: cuda against cpu" in capsys.readouterr().err
    assert _check(database, "--run", "B", "--baseline", "B", "--rule", "speedup") == 0
    assert "warning: the GPU or processor of run B is not known" in capsys.readouterr().out
    assert _check(database, "--run", "C", *asked) == 2
    assert "hardware: CPU against AMD EPYC 9654" in capsys.readouterr().err


def test_what_the_baseline_calls_for_is_not_passed_over(
    database: Path, store: sqlite3.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(store, "A")
    add_results(store, "B", measure(), measure(model="cnn", task="cnn", values={"speedup": 1.5}))
    documents = ("--json", str(tmp_path / "x.json"), "--junit", str(tmp_path / "x.xml"))
    assert _check(database, "--run", "B", "--baseline", "A", *documents) == 2
    out = capsys.readouterr().out
    assert out.startswith("NOT COMPARED: run B against run A") and "accuracy" in out.splitlines()[0]
    assert json.loads((tmp_path / "x.json").read_text())["passed"] is False
    assert ElementTree.fromstring((tmp_path / "x.xml").read_bytes()).get("errors") != "0"
    assert _check(database, "--run", "B", "--baseline", "A", "--rule", "speedup") == 0
    assert _check(database, "--run", "A", "--baseline", "B", "--rule", "speedup") == 0


def test_dynamic_and_static_are_chosen(
    database: Path, store: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    add_results(
        store, "A", measure(dynamic=True, task="d", values={"speedup": 2.0}), measure(batch_size=4)
    )
    speeds = {"--dynamic": "2.000x", "--static": "1.250x"}
    for flag, speed in speeds.items():
        assert (
            _check(database, "--run", "A", "--baseline", "A", "--rule", "speedup", "--all", flag)
            == 0
        )
        assert speed in capsys.readouterr().out
    assert (
        _check(database, "--run", "A", "--baseline", "A", "--rule", "speedup", "--batch-size", "9")
        == 2
    )
    assert (
        "batch size 9 leaves none of run A's 2 results; they have batch size 4, 8"
        in capsys.readouterr().err
    )
    csv = str(DATA / "performance_actual.csv")
    assert (
        _check(database, "--run", csv, "--baseline", csv, "--rule", "speedup", "--mode", "training")
        == 0
    )
    assert f"warning: {csv} says no mode: all of its rows are compared" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flag", ["--tolerance", "--threshold", "--noise-margin", "--threshold-scale"]
)
@pytest.mark.parametrize("number", ["nan", "inf", "0", "-1", "x"])
def test_numbers_are_finite_and_above_0(
    flag: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", flag, number]) == 2
    assert f"{number!r} is not a finite number above 0" in capsys.readouterr().err


def test_a_commit_names_its_newest_run(database: Path, store: sqlite3.Connection) -> None:
    _record(store, "A")
    _record(store, "B", 1)
    with store:
        store.execute("update runs set git_commit = 'abcdef0123456789' where id = 'A'")
    assert (
        _check(
            database,
            "--run",
            "B",
            "--baseline",
            "abcdef",
            "--json",
            str(database.with_suffix(".json")),
        )
        == 0
    )
    assert json.loads(database.with_suffix(".json").read_text())["baseline"] == "run A"


def test_documents_say_what_the_table_says(
    database: Path, store: sqlite3.Connection, tmp_path: Path
) -> None:
    _record(store, "A")
    _record(store, "B", 1, breaks=("x", "<b>|y\x1b[31m"))
    paths = {name: tmp_path / f"out.{name}" for name in ("markdown", "junit", "json")}
    more = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    assert _check(database, "--run", "B", "--baseline", "A", *more) == 1
    data = json.loads(paths["json"].read_text())
    failing = [
        verdict for rule in data["rules"] for verdict in rule["verdicts"] if verdict["fails"]
    ]
    assert [verdict["verdict"] for verdict in failing] == ["NEW_BREAK"] and data["exit_code"] == 1
    markdown = paths["markdown"].read_text()
    assert (
        "`NEW_BREAK` | `new-breaks` | cnn" in markdown
        and "<b>" not in markdown
        and "\x1b" not in markdown
    )
    root = ElementTree.fromstring(paths["junit"].read_bytes())
    suites = {element.get("name"): element for element in root.iter("testsuite")}
    assert root.get("failures") == suites["new-breaks"].get("failures") == "1"
    assert suites["memory"].find("testcase/skipped") is not None
    assert "NEW_BREAK" in str(suites["new-breaks"].find("testcase/failure").get("message"))  # type: ignore[union-attr]


def test_the_github_summary_is_appended(
    database: Path, store: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _record(store, "A")
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert _check(database, "--run", "A", "--baseline", "A", "--github-summary") == 0
    assert summary.read_text().startswith("before\n### ✅ Nothing worse by ")


@pytest.mark.parametrize("more", [["--list-rules"], ["--run", CSV, "--baseline", CSV]])
def test_a_reader_that_has_read_enough_is_no_error(more: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "compileboard.app", "check", *more]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, cwd=DATA.parents[2], timeout=120
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_csvs_need_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = (
        "--run",
        str(DATA / "pr_time_actual.csv"),
        "--baseline",
        str(DATA / "pr_time_expected.csv"),
    )
    new = tmp_path / "new.csv"
    assert _check(tmp_path / "none.db", *sides, "--propose", str(new)) == 1
    assert new.read_text().startswith(
        "add_loop_eager,compile_time_instruction_count,2907000000,0.015\n\n\n\nadd_loop_"
    )
    assert _check(tmp_path / "none.db", *sides, "--rule", "pr-time", "--allow-improvement") == 1
    assert _check(tmp_path / "none.db", "--run", sides[1], "--baseline", str(new)) == 0


def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list-rules"]) == 0
    assert "pr-time (default): every count" in capsys.readouterr().out


def test_a_baseline_outlives_its_run(
    database: Path, store: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(store, "A")
    _record(store, "B", 1)
    fixed = ["--db", str(database)]
    assert main(["baseline", "save", "main", "--run", "A", "--note", "first", *fixed]) == 0
    assert main(["baseline", "save", "main", "--run", "B", *fixed]) == 2
    assert "there is a baseline 'main' already" in capsys.readouterr().err
    with closing(open_writer(database)) as writer:
        delete_run(writer, "A")
    assert main(["baseline", "save", "release/2.4", "--run", "B", *fixed]) == 0
    for name in ("main", "baseline:main", "release/2.4", "baseline:release/2.4"):
        assert _check(database, "--run", "B", "--baseline", name) == 0
    assert main(["baseline", "show", "main", *fixed]) == 0
    out = capsys.readouterr().out
    assert (
        "first" in out and "cnn (builtin, inference, float32" in out and "graph break in cnn" in out
    )
    assert main(["baseline", "delete", "main", *fixed]) == 0
    assert main(["baseline", "delete", "main", *fixed]) == 2
    assert main(["baseline", "delete", "release/2.4", *fixed]) == 0
    assert main(["baseline", "list", *fixed]) == 0
    assert "no baseline yet" in capsys.readouterr().out


def test_an_update_takes_the_models_asked_for(
    database: Path, store: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(store, "A")
    _record(
        store,
        "B",
        1,
        breaks=("y",),
        values={"speedup": 0.8, "speedup_low": 0.79, "speedup_high": 0.81},
    )
    fixed = ["--db", str(database)]
    assert main(["baseline", "save", "main", "--run", "A", *fixed]) == 0
    assert main(["baseline", "update", "main", "--run", "B", "--model", "cnn", *fixed]) == 0
    out = capsys.readouterr().out
    assert (
        "added    cnn (" in out
        and "graph break: break y" in out
        and "removed  cnn (" in out
        and "mlp" not in out
    )
    assert _check(database, "--run", "B", "--baseline", "main", "--rule", "new-breaks") == 0
    assert _check(database, "--run", "B", "--baseline", "main", "--rule", "speedup") == 1
    assert main(["baseline", "update", "main", "--run", "B", "--model", "other", *fixed]) == 2
    assert "'other' is neither in baseline main nor in run B" in capsys.readouterr().err


def test_a_baseline_becomes_upstreams_expected_file(
    database: Path, store: sqlite3.Connection, tmp_path: Path
) -> None:
    _record(store, "A")
    expected = tmp_path / "expected.csv"
    assert main(["baseline", "save", "main", "--run", "A", "--db", str(database)]) == 0
    assert (
        main(["baseline", "export", "main", "--db", str(database), "--output", str(expected)]) == 0
    )
    assert expected.read_text() == "name,accuracy,graph_breaks,calls_captured\n\n\n\nmlp,pass,0,7\n"
    rules = ("--rule", "accuracy", "--rule", "graph-breaks", "--model", "mlp")
    assert _check(database, "--run", "A", "--baseline", str(expected), *rules) == 0


@on_both_engines
def test_the_api_gives_the_same_verdicts(
    database: Path, store: sqlite3.Connection, client: FlaskClient, tmp_path: Path
) -> None:
    _record(store, "A")
    _record(store, "B", 1, breaks=("x", "y"))
    assert main(["baseline", "save", "main", "--run", "A", "--db", str(database)]) == 0
    target = tmp_path / "check.json"
    assert _check(database, "--run", "B", "--baseline", "main", "--json", str(target)) == 1
    assert client.get("/api/v1/check?run=B&baseline=main").json["data"] == json.loads(
        target.read_text()
    )  # type: ignore[index]
    assert client.get("/api/v1/baselines").json["data"][0]["run_id"] == "A"  # type: ignore[index]
    baseline = client.get("/api/v1/baselines/main").json["data"]  # type: ignore[index]
    assert [graph_break["fingerprint"] for graph_break in baseline["graph_breaks"]] == ["x"]
    assert client.get("/api/v1/baselines/other").status_code == 404


@pytest.mark.parametrize(
    "what",
    [
        *("nothing", "/etc/passwd", "x.csv", "../x", "a/../../etc/passwd", "previous"),
        *("A&rule=memory", "A&rule=sped", "A&rule=performance", "&rule=accuracy", "baseline:x"),
        *(
            "A&environment=foo",
            "A&dynamic=maybe",
            "A&dynamic=yes",
            "A&batch_size=x",
            "A&model=typo",
            "A&mode=training",
        ),
    ],
)
@on_both_engines
def test_the_api_says_what_cannot_be_compared(
    store: sqlite3.Connection, client: FlaskClient, what: str
) -> None:
    _record(store, "A")
    answer = client.get(f"/api/v1/check?run=A&baseline={what}")
    assert answer.status_code == 400 and answer.json["errors"]  # type: ignore[index]
    assert "--" not in answer.json["error"], "flags are the command line's"  # type: ignore[index]


@on_both_engines
def test_the_api_chooses_results(store: sqlite3.Connection, client: FlaskClient) -> None:
    _record(store, "A")
    add_results(store, "B", measure(), measure(dynamic=True, task="d", values={"speedup": 0.5}))
    asked = "/api/v1/check?run=B&baseline=A&rule=speedup&model=mlp&batch_size=8&device=cpu"
    data = client.get(f"{asked}&dynamic=no").json["data"]  # type: ignore[index]
    assert [verdict["verdict"] for verdict in data["rules"][0]["verdicts"]] == ["PASS"]


@pytest.mark.parametrize(
    ("actual", "expected", "rule"),
    [
        ("breaks_clean.csv", "breaks_expected.csv", "graph-breaks"),
        ("accuracy_clean.csv", "accuracy_expected.csv", "accuracy"),
        ("performance_actual.csv", "performance_expected.csv", "speedup"),
        ("pr_time_actual.csv", "pr_time_expected.csv", "pr-time"),
    ],
)
def test_an_imported_file_is_judged_as_the_file_is(
    tmp_path: Path, actual: str, expected: str, rule: str
) -> None:
    database, verdicts = tmp_path / "x.db", {}
    for name in (expected, actual):
        assert collect(["import", "--db", str(database), "--name", name, str(DATA / name)]) == 0
    with closing(sqlite3.connect(database)) as store:
        runs = dict(store.execute("select name, id from runs").fetchall())
    files = {name: str(DATA / name) for name in (actual, expected)}
    for run, baseline in ((files, files), (runs, files), (files, runs), (runs, runs)):
        target = str(tmp_path / "out.json")
        sides = ("--run", run[actual], "--baseline", baseline[expected])
        assert _check(database, *sides, "--rule", rule, "--json", target) in (0, 1)
        (rule_report,) = json.loads(Path(target).read_text())["rules"]
        verdicts[run is runs, baseline is runs] = sorted(
            (verdict["name"], verdict["verdict"]) for verdict in rule_report["verdicts"]
        )
    assert verdicts[True, True] and len({str(verdict) for verdict in verdicts.values()}) == 1


def test_a_rules_file_holds_options_and_the_command_line_goes_first(
    database: Path, store: sqlite3.Connection, tmp_path: Path
) -> None:
    _record(store, "A")
    _record(
        store,
        "B",
        1,
        breaks=("x", "y"),
        values={"speedup": 0.8, "speedup_low": 0.79, "speedup_high": 0.81},
    )
    rules = tmp_path / "rules.toml"
    rules.write_text(
        'rule = ["speedup", "new-breaks"]\nmodel = ["mlp", "cnn"]\ntolerance = '
        "0.5\nallow-improvement = true\n"
    )
    asked = ["--run", "B", "--baseline", "A", "--rules", str(rules)]
    assert _check(database, *asked) == 1  # new-breaks
    assert _check(database, *asked, "--rule", "speedup") == 0  # by the file's tolerance
    assert _check(database, *asked, "--rule", "speedup", "--tolerance", "0.1") == 1
