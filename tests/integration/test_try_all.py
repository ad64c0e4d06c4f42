"""`try --all` on a real program: what helped is named, and an interrupted call is continued."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from tests.tools.observed import Workplace

pytestmark = [pytest.mark.torch, pytest.mark.nightly, pytest.mark.timeout(900)]

PROGRAM = """
    import torch

    @torch.compile(backend="eager")
    def scale(x):
        largest = x.max().item()
        return x * largest

    for _ in range(3):
        print("sum", scale(torch.ones(3)).sum().item())
"""


def try_all(workplace: Workplace, run: str) -> dict[str, Any]:
    command = ("try", "--db", workplace.database, run, "--all", "--json")
    finished = workplace.collect(*command, timeout=600)
    assert finished.returncode == 0, finished.stderr
    answer: dict[str, Any] = json.loads(finished.stdout)
    return answer


def test_all_fixes_are_tried_and_an_interrupted_call_is_continued(workplace):
    assert workplace.run(workplace.write(PROGRAM)).returncode == 0
    run = workplace.only_run()["id"]
    started = workplace.start_command("try", "--db", workplace.database, run, "--all")
    deadline_s = time.monotonic() + 200
    while time.monotonic() < deadline_s and not list(
        workplace.home.glob("trials/*/*/base-1/execution.json")
    ):
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    assert started.wait(60) == 130
    answer = try_all(workplace, run)
    assert answer["earlier_count"] >= 1
    assert answer["execution_count"] + answer["earlier_count"] <= 10
    outcomes = {trial["fix"]: trial["outcome"] for trial in answer["trials"]}
    assert outcomes == {"item_kept_a_tensor": "improved"}
    assert workplace.rows("select fix_id, outcome from trials") == [
        {"fix_id": "item_kept_a_tensor", "outcome": "improved"}
    ]
    assert not (workplace.home / "trials" / run).exists()
