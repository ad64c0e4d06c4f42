"""Recompiles because a size differs."""

from __future__ import annotations

from compileboard.collectors.fixes.fix import Fix, edit_program

_ROWS = """\
import torch

compiled = torch.compile(lambda x: x * 2)
result = []
for row_count in (4, 5, 6):
    x = torch.ones(row_count, 3)
    result.append(compiled(x))
"""
_CALL = "    result.append(compiled(x))\n"
_MARK = "    torch._dynamo.maybe_mark_dynamic(x, 0)\n"
_PAIRS = """\
import torch

compiled = torch.compile(lambda batch: batch["user"] * batch["item"])
result = []
for row_count in (4, 5, 6):
    batch = {"user": torch.ones(row_count), "item": torch.full((row_count,), 3.0)}
    result.append(compiled(batch))
"""
_FIXED = """\
import torch

def total(x):
    if x.shape[0] == 4:
        x = x.view(4, 3)
    return x.sum(0)

compiled, result = torch.compile(total), []
for row_count in (4, 5, 6):
    x = torch.ones(row_count, 3)
    result.append(compiled(x))
"""
_BRANCH = """\
import torch

def scale(x):
    return x * 2 if x.shape[0] > 3 else x * 3

compiled, result = torch.compile(scale, dynamic=True), []
for row_count in (4, 5, 2, 3):
    x = torch.ones(row_count, 3)
    result.append(compiled(x))
"""
_PARAMETER = """\
import torch

class Head(torch.nn.Linear):
    def forward(self, x):
        return x @ self.weight.t()

head = Head(3, 4)
compiled, result = torch.compile(head), []
for class_count in (4, 5, 6):
    head.weight = torch.nn.Parameter(torch.ones(class_count, 3))
    result.append(compiled(torch.ones(2, 3)))
"""
_PARAMETER_SETTING = "torch.compiler.config.dynamic_sources = \"L['self']._parameters['weight']\""
_FIRST_ONE = edit_program(_ROWS, ("(4, 5, 6)", "(1, 5, 6)"))
_LATER_ONE = edit_program(_ROWS, ("(4, 5, 6)", "(5, 1, 6)"), ("x * 2)", "x * 2, dynamic=True)"))
_PAD = """\
    padded = torch.nn.functional.pad(x, (0, 0, 0, max(2 - row_count, 0)))
    torch._dynamo.maybe_mark_dynamic(padded, 0)
    result.append(compiled(padded)[:row_count])
"""

