"""SIGKILL at any moment: every written event is stored afterwards, the database is whole."""

from __future__ import annotations

import random
import time

import pytest

from tests.tools.killing import WHOM, kill_once
from tests.tools.observed import PROGRAMS, Workplace, wait_for


@pytest.mark.sampled(2)
@pytest.mark.parametrize("attempt", range(2))
@pytest.mark.parametrize("whom", WHOM)
def test_a_kill_loses_nothing_that_was_written(
    workplace: Workplace, whom: str, attempt: int
) -> None:
    workplace.lossy = True  # the line that a kill cut in two is one
    delay_s = random.uniform(0, 0.6)
    killed = kill_once(workplace, whom, delay_s, PROGRAMS / "spooling.py", 0)
    expected = "killed" if whom == "program" else "interrupted"
    assert (killed.stored, killed.integrity) == (killed.written, "ok"), f"after {delay_s:.3f} s"
    assert killed.written > 1
    assert killed.state == expected, (
        f"after {delay_s:.3f} s the recorder ended with {killed.output}"
    )
    workplace.check_integrity()


def test_a_run_whose_recorder_was_killed_goes_on_being_recorded(workplace: Workplace) -> None:
    started = workplace.start(PROGRAMS / "spooling.py", 60, 0.05)
    assert started.stdout is not None
    started.stdout.readline()
    time.sleep(0.3)
    started.kill()
    assert "picked up" in workplace.collect("list", "--db", workplace.database).stderr
    early = workplace.only_run()
    assert early["state"] == "running"
    wait_for(
        lambda: workplace.only_run()["compile_count"] > early["compile_count"]
    )  # a sidecar follows it now
    wait_for(lambda: not workplace.spools)
    started.communicate()
    assert (workplace.only_run()["compile_count"], workplace.only_run()["state"]) == (
        60,
        "interrupted",
    )


def test_a_running_run_shows_that_its_recorder_lives(workplace: Workplace) -> None:
    started = workplace.start(PROGRAMS / "spooling.py", 30, 0.1)
    assert started.stdout is not None
    started.stdout.readline()
    first = wait_for(
        lambda: workplace.rows("select heartbeat_us from runs where state = 'running'")
    )
    later = wait_for(
        lambda: workplace.rows(
            "select 1 from runs where heartbeat_us > :t", t=first[0]["heartbeat_us"]
        )
    )
    assert later
    started.communicate(timeout=30)
    assert workplace.only_run()["compile_count"] == 30
