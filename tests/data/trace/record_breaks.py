"""Make torch break graphs: resumed, skipped, in loops, in the backend, at the recompile limit.

TORCH_TRACE=folder python tests/data/trace/record_breaks.py
"""

# ruff: noqa: B007, C405 - what a user writes is what torch is to see

import functools
import json

import torch
import torch._dynamo as D

C = functools.partial(torch.compile, backend="eager")
x = torch.randn(4, 4)
CASES = []


def case(f):
    CASES.append(f)
    return f


@case
def printing():
    def f(x):
        print("hi")
        return x + 1

    C(f)(x)


@case
def datadep():
    def f(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    C(f)(x)


@case
def item():
    def f(x):
        return x * x.sum().item()

    C(f)(x)


@case
def userbreak():
    def f(x):
        x = x + 1
        D.graph_break(msg="why <b>not</b>")
        return x

    C(f)(x)


@case
def loop():
    def f(x):
        for i in range(3):
            x = x + 1
            D.graph_break()
        return x

    C(f)(x)


@case
def withblock():
    class CM:
        def __enter__(s):
            pass

        def __exit__(s, *a):
            pass

    cm = CM()

    def f(x):
        with cm:
            x = x + 1
            D.graph_break()
            x = x * 2
        return x

    C(f)(x)


@case
def tryblock():
    def f(x):
        try:
            x = x + 1
            D.graph_break()
        finally:
            x = x + 3
        return x

    C(f)(x)


@case
def gen():
    def g(x):
        D.graph_break()
        yield x

    def f(x):
        return sum(g(x))

    C(f)(x)


@case
def skipped():
    def f(x):
        import inspect

        inspect.stack()
        return x + 1

    C(f)(x)


@case
def nonzero():
    def f(x):
        return torch.nonzero(x) + 1

    C(f)(x)


@case
def jsonb():
    def f(x):
        json.loads('{"a":1}')
        return x + 1

    C(f)(x)


@case
def openb():
    def f(x):
        with open("/dev/null") as fh:
            fh.read()
        return x + 1

    C(f)(x)


@case
def disabled():
    @D.disable
    def h(x):
        return x + 1

    def f(x):
        return h(x) * 2

    C(f)(x)


@case
def nested():
    def inner(x):
        D.graph_break()
        return x + 1

    def f(x):
        return inner(x) * 2

    C(f)(x)


@case
def fullgraph():
    def f(x):
        D.graph_break()
        return x + 1

    torch.compile(f, backend="eager", fullgraph=True)(x)


@case
def badop():
    def f(x):
        return torch.ones(3) @ x

    C(f)(x)


@case
def badbackend():
    def b(gm, e):
        raise ValueError("nope")

    def f(x):
        return x + 1

    torch.compile(f, backend=b)(x)


@case
def suppress():
    D.config.suppress_errors = True

    def b(gm, e):
        raise ValueError("nope")

    def f(x):
        return x + 1

    torch.compile(f, backend=b)(x)
    D.config.suppress_errors = False


@case
def backendfake():
    from torch._subclasses.fake_tensor import DynamicOutputShapeException

    def b(gm, e):
        raise DynamicOutputShapeException(torch.ops.aten.nonzero.default)

    def f(x):
        return x + 1

    torch.compile(f, backend=b)(x)


@case
def limit():
    def f(x, k):
        return x * k

    g = C(f)
    for i in range(12):
        g(torch.randn(*[2] * (i + 1)), 1)


@case
def userraise():
    def f(x):
        raise RuntimeError("user")

    C(f)(x)


@case
def sortd():
    class K:
        def __init__(s, v):
            s.v = v

    def f(x):
        a = set([K(1)])
        a.discard(None)
        x = x + torch.tensor(x.tolist())
        return x

    C(f)(x)


def note(name):
    torch._logging.trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": f"case_{name}", "encoding": "string"},
        payload_fn=lambda: "",
        expect_trace_id=False,
    )


for c in CASES:
    D.reset()
    note(c.__name__)
    try:
        c()
    except Exception as error:
        print(c.__name__, type(error).__name__)
