"""Doctor says what can be recorded here, in a tester's words, and fails what would cost a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.cli.doctor import (
    RECORDED,
    build_check,
    capability_checks,
    check_server_of,
    describe_skew,
    environment_checks,
    spool_check,
    sqlite_check,
)
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.observe import torch_compat
from tests.tools.observed import Workplace
from tests.unit.push.push_server import push_server

FACTS: dict[str, Any] = {
    "cuda": "12.8",
    "hip": None,
    "cudnn": 91002,
    "triton": "3.5.0",
    "device_count": 2,
}


@pytest.mark.torch
def test_doctor_says_what_is_recorded_and_what_is_out_of_reach(workplace: Workplace) -> None:
    done = workplace.collect("doctor", "--db", workplace.database)
    assert done.returncode == 0, done.stdout
    marks = {line[6:].split("  ")[0]: line[:5].strip() for line in done.stdout.splitlines()}
    for subject in (
        "compile records",
        "graph breaks and recompiles",
        "changed settings",
        "sqlite-utils",
        "spool",
    ):
        assert marks[subject] == "ok"
    assert {"torch build", "out of reach", "containers", "other nodes", "--level full"} <= set(
        marks
    )
    assert not (workplace.home / "spool").exists(), "what was made to look is taken away"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("home", ["/proc/x", "/dev/null/x"])
def test_a_home_that_cannot_hold_a_spool_fails(workplace: Workplace, home: str) -> None:
    done = workplace.collect("doctor", "--db", workplace.database, env={"COMPILEBOARD_HOME": home})
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line[6:].startswith("spool ")]
    assert line.startswith("fails")
    assert "set COMPILEBOARD_HOME to a folder on a local disk" in line


def test_looking_at_the_spool_leaves_it_as_it_was(tmp_path: Path) -> None:
    assert spool_check(tmp_path / "a" / "b").mark == "ok"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "s" / "run").mkdir(parents=True)
    (tmp_path / "s" / "run" / "run.json").touch()
    assert spool_check(tmp_path / "s").finding.endswith(", 1 run waits to be recorded")
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("value", "mark"), [("1", "fails"), ("true", "note"), ("0", None), ("", None), ("no", "note")]
)
@pytest.mark.parametrize("name", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_a_switched_off_compiler_fails_and_one_left_on_does_not(
    name: str, value: str, mark: str | None
) -> None:
    assert [(c.subject, c.mark) for c in environment_checks({name: value})] == (
        [(name, mark)] if mark else []
    )


def test_what_in_the_environment_changes_what_is_seen_is_said() -> None:
    checks = environment_checks(
        {"PYTHONHOME": "/x", "TORCH_TRACE": "/t", "COMPILEBOARD_RUN_ID": "nightly-42"}
    )
    assert {check.subject: check.mark for check in checks} == {
        "COMPILEBOARD_RUN_ID": "note", "TORCH_TRACE": "note", "PYTHONHOME": "note",
    }  # fmt: skip
    (wrong,) = environment_checks({"COMPILEBOARD_RUN_ID": "../x"})
    assert (wrong.mark, wrong.finding[:24]) == ("fails", "is '../x'; expected a le")


def test_every_capability_has_a_testers_name() -> None:
    assert set(torch_compat.NAMES) == set(RECORDED)
    marks = [
        (c.mark, c.finding)
        for c in capability_checks({"metrics": "ok", "counters": "later", "events": "gone"})
    ]
    assert marks == [
        ("ok", "recorded"),
        ("ok", "recorded once inductor is loaded"),
        ("note", "gone"),
    ]


@pytest.mark.parametrize(
    ("changes", "mark", "finding"),
    [
        ({}, "ok", "CUDA 12.8, cuDNN 91002, triton 3.5.0, 2 usable GPUs"),
        ({"device_count": 0}, "note", "0 usable GPUs"),
        ({"triton": None}, "note", "no triton: inductor cannot compile for the GPU"),
        ({"cuda": None, "hip": "6.4", "cudnn": None}, "ok", "ROCm 6.4, triton 3.5.0"),
        ({"cuda": None}, "note", "without CUDA"),
    ],
)
def test_the_build_of_torch_is_said(changes: dict[str, Any], mark: str, finding: str) -> None:
    check = build_check({**FACTS, **changes})
    assert check.mark == mark
    assert finding in check.finding


def test_sqlite_builds_with_the_wal_reset_bug_are_named_with_what_to_do() -> None:
    marks = {
        version: sqlite_check(version).mark
        for version in ("3.40.1", "3.51.2", "3.51.3", "3.44.6", "3.50.7")
    }
    assert marks == {
        "3.40.1": "note",
        "3.51.2": "note",
        "3.51.3": "ok",
        "3.44.6": "ok",
        "3.50.7": "ok",
    }
    finding = sqlite_check("3.40.1").finding
    assert "CompileBoard checkpoints the WAL seldom" in finding
    assert "upgrade libsqlite3" in finding


def test_a_server_is_asked_what_a_box_asks_it() -> None:
    with push_server() as server:
        server.token = "cb_0123456789"
        config = RunConfig(server=server.address)
        (refused, *_rest) = check_server_of(config, {})
        assert (refused.mark, "the token is missing" in refused.finding) == ("fails", True)
        (taken, *_rest) = check_server_of(config, {"COMPILEBOARD_TOKEN": server.token})
        assert (taken.mark, taken.finding) == (
            "ok",
            f"{server.address} answers; its token may push",
        )
        server.token, server.fault = None, lambda _method, path: 404
        (other,) = check_server_of(config, {})
        assert (other.mark, "is not a CompileBoard server" in other.finding) == ("fails", True)
    (away,) = check_server_of(config, {})
    assert (away.mark, "does not answer" in away.finding) == ("fails", True)
    assert describe_skew("Mon, 23 Nov 2026 04:00:00 GMT", 1795406520.0) == pytest.approx(-120.0)
    assert describe_skew("soon", 0.0) is None
