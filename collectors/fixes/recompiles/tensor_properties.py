"""Recompiles because a tensor is another kind of tensor: layout, rank, dtype, device, gradient, identity."""

from __future__ import annotations

from compileboard.collectors.fixes.fix import Fix, edit_program


def _call_with(inputs: str) -> str:
    return f"""\
import torch

compiled, result = torch.compile(lambda x: x * 2), []
for x in ({inputs}):
    result.append(compiled(x))
"""


_STRIDES = _call_with("torch.ones(3, 4), torch.ones(4, 3).t()")
_RANKS = _call_with("torch.ones(2, 3), torch.ones(1, 2, 3)")
_DTYPES = _call_with("torch.ones(3), torch.ones(3, dtype=torch.float64)")
_DEVICES = """\
import torch

compiled = torch.compile(lambda x: x * 2)
result = []
for device in ("cpu", "meta"):
    x = torch.ones(3, device=device)
    result.append(compiled(x).shape)
"""
_GRADIENTS = _call_with("torch.ones(3), torch.ones(3, requires_grad=True)")
_INFERENCE = """\
import torch

compiled, result = torch.compile(lambda x: x * 2), []
with torch.inference_mode():
    made_inside = torch.ones(3)
for x in (torch.ones(3), made_inside):
    result.append(compiled(x))
"""
_VMAP = """\
import torch

def double(x):
    return x * 2

compiled = torch.compile(double)
mapped = torch.vmap(compiled)
result = [compiled(torch.ones(2, 3)), mapped(torch.ones(2, 3))]
"""
_TWICE = """\
import torch

compiled = torch.compile(lambda x, y: x + y)
x = torch.ones(3)
result = []
for y in (torch.ones(3), x):
    result.append(compiled(x, y))
"""
_ONCE = edit_program(_TWICE, ("(torch.ones(3), x)", "(x, torch.ones(3))"))
_OWN_TENSOR = ("compiled(x, y)", "compiled(x, y.view_as(y))")
_SLICES = """\
import torch

compiled = torch.compile(lambda x: x * 2, dynamic=True)
rows = torch.ones(2, 5)
result = []
for x in (rows[0], torch.ones(6)):
    result.append(compiled(x))
"""

TENSOR_FIXES = (
    Fix(
        id="stride",
        kind="recompile",
        keys=("tensor_stride",),
        title="Make {source} contiguous in the caller, before the compiled call",
        applies="The memory layout differs: a transposed, sliced or channels_last input.",
        cost="Copies a tensor that is laid out otherwise. Inside the compiled function it changes nothing.",
        before=_STRIDES,
        after=edit_program(_STRIDES, ("compiled(x)", "compiled(x.contiguous())")),
    ),
    Fix(
        id="rank",
        kind="recompile",
        keys=("tensor_rank",),
        title="Give {source} one number of dimensions in the caller, or accept one compile a rank",
        applies="The number of dimensions differs. Nothing makes it dynamic.",
        cost="Code that looks at the batch dimension sees another one.",
        before=_RANKS,
        after=edit_program(_RANKS, ("compiled(x)", "compiled(x.flatten(0, -2)).view(x.shape)")),
    ),
    Fix(
        id="dtype",
        kind="recompile",
        keys=("tensor_dtype",),
        title="Convert {source} to one dtype in the caller, or accept one compile a dtype",
        applies="The dtype differs. A conversion inside the compiled function is too late.",
        cost="Changes the precision and the dtype of the result.",
        before=_DTYPES,
        after=edit_program(_DTYPES, ("compiled(x)", "compiled(x.float())")),
    ),
    Fix(
        id="device",
        kind="recompile",
        keys=("tensor_device",),
        title="Move {source} to one device in the caller, or accept one compile a device",
        applies="The device differs. A move inside the compiled function is too late.",
        cost="Copies the tensor.",
        before=_DEVICES,
        after=edit_program(_DEVICES, ("device=device)", 'device="cpu")')),
    ),
    Fix(
        id="requires-grad",
        kind="recompile",
        keys=("tensor_requires_grad",),
        title="Detach {source} where no gradient is needed, or call requires_grad_() on all",
        applies="requires_grad differs. torch.no_grad() around the call changes nothing: the tensor's own flag counts.",
        cost="detach() cuts the gradient. In a chain of compiled layers one such recompile is harmless.",
        before=_GRADIENTS,
        after=edit_program(_GRADIENTS, ("compiled(x)", "compiled(x.detach())")),
    ),
    Fix(
        id="inference-tensor",
        kind="recompile",
        keys=("dispatch_keys",),
        title="Make {source} outside torch.inference_mode(), or clone it there",
        applies="Tensors of inference mode, a subclass or another layout are another kind.",
        cost="clone() copies. torch.no_grad() instead of inference_mode() costs nothing.",
        before=_INFERENCE,
        after=edit_program(_INFERENCE, ("torch.inference_mode()", "torch.no_grad()")),
    ),
    Fix(
        id="functorch",
        kind="recompile",
        keys=("dispatch_keys",),
        title="Compile the transformed function: torch.compile(torch.vmap(f))",
        applies="The tensor came from inside a torch.func transform (vmap, grad).",
        cost="One compiled function more.",
        before=_VMAP,
        after=edit_program(_VMAP, ("torch.vmap(compiled)", "torch.compile(torch.vmap(double))")),
    ),
    Fix(
        id="tensor-twice",
        kind="recompile",
        keys=("tensor_aliasing",),
        title="Pass a tensor object of its own for each of {source}: y.view_as(y) for the second",
        applies="Two inputs, distinct before, are one tensor.",
        cost="None: a view does not copy. Not where the function writes into it.",
        before=_TWICE,
        after=edit_program(_TWICE, _OWN_TENSOR),
    ),
    Fix(
        id="tensors-that-were-one",
        kind="recompile",
        keys=("object_identity",),
        title="Pass {source} and {expected} as two tensor objects at every call: y.view_as(y) for the second",
        applies="Both were one object at the compile and are two now.",
        cost="None: a view does not copy.",
        before=_ONCE,
        after=edit_program(_ONCE, _OWN_TENSOR),
    ),
    Fix(
        id="view-of-a-tensor",
        kind="recompile",
        keys=("unknown",),
        title="Pass x.clone() at every call: the input was a view at the compile and is none now",
        applies="A guard on x._base failed: 'NoneType' has no attribute 'size'.",
        cost="clone() copies. contiguous() changes nothing.",
        before=_SLICES,
        after=edit_program(_SLICES, ("compiled(x)", "compiled(x.clone())")),
    ),
)
