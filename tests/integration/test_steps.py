"""Steps of real programs, timed while they run, on a CPU."""

from __future__ import annotations

import json

import pytest

from tests.tools.observed import Workplace

pytestmark = pytest.mark.torch

PROGRAM = """
import sys
import torch
from torch._dynamo import eval_frame

def f(x):
    x = torch.sin(x) + 1
    torch._dynamo.graph_break()
    return torch.cos(x) * 2

def skipped(x):
    for _ in range(2):
        x = torch.sin(x)
        torch._dynamo.graph_break()
    return x

name = "_maybe_set_eval_frame" if hasattr(eval_frame, "_maybe_set_eval_frame") else "set_eval_frame"
switch = getattr(eval_frame, name).__module__
compiled = torch.compile({"f": f, "skipped": skipped}[sys.argv[1]], backend=sys.argv[2])
x = torch.randn(8, requires_grad=sys.argv[3] == "train")
for _ in range(20):
    y = compiled(x)
    if sys.argv[3] == "train":
        y.sum().backward()
print(y.shape, switch, getattr(eval_frame, name).__module__)
"""
CODE = """
import sys

import compileboard, torch

compileboard.install(db=sys.argv[1])
compiled = torch.compile(lambda x: x + 1, backend="eager")
for _ in range(21):
    compiled(torch.ones(2))
with compileboard.profile(steps=3):
    for _ in range(9):
        compiled(torch.ones(2))
"""


IN_TURN = """
import torch

@torch.compile(backend="eager")
def encode(x):
    return torch.sin(x) + 1

@torch.compile(backend="eager")
def decode(x):
    x = torch.cos(x)
    torch._dynamo.graph_break()
    return x * 2

for number in range(40):
    y = (encode if number % 3 else decode)(torch.ones(8))
"""


PROFILED = """
import torch

@torch.compile(backend="eager")
def f(x):
    return torch.sin(x) + 1

for number in range(16):
    if number == 11:  # while the window traces
        with torch.profiler.profile() as profiler:
            f(torch.ones(8))
    f(torch.ones(8))
print("aten::sin" in {event.name for event in profiler.events()})
"""


PROFILED_BEFORE = """
import sys

import compileboard, torch

compileboard.install(db=sys.argv[1])
compiled = torch.compile(lambda x: x + 1, backend="eager")

def profile():
    with compileboard.profile(steps=2):
        for _ in range(9):
            compiled(torch.ones(2))

profile()
with torch.profiler.profile():
    compiled(torch.ones(2))
profile()
"""


def observe(workplace: Workplace, *arguments: str, steps: str = "8") -> dict[str, object]:
    program = workplace.write(PROGRAM)
    done = workplace.run(program, *arguments, options=("--steps", steps))
    assert done.returncode == 0, done.stderr
    *_shape, before, after = done.stdout.split()
    assert before.endswith("observe.steps") and after.startswith("torch.")
    (row,) = workplace.rows("select * from step_windows")
    return {**row, **{name: json.loads(row[name]) for name in ("graphs", "steps", "traced")}}


def test_a_training_step_has_its_graphs_forward_and_backward(workplace: Workplace) -> None:
    window = observe(workplace, "f", "aot_eager", "train", steps="8@5")
    assert (window["wanted_count"], window["earlier_count"], len(window["steps"])) == (8, 6, 8)
    graphs = {graph["number"]: graph for graph in window["graphs"]}
    called = [graphs[number] for number in window["steps"][0]["graph_numbers"]]
    assert [(graph["phase"], graph["compile_id"]) for graph in called] == [
        ("forward", "0/0"),
        ("forward", "1/0"),
        ("backward", "1/0"),
        ("backward", "0/0"),
    ]
    assert called[1]["input_bytes"] == 8 * 4
    assert window["traced"]["step_count"] == 3
    assert {"guards", "python"} <= {row["kind"] for row in window["traced"]["host"]}


def test_a_skipped_frame_is_found(workplace: Workplace) -> None:
    window = observe(workplace, "skipped", "eager", "infer")
    assert {tuple(step["graph_numbers"]) for step in window["steps"]} == {()}
    (frame,) = window["traced"]["frames"]
    assert (frame["compile_id"], frame["call_count"]) == ("0/0", 1)


def test_the_traced_steps_are_of_the_function_that_the_usual_step_is_of(
    workplace: Workplace,
) -> None:
    done = workplace.run(workplace.write(IN_TURN), options=("--steps", "9@6"))
    assert done.returncode == 0, done.stderr
    (row,) = workplace.rows("select * from step_windows")
    window = {name: json.loads(row[name]) for name in ("graphs", "steps", "traced")}
    by_number = {graph["number"]: graph["compile_id"] for graph in window["graphs"]}
    called = {number for step in window["steps"] for number in step["graph_numbers"]}
    encode = {number for number in called if by_number[number] == "2/0"}
    assert (len(called), len(encode), window["traced"]["step_count"]) == (3, 1, 3)
    spans = {span["name"] for span in window["traced"]["spans"]}
    assert {name for name in spans if " graph " in name} == {
        f"compileboard graph {number}" for number in encode
    }


def test_a_program_that_ends_before_leaves_what_was_timed(workplace: Workplace) -> None:
    program = workplace.write(PROGRAM.replace("range(20)", "range(7)"))
    done = workplace.run(program, "f", "eager", "infer", options=("--steps", "40@2"))
    assert done.returncode == 0, done.stderr
    (row,) = workplace.rows("select * from step_windows")
    assert (len(json.loads(row["steps"])), row["traced"]) == (4, None)


def test_code_times_steps_without_a_command(workplace: Workplace) -> None:
    done = workplace.plain(workplace.write(CODE), workplace.database)
    assert done.returncode == 0, done.stderr
    (row,) = workplace.rows("select * from step_windows")
    # 21 before the block, one to survey.
    assert (len(json.loads(row["steps"])), row["earlier_count"]) == (3, 22)


def test_a_trace_gives_way_to_the_programs_own(workplace: Workplace) -> None:
    done = workplace.run(workplace.write(PROFILED), options=("--steps", "5"))
    assert (done.returncode, done.stdout.split()[-1]) == (0, "True"), done.stderr
    (row,) = workplace.rows("select * from step_windows")
    assert (len(json.loads(row["steps"])), row["traced"]) == (5, None)


def test_a_program_that_has_used_the_profiler_is_not_traced(workplace: Workplace) -> None:
    done = workplace.plain(workplace.write(PROFILED_BEFORE), workplace.database)
    assert done.returncode == 0, done.stderr
    rows = workplace.rows("select traced is not null as traced from step_windows order by time_us")
    assert [row["traced"] for row in rows] == [1, 0]


@pytest.mark.parametrize("steps", ["0", "x", "3@", "3@x", "10001", "-1"])
def test_a_number_that_is_none_is_refused(workplace: Workplace, steps: str) -> None:
    done = workplace.collect("run", "--steps", steps, "--", "true")
    assert done.returncode == 2
    assert "--steps" in done.stderr and "number of steps" in done.stderr
