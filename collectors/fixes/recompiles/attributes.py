"""Recompiles because an attribute of a module or another object has another value."""

from __future__ import annotations

from compileboard.collectors.fixes.fix import Fix, edit_program

_STEPS = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * self.scale

model, result = Model(), []
compiled = torch.compile(model)
for scale in (2, 3, 4):
    model.scale = scale
    result.append(compiled(torch.ones(3)))
"""
_FLOATS = edit_program(_STEPS, ("(2, 3, 4)", "(0.2, 0.3, 0.4)"))
_AS_TENSOR = ("model.scale = scale", "model.scale = torch.tensor(scale)")
_COUNTER = """\
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x * 2

compiled = torch.compile(Model())
result = [compiled(torch.ones(3)) for _ in range(4)]
"""
_LAYERS = """\
import torch

class Layer(torch.nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index

    def forward(self, x):
        return x * 2 + self.index

layers = torch.nn.Sequential(*[Layer(index) for index in range(4)])
for layer in layers:
    layer.compile()
result = layers(torch.ones(3))
"""
_TRAINING = """\
import torch

model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.0))
compiled, result = torch.compile(model), []
for training in (True, False, True):
    model.train(training)
    result.append(compiled(torch.ones(3)))
"""
_MODES = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.sin() if self.mode == "sin" else x.cos()

model, result = Model(), []
compiled = torch.compile(model)
for mode in ("sin", "cos"):
    model.mode = mode
    result.append(compiled(torch.ones(3)))
"""
_LATE = """\
import torch

class Options:
    pass

def scale(x, options):
    return x.sin() * options.scale if hasattr(options, "scale") else x.sin()

compiled, options, result = torch.compile(scale), Options(), []
for call in range(2):
    result.append(compiled(torch.ones(3), options))
    options.scale = 1.0
"""

ATTRIBUTE_FIXES = (
    Fix(
        id="counter",
        kind="recompile",
        keys=("module_attribute",),
        title="Count in the caller, or hold {source} in a buffer and add_(1) to it",
        applies="A module counts its own calls: each is a compile up to the limit.",
        cost="A buffer is a tensor: no sizes, loops or branches.",
        before=_COUNTER,
        after=edit_program(
            _COUNTER,
            ("self.step = 0", 'self.register_buffer("step", torch.tensor(0))'),
            ("self.step += 1", "self.step.add_(1)"),
        ),
        settings=("torch.compiler.config.dynamic_sources = \"L['self'].step\"",),
    ),
    Fix(
        id="layer-index",
        kind="recompile",
        keys=("module_attribute",),
        title="Compile the whole model, or do not read {source} in forward",
        applies="Layers of one class share their compiles, and this number differs.",
        cost="A whole model takes longer to compile than one layer.",
        before=_LAYERS,
        after=edit_program(
            _LAYERS, ("for layer in layers:\n    layer.compile()\n", "layers = torch.compile(layers)\n")
        ),
        settings=("torch.compiler.config.dynamic_sources = \"L['self'].index\"",),
    ),
    Fix(
        id="module-int",
        kind="recompile",
        keys=("module_attribute",),
        title="Make {source} a tensor (in a module a buffer), or name it in torch.compiler.config.dynamic_sources",
        applies="A module's integer is compiled in at each value. allow_unspec_int_on_nn_module still costs one.",
        cost="A buffer is a tensor: no sizes, loops or branches.",
        before=_STEPS,
        after=edit_program(_STEPS, _AS_TENSOR),
        settings=("torch.compiler.config.dynamic_sources = \"L['self'].scale\"",),
    ),
    Fix(
        id="attribute-float",
        kind="recompile",
        keys=("module_attribute",),
        title="Make {source} a tensor: a number is dynamic from its second value on",
        applies="A float that the code only calculates with recompiles once.",
        cost="A tensor of a float is float32.",
        before=_FLOATS,
        after=edit_program(_FLOATS, _AS_TENSOR),
        settings=("torch._dynamo.config.assume_static_by_default = False",),
    ),
    Fix(
        id="training",
        kind="recompile",
        keys=("module_attribute", "other_value"),
        title="Nothing to fix: train() and eval() compile once each",
        applies="Later switches use both compiles again.",
        cost="One compile. Call once in each mode at the start to have both early.",
        before=_TRAINING,
        after=None,
        is_needless=True,
    ),
    Fix(
        id="attribute-that-comes",
        kind="recompile",
        keys=("module_attribute",),
        title="Set {source} in the constructor, with a neutral value",
        applies="The attribute was not there at the compile, or is missing now.",
        cost="None.",
        before=_LATE,
        after=edit_program(_LATE, ("    pass\n", "    def __init__(self):\n        self.scale = 1.0\n")),
    ),
    Fix(
        id="attribute-value",
        kind="recompile",
        keys=("module_attribute",),
        title="Keep {source} the same between calls, or choose by it in the caller",
        applies="A string, bool or object is compiled in at every value.",
        cost="One compile a value remains, and is no recompile.",
        before=_MODES,
        after="""\
import torch

compiled = {"sin": torch.compile(lambda x: x.sin()), "cos": torch.compile(lambda x: x.cos())}
result = []
for mode in ("sin", "cos"):
    result.append(compiled[mode](torch.ones(3)))
""",
    ),
)
