"""Autograd inside compiled code: backward, grad, hooks and autograd.Function."""

from __future__ import annotations

from compileboard.collectors.fixes.breaks.program import program, with_settings
from compileboard.collectors.fixes.fix import Fix

TRACE_AUTOGRAD = "torch._dynamo.config.trace_autograd_ops = True"

BACKWARD = program("""
    import torch


    @torch.compile
    def step(x, weight):
        loss = (x * weight).sum()
        loss.backward()
        return loss.detach()


    weight = torch.ones(4, requires_grad=True)
    result = step(torch.arange(4.0), weight), weight.grad
""")
GRAD = program("""
    import torch


    @torch.compile
    def force(x):
        energy = (x * x).sum()
        return torch.autograd.grad(energy, x)[0]


    result = force(torch.arange(4.0, requires_grad=True))
""")
MODULE_HOOK = program("""
    import torch

    norms = []
    model = torch.nn.Linear(4, 1)
    torch.nn.init.ones_(model.weight)
    model.register_full_backward_hook(lambda module, inputs, outputs: norms.append(outputs[0].norm()))
    compiled = torch.compile(model)

    compiled(torch.ones(2, 4)).sum().backward()
    result = norms
""")
DIRTY = program("""
    import torch


    class AddOne(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.add_(1)

        @staticmethod
        def backward(ctx, gradient):
            return gradient


    @torch.compile
    def step(x):
        return AddOne.apply(x * 2) + 1


    result = step(torch.arange(4.0, requires_grad=True))
""")
FUNCTION_PRINT = program("""
    import torch


    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            print("backward")
            return 2 * ctx.saved_tensors[0] * gradient


    @torch.compile
    def step(x):
        return Square.apply(x) + 1


    result = step(torch.arange(4.0, requires_grad=True))
""")
REQUIRES_GRAD = program("""
    import torch


    @torch.compile
    def perturb(x):
        delta = torch.zeros_like(x).requires_grad_()
        return x + delta


    result = perturb(torch.arange(4.0))
""")
PARAMETER = program("""
    import torch


    @torch.compile
    def scale(x):
        weight = torch.nn.Parameter(x * 2)
        return x * weight


    result = scale(torch.arange(4.0))
""")

LEAF = program("""
    import torch


    @torch.compile
    def perturb(x):
        delta = torch.zeros(4, requires_grad=True)
        return x + delta


    result = perturb(torch.arange(4.0))
""")
LEAF_SET = program("""
    import torch


    @torch.compile
    def perturb(x):
        delta = torch.zeros_like(x)
        delta.requires_grad = True
        return x + delta


    result = perturb(torch.arange(4.0))
""")
RETAIN = program("""
    import torch


    @torch.compile
    def step(x):
        y = x * 2
        y.retain_grad()
        return y.sum(), y


    loss, y = step(torch.ones(4, requires_grad=True))
    loss.backward()
    result = loss
""")

