"""Python control flow on a tensor's values."""

from __future__ import annotations

from compileboard.collectors.fixes.breaks.program import program
from compileboard.collectors.fixes.fix import Fix

IF = program("""
    import torch


    @torch.compile
    def activate(x):
        if x.sum() > 0:
            return x + 1
        return x - 1


    result = activate(torch.arange(4.0))
""")
WHILE = program("""
    import torch


    @torch.compile
    def grow(x):
        while x.sum() < 100:
            x = x * 2
        return x


    result = grow(torch.arange(4.0))
""")
ASSERT = program("""
    import torch


    @torch.compile
    def root(x):
        assert (x >= 0).all(), f"negative: {x.min()}"
        return x.sqrt()


    result = root(torch.arange(4.0))
""")
ALLCLOSE = program("""
    import torch


    @torch.compile
    def relax(x, previous):
        if torch.allclose(x, previous):
            return x
        return (x + previous) / 2


    result = relax(torch.arange(4.0), torch.ones(4))
""")
RANGE = program("""
    import torch


    @torch.compile
    def power(x, count):
        for _ in range(count):
            x = x * 2
        return x


    result = power(torch.arange(4.0), torch.tensor(3))
""")
SORTED = program("""
    import torch


    @torch.compile
    def spread(a, b, c):
        losses = sorted([a.sum(), b.sum(), c.sum()])
        return losses[2] - losses[0]


    result = spread(torch.ones(2), torch.zeros(2), torch.ones(4))
""")
TRY = program("""
    import torch


    @torch.compile
    def flatten(x):
        try:
            y = x.view(7)
        except RuntimeError:
            y = x.flatten()
        return y + 1


    result = flatten(torch.ones(2, 3))
""")

CHECK = program("""
    import torch


    @torch.compile
    def root(x):
        if torch.isnan(x).any():
            raise ValueError("x has NaN")
        return x.sqrt()


    result = root(torch.arange(4.0))
""")
RAISE = program("""
    import torch


    @torch.compile
    def pair(x):
        if x.shape[0] % 2:
            raise ValueError("odd length")
        return x.view(-1, 2)


    try:
        result = pair(torch.arange(3.0))
    except ValueError:
        result = None
""")

