"""A left spool with something odd: its good lines are recorded, no command is stopped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compileboard.collectors.observe.spool_writer import Spool
from compileboard.collectors.record.recover_spools import RecoveryReport, recover_spools
from compileboard.collectors.record.spool import Manifest
from tests.tools.observed import Workplace
from tests.tools.poison import (
    BAD_LINES,
    FREE,
    HOPELESS,
    ODD_FILES,
    ODD_RECORDS,
    envelope,
    insert_line,
)

GOOD = 10  # records of a clean spool, with the process's own start and end


def leave_spool(workplace: Workplace, name: str = "LEFT") -> Path:
    folder = workplace.home / "spool" / name
    folder.mkdir(parents=True)
    manifest = Manifest(
        run_id=name,
        database=str(workplace.database),
        name="left",
        started_us=5,
        recorder_process_id=f"r{name}",
    )
    manifest.end("finished", 9).write(folder)
    spool = Spool(
        str(folder), name, str(workplace.database), lambda: {"run_id": name, "pid": os.getpid()}
    )
    for number in range(GOOD - 2):
        spool.write("dynamo_start", {"stack": []}, None, [None, number, 0, 0, None])
    spool.write("snapshot", {"final": True, "losses": {}})
    spool.close()
    return folder


def recover_earlier_runs(workplace: Workplace) -> RecoveryReport:
    workplace.lossy = True
    return recover_spools({"COMPILEBOARD_HOME": str(workplace.home)})


def good_lines(workplace: Workplace) -> int:
    sql = (
        "select count(*) from events where run_id in ('LEFT', 'NEXT') and sequence between 0 "
        "and :most"
    )
    return int(workplace.value(sql + " and length(process_id) = 32", most=FREE - 1))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_a_line_that_is_no_record_is_one_reject_and_costs_no_other(
    workplace: Workplace, line: bytes
) -> None:
    insert_line(leave_spool(workplace), line)
    report = recover_earlier_runs(workplace)
    assert (report.problems, report.set_aside, workplace.spools) == ([], [], [])
    assert good_lines(workplace) == GOOD
    (reject,) = workplace.rows("select reject_count, first_line, file_name from run_rejects")
    assert (reject["reject_count"], reject["first_line"]) == (1, GOOD // 2 + 1)
    assert reject["file_name"].endswith(".jsonl")
    assert workplace.only_run()["loss_count"] == 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize("line", ODD_RECORDS.values(), ids=ODD_RECORDS)
def test_a_record_with_an_odd_value_costs_no_other(workplace: Workplace, line: bytes) -> None:
    insert_line(leave_spool(workplace), line)
    report = recover_earlier_runs(workplace)
    assert (report.problems, report.set_aside, workplace.spools) == ([], [], [])
    assert good_lines(workplace) == GOOD
    assert (workplace.only_run()["state"], workplace.only_run()["compile_count"] >= GOOD - 2) == (
        "finished",
        True,
    )
    workplace.check_integrity()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("spoil", ODD_FILES.values(), ids=ODD_FILES)
def test_an_odd_file_or_fact_costs_no_record(
    workplace: Workplace, spoil: Callable[[Path], None]
) -> None:
    spoil(leave_spool(workplace))
    report = recover_earlier_runs(workplace)
    assert (report.problems, report.set_aside, workplace.spools) == ([], [], [])
    assert good_lines(workplace) == GOOD


@pytest.mark.sampled(4)
@pytest.mark.parametrize("spoil", HOPELESS.values(), ids=HOPELESS)
def test_a_run_that_cannot_be_recorded_is_named_once_and_set_aside(
    workplace: Workplace, spoil: Callable[[Path], None]
) -> None:
    spoil(leave_spool(workplace))
    leave_spool(workplace, "NEXT")
    first, second = recover_earlier_runs(workplace), recover_earlier_runs(workplace)
    assert [name.partition(":")[0] for name in first.set_aside] == ["LEFT"] and not first.problems
    assert (second.set_aside, second.problems, workplace.spools) == ([], [], [])
    assert good_lines(workplace) == GOOD, "the other run is recorded"
    (set_aside,) = (workplace.home / "set-aside").iterdir()
    assert (set_aside / "reason.txt").read_text().strip() == first.set_aside[0].partition(": ")[2]


def test_what_was_set_aside_is_named_by_list_and_doctor_and_recorded_by_retry(
    workplace: Workplace,
) -> None:
    ODD_FILES["run.json: name is a number"](leave_spool(workplace))
    HOPELESS["run.json: the database is a folder"](workplace.home / "spool" / "LEFT")
    workplace.lossy = True
    assert workplace.run("true").returncode == 0
    listed = workplace.collect("list", "--db", workplace.database)
    assert "set aside: LEFT: / is a folder; --db expects a file" in listed.stderr
    assert (
        "retry LEFT" in listed.stderr
        and "retry LEFT" in workplace.collect("doctor", "--db", workplace.database).stdout
    )
    assert workplace.collect("retry").returncode == 1, "nothing has changed"
    done = workplace.collect("retry", "LEFT", "--db", workplace.database)
    assert (done.returncode, "picked up" in done.stderr) == (0, True)
    assert good_lines(workplace) == GOOD
    assert "set aside" not in workplace.collect("list", "--db", workplace.database).stderr
    assert "no run 'LEFT' waits or was set aside" in workplace.collect("retry", "LEFT").stderr


@pytest.mark.nightly
def test_a_run_that_waits_is_reported_once_and_by_who_is_asked(workplace: Workplace) -> None:
    leave_spool(workplace)
    manifest = workplace.spools[0] / "run.json"
    away = str(workplace.folder / "away" / "test.db")
    manifest.write_text(manifest.read_text().replace(str(workplace.database), away))
    first, second, third = (workplace.run("true", options=("--quiet",)).stderr for _ in range(3))
    assert first.count("still waiting to be recorded: LEFT") == 1 and "retry --db FILE" in first
    assert (second, third) == ("", "")
    for command in ("list", "doctor"):
        done = workplace.collect(command, "--db", workplace.database)
        assert (done.stdout + done.stderr).count("retry LEFT") == 1
    assert "away/test.db" in workplace.collect("retry").stderr
    assert workplace.collect("retry", "--db", workplace.database).returncode == 0
    assert (good_lines(workplace), workplace.spools) == (GOOD, [])


def test_a_line_that_is_too_long_is_passed_over(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compileboard.collectors.record.spool.MAX_LINE_BYTES", 1000)
    monkeypatch.setattr("compileboard.collectors.record.spool.BATCH_BYTES", 300)
    insert_line(leave_spool(workplace), b"x" * 5000)
    recover_earlier_runs(workplace)
    assert good_lines(workplace) == GOOD
    assert workplace.rows("select kind, first_line from run_rejects") == [
        {"kind": "too_large", "first_line": 6}
    ]


def test_a_record_with_the_number_of_another_is_one_reject(workplace: Workplace) -> None:
    folder = leave_spool(workplace)
    insert_line(folder, envelope(s=2))
    shutil.copytree(folder, workplace.folder / "again")
    for _ in range(2):
        recover_earlier_runs(workplace)
        (reject,) = workplace.rows("select kind, reject_count, example from run_rejects")
        assert reject == {
            "kind": "number_taken",
            "reject_count": 1,
            "example": "record 2: compile_started",
        }
        assert (good_lines(workplace), workplace.only_run()["loss_count"]) == (GOOD, 1)
        shutil.copytree(workplace.folder / "again", folder)
    shutil.rmtree(folder)


def test_a_spool_that_is_read_twice_counts_its_rejects_once(workplace: Workplace) -> None:
    folder = leave_spool(workplace)
    insert_line(folder, b"bad")
    shutil.copytree(folder, workplace.folder / "again")
    for _ in range(2):
        recover_earlier_runs(workplace)
        shutil.copytree(workplace.folder / "again", folder)
    assert workplace.value("select sum(reject_count) from run_rejects") == 1
    shutil.rmtree(folder)
