"""Recompiles because a container, a function or another object is a different one."""

from __future__ import annotations

from compileboard.collectors.fixes.fix import Fix, edit_program

_LISTS = """\
import torch

compiled = torch.compile(lambda tensors: sum(tensor.sum() for tensor in tensors))
result = []
for length in (2, 3, 4):
    tensors = [torch.ones(3) for _ in range(length)]
    result.append(compiled(tensors))
"""
_GROWING = """\
import torch

history = []

def step(x):
    history.append(x)
    return x * 2

compiled = torch.compile(step)
result = [compiled(torch.ones(3)) for _ in range(4)]
"""
_DICTS = """\
import torch

compiled = torch.compile(lambda batch: sum(batch.values()))
x, result = torch.ones(3), []
for batch in ({"a": x, "b": x * 2}, {"b": x * 2, "a": x}):
    result.append(compiled(batch))
"""
_FUNCTIONS = """\
import torch

compiled = torch.compile(lambda x, function: function(x) * 2)
result = []
for function in (torch.sin, torch.cos):
    result.append(compiled(torch.ones(3), function))
"""
_WRAPPED = """\
import torch

result = torch.ones(3)
for function in (torch.nn.ReLU(), torch.nn.Tanh(), torch.nn.SiLU()):
    result = torch.compile(function)(result)
"""
_TYPES = """\
import torch

compiled, result = torch.compile(lambda x, k: x * k), []
for k in (torch.tensor(2), 2):
    result.append(compiled(torch.ones(3), k))
"""
_BACKENDS = """\
import torch

def make_backend():
    return lambda graph, inputs: graph.forward

def double(x):
    return x * 2

result = []
for call in range(2):
    compiled = torch.compile(double, backend=make_backend())
    result.append(compiled(torch.ones(3)))
"""
_FREED = """\
import torch

compiled = torch.compile(lambda x, kind: x * kind.scale)
result = []
for call in range(2):
    kind = type("Kind", (), {"scale": 2.0})
    result.append(compiled(torch.ones(3), kind))
    del kind
    __import__("gc").collect()
"""

OBJECT_FIXES = (
    Fix(
        id="list-length",
        kind="recompile",
        keys=("container_length",),
        title="Stack {source} into one tensor and mark its dimension 0 dynamic, or pad it to one length",
        applies="The length differs. dynamic=True changes nothing about lengths.",
        cost="Stacking copies and needs equal shapes.",
        before=_LISTS,
        after=edit_program(
            _LISTS,
            ("lambda tensors: sum(tensor.sum() for tensor in tensors)", "lambda stacked: stacked.sum()"),
            (
                "    result.append(compiled(tensors))",
                "    stacked = torch.stack(tensors)\n"
                "    torch._dynamo.maybe_mark_dynamic(stacked, 0)\n"
                "    result.append(compiled(stacked))",
            ),
        ),
    ),
    Fix(
        id="list-that-grows",
        kind="recompile",
        keys=("container_length",),
        title="Append to {source} in the caller",
        applies="The compiled function appends to it, so each call is a compile.",
        cost="None.",
        before=_GROWING,
        after=edit_program(
            _GROWING,
            ("    history.append(x)\n", ""),
            (
                "result = [compiled(torch.ones(3)) for _ in range(4)]",
                "result = []\nfor _ in range(4):\n"
                "    history.append(torch.ones(3))\n    result.append(compiled(history[-1]))",
            ),
        ),
    ),
    Fix(
        id="dict-keys",
        kind="recompile",
        keys=("dict_keys", "container_length"),
        title="Build {source} from a fixed list of keys, in one order",
        applies="Keys come and go, or come in another order.",
        cost="A neutral value for a missing key must not change the result.",
        before=_DICTS,
        after=edit_program(_DICTS, ("compiled(batch)", 'compiled({key: batch[key] for key in ("a", "b")})')),
    ),
    Fix(
        id="shared-wrapper",
        kind="recompile",
        keys=("object_identity", "type_change"),
        title="Compile the function or module of yours that calls these, not each by itself",
        applies="torch's own modules, compiled one by one, share one recompile limit.",
        cost="None.",
        before=_WRAPPED,
        after="""\
import torch

functions = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh(), torch.nn.SiLU())
compiled = torch.compile(lambda x: functions(x))
result = compiled(torch.ones(3))
""",
    ),
    Fix(
        id="function-object",
        kind="recompile",
        keys=("object_identity",),
        title="Call {source} in the caller, or keep its set small: another function is other code",
        applies="Really different functions, classes or modules are passed in the same place.",
        cost="Two compiled parts in place of one.",
        before=_FUNCTIONS,
        after=edit_program(
            _FUNCTIONS,
            ("lambda x, function: function(x) * 2", "lambda x: x * 2"),
            ("compiled(torch.ones(3), function)", "compiled(function(torch.ones(3)))"),
        ),
    ),
    Fix(
        id="type",
        kind="recompile",
        keys=("type_change",),
        title="Convert {source} to one type in the caller: torch.as_tensor for numbers",
        applies="A value of another type came.",
        cost="A 0-d tensor promotes dtypes as tensors do.",
        before=_TYPES,
        after=edit_program(_TYPES, ("compiled(torch.ones(3), k)", "compiled(torch.ones(3), torch.as_tensor(k))")),
    ),
    Fix(
        id="backend",
        kind="recompile",
        keys=("backend_mismatch",),
        title="Create the backend callable once and pass the same to every torch.compile",
        applies="One function has two backend callables. functools.partial makes new ones.",
        cost="None.",
        before=_BACKENDS,
        after=edit_program(
            _BACKENDS,
            ("result = []\n", "backend = make_backend()\nresult = []\n"),
            ("backend=make_backend()", "backend=backend"),
        ),
    ),
    Fix(
        id="freed-object",
        kind="recompile",
        keys=("invalidated",),
        title="Keep {source} in a variable as long as the compiled function is used",
        applies="An object that the compiled code relied on was freed.",
        cost="Its memory.",
        before=_FREED,
        after=edit_program(
            _FREED,
            ("    kind = type(", "kind = type("),
            ("result = []\nfor call in range(2):\n", ""),
            ('{"scale": 2.0})\n', '{"scale": 2.0})\nresult = []\nfor call in range(2):\n'),
            ("    del kind\n", ""),
        ),
    ),
)
