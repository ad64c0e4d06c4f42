"""Code that is kept out of the graph: disabled functions, explicit breaks, classes, scripted and recurrent modules."""

from __future__ import annotations

from compileboard.collectors.fixes.breaks.program import program, with_settings
from compileboard.collectors.fixes.fix import Fix

ALLOW_RNN = "torch._dynamo.config.allow_rnn = True"
TRACE_CLASSES = "torch._dynamo.config.enable_trace_load_build_class = True"

DISABLED = program("""
    import torch


    @torch.compiler.disable
    def attend(x):
        return x * 5


    @torch.compile
    def block(x):
        return attend(x * 2) + 1


    result = block(torch.arange(4.0))
""")
EXPLICIT = program("""
    import torch


    @torch.compile
    def step(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1


    result = step(torch.arange(4.0))
""")
LOOP = program("""
    import torch


    @torch.compile
    def relax(x, steps):
        for _ in range(steps):
            x = x * 0.5
            torch._dynamo.graph_break()
        return x


    result = relax(torch.arange(4.0), 3)
""")
CLASS = program("""
    import torch


    @torch.compile
    def step(x):
        class Options:
            factor = 3

        return x * Options.factor


    result = step(torch.arange(4.0))
""")
RECURRENT = program("""
    import torch


    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.LSTM(4, 2)

        def forward(self, x):
            return self.rnn(x)[0].sum(0) + 1


    torch.manual_seed(0)
    model = Tagger()
    result = torch.compile(model)(torch.ones(3, 1, 4))
""")
SCRIPTED = program("""
    import torch

    activation = torch.jit.script(torch.nn.ReLU())


    @torch.compile
    def step(x):
        return activation(x) + 1


    result = step(torch.arange(4.0))
""")

FIXES = (
    Fix(
        id="disable_removed",
        kind="graph_break",
        keys=("GB0098",),
        title="Remove `torch.compiler.disable` from {function}",
        applies="The reason for the decorator is gone.",
        cost="The function is traced: what it hid may break the graph next.",
        before=DISABLED,
        after=DISABLED.replace("@torch.compiler.disable\n", ""),
    ),
    Fix(
        id="disable_nonstrict",
        kind="graph_break",
        keys=("GB0098",),
        title="Mark {function} with `torch._dynamo.nonstrict_trace` instead",
        applies="The function is pure tensor code that only Dynamo cannot read.",
        cost="Side effects and Python values are compiled in at the first trace.",
        before=DISABLED,
        after=DISABLED.replace("@torch.compiler.disable", "@torch._dynamo.nonstrict_trace"),
        minimum_torch=(2, 7),
    ),
    Fix(
        id="graph_break_removed",
        kind="graph_break",
        keys=("GB0025",),
        title="Remove the call of `torch._dynamo.graph_break()`",
        applies="The break was put in by hand.",
        cost="None.",
        before=EXPLICIT,
        after=EXPLICIT.replace("    torch._dynamo.graph_break()\n", ""),
    ),
    Fix(
        id="loop_body",
        kind="graph_break",
        keys=("GB0025",),
        title="Compile the loop's body, and loop in the caller",
        applies="The break is in a loop: the whole function runs eagerly.",
        cost="Each pass returns to Python.",
        before=LOOP,
        after=program("""
            import torch


            @torch.compile
            def halve(x):
                return x * 0.5


            def relax(x, steps):
                for _ in range(steps):
                    x = halve(x)
                return x


            result = relax(torch.arange(4.0), 3)
        """),
    ),
    Fix(
        id="class_outside",
        kind="graph_break",
        keys=("GB8977",),
        title="Move the class to module level",
        applies="A class, dataclass, NamedTuple or Enum is defined in compiled code.",
        cost="None.",
        before=CLASS,
        after=program("""
            import torch


            class Options:
                factor = 3


            @torch.compile
            def step(x):
                return x * Options.factor


            result = step(torch.arange(4.0))
        """),
    ),
    Fix(
        id="class_traced",
        kind="graph_break",
        keys=("GB8977",),
        title="Let Dynamo trace class definitions",
        applies="The class has no metaclass and no decorator.",
        cost="A new setting of torch: measure before you rely on it.",
        before=CLASS,
        after=with_settings(CLASS, TRACE_CLASSES),
        settings=(TRACE_CLASSES,),
        minimum_torch=(2, 13),
    ),
    Fix(
        id="rnn_outside",
        kind="graph_break",
        keys=("GB0014",),
        title="Leave {expression} uncompiled, and compile what follows",
        applies="The model has an RNN, GRU or LSTM. Its cuDNN kernels are fast already.",
        cost="None: the recurrent layer ran uncompiled before too.",
        before=RECURRENT,
        after=program("""
            import torch


            class Head(torch.nn.Module):
                def forward(self, states):
                    return states.sum(0) + 1


            torch.manual_seed(0)
            rnn = torch.nn.LSTM(4, 2)
            states, _ = rnn(torch.ones(3, 1, 4))
            result = torch.compile(Head())(states)
        """),
    ),
    Fix(
        id="rnn_traced",
        kind="graph_break",
        keys=("GB0014",),
        title="Trace the recurrent layer into the graph",
        applies="The sequence length is fixed and short.",
        cost="Experimental. On a CPU the loop over time is unrolled: long compiles, one a length.",
        before=RECURRENT,
        after=with_settings(RECURRENT, ALLOW_RNN),
        settings=(ALLOW_RNN,),
        minimum_torch=(2, 6),
    ),
    Fix(
        id="script_original",
        kind="graph_break",
        keys=("GB4695",),
        title="Compile the original module instead of its `torch.jit.script` version",
        applies="A scripted or frozen module is called in compiled code.",
        cost="None.",
        before=SCRIPTED,
        after=SCRIPTED.replace("torch.jit.script(torch.nn.ReLU())", "torch.nn.ReLU()"),
    ),
)