FIXES = (
    Fix(
        id="backward_in_caller",
        kind="graph_break",
        keys=("GB0123",),
        title="Return the loss, and call {expression} in the caller",
        applies="The caller can be changed. Forward and backward are compiled all the same.",
        cost="None.",
        before=BACKWARD,
        after=program("""
            import torch


            @torch.compile
            def step(x, weight):
                return (x * weight).sum()


            weight = torch.ones(4, requires_grad=True)
            loss = step(torch.arange(4.0), weight)
            loss.backward()
            result = loss.detach(), weight.grad
        """),
    ),
    Fix(
        id="backward_traced",
        kind="graph_break",
        keys=("GB0123",),
        title="Trace {expression} into the graph",
        applies="The loss and its leaves are made or passed in here. No hooks, no DDP.",
        cost="A new setting of torch: measure before you rely on it.",
        before=BACKWARD,
        after=with_settings(BACKWARD, TRACE_AUTOGRAD),
        settings=(TRACE_AUTOGRAD,),
        minimum_torch=(2, 11),
    ),
    Fix(
        id="grad_func",
        kind="graph_break",
        keys=("GB9186",),
        title="Use `torch.func.grad` instead of `torch.autograd.grad`",
        applies="The value is a function of its inputs.",
        cost="None. What requires grad outside is not touched.",
        before=GRAD,
        after=program("""
            import torch


            def energy(x):
                return (x * x).sum()


            @torch.compile
            def force(x):
                return torch.func.grad(energy)(x)


            result = force(torch.arange(4.0, requires_grad=True))
        """),
    ),
    Fix(
        id="grad_traced",
        kind="graph_break",
        keys=("GB9186",),
        title="Trace {expression} into the graph",
        applies="The graph of the gradient is made in the compiled function.",
        cost="A new setting of torch: measure before you rely on it.",
        before=GRAD,
        after=with_settings(GRAD, TRACE_AUTOGRAD),
        settings=(TRACE_AUTOGRAD,),
        minimum_torch=(2, 11),
    ),
    Fix(
        id="hook_on_tensor",
        kind="graph_break",
        keys=("GB0083",),
        title="Register a tensor hook on the output, in the caller",
        applies="A module that is compiled has a backward hook.",
        cost="None.",
        before=MODULE_HOOK,
        after=program("""
            import torch

            norms = []
            model = torch.nn.Linear(4, 1)
            torch.nn.init.ones_(model.weight)
            compiled = torch.compile(model)

            output = compiled(torch.ones(2, 4))
            output.register_hook(lambda gradient: norms.append(gradient.norm()))
            output.sum().backward()
            result = norms
        """),
    ),
    Fix(
        id="function_out_of_place",
        kind="graph_break",
        keys=("GB2464", "GB2019"),
        title="Compute out of place, without `ctx.mark_dirty`",
        applies="An autograd.Function changes its input.",
        cost="One copy, which the compiler mostly fuses away.",
        before=DIRTY,
        after=DIRTY.replace("        ctx.mark_dirty(x)\n        return x.add_(1)\n", "        return x + 1\n"),
    ),
    Fix(
        id="function_pure",
        kind="graph_break",
        keys=("GB0059",),
        title="Leave only tensor code in forward and backward of the autograd.Function",
        applies="The break is inside an autograd.Function: both its methods are traced.",
        cost="What they printed or counted moves to the caller.",
        before=FUNCTION_PRINT,
        after=FUNCTION_PRINT.replace('        print("backward")\n', ""),
    ),
    Fix(
        id="requires_grad_in_caller",
        kind="graph_break",
        keys=("GB8985",),
        title="Call `requires_grad_()` in the caller, on an input",
        applies="A tensor made in the compiled function is to have a gradient.",
        cost="Gradients also reach the input: detach what should get none.",
        before=REQUIRES_GRAD,
        after=program("""
            import torch


            @torch.compile
            def perturb(x, delta):
                return x + delta


            x = torch.arange(4.0)
            result = perturb(x, torch.zeros_like(x).requires_grad_())
        """),
    ),
    Fix(
        id="parameter_outside",
        kind="graph_break",
        keys=("GB0264",),
        title="Create the parameter in `__init__` or in the caller",
        applies="`nn.Parameter` is called in compiled code.",
        cost="None.",
        before=PARAMETER,
        after=program("""
            import torch


            @torch.compile
            def scale(x, weight):
                return x * weight


            x = torch.arange(4.0)
            result = scale(x, torch.nn.Parameter(x * 2))
        """),
    ),
    Fix(
        id="leaf_in_caller",
        kind="graph_break",
        keys=("GB0225",),
        title="Create the tensor in the caller, where it may require a gradient",
        applies="A creation function gets `requires_grad=True` in compiled code.",
        cost="None.",
        before=LEAF,
        after=program("""
            import torch


            @torch.compile
            def perturb(x, delta):
                return x + delta


            result = perturb(torch.arange(4.0), torch.zeros(4, requires_grad=True))
        """),
    ),
    Fix(
        id="requires_grad_set_in_caller",
        kind="graph_break",
        keys=("GB0206",),
        title="Set `requires_grad` in the caller, on an input",
        applies="`requires_grad` is assigned in compiled code.",
        cost="None.",
        before=LEAF_SET,
        after=program("""
            import torch


            @torch.compile
            def perturb(x, delta):
                return x + delta


            x = torch.arange(4.0)
            delta = torch.zeros_like(x)
            delta.requires_grad = True
            result = perturb(x, delta)
        """),
    ),
    Fix(
        id="retain_grad_in_caller",
        kind="graph_break",
        keys=("GB0108",),
        title="Return the tensor, and call `retain_grad()` between two compiled parts",
        applies="`retain_grad()` is called in compiled code, which runs eagerly until then.",
        cost="Two graphs instead of one.",
        before=RETAIN,
        after=program("""
            import torch


            @torch.compile
            def scale(x):
                return x * 2


            @torch.compile
            def total(y):
                return y.sum()


            y = scale(torch.ones(4, requires_grad=True))
            y.retain_grad()
            loss = total(y)
            loss.backward()
            result = loss
        """),
    ),
)
