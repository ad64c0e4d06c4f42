"""Operators whose output's size depends on the data."""

from __future__ import annotations

from compileboard.collectors.fixes.breaks.program import program, with_settings
from compileboard.collectors.fixes.fix import Fix

CAPTURE_SHAPES = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"

MASK = program("""
    import torch


    @torch.compile
    def masked_loss(x, mask):
        return x[mask].sum() / mask.sum()


    x = torch.arange(4.0)
    result = masked_loss(x, x > 1)
""")
ASSIGNED = program("""
    import torch


    @torch.compile
    def scores(x, mask):
        known = x[mask]
        return known * 2


    x = torch.arange(4.0)
    result = scores(x, x > 1)
""")
NONZERO = program("""
    import torch


    @torch.compile
    def route(x, chosen):
        rows = torch.nonzero(chosen).squeeze(-1)
        return x[rows].sum(0)


    result = route(torch.ones(4, 2), torch.tensor([1, 0, 1, 0]))
""")
UNIQUE = program("""
    import torch


    @torch.compile
    def vocabulary(x, tokens):
        known = torch.unique(tokens)
        return x[known].sum(0)


    result = vocabulary(torch.ones(4, 2), torch.tensor([1, 3, 1]))
""")
REPEAT = program("""
    import torch


    @torch.compile
    def expand(x, counts):
        return torch.repeat_interleave(x, counts, dim=0)


    result = expand(torch.ones(3, 2), torch.tensor([1, 2, 3]))
""")
ONE_HOT = program("""
    import torch
    from torch.nn.functional import one_hot


    @torch.compile
    def encode(labels):
        return one_hot(labels).float()


    result = encode(torch.arange(4))
""")

FIXES = (
    Fix(
        id="mask_where",
        kind="graph_break",
        keys=("GB0036",),
        title="Keep the full shape: `torch.where({mask}, {tensor}, 0)`",
        applies="The masked tensor is reduced, or may keep its full length.",
        cost="All elements are computed; the fill must be neutral for what follows.",
        before=MASK,
        after=MASK.replace("x[mask].sum()", "torch.where(mask, x, 0.0).sum()"),
    ),
    Fix(
        id="nonzero_static",
        kind="graph_break",
        keys=("GB0036",),
        title="Use `torch.nonzero_static({tensor}, size=…)`",
        applies="The number of hits has a bound.",
        cost="Hits above `size` are cut; fewer are filled up.",
        before=NONZERO,
        after=NONZERO.replace("torch.nonzero(chosen)", "torch.nonzero_static(chosen, size=2)"),
    ),
    Fix(
        id="repeat_output_size",
        kind="graph_break",
        keys=("GB0036",),
        title="Pass `output_size=` to `repeat_interleave`",
        applies="The caller knows the total of the counts.",
        cost="None. A wrong size is an error.",
        before=REPEAT,
        after=REPEAT.replace("dim=0)", "dim=0, output_size=6)"),
    ),
    Fix(
        id="unique_in_caller",
        kind="graph_break",
        keys=("GB0036",),
        title="Call {expression} in the caller and pass its result in",
        applies="The input of the call is known before the compiled function.",
        cost="Sizes that vary recompile once, then are dynamic.",
        before=UNIQUE,
        after=program("""
            import torch


            @torch.compile
            def vocabulary(x, known):
                return x[known].sum(0)


            result = vocabulary(torch.ones(4, 2), torch.unique(torch.tensor([1, 3, 1])))
        """),
    ),
    Fix(
        id="shape_captured",
        kind="graph_break",
        keys=("GB0036",),
        title="Capture the size of {expression} as a symbolic number",
        applies="The shorter tensor is needed, and no `if` depends on its size.",
        cost="The GPU is still waited for, and CUDA graphs skip the graph. A branch on the size breaks the graph.",
        before=ASSIGNED,
        after=with_settings(ASSIGNED, CAPTURE_SHAPES),
        settings=(CAPTURE_SHAPES,),
    ),
    Fix(
        id="one_hot_classes",
        kind="graph_break",
        keys=("GB0246",),
        title="Pass `num_classes=` to `one_hot`",
        applies="The number of classes is a constant of the model.",
        cost="None.",
        before=ONE_HOT,
        after=ONE_HOT.replace("one_hot(labels)", "one_hot(labels, num_classes=4)"),
    ),
)
