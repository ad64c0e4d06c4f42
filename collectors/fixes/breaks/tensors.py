"""Tensor methods and kinds of tensors that Dynamo does not trace."""

from __future__ import annotations

from compileboard.collectors.fixes.breaks.program import program
from compileboard.collectors.fixes.fix import Fix

DEEPCOPY = program("""
    import copy

    import torch


    @torch.compile
    def snapshot(x):
        y = x * 2
        before = copy.deepcopy(y)
        return before + y


    result = snapshot(torch.arange(4.0))
""")
DATA = program("""
    import torch


    @torch.compile
    def update(x):
        y = x * 2
        y.data = x * 3
        return y + 1


    result = update(torch.arange(4.0))
""")
RESIZE = program("""
    import torch


    @torch.compile
    def shorten(x):
        y = x * 2
        y.resize_(2)
        return y + 1


    result = shorten(torch.arange(4.0))
""")
RANDOM = program("""
    import torch


    @torch.compile
    def noise(x):
        y = torch.empty_like(x).random_(10)
        return x + y * 0


    result = noise(torch.arange(4.0))
""")
SPARSE = program("""
    import torch


    @torch.compile
    def propagate(adjacency, x):
        return torch.sparse.mm(adjacency, x) + 1


    result = propagate(torch.eye(4).to_sparse(), torch.ones(4, 2))
""")
REPR = program("""
    import torch


    @torch.compile
    def describe(x):
        y = x * 2
        text = repr(y)
        return y + 1, text


    result = describe(torch.arange(4.0))
""")
INFERENCE = program("""
    import torch


    @torch.compile
    def step(x):
        if torch.is_inference_mode_enabled():
            return x
        return x * 2


    result = step(torch.arange(4.0))
""")

OUT = program("""
    import torch


    @torch.compile
    def shift(x, out):
        torch.add(x, 1, out=out)
        return out * 2


    result = shift(torch.arange(4.0), torch.empty(0))
""")
STR = program("""
    import torch


    @torch.compile
    def describe(x):
        y = x * 2
        return y + 1, str(y)


    result = describe(torch.arange(4.0))
""")

FIXES = (
    Fix(
        id="deepcopy_clone",
        kind="graph_break",
        keys=("GB4198",),
        title="Copy {expression} with `.detach().clone()`",
        applies="`copy.deepcopy` gets a tensor.",
        cost="None: the copy stays in the graph.",
        before=DEEPCOPY,
        after=DEEPCOPY.replace("import copy\n\n", "").replace("copy.deepcopy(y)", "y.detach().clone()"),
    ),
    Fix(
        id="data_copied",
        kind="graph_break",
        keys=("GB0056",),
        title="Write into the tensor with `copy_` under `torch.no_grad()`",
        applies="`.data` of a tensor made in the compiled function is replaced.",
        cost="The tensor keeps its shape and dtype.",
        before=DATA,
        after=DATA.replace("    y.data = x * 3\n", "    with torch.no_grad():\n        y.copy_(x * 3)\n"),
    ),
    Fix(
        id="resize_sliced",
        kind="graph_break",
        keys=("GB0126",),
        title="Slice, view or allocate instead of `resize_()`",
        applies="`resize_()` is called in compiled code.",
        cost="None.",
        before=RESIZE,
        after=RESIZE.replace("    y.resize_(2)\n", "    y = y[:2]\n"),
    ),
    Fix(
        id="random_out_of_place",
        kind="graph_break",
        keys=("GB0107",),
        title="Use `torch.randint_like` instead of `random_()`",
        applies="`random_()` is called in compiled code.",
        cost="Other random numbers than eager mode's.",
        before=RANDOM,
        after=RANDOM.replace("torch.empty_like(x).random_(10)", "torch.randint_like(x, 10)"),
    ),
    Fix(
        id="sparse_in_caller",
        kind="graph_break",
        keys=("GB0015",),
        title="Compute with the sparse tensor in the caller, and pass the dense result in",
        applies="A sparse tensor reaches the compiled function, which runs eagerly until then.",
        cost="The sparse part is not compiled.",
        before=SPARSE,
        after=program("""
            import torch


            @torch.compile
            def finish(y):
                return y + 1


            result = finish(torch.sparse.mm(torch.eye(4).to_sparse(), torch.ones(4, 2)))
        """),
    ),
    Fix(
        id="repr_in_caller",
        kind="graph_break",
        keys=("GB0569",),
        title="Return the tensor, and format it in the caller",
        applies="A tensor becomes text in compiled code: repr(), str().",
        cost="None.",
        before=REPR,
        after=program("""
            import torch


            @torch.compile
            def describe(x):
                y = x * 2
                return y + 1, y


            y, formatted = describe(torch.arange(4.0))
            result = y, repr(formatted)
        """),
    ),
    Fix(
        id="inference_flag",
        kind="graph_break",
        keys=("GB0046",),
        title="Ask for the inference mode in the caller, and pass a bool in",
        applies="`torch.is_inference_mode_enabled()` is called in compiled code.",
        cost="One compile a mode. `torch.is_grad_enabled()` is traced, where that is enough.",
        before=INFERENCE,
        after=program("""
            import torch


            @torch.compile
            def step(x, inference):
                if inference:
                    return x
                return x * 2


            result = step(torch.arange(4.0), torch.is_inference_mode_enabled())
        """),
    ),
    Fix(
        id="out_left_out",
        kind="graph_break",
        keys=("GB0247",),
        title="Leave `out=` out, or pass a tensor of the result's shape",
        applies="The tensor of `out=` has another shape than the result.",
        cost="None: the compiler plans memory itself.",
        before=OUT,
        after=program("""
            import torch


            @torch.compile
            def shift(x):
                return torch.add(x, 1) * 2


            result = shift(torch.arange(4.0))
        """),
    ),
    Fix(
        id="str_in_caller",
        kind="graph_break",
        keys=("GB0059",),
        title="Return the tensor, and call {expression} in the caller",
        applies="A tensor becomes text in compiled code.",
        cost="None.",
        before=STR,
        after=program("""
            import torch


            @torch.compile
            def describe(x):
                y = x * 2
                return y + 1, y


            y, described = describe(torch.arange(4.0))
            result = y, str(described)
        """),
    ),
)
