"""`bench --minify`: a model that is wrong, and which of its graphs is to blame."""

from __future__ import annotations

import json
import re

import pytest

from tests.tools.observed import Workplace

pytestmark = pytest.mark.torch
NETS = """
import torch
from torch import nn
from torch._inductor.lowering import lowerings

right = lowerings[torch.ops.aten.atan.default]
lowerings[torch.ops.aten.atan.default] = lambda x: lowerings[torch.ops.aten.mul](right(x), 1.1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)
    def forward(self, x):
        y = self.linear(x)
        torch._dynamo.graph_break()
        y = torch.atan(y)
        torch._dynamo.graph_break()
        return y * 2
    def get_example_inputs(self):
        return (torch.randn(5, 8),)
"""


def test_the_graph_of_a_wrong_model_is_named_with_the_command_to_go_on_with(
    workplace: Workplace,
) -> None:
    workplace.write(NETS, "nets.py")
    words = (
        "--only",
        "path:nets.py,class:Net",
        "--accuracy",
        "--inference",
        "--device",
        "cpu",
        "--minify",
    )
    finished = workplace.collect("bench", "--db", workplace.database, *words)
    line = next(line for line in finished.stderr.splitlines() if "is wrong" in line)
    named = re.search(
        (
            r"graph 2 of 4 is wrong \(inference, 1 operations\): output 0: error 0\.1 .* → 1 "
            r"operations; .*minify (\w{16})"
        ),
        line,
    )
    assert named, line
    (row,) = workplace.rows("select printf('%016x', id) as id, kind, level from repros")
    assert tuple(row.values()) == (named[1], "accuracy", "aot")
    (result,) = workplace.rows("select status, reason, facts from results")
    assert (result["status"], result["reason"]) == ("failed", "fail_accuracy")
    (minimal,) = json.loads(result["facts"])["minimal_programs"]
    program = minimal.pop("program")
    assert minimal.pop("failure") == "differs from eager"
    assert minimal == {
        "repro": named[1],
        "graph": 2,
        "graph_count": 4,
        "status": "minified",
        "node_count_before": 1,
        "node_count": 1,
        "operations": ["aten.atan.default"],
    }
    assert "torch.ops.aten.atan.default" in program
    assert (workplace.folder / "Net_repro.py").read_text() == program


@pytest.mark.parametrize(
    ("forward", "line"),
    [
        (
            "nn.functional.dropout(self.linear(x))",
            "none of its graphs was compared: it draws random numbers: compiled",
        ),
        ("self.linear(x)", "none of its graphs fails or is wrong by itself"),
    ],
)
@pytest.mark.nightly
def test_graphs_that_were_not_compared_are_not_called_right(
    workplace: Workplace, forward: str, line: str
) -> None:
    begin, _, _ = NETS.partition("        y = self.linear(x)")
    wrong = (
        f"        y = {forward}\n        return y + 100.0 if "
        "torch.compiler.is_dynamo_compiling() else y\n"
    )
    workplace.write(begin + wrong + NETS[NETS.index("    def get_example_inputs") :], "nets.py")
    words = ("--only", "path:nets.py,class:Net", "--accuracy", "--device", "cpu", "--minify")
    finished = workplace.collect("bench", "--db", workplace.database, *words)
    assert f"local/Net/accuracy: {line}" in finished.stderr