SIZE_FIXES = (
    Fix(
        id="size-of-several-inputs",
        kind="recompile",
        keys=("tensor_size",),
        title="Mark {dimensions} dynamic before the first call",
        applies="The size varies, and all of these inputs have it.",
        cost="Saves one recompile. Code for dynamic sizes may be slower.",
        before=_PAIRS,
        after=edit_program(
            _PAIRS,
            (
                "    result.append(compiled(batch))\n",
                "    for tensor in batch.values():\n"
                "        torch._dynamo.maybe_mark_dynamic(tensor, 0)\n"
                "    result.append(compiled(batch))\n",
            ),
        ),
        settings=("torch.compiler.config.dynamic_sources = \"L['batch']['user']:0,L['batch']['item']:0\"",),
    ),
    Fix(
        id="size-of-an-input",
        kind="recompile",
        keys=("tensor_size",),
        title="Mark {dimensions}{others} dynamic before the first call",
        applies="The size varies. An input that shares it and is not marked keeps it fixed.",
        cost="Saves one recompile. Code for dynamic sizes may be slower.",
        before=_ROWS,
        after=edit_program(_ROWS, (_CALL, _MARK + _CALL)),
        settings=("torch._dynamo.config.assume_static_by_default = False",),
    ),
    Fix(
        id="size-in-the-code",
        kind="recompile",
        keys=("tensor_size",),
        title="Write the size of {source} without a number, then mark dimension {dim} dynamic",
        applies="The code compares or views this size with a number. Marks alone change nothing.",
        cost="Saves one recompile.",
        before=_FIXED,
        after=edit_program(
            _FIXED,
            ("    if x.shape[0] == 4:\n        x = x.view(4, 3)\n", "    x = x.view(-1, 3)\n"),
            (_CALL, _MARK + _CALL),
        ),
    ),
    Fix(
        id="size-in-buckets",
        kind="recompile",
        keys=("tensor_size",),
        title="Or pad {source} to a few fixed sizes and cut the result",
        applies="Sizes are bounded, and static code is needed (CUDA graphs, max-autotune).",
        cost="Padding changes sums, means and softmax unless the code masks it.",
        before=_ROWS,
        after=edit_program(
            _ROWS,
            (
                _CALL,
                "    padded = torch.nn.functional.pad(x, (0, 0, 0, 8 - row_count))\n"
                "    result.append(compiled(padded)[:row_count])\n",
            ),
        ),
    ),
    Fix(
        id="size-zero-or-one",
        kind="recompile",
        keys=("tensor_size",),
        title="Pad dimension {dim} of {source} to 2, or accept one compile for a size of 0 or 1",
        applies="A size of 0 or 1 is compiled in, dynamic or not.",
        cost="Padding changes sums and means unless the code masks it.",
        before=_FIRST_ONE,
        after=edit_program(_FIRST_ONE, (_CALL, _PAD)),
    ),
    Fix(
        id="size-zero-or-one-later",
        kind="recompile",
        keys=("symbolic_shape",),
        title="Pad dimension {dim} of {source} to 2, or accept one compile for a size of 0 or 1",
        applies="The dimension is dynamic, and 0 or 1 is still compiled in.",
        cost="Padding changes sums and means unless the code masks it.",
        before=_LATER_ONE,
        after=edit_program(_LATER_ONE, (_CALL, _PAD)),
    ),
    Fix(
        id="size-unbacked",
        kind="recompile",
        keys=("tensor_size", "symbolic_shape"),
        title="Or mark {dimensions} unbacked, if no branch needs the size",
        applies="No branch needs the size: it would become a graph break.",
        cost="With fullgraph=True a branch on the size raises.",
        before=edit_program(_PAIRS, ("(4, 5, 6)", "(1, 5, 6)")),
        after=edit_program(
            _PAIRS,
            ("(4, 5, 6)", "(1, 5, 6)"),
            (
                "    result.append(compiled(batch))\n",
                "    for tensor in batch.values():\n"
                '        torch._dynamo.decorators.mark_unbacked(tensor, 0, shape_id="rows")\n'
                "    result.append(compiled(batch))\n",
            ),
        ),
        minimum_torch=(2, 13),
    ),
    Fix(
        id="size-zero-or-one-branch",
        kind="recompile",
        keys=("tensor_size",),
        title="Nothing to fix: a size of 0 or 1 has a compile of its own",
        applies="A branch needs the size, so it cannot be unbacked.",
        cost="One compile. Call once with size 1 at the start to have it early.",
        before=edit_program(_BRANCH, ("(4, 5, 2, 3)", "(1, 5, 6)")),
        after=None,
        is_needless=True,
    ),
    Fix(
        id="size-of-a-parameter",
        kind="recompile",
        keys=("tensor_size",),
        title="Let the size of the parameter {source} vary: name it in torch.compiler.config.dynamic_sources",
        applies="A parameter's size is compiled in, and marks change nothing.",
        cost="Code for dynamic sizes may be slower.",
        before=_PARAMETER,
        after=edit_program(_PARAMETER, ("import torch\n", f"import torch\n\n{_PARAMETER_SETTING}\n")),
        settings=(_PARAMETER_SETTING,),
        minimum_torch=(2, 7),
    ),
    Fix(
        id="size-compared",
        kind="recompile",
        keys=("symbolic_shape",),
        title="Accept one compile a side, or compare {expression} in the caller",
        applies="A branch compares the size. No mark and no range makes it one graph.",
        cost="Two compiled functions in place of one with two compiles.",
        before=_BRANCH,
        after="""\
import torch

large = torch.compile(lambda x: x * 2, dynamic=True)
small = torch.compile(lambda x: x * 3, dynamic=True)
result = []
for row_count in (4, 5, 2, 3):
    x = torch.ones(row_count, 3)
    result.append(large(x) if x.shape[0] > 3 else small(x))
""",
    ),
    Fix(
        id="size-multiple",
        kind="recompile",
        keys=("symbolic_shape",),
        title="Pad dimension {dim} of {source} in the caller to the multiple that the code tests",
        applies="The condition has a remainder (%) of the size.",
        cost="Padding changes means and counts unless the code masks it.",
        before="""\
import torch

def total(x):
    return x.sum() if x.shape[0] % 2 else x.view(2, -1).sum()

compiled, result = torch.compile(total, dynamic=True), []
for row_count in (4, 6, 5, 7):
    x = torch.ones(row_count, 3)
    result.append(compiled(x))
""",
        after="""\
import torch

def total(x):
    return x.sum() if x.shape[0] % 2 else x.view(2, -1).sum()

compiled, result = torch.compile(total, dynamic=True), []
for row_count in (4, 6, 5, 7):
    x = torch.nn.functional.pad(torch.ones(row_count, 3), (0, 0, 0, row_count % 2))
    result.append(compiled(x))
""",
    ),
    Fix(
        id="sizes-equal",
        kind="recompile",
        keys=("symbolic_shape",),
        title="Mark both dimensions of {source} dynamic, or make the first call with unequal sizes",
        applies="Two sizes were equal at the compile: torch took them as one.",
        cost="One more symbol, so more guards.",
        before="""\
import torch

compiled, result = torch.compile(lambda x: x * 2, dynamic=True), []
for row_count, column_count in ((4, 4), (4, 5), (6, 5)):
    x = torch.ones(row_count, column_count)
    result.append(compiled(x))
""",
        after="""\
import torch

compiled, result = torch.compile(lambda x: x * 2, dynamic=True), []
for row_count, column_count in ((4, 4), (4, 5), (6, 5)):
    x = torch.ones(row_count, column_count)
    torch._dynamo.maybe_mark_dynamic(x, [0, 1])
    result.append(compiled(x))
""",
        settings=("torch.fx.experimental._config.use_duck_shape = False",),
    ),
    Fix(
        id="marks-late",
        kind="recompile",
        keys=("symbolic_shape",),
        title="Mark {source} before the first compiled call, with the same dimensions each time",
        applies="Marked in one call and not in another, or beside dynamic=True.",
        cost="None.",
        before="""\
import torch

compiled, result = torch.compile(lambda x: x * 2), []
for call in range(3):
    x = torch.ones(4, 3)
    if call:
        torch._dynamo.mark_dynamic(x, 0)
    result.append(compiled(x))
""",
        after="""\
import torch

compiled, result = torch.compile(lambda x: x * 2), []
for call in range(3):
    x = torch.ones(4, 3)
    torch._dynamo.mark_dynamic(x, 0)
    result.append(compiled(x))
""",
    ),
)