FIXES = (
    Fix(
        id="if_where",
        kind="graph_break",
        keys=("GB0170",),
        title="Choose with `torch.where({condition}, …, …)`",
        applies="Both sides are tensors of one shape and cheap to compute.",
        cost="`torch.where` computes both sides; a NaN of the unused side can reach the gradient.",
        before=IF,
        after=program("""
            import torch


            @torch.compile
            def activate(x):
                return torch.where(x.sum() > 0, x + 1, x - 1)


            result = activate(torch.arange(4.0))
        """),
    ),
    Fix(
        id="if_cond",
        kind="graph_break",
        keys=("GB0170",),
        title="Branch with `torch.cond({condition}, …, …)`",
        applies="The sides are expensive, have equal shapes and dtypes, and no side effects.",
        cost="One kernel boundary. Only one side runs.",
        before=IF,
        after=program("""
            import torch


            @torch.compile
            def activate(x):
                return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


            result = activate(torch.arange(4.0))
        """),
    ),
    Fix(
        id="if_in_caller",
        kind="graph_break",
        keys=("GB0170",),
        title="Decide {condition} in the caller and compile the two sides",
        applies="The sides differ in shape or have side effects.",
        cost="The GPU is waited for at the decision, as before.",
        before=IF,
        after=program("""
            import torch


            @torch.compile
            def activate(x, positive):
                if positive:
                    return x + 1
                return x - 1


            x = torch.arange(4.0)
            result = activate(x, bool(x.sum() > 0))
        """),
    ),
    Fix(
        id="while_in_caller",
        kind="graph_break",
        keys=("GB0170",),
        title="Compile the loop's body, and loop in the caller",
        applies="A `while` tests a tensor.",
        cost="Each pass returns to Python and waits for the GPU.",
        before=WHILE,
        after=program("""
            import torch


            @torch.compile
            def double(x):
                return x * 2


            def grow(x):
                while x.sum() < 100:
                    x = double(x)
                return x


            result = grow(torch.arange(4.0))
        """),
    ),
    Fix(
        id="while_fixed_steps",
        kind="graph_break",
        keys=("GB0170",),
        title="Run a fixed number of steps with `torch.where`",
        applies="The number of passes has a small bound.",
        cost="All steps are computed, also those that change nothing.",
        before=WHILE,
        after=program("""
            import torch


            @torch.compile
            def grow(x):
                for _ in range(8):
                    x = torch.where(x.sum() < 100, x * 2, x)
                return x


            result = grow(torch.arange(4.0))
        """),
    ),
    Fix(
        id="assert_constant_message",
        kind="graph_break",
        keys=("GB0170",),
        title="Give the assert a constant message",
        applies="The message of the assert is made of values.",
        cost="The error comes without the values; on a GPU it is a device-side assert.",
        before=ASSERT,
        after=ASSERT.replace('f"negative: {x.min()}"', '"negative"'),
    ),
    Fix(
        id="allclose_where",
        kind="graph_break",
        keys=("GB0033",),
        title="Compare with `torch.isclose(…).all()`, and choose with `torch.where`",
        applies="`torch.allclose` or `torch.equal` steers an `if`. No setting traces them.",
        cost="`torch.where` computes both sides.",
        before=ALLCLOSE,
        after=program("""
            import torch


            @torch.compile
            def relax(x, previous):
                close = torch.isclose(x, previous).all()
                return torch.where(close, x, (x + previous) / 2)


            result = relax(torch.arange(4.0), torch.ones(4))
        """),
    ),
    Fix(
        id="range_in_caller",
        kind="graph_break",
        keys=("GB0059",),
        title="Compile the loop's body, and loop over {expression} in the caller",
        applies="A `for` counts to a tensor's value.",
        cost="Each pass returns to Python.",
        before=RANGE,
        after=program("""
            import torch


            @torch.compile
            def double(x):
                return x * 2


            def power(x, count):
                for _ in range(count):
                    x = double(x)
                return x


            result = power(torch.arange(4.0), torch.tensor(3))
        """),
    ),
    Fix(
        id="sorted_stack",
        kind="graph_break",
        keys=("GB0207",),
        title="Stack the tensors and use `torch.sort`, `torch.min` or `torch.topk`",
        applies="Python compares tensors: sorted(), min(), max().",
        cost="None: the GPU is no longer waited for.",
        before=SORTED,
        after=program("""
            import torch


            @torch.compile
            def spread(a, b, c):
                losses = torch.stack([a.sum(), b.sum(), c.sum()]).sort().values
                return losses[2] - losses[0]


            result = spread(torch.ones(2), torch.zeros(2), torch.ones(4))
        """),
    ),
    Fix(
        id="try_condition",
        kind="graph_break",
        keys=("GB4315",),
        title="Test the condition instead of catching the operator's error",
        applies="An operator raises inside `try`. The compiled program raises, and the `except` is not reached.",
        cost="None.",
        before=TRY,
        after=TRY.replace(
            "    try:\n        y = x.view(7)\n    except RuntimeError:\n        y = x.flatten()\n",
            "    if x.numel() == 7:\n        y = x.view(7)\n    else:\n        y = x.flatten()\n",
        ),
    ),
    Fix(
        id="check_asserted",
        kind="graph_break",
        keys=("GB0170",),
        title="Check with `torch._assert_async(…)` instead of `if … raise`",
        applies="The `if` only raises.",
        cost="The error is a RuntimeError; on a GPU a device-side assert.",
        before=CHECK,
        after=CHECK.replace(
            '    if torch.isnan(x).any():\n        raise ValueError("x has NaN")\n',
            '    torch._assert_async(~torch.isnan(x).any(), "x has NaN")\n',
        ),
    ),
    Fix(
        id="exception_leaves",
        kind="graph_break",
        keys=("GB0088",),
        title="Nothing to fix: the exception leaves the compiled function",
        applies="An exception is raised in compiled code and not caught there. Check the arguments in the caller.",
        cost="A call that raises runs eagerly.",
        before=RAISE,
        after=None,
        is_needless=True,
    ),
)
