"""NumPy in compiled code: traced to torch where Dynamo knows the function."""

from __future__ import annotations

from compileboard.collectors.fixes.breaks.program import program
from compileboard.collectors.fixes.fix import Fix

INTERPOLATE = program("""
    import numpy as np
    import torch


    @torch.compile
    def curve(x):
        y = np.interp(x.numpy(), [0.0, 10.0], [0.0, 20.0])
        return torch.from_numpy(y) + 1


    result = curve(torch.arange(4.0))
""")
RANDOM = program("""
    import numpy as np
    import torch


    @torch.compile
    def jitter(x):
        noise = np.random.rand()
        return x + noise * 0


    result = jitter(torch.arange(4.0))
""")

FIXES = (
    Fix(
        id="numpy_as_torch",
        kind="graph_break",
        keys=("GB0294",),
        title="Write {expression} with torch",
        applies="torch has the function, or a few operators make it.",
        cost="Results differ by rounding. It runs on the GPU and fuses.",
        before=INTERPOLATE,
        after=program("""
            import torch


            @torch.compile
            def curve(x):
                y = torch.clamp(x.double() / 10.0, 0.0, 1.0) * 20.0
                return y + 1


            result = curve(torch.arange(4.0))
        """),
    ),
    Fix(
        id="numpy_custom_op",
        kind="graph_break",
        keys=("GB0294",),
        title="Wrap {expression} as a custom operator",
        applies="torch has no such function, and it takes and returns tensors.",
        cost="Nothing fuses into the operator, and a GPU tensor is copied to the host as before.",
        before=INTERPOLATE,
        after=program("""
            import numpy as np
            import torch


            @torch.library.custom_op("curves::interpolate", mutates_args=())
            def interpolate(x: torch.Tensor) -> torch.Tensor:
                return torch.from_numpy(np.interp(x.numpy(), [0.0, 10.0], [0.0, 20.0]))


            @interpolate.register_fake
            def _(x):
                return x.new_empty(x.shape, dtype=torch.float64)


            @torch.compile
            def curve(x):
                return interpolate(x) + 1


            result = curve(torch.arange(4.0))
        """),
    ),
    Fix(
        id="numpy_random_torch",
        kind="graph_break",
        keys=("GB0033",),
        title="Draw with `torch.rand` or `torch.randn` instead of {expression}",
        applies="numpy.random is called in compiled code. No setting traces it.",
        cost="Other random numbers: seed torch.",
        before=RANDOM,
        after=program("""
            import torch


            @torch.compile
            def jitter(x):
                noise = torch.rand(())
                return x + noise * 0


            result = jitter(torch.arange(4.0))
        """),
    ),
)
