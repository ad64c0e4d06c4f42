"""Recompiles because an argument or a global has another value."""

from __future__ import annotations

from compileboard.collectors.fixes.fix import Fix, edit_program


def _call_with(function: str, values: str) -> str:
    return f"""\
import torch

{function}

compiled, x, result = torch.compile(f), torch.ones(3), []
for value in ({values}):
    result.append(compiled(x, value))
"""


_PLAIN = "def f(x, value):\n    return x * value"
_INTS = _call_with(_PLAIN, "2, 3, 4")
_FLOATS = _call_with(_PLAIN, "0.2, 0.3, 0.4")
_LOOP = _call_with("def f(x, value):\n    for _ in range(value):\n        x = x * 2\n    return x", "2, 3, 4")
_POSITIONS = _call_with("def f(x, value):\n    return x.expand(2, 3)[:, value] * 2", "0, 1, 2")
_SUBSCRIPT = _call_with("def f(x, value):\n    return x[value] * 2", "0, 2")
_LIST = """\
import torch

scales = [torch.full((3,), float(number)) for number in range(3)]

def f(x, value):
    return x * scales[value]

compiled, x, result = torch.compile(f), torch.ones(3), []
for value in (0, 1, 2):
    result.append(compiled(x, value))
"""
_FLOAT_BRANCH = _call_with("def f(x, value):\n    return x * value if value > 0.25 else x * 2", "0.2, 0.3, 0.4")
_DROPOUT = """\
import torch
from torch.nn.functional import dropout

compiled = torch.compile(lambda x, p: dropout(x, p, training=False) * 2)
x, result = torch.ones(3), []
for p in (0.2, 0.3, 0.4):
    result.append(compiled(x, p))
"""
_STRINGS = _call_with('def f(x, value):\n    return x * 2 if value == "a" else x * 3', '"a", "b"')
_FLAGS = _call_with("def f(x, value):\n    return x * 2 if value else x * 3", "True, False")
_OPTIONAL = _call_with(
    "def f(x, value):\n    return x.sin() if value is None else x.sin() * value", "None, torch.ones(3)"
)
_GLOBAL = """\
import torch

compiled = torch.compile(lambda x: x * SCALE)
result = []
for SCALE in (2, 3, 4):
    result.append(compiled(torch.ones(3)))
"""
_GLOBAL_STRING = """\
import torch

compiled = torch.compile(lambda x: x.sin() if MODE == "sin" else x.cos())
result = []
for MODE in ("sin", "cos"):
    result.append(compiled(torch.ones(3)))
"""
_AS_TENSOR = ("compiled(x, value)", "compiled(x, torch.tensor(value))")

