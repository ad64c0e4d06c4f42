"""Programs whose compiled code raises while it runs, one a word: caught, or (after `end`) left to
end the program.
"""

import multiprocessing
import sys

import torch
import torch.utils.checkpoint


def compiled(function, backend="aot_eager", **options):
    return torch.compile(function, backend=backend, **options)


def pick(x, i):
    return x[i] * 2


def eager(times=10_000):
    f = compiled(pick, "eager")
    for _ in range(times):
        yield lambda: f(torch.ones(4), torch.tensor([9]))


def cpp():
    f = compiled(pick, "inductor")
    yield lambda: f(torch.ones(4), torch.tensor([9]))


class OtherGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        from torch.testing._internal.two_tensor import TwoTensor

        return TwoTensor(gradient, gradient)


def tangent():
    f = compiled(lambda x: x.sin() * 2)
    yield lambda: OtherGradient.apply(f(torch.ones(4, requires_grad=True))).sum().backward()


def wrapper():
    f, w = compiled(lambda x, w: x.mul_(w)), torch.ones(4, requires_grad=True)
    f(w * 1, w)
    yield lambda: f((w * torch.ones(2, 4)).unbind()[0], w)  # a view that must not be written to


def nested():
    inner = compiled(pick)

    @torch.library.custom_op("raising::inner", mutates_args=())
    def op(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return inner(x, i)

    op.register_fake(lambda x, i: torch.empty_like(i, dtype=x.dtype))
    outer = compiled(lambda x, i: torch.ops.raising.inner(x, i) + 1)
    yield lambda: outer(torch.ones(4), torch.tensor([9]))


def after_reset():
    """Go backward through a graph whose compile id another compile has since."""
    loss = OtherGradient.apply(
        compiled(lambda x: x.cos() * 2)(torch.ones(4, requires_grad=True))
    ).sum()
    for _ in range(2):
        torch._dynamo.reset()
        for number in range(7):
            compiled(eval(f"lambda x: x + {number}"), "eager")(torch.ones(2))
    yield lambda: loss.backward()


def backend():
    def refuse(gm, example_inputs):
        raise RuntimeError("this backend says no")

    f = compiled(lambda x: x + 1, refuse)
    yield lambda: f(torch.ones(2))


def unrelated():
    compiled(lambda x: x + 1, "eager")(torch.ones(2))
    yield lambda: int("not a number, token=hunter2hunter2")


def leave():
    compiled(lambda x: x + 1, "eager")(torch.ones(2))
    yield lambda: sys.exit(3)


def fail_in_worker():
    compiled(pick, "eager")(torch.ones(4), torch.tensor([9]))


def worker():
    child = multiprocessing.get_context("spawn").Process(target=fail_in_worker)
    child.start()
    child.join()
    yield lambda: print("the worker ended with", child.exitcode)


def checkpointed():
    f, x = compiled(lambda x: x.sin().cos()), torch.ones(4, requires_grad=True)
    f(x)  # torch 2.4 cannot compile it inside of a checkpoint
    yield lambda: torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False).sum().backward()


def in_compiled():
    """Go backward where dynamo listens: it must not compile what stands around a backward."""

    def step(x):
        y = f(x)
        torch._dynamo.graph_break()
        y.sum().backward()
        return x.grad

    f = compiled(lambda x: x.sin() * 2)
    yield lambda: compiled(step)(torch.ones(4, requires_grad=True))


if __name__ == "__main__":
    words = sys.argv[1:]
    for word in words:
        for call in globals()[word]() if word != "end" else ():
            if words[0] == "end":
                call()
            try:
                call()
            except Exception as error:
                last = error
    print("went on to its end")
