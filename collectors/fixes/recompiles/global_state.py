"""Recompiles because of torch's global settings, or of a graph break before."""

from __future__ import annotations

from compileboard.collectors.fixes.fix import Fix, edit_program

_GRAD_MODES = """\
import torch

compiled, result = torch.compile(lambda x: x * 2), []
for enabled in (True, False):
    with torch.set_grad_enabled(enabled):
        result.append(compiled(torch.ones(3)))
"""
_AUTOCAST = """\
import torch

compiled, x, result = torch.compile(lambda x: x @ x), torch.ones(2, 2), []
for enabled in (True, False):
    with torch.autocast("cpu", enabled=enabled):
        result.append(compiled(x).float())
"""


def _change_late(statement: str) -> tuple[str, str]:
    late = f"""\
import torch

compiled = torch.compile(lambda x: x * 2)
result = [compiled(torch.ones(3, dtype=torch.float32))]
{statement}
result.append(compiled(torch.ones(3, dtype=torch.float32)))
"""
    return late, edit_program(late, (f"{statement}\n", ""), ("import torch\n\n", f"import torch\n\n{statement}\n"))


_DETERMINISTIC = _change_late("torch.use_deterministic_algorithms(True)")
_DEFAULTS = _change_late("torch.set_default_dtype(torch.float64)")
_BROKEN = """\
import torch

def model(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y + 1

compiled, result = torch.compile(model), []
for row_count in (4, 5, 6):
    x = torch.ones(row_count, 3)
    result.append(compiled(x))
"""

STATE_FIXES = (
    Fix(
        id="grad-mode",
        kind="recompile",
        keys=("grad_mode",),
        title="Nothing to fix: one compile with gradients and one without. For one, call under torch.no_grad() always",
        applies="Training and inference share the compiled function. no_grad inside it changes nothing.",
        cost="None.",
        before=_GRAD_MODES,
        after=edit_program(_GRAD_MODES, ("torch.set_grad_enabled(enabled)", "torch.no_grad()")),
        is_needless=True,
    ),
    Fix(
        id="autocast",
        kind="recompile",
        keys=("autocast",),
        title="Enter torch.autocast with one device, dtype and state around every call",
        applies="Autocast was on, off or of another dtype in another call.",
        cost="Calls that ran in full precision lose it.",
        before=_AUTOCAST,
        after=edit_program(_AUTOCAST, ("enabled=enabled", "enabled=True")),
    ),
    Fix(
        id="deterministic",
        kind="recompile",
        keys=("deterministic",),
        title="Call torch.use_deterministic_algorithms once, before the first compiled call",
        applies="The setting changed after the compile.",
        cost="None.",
        before=_DETERMINISTIC[0],
        after=_DETERMINISTIC[1],
    ),
    Fix(
        id="global-setting",
        kind="recompile",
        keys=("global_state",),
        title="Set torch's {symbol} once, before the first compiled call",
        applies="Default dtype or device, threads, TF32 or modes changed after the compile. Libraries change them too.",
        cost="None.",
        before=_DEFAULTS[0],
        after=_DEFAULTS[1],
    ),
    Fix(
        id="value-after-a-break",
        kind="recompile",
        keys=("tensor_size",),
        title="Remove the graph break before this code",
        applies="The value was made after a graph break: no caller can change it.",
        cost="That of the graph break's fix.",
        before=_BROKEN,
        after=edit_program(
            _BROKEN,
            ("    torch._dynamo.graph_break()\n", ""),
            ("    result.append(", "    torch._dynamo.maybe_mark_dynamic(x, 0)\n    result.append("),
        ),
    ),
    Fix(
        id="size-after-a-break",
        kind="recompile",
        keys=("tensor_size",),
        title="Or compile with dynamic=True, which keeps the break",
        applies="A size differs after a graph break that cannot be removed.",
        cost="All sizes and numbers become dynamic, which may be slower. The break stays.",
        before=_BROKEN,
        after=edit_program(_BROKEN, ("torch.compile(model)", "torch.compile(model, dynamic=True)")),
        settings=("torch._dynamo.config.assume_static_by_default = False",),
    ),
)