VALUE_FIXES = (
    Fix(
        id="int",
        kind="recompile",
        keys=("int_value",),
        title="Compile with dynamic=True: {source} alone is dynamic from its second value on",
        applies="An integer that the code only calculates with recompiles once.",
        cost="dynamic=True makes sizes dynamic too, which may be slower.",
        before=_INTS,
        after=edit_program(_INTS, ("torch.compile(f)", "torch.compile(f, dynamic=True)")),
        settings=("torch.compiler.config.dynamic_sources = \"L['value']\"",),
    ),
    Fix(
        id="int-that-the-code-needs",
        kind="recompile",
        keys=("int_value", "global_value", "module_attribute"),
        title="Keep the loop or branch on {source} in the caller and compile its body",
        applies="A loop, branch or index needs the number at the compile.",
        cost="More compiled calls.",
        before=_LOOP,
        after="""\
import torch

def body(x):
    return x * 2

compiled, x, result = torch.compile(body), torch.ones(3), []
for value in (2, 3, 4):
    y = x
    for _ in range(value):
        y = compiled(y)
    result.append(y)
""",
    ),
    Fix(
        id="int-that-is-a-position",
        kind="recompile",
        keys=("int_value", "global_value", "module_attribute"),
        title="Make {source} a one-element tensor and select with `index_select`; write with `index_copy_`",
        applies="An int subscripts a tensor beside other dimensions. dynamic=True and a 0-d tensor recompile too.",
        cost="The dimension stays, with size 1: squeeze it. Negative positions are an error.",
        before=_POSITIONS,
        after=edit_program(
            _POSITIONS,
            ("[:, value] * 2", ".index_select(1, value).squeeze(1) * 2"),
            ("compiled(x, value)", "compiled(x, torch.tensor([value]))"),
        ),
    ),
    Fix(
        id="int-that-subscripts-a-tensor",
        kind="recompile",
        keys=("int_value", "global_value", "module_attribute"),
        title="If {source} subscripts a tensor, make it a one-element tensor and select with `index_select`",
        applies="An int is alone in brackets. A tensor's becomes dynamic, a list's does not.",
        cost="The dimension stays, with size 1: squeeze it. Negative positions are an error.",
        before=_SUBSCRIPT,
        after=edit_program(
            _SUBSCRIPT,
            ("x[value] * 2", "x.index_select(0, value).squeeze(0) * 2"),
            ("compiled(x, value)", "compiled(x, torch.tensor([value]))"),
        ),
        settings=("torch.compiler.config.dynamic_sources = \"L['value']\"",),
    ),
    Fix(
        id="int-that-picks-from-a-list",
        kind="recompile",
        keys=("int_value", "global_value", "module_attribute"),
        title="If {source} picks a tensor from a list, pick it in the caller and pass the tensor",
        applies="Each number picks another object at the compile.",
        cost="None. A module that is passed recompiles for each.",
        before=_LIST,
        after=edit_program(
            _LIST,
            ("f(x, value)", "f(x, scale)"),
            ("x * scales[value]", "x * scale"),
            ("(x, value))", "(x, scales[value]))"),
        ),
    ),
    Fix(
        id="float",
        kind="recompile",
        keys=("float_value",),
        title="Pass {source} as a tensor: a number is dynamic from its second value on",
        applies="A float that the code only calculates with recompiles once.",
        cost="torch.tensor of a float is float32.",
        before=_FLOATS,
        after=edit_program(_FLOATS, _AS_TENSOR),
        settings=("torch._dynamo.config.assume_static_by_default = False",),
    ),
    Fix(
        id="float-with-a-branch",
        kind="recompile",
        keys=("float_value",),
        title="Pass torch.tensor({name}) and write the branch as torch.where",
        applies="A branch compares the float. A tensor alone trades the recompile for a graph break.",
        cost="torch.where computes both sides.",
        before=_FLOAT_BRANCH,
        after=edit_program(
            _FLOAT_BRANCH,
            ("x * value if value > 0.25 else x * 2", "torch.where(value > 0.25, x * value, x * 2)"),
            _AS_TENSOR,
        ),
    ),
    Fix(
        id="float-that-the-code-needs",
        kind="recompile",
        keys=("float_value",),
        title="Move the call that compares {source} out of the compiled function, or write it with tensors",
        applies="torch compares the float at the compile: dropout's p, a branch.",
        cost="specialize_float and dynamic=True change nothing.",
        before=_DROPOUT,
        after=edit_program(
            _DROPOUT,
            ("lambda x, p: dropout(x, p, training=False) * 2", "lambda x: x * 2"),
            ("compiled(x, p)", "compiled(dropout(x, p, training=False))"),
        ),
    ),
    Fix(
        id="string",
        kind="recompile",
        keys=("string_value",),
        title="Choose by {source} in the caller, between functions compiled each for itself",
        applies="Each value of a string gives code of its own.",
        cost="One compile a value remains, and is no recompile.",
        before=_STRINGS,
        after="""\
import torch

compiled = {"a": torch.compile(lambda x: x * 2), "b": torch.compile(lambda x: x * 3)}
x, result = torch.ones(3), []
for value in ("a", "b"):
    result.append(compiled[value](x))
""",
    ),
    Fix(
        id="bool",
        kind="recompile",
        keys=("other_value",),
        title="Accept the two compiles, or pass torch.tensor({name}) and use torch.where",
        applies="Each value gives code of its own: a bool has two compiles.",
        cost="torch.where computes both sides; torch.cond does not.",
        before=_FLAGS,
        after=edit_program(_FLAGS, ("x * 2 if value else x * 3", "torch.where(value, x * 2, x * 3)"), _AS_TENSOR),
    ),
    Fix(
        id="none",
        kind="recompile",
        keys=("other_value", "type_change"),
        title="Pass a neutral tensor for {source} instead of None, or accept the two compiles",
        applies="A tensor came where None was, or None where a tensor was.",
        cost="A mask that masks nothing may choose a slower attention kernel.",
        before=_OPTIONAL,
        after=edit_program(
            _OPTIONAL,
            ("x.sin() if value is None else x.sin() * value", "x.sin() * value"),
            ("(None, torch", "(torch.ones(3), torch"),
        ),
    ),
    Fix(
        id="global-number",
        kind="recompile",
        keys=("global_value",),
        title="Make the global {name} a tensor, or name it in torch.compiler.config.dynamic_sources",
        applies="A global number is compiled in at every value, whatever dynamic says.",
        cost="A tensor has no sizes, loops or branches.",
        before=_GLOBAL,
        after=edit_program(_GLOBAL, ("in (2, 3, 4)", "in map(torch.tensor, (2, 3, 4))")),
        settings=("torch.compiler.config.dynamic_sources = \"G['SCALE']\"",),
    ),
    Fix(
        id="global-value",
        kind="recompile",
        keys=("global_value",),
        title="Choose by the global {name} in the caller, between functions compiled each for itself",
        applies="A global string, bool or object is compiled in at every value.",
        cost="One compile a value remains, and is no recompile.",
        before=_GLOBAL_STRING,
        after="""\
import torch

compiled = {"sin": torch.compile(lambda x: x.sin()), "cos": torch.compile(lambda x: x.cos())}
result = []
for MODE in ("sin", "cos"):
    result.append(compiled[MODE](torch.ones(3)))
""",
    ),
    Fix(
        id="variants-that-stay",
        kind="recompile",
        keys=("int_value", "float_value", "string_value", "other_value"),
        title="Or run what would recompile eagerly: torch.compiler.set_stance after the warm-up",
        applies="The variants are needed, and a late compile costs more than an eager call.",
        cost="Eager calls are slower.",
        before=_LOOP,
        after=_LOOP + '    torch.compiler.set_stance("eager_on_recompile")\n',
        minimum_torch=(2, 6),
    ),
)
