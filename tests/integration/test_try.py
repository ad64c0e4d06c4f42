"""`try` on real programs says what the program with the same change made by hand says, and leaves
the files alone.
"""

from __future__ import annotations

import difflib
import json
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.tools.observed import PROGRAMS, Workplace

pytestmark = pytest.mark.torch
TRIED = PROGRAMS / "tried"


def record(workplace: Workplace, name: str) -> str:
    """Record one of the programs in the workplace's folder; return its run."""
    shutil.copy(TRIED / f"{name}.py", workplace.folder / f"{name}.py")
    finished = workplace.run(workplace.folder / f"{name}.py", "eager")
    assert finished.returncode == 0, finished.stderr
    return newest_run(workplace)


def newest_run(workplace: Workplace) -> str:
    return workplace.rows("select id from runs where source = 'live' order by started_us desc")[0][
        "id"
    ]


def make_patch(workplace: Workplace, name: str) -> Path:
    texts = [
        (folder / f"{name}.py").read_text().splitlines(keepends=True)
        for folder in (TRIED, TRIED / "fixed")
    ]
    path = workplace.folder / "fix.patch"
    path.write_text("".join(difflib.unified_diff(*texts, f"a/{name}.py", f"b/{name}.py")))
    return path


def try_patch(workplace: Workplace, run: str, patch: Path | str, *options: str, **rest: Any) -> Any:
    return workplace.collect(
        "try", "--db", workplace.database, run, "--patch", patch, "--json", *options, **rest
    )


def metrics(result: dict[str, Any]) -> dict[str, tuple[float, float]]:
    return {metric["name"]: (metric["base"], metric["new"]) for metric in result["metrics"]}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", ["print_in_forward", pytest.param("dict_of_tensors", marks=pytest.mark.nightly)]
)
def test_try_says_what_a_run_by_hand_says(workplace, name):
    run = record(workplace, name)
    before = (workplace.folder / f"{name}.py").read_bytes()
    finished = try_patch(workplace, run, make_patch(workplace, name))
    result = json.loads(finished.stdout)
    assert (finished.returncode, result["outcome"]) == (0, "improved"), finished.stderr
    assert (workplace.folder / f"{name}.py").read_bytes() == before
    shutil.copy(TRIED / "fixed" / f"{name}.py", workplace.folder / f"{name}.py")
    workplace.run(workplace.folder / f"{name}.py", "eager")
    by_hand = [
        workplace.rows(
            "select graph_break_count, recompile_count from run_totals where run_id = :id", id=id
        )[0]
        for id in (run, newest_run(workplace))
    ]
    for metric in ("graph_break_count", "recompile_count"):
        assert metrics(result)[metric] == tuple(side[metric] for side in by_hand)
    assert result["output"]["is_equal"]
    assert result["output"]["call_count"] >= 12
    (trial,) = workplace.rows("select * from trials")
    assert (trial["run_id"], trial["outcome"], trial["summary"]) == (
        run,
        "improved",
        result["summary"],
    )
    sides = workplace.rows(
        "select source, state from runs where id in (:base_run_id, :new_run_id)", **trial
    )
    assert [(side["source"], side["state"]) for side in sides] == [("trial", "finished")] * 2


@pytest.mark.nightly
def test_a_fix_that_changes_the_result_says_where(workplace):
    run = record(workplace, "dict_of_tensors")
    patch = make_patch(workplace, "dict_of_tensors")
    text = (TRIED / "dict_of_tensors.py").read_text()
    lines = [
        part.splitlines(keepends=True)
        for part in (text, text.replace(".sum(-1)", ".sum(-1) * 1.01"))
    ]
    patch.write_text(
        "".join(difflib.unified_diff(*lines, "dict_of_tensors.py", "dict_of_tensors.py"))
    )
    finished = try_patch(workplace, run, patch)
    result = json.loads(finished.stdout)
    assert (finished.returncode, result["outcome"]) == (1, "different")
    assert result["output"]["difference"].startswith("compiled call 1 (Matcher) returned result: ")


def test_a_fix_that_loses_printed_lines_is_no_fix(workplace):
    run = record(workplace, "print_in_forward")
    command = ("try", "--db", workplace.database, run, "--fix", "1", "--json")
    finished = workplace.collect(*command)
    result = json.loads(finished.stdout)
    assert (finished.returncode, result["outcome"]) == (1, "different"), finished.stderr
    assert metrics(result)["graph_break_count"] == (1, 0)
    lost = "stdout line 1: 'block (8, 32)' → not there, and 11 more"
    assert result["output"]["printed_difference"] == lost
    (trial,) = workplace.rows("select * from trials")
    assert (trial["fix_id"], bool(trial["cause_fingerprint"])) == (result["fix"], True)
    again = workplace.collect(*command)  # what a trial found of no use is not offered again
    assert (again.returncode, "takes a person" in again.stderr) == (2, True), again.stderr


TWO_FUNCTIONS = """
    import torch

    @torch.compile(backend="eager")
    def split(x):  # in a loop, the break would skip the frame: torch before 2.6 lists none of those
        x = torch.sin(x)
        torch._dynamo.graph_break()
        return torch.sin(x)

    @torch.compile(backend="eager")
    def longer(x):
        for _ in range(300):
            x = torch.sin(x)
        return x

    for _ in range(20):
        split(torch.ones(8))
        longer(torch.ones(8))
"""


def test_the_step_is_that_of_the_function_whose_break_is_gone(workplace):
    program = workplace.write(TWO_FUNCTIONS)
    assert workplace.run(program, options=("--steps", "8")).returncode == 0
    finished = workplace.collect(
        "try", "--db", workplace.database, "latest", "--fix", "1", "--json"
    )
    result = json.loads(finished.stdout)
    assert (result["outcome"], result["step"]) == ("improved", "split"), finished.stderr
    assert result["is_step_changed"] and [len(side) for side in result["step_ms"]] == [1, 1]
    assert metrics(result)["graph_break_count"] == (1, 0)


HOSTILE = """
    import os, sys, time, uuid, warnings
    import torch

    layer = torch.nn.Linear(4, 1)

    @torch.compile(backend="eager")
    def step(x):
        y = layer(x)
        warnings.warn("small batch")
        return y

    print("pid", os.getpid(), uuid.uuid4(), object(), time.time())
    print("trace", uuid.uuid4().hex, file=sys.stderr)
    for _ in range(3):
        step(torch.ones(2, 4)).sum().backward()
"""


@pytest.mark.nightly
def test_what_differs_by_itself_is_no_loss_and_warnings_and_gradients_count(workplace):
    workplace.run(workplace.write(HOSTILE))
    run = newest_run(workplace)
    silent = HOSTILE.replace('warnings.warn("small batch")', "pass")
    cases = (
        (HOSTILE.replace("y = layer(x)", "y = layer(x) + 0"), "unchanged", ""),
        (silent, "different", "stderr line 2: 'UserWarning: small batch' → "),
        (
            HOSTILE.replace("y)", "y.detach())").replace(
                "return y", "return y.detach().requires_grad_()"
            ),
            "different",
            "backward pass 1: gradient",
        ),
    )
    for text, outcome, difference in cases:
        lines = [textwrap.dedent(part).splitlines(keepends=True) for part in (HOSTILE, text)]
        patch = "".join(difflib.unified_diff(*lines, "a/program.py", "b/program.py"))
        result = json.loads(try_patch(workplace, run, "-", input=patch).stdout)
        assert result["outcome"] == outcome
        assert difference in result["output"]["text"]
