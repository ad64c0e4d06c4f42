"""A spool that was left behind holds something odd: its good lines are recorded, and no command is stopped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compileboard.collectors.observe.spool_writer import Spool
from compileboard.collectors.pipeline.recover_spools import RecoveryReport, pick_up_spools
from compileboard.collectors.spool.manifest import Manifest
from tests.tools.observed import Workplace
from tests.tools.poison import BAD_LINES, FREE, HOPELESS, ODD_FILES, ODD_RECORDS, envelope, insert_line

GOOD = 10  # records of a clean spool, with the process's own start and end


def leave_spool(place: Workplace, name: str = "LEFT") -> Path:
    folder = place.home / "spool" / name
    folder.mkdir(parents=True)
    manifest = Manifest(
        run_id=name, database=str(place.database), name="left", started_us=5, recorder_process_id=f"r{name}"
    )
    manifest.end("finished", 9).write(folder)
    spool = Spool(str(folder), name, str(place.database), lambda: {"run_id": name, "pid": os.getpid()})
    for number in range(GOOD - 2):
        spool.write("dynamo_start", {"stack": []}, None, [None, number, 0, 0, None])
    spool.write("snapshot", {"final": True, "losses": {}})
    spool.close()
    return folder


def pick_up(place: Workplace) -> RecoveryReport:
    place.lossy = True
    return pick_up_spools({"COMPILEBOARD_HOME": str(place.home)})


def good_lines(place: Workplace) -> int:
    sql = "select count(*) from events where run_id in ('LEFT', 'NEXT') and sequence between 0 and :most"
    return int(place.one(sql + " and length(process_id) = 32", most=FREE - 1))


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_a_line_that_is_no_record_is_one_reject_and_costs_no_other(place: Workplace, line: bytes) -> None:
    insert_line(leave_spool(place), line)
    found = pick_up(place)
    assert (found.problems, found.set_aside, place.spools) == ([], [], [])
    assert good_lines(place) == GOOD
    (reject,) = place.rows("select reject_count, first_line, file_name from run_rejects")
    assert (reject["reject_count"], reject["first_line"]) == (1, GOOD // 2 + 1)
    assert reject["file_name"].endswith(".jsonl")
    assert place.only_run()["loss_count"] == 1


@pytest.mark.parametrize("line", ODD_RECORDS.values(), ids=ODD_RECORDS)
def test_a_record_with_an_odd_value_costs_no_other(place: Workplace, line: bytes) -> None:
    insert_line(leave_spool(place), line)
    found = pick_up(place)
    assert (found.problems, found.set_aside, place.spools) == ([], [], [])
    assert good_lines(place) == GOOD
    assert (place.only_run()["state"], place.only_run()["compile_count"] >= GOOD - 2) == ("finished", True)
    place.check_integrity()


@pytest.mark.parametrize("spoil", ODD_FILES.values(), ids=ODD_FILES)
def test_an_odd_file_or_fact_costs_no_record(place: Workplace, spoil: Callable[[Path], None]) -> None:
    spoil(leave_spool(place))
    found = pick_up(place)
    assert (found.problems, found.set_aside, place.spools) == ([], [], [])
    assert good_lines(place) == GOOD


@pytest.mark.parametrize("spoil", HOPELESS.values(), ids=HOPELESS)
def test_a_run_that_cannot_be_recorded_is_named_once_and_set_aside(
    place: Workplace, spoil: Callable[[Path], None]
) -> None:
    spoil(leave_spool(place))
    leave_spool(place, "NEXT")
    first, second = pick_up(place), pick_up(place)
    assert [name.partition(":")[0] for name in first.set_aside] == ["LEFT"] and not first.problems
    assert (second.set_aside, second.problems, place.spools) == ([], [], [])
    assert good_lines(place) == GOOD, "the other run is recorded"
    (kept,) = (place.home / "set-aside").iterdir()
    assert (kept / "reason.txt").read_text().strip() == first.set_aside[0].partition(": ")[2]


def test_what_was_set_aside_is_named_by_list_and_doctor_and_recorded_by_retry(place: Workplace) -> None:
    ODD_FILES["run.json: name is a number"](leave_spool(place))
    HOPELESS["run.json: the database is a folder"](place.home / "spool" / "LEFT")
    place.lossy = True
    assert place.run("true").returncode == 0
    listed = place.collect("list", "--db", place.database)
    assert "set aside: LEFT: / is a folder; --db expects a file" in listed.stderr
    assert "retry LEFT" in listed.stderr and "retry LEFT" in place.collect("doctor", "--db", place.database).stdout
    assert place.collect("retry").returncode == 1, "nothing has changed"
    done = place.collect("retry", "LEFT", "--db", place.database)
    assert (done.returncode, "picked up" in done.stderr) == (0, True)
    assert good_lines(place) == GOOD
    assert "set aside" not in place.collect("list", "--db", place.database).stderr
    assert "no run 'LEFT' was set aside" in place.collect("retry", "LEFT").stderr


def test_a_line_that_is_too_long_is_passed_over(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compileboard.collectors.spool.reader.LARGEST_LINE_BYTES", 1000)
    monkeypatch.setattr("compileboard.collectors.spool.reader.BATCH_BYTES", 300)
    insert_line(leave_spool(place), b"x" * 5000)
    pick_up(place)
    assert good_lines(place) == GOOD
    assert place.rows("select kind, first_line from run_rejects") == [{"kind": "too_large", "first_line": 6}]


def test_a_record_with_the_number_of_another_is_one_reject(place: Workplace) -> None:
    folder = leave_spool(place)
    insert_line(folder, envelope(s=2))
    shutil.copytree(folder, place.folder / "again")
    for _ in range(2):
        pick_up(place)
        (reject,) = place.rows("select kind, reject_count, example from run_rejects")
        assert reject == {"kind": "number_taken", "reject_count": 1, "example": "record 2: compile_started"}
        assert (good_lines(place), place.only_run()["loss_count"]) == (GOOD, 1)
        shutil.copytree(place.folder / "again", folder)
    shutil.rmtree(folder)


def test_a_spool_that_is_read_twice_counts_its_rejects_once(place: Workplace) -> None:
    folder = leave_spool(place)
    insert_line(folder, b"bad")
    shutil.copytree(folder, place.folder / "again")
    for _ in range(2):
        pick_up(place)
        shutil.copytree(place.folder / "again", folder)
    assert place.one("select sum(reject_count) from run_rejects") == 1
    shutil.rmtree(folder)
