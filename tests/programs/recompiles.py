"""Recompile for every reason there is a category for, one function each."""

import contextlib
import sys

import torch

THRESHOLD = 1


def times(x, k):
    return x * k


def plus_float(x, k):
    return x + k


def mode(x, name):
    return x.sin() if name == "sin" else x.cos()


def total(xs):
    return sum(x.sum() for x in xs)


def keyed(d):
    return sum(v for v in d.values())


def uses_global(x):
    return x + THRESHOLD


def plain(x):
    return x * 2


def optional(x, y):
    return x if y is None else x + y


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x * self.step


class Holder:
    def __init__(self, scale):
        self.scale = scale


def attribute(x, holder):
    return x * holder.scale


def callback(x, function):
    return function(x)


def compiled(function, **options):
    return torch.compile(function, backend="eager", **options)


def tensors():
    f = compiled(plain, dynamic=False)
    for x in (
        torch.ones(4),
        torch.ones(5),
        torch.ones(4, 2),
        torch.ones(4, dtype=torch.float64),
        torch.ones(4, requires_grad=True),
        torch.ones(2, 4).t(),
        torch.nn.Parameter(torch.ones(4)),
    ):
        f(x)


def values():
    global THRESHOLD
    for function, arguments in (
        (times, (1, 2, 3)),
        (plus_float, (1.0, 2.0, 3.5)),
        (mode, ("sin", "cos")),
    ):
        f = compiled(function)
        for argument in arguments:
            f(torch.ones(3), argument)
    f = compiled(uses_global)
    f(torch.ones(3))
    THRESHOLD = 2
    f(torch.ones(3))


def containers():
    f = compiled(total)
    f([torch.ones(2)])
    f([torch.ones(2)] * 2)
    g = compiled(keyed)
    g({"a": torch.ones(2)})
    g({"b": torch.ones(2), "c": torch.ones(2)})
    h = compiled(optional)
    h(torch.ones(2), None)
    h(torch.ones(2), torch.ones(2))


def objects():
    m = compiled(Counter())
    for _ in range(3):
        m(torch.ones(2))
    f = compiled(attribute)
    for scale in (2, 3):
        f(torch.ones(2), Holder(scale))
    g = compiled(callback)
    g(torch.ones(2), torch.sin)
    g(torch.ones(2), torch.cos)


def state():
    f = compiled(plain)
    f(torch.ones(6))
    with torch.no_grad():
        f(torch.ones(6))
    with torch.autocast("cpu"):
        f(torch.ones(6))
    torch.use_deterministic_algorithms(True)
    f(torch.ones(6))
    torch.use_deterministic_algorithms(False)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    f(torch.ones(6, dtype=torch.float32))
    torch.set_default_dtype(default)


def backends():
    def shared(x):
        return x * 3

    torch.compile(shared, backend="eager")(torch.ones(2))
    torch.compile(shared, backend=lambda gm, inputs: gm.forward)(torch.ones(2))


def limit():
    f = compiled(mode)
    for index in range(12):
        f(torch.ones(3), f"name {index}")


def main():
    for part in (tensors, values, containers, objects, state, backends, limit):
        with (
            contextlib.suppress(RuntimeError)
            if "strict" not in sys.argv
            else contextlib.nullcontext()
        ):
            part()


if __name__ == "__main__":
    main()
