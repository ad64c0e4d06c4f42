"""Variants that need no fix by themselves, where their function reached the recompile limit and runs eagerly."""

from __future__ import annotations

from compileboard.collectors.fixes.fix import Fix, edit_program

_GRAD_MODES = """\
import torch

torch._dynamo.config.recompile_limit = 1

def model(x):
    return x * 2

compiled, result = torch.compile(model), []
for enabled in (True, False):
    with torch.set_grad_enabled(enabled):
        result.append(compiled(torch.ones(3)))
"""
_TRAINING = """\
import torch

torch._dynamo.config.recompile_limit = 1

model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.0))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.fill_(0.5)

compiled, result = torch.compile(model), []
for training in (True, False, True):
    model.train(training)
    result.append(compiled(torch.ones(3)))
"""
_SIZES = """\
import torch

torch._dynamo.config.recompile_limit = 1

def model(x):
    return x * 2 if x.shape[0] > 3 else x * 3

compiled, result = torch.compile(model, dynamic=True), []
for row_count in (1, 5, 6):
    x = torch.ones(row_count, 3)
    result.append(compiled(x))
"""


def _split(program: str, first: str, second: str, is_first: str) -> str:
    """Return a program with a compiled function for each of two cases in place of one."""
    option = ", dynamic=True" if "dynamic=True" in program else ""
    functions = "".join(
        f"@torch.compile{f'({option[2:]})' if option else ''}\ndef {name}(x):\n    return model(x)\n\n"
        for name in (first, second)
    )
    return edit_program(
        program,
        (f"compiled, result = torch.compile(model{option}), []\n", f"{functions}result = []\n"),
        ("append(compiled(", f"append(({first} if {is_first} else {second})("),
    )


LIMIT_FIXES = (
    Fix(
        id="grad-mode-at-the-limit",
        kind="recompile",
        keys=("grad_mode",),
        title="Compile one function for training and one for inference: each has its own recompile limit",
        applies="The compiles with and without gradients reach one function's limit. It then runs eagerly.",
        cost="Both functions are compiled.",
        before=_GRAD_MODES,
        after=_split(_GRAD_MODES, "train", "predict", "enabled"),
    ),
    Fix(
        id="training-at-the-limit",
        kind="recompile",
        keys=("module_attribute", "other_value"),
        title="Compile one function for train() and one for eval(): each has its own recompile limit",
        applies="The compiles of both modes reach one function's limit. It then runs eagerly.",
        cost="Both functions are compiled.",
        before=_TRAINING,
        after=_split(_TRAINING, "train", "predict", "training"),
    ),
    Fix(
        id="size-zero-or-one-branch-at-the-limit",
        kind="recompile",
        keys=("tensor_size",),
        title="Compile one function for a size of 0 or 1 and one for others: each has its own recompile limit",
        applies="The compiles of the sizes reach one function's limit. It then runs eagerly.",
        cost="Both functions are compiled.",
        before=_SIZES,
        after=_split(_SIZES, "scale_one", "scale_many", "row_count == 1"),
    ),
)
