"""Tensors read as Python numbers: `.item()`, `float()`, `.tolist()`."""

from __future__ import annotations

from compileboard.collectors.fixes.breaks.program import program, with_settings
from compileboard.collectors.fixes.fix import Fix

CAPTURE_SCALARS = "torch._dynamo.config.capture_scalar_outputs = True"

ITEM = program("""
    import torch


    @torch.compile
    def normalise(x):
        scale = x.max().item()
        return x / scale


    result = normalise(torch.arange(1.0, 5.0))
""")
ITEM_RETURNED = program("""
    import torch


    @torch.compile
    def step(x):
        loss = (x * x).mean()
        return loss * 2, loss.item()


    result = step(torch.arange(4.0))
""")
ITEM_SIZE = program("""
    import torch


    @torch.compile
    def positions(lengths):
        width = int(lengths.max())
        return torch.arange(width) + lengths.sum()


    lengths = torch.tensor([2, 5, 3])
    result = positions(lengths)
""")
ITEM_BRANCH = program("""
    import torch


    @torch.compile
    def clip(x):
        norm = x.norm().item()
        return x / norm if norm > 1.0 else x


    result = clip(torch.arange(4.0))
""")
SLICE = program("""
    import torch


    @torch.compile
    def total(x, count):
        return x[:count].sum()


    result = total(torch.arange(8.0), torch.tensor(3))
""")
TOLIST_INTEGERS = program("""
    import torch


    @torch.compile
    def shift(x, offsets):
        first = offsets.tolist()[0]
        return x + first


    result = shift(torch.arange(4.0), torch.tensor([2, 3]))
""")
TOLIST_FLOATS = program("""
    import torch


    @torch.compile
    def shift(x, offsets):
        first = offsets.tolist()[0]
        return x + first


    result = shift(torch.arange(4.0), torch.tensor([0.5, 1.5]))
""")

FIXES = (
    Fix(
        id="item_kept_a_tensor",
        kind="graph_break",
        keys=("GB0124",),
        title="Keep {expression} a tensor: `.detach()` instead of `{call}`",
        applies="The number is only computed with: added, multiplied, compared by `torch.where`.",
        cost="None: the GPU is no longer waited for. `.detach()` leaves gradients as they were.",
        before=ITEM,
        after=ITEM.replace(".item()", ".detach()"),
    ),
    Fix(
        id="item_in_caller",
        kind="graph_break",
        keys=("GB0124",),
        title="Return {expression}, and read the number in the caller",
        applies="The number is returned or logged.",
        cost="None: the GPU is waited for outside compiled code.",
        before=ITEM_RETURNED,
        after=program("""
            import torch


            @torch.compile
            def step(x):
                loss = (x * x).mean()
                return loss * 2, loss


            y, loss = step(torch.arange(4.0))
            result = y, loss.item()
        """),
    ),
    Fix(
        id="item_branch",
        kind="graph_break",
        keys=("GB0124",),
        title="Keep {expression} a tensor, and choose with `torch.where`",
        applies="An `if` depends on the number. `capture_scalar_outputs` only moves the break to the `if`.",
        cost="`torch.where` computes both sides.",
        before=ITEM_BRANCH,
        after=program("""
            import torch


            @torch.compile
            def clip(x):
                norm = x.norm()
                return torch.where(norm > 1.0, x / norm, x)


            result = clip(torch.arange(4.0))
        """),
    ),
    Fix(
        id="item_size_in_caller",
        kind="graph_break",
        keys=("GB0124",),
        title="Read {expression} in the caller and pass the number in",
        applies="The number is a size, a range or a slice.",
        cost="Sizes that vary recompile once, then are dynamic.",
        before=ITEM_SIZE,
        after=program("""
            import torch


            @torch.compile
            def positions(lengths, width):
                return torch.arange(width) + lengths.sum()


            lengths = torch.tensor([2, 5, 3])
            result = positions(lengths, int(lengths.max()))
        """),
    ),
    Fix(
        id="item_captured",
        kind="graph_break",
        keys=("GB0124",),
        title="Capture {expression} as a symbolic number",
        applies="The code needs a Python number, and no `if` or `while` depends on it.",
        cost="The GPU is still waited for, and CUDA graphs skip the graph. A branch on the number breaks the graph.",
        before=ITEM_SIZE,
        after=with_settings(ITEM_SIZE, CAPTURE_SCALARS),
        settings=(CAPTURE_SCALARS,),
    ),
    Fix(
        id="slice_masked",
        kind="graph_break",
        keys=("GB0124",),
        title="Mask instead of slicing up to {expression}",
        applies="The slice is reduced, or may keep its full length.",
        cost="All elements are computed.",
        before=SLICE,
        after=program("""
            import torch


            @torch.compile
            def total(x, count):
                inside = torch.arange(len(x), device=x.device) < count
                return torch.where(inside, x, 0.0).sum()


            result = total(torch.arange(8.0), torch.tensor(3))
        """),
    ),
    Fix(
        id="tolist_indexed",
        kind="graph_break",
        keys=("GB0033", "GB0109"),
        title="Index {expression} instead of its list",
        applies="Single elements are used.",
        cost="None: the GPU is no longer waited for.",
        before=TOLIST_FLOATS,
        after=TOLIST_FLOATS.replace("offsets.tolist()[0]", "offsets[0]"),
    ),
    Fix(
        id="tolist_captured",
        kind="graph_break",
        keys=("GB0033",),
        title="Capture the integers of {expression} as symbolic numbers",
        applies="The tensor is of integers and short. No setting captures floats.",
        cost="One symbol an element. The GPU is still waited for.",
        before=TOLIST_INTEGERS,
        after=with_settings(TOLIST_INTEGERS, CAPTURE_SCALARS),
        settings=(CAPTURE_SCALARS,),
    ),
    Fix(
        id="tolist_in_caller",
        kind="graph_break",
        keys=("GB0033", "GB0109"),
        title="Call `.tolist()` on {expression} in the caller and pass the numbers in",
        applies="The list steers the code: sizes, loops, keys.",
        cost="Numbers that vary may recompile.",
        before=TOLIST_INTEGERS,
        after=program("""
            import torch


            @torch.compile
            def shift(x, offsets):
                first = offsets[0]
                return x + first


            result = shift(torch.arange(4.0), torch.tensor([2, 3]).tolist())
        """),
    ),
)
