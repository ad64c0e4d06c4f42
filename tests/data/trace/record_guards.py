"""Make torch print every guard failure that a CPU can cause; each case is one category.

    TORCH_TRACE=folder python tests/data/trace/record_guards.py

`python tests/data/trace/filter_log.py` then makes the recording small. Long for its list of cases,
each the few lines
of a program that make one guard fail.
"""

# ruff: noqa: B006, E741 - what a user writes is what torch is to see

import functools
import gc
import types

import torch
import torch._dynamo as D

D.config.automatic_dynamic_shapes = False
CASES = []


def case(f):
    CASES.append(f)
    return f


C = functools.partial(torch.compile, backend="eager")
x = torch.randn(4, 4)


@case
def stride():
    g = C(lambda x: x + 1)
    g(x)
    g(torch.randn(4, 4).t())


@case
def rank():
    g = C(lambda x: x + 1)
    g(x)
    g(torch.randn(4))


@case
def dtype():
    g = C(lambda x: x + 1)
    g(x)
    g(x.double())


@case
def several():  # a dtype and a number at the same call
    g = C(lambda x, n: x * n)
    g(x, 2)
    g(x.double(), 3)


@case
def device():
    g = C(lambda x: x + 1)
    g(x)
    g(x.to("meta"))


@case
def reqgrad():
    g = C(lambda x: x + 1)
    g(x)
    g(x.clone().requires_grad_())


@case
def dispatch():
    g = C(lambda x: x + 1)
    g(x)
    with torch.inference_mode():
        y = torch.randn(4, 4)
    g(y)


@case
def notensor():
    g = C(lambda x: x + 1)
    g(x)
    g(3)


@case
def param():
    g = C(lambda x: x + 1)
    g(x)
    g(torch.nn.Parameter(x.clone()))


@case
def alias():
    g = C(lambda x, y: x + y)
    g(x, torch.randn(4, 4))
    g(x, x)


@case
def alias2():
    g = C(lambda x, y: x + y)
    g(x, x)
    g(x, torch.randn(4, 4))


@case
def listalias():
    g = C(lambda x, a, b: x + len(a) + len(b))
    l = [1]
    g(x, l, l)
    g(x, [1], [1])


@case
def intv():
    g = C(lambda x, k: x * k)
    g(x, 3)
    g(x, 4)


@case
def floatv():
    D.config.specialize_float = True
    g = C(lambda x, k: x * k)
    g(x, 3.5)
    g(x, 4.5)
    D.config.specialize_float = False


@case
def nan():
    D.config.specialize_float = True
    g = C(lambda x, k: x * k)
    g(x, float("nan"))
    g(x, 4.5)
    D.config.specialize_float = False


@case
def cplx():
    g = C(lambda x, k: x * k)
    g(x, 1 + 2j)
    g(x, 2 + 2j)


@case
def strv():
    g = C(lambda x, k: x + 1 if k == "a" else x)
    g(x, "a")
    g(x, "it's")


@case
def boolv():
    g = C(lambda x, k: x + 1 if k else x)
    g(x, True)
    g(x, False)


@case
def nonev():
    g = C(lambda x, k: x + 1 if k is None else x)
    g(x, None)
    g(x, 3)


@case
def nonev2():
    g = C(lambda x, k: x + 1 if k is None else x + k)
    g(x, x)
    g(x, None)


@case
def dtypev():
    g = C(lambda x, k: x.to(k))
    g(x, torch.float64)
    g(x, torch.float16)


@case
def devicev():
    g = C(lambda x, k: x.to(k))
    g(x, torch.device("cpu"))
    g(x, torch.device("meta"))


SCALE = 2
CFG = types.SimpleNamespace(scale=2)
TABLE = {"a": 1}


@case
def globalv():
    global SCALE

    def f(x):
        return x * SCALE

    g = C(f)
    g(x)
    SCALE = 5
    g(x)


@case
def globalattr():
    def f(x):
        return x * CFG.scale

    g = C(f)
    g(x)
    CFG.scale = 7
    g(x)


@case
def globaldict():
    def f(x):
        return x * TABLE["a"]

    g = C(f)
    g(x)
    TABLE["a"] = 7
    g(x)


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(4, 4)
        self.step = 0
        self.mode = "a"
        self.f = 1.5
        self.drop = torch.nn.Dropout()

    def forward(self, x):
        if self.mode == "a":
            x = x + 1
        return self.drop(self.l(x)) * self.step * self.f


@case
def modstep():
    m = M()
    g = C(m)
    g(x)
    m.step = 5
    g(x)


@case
def modmode():
    m = M()
    g = C(m)
    g(x)
    m.mode = "b"
    g(x)


@case
def modtrain():
    m = M()
    g = C(m)
    g(x)
    m.eval()
    g(x)


@case
def modhook():
    m = M()
    g = C(m)
    g(x)
    m.l.register_forward_hook(lambda *a: None)
    g(x)


@case
def modswap():
    m = M()
    g = C(m)
    g(x)
    m.l = torch.nn.Linear(4, 4, bias=False)
    g(x)


@case
def modswap2():
    m = M()
    g = C(m)
    g(x)
    m.l = torch.nn.Sequential(torch.nn.Linear(4, 4))
    g(x)


class Obj:
    def __init__(s):
        s.k = 1


@case
def objattr():
    o = Obj()
    g = C(lambda x, o: x * o.k)
    g(x, o)
    o.k = 9
    g(x, o)


@case
def hasattr_():
    o = Obj()
    g = C(lambda x, o: x * 2 if hasattr(o, "zz") else x)
    g(x, o)
    o.zz = 9
    g(x, o)


@case
def listlen():
    g = C(lambda xs: sum(xs))
    g([x, x + 1])
    g([x, x + 1, x + 2])


@case
def listempty():
    g = C(lambda x, xs: x + len(xs))
    g(x, [])
    g(x, [1])


@case
def tuplelen():
    g = C(lambda x, xs: x + len(xs))
    g(x, (1,))
    g(x, (1, 2))


@case
def dictkeys():
    g = C(lambda d: sum(d.values()))
    g({"a": x})
    g({"b": x})


@case
def dictlen():
    g = C(lambda d: sum(d.values()))
    g({"a": x})
    g({"a": x, "b": x + 1})


@case
def dictget():
    g = C(lambda x, d: x * d["a"] + (1 if "q" in d else 2))
    g(x, {"a": 1})
    g(x, {"a": 1, "q": 2})


@case
def setc():
    g = C(lambda x, d: x + 1 if "q" in d else x)
    g(x, {"a"})
    g(x, {"q", "b"})


@case
def kwargs():
    g = C(lambda x, **k: x + len(k))
    g(x, a=1)
    g(x, b=1)


@case
def fnid():
    g = C(lambda x, f: f(x))
    g(x, lambda y: y + 1)
    g(x, lambda y: y + 2)


@case
def fnid2():
    g = C(lambda x, f: f(x))
    g(x, torch.sin)
    g(x, torch.cos)


@case
def closure():
    def mk(k):
        def f(x):
            return x * k

        return f

    g = C(lambda x, f: f(x))
    g(x, mk(1))
    g(x, mk(2))


@case
def typechange():
    g = C(lambda x, k: x * k)
    g(x, 2)
    g(x, 2.5)


@case
def typechange2():
    g = C(lambda x, k: x * len(k))
    g(x, [1])
    g(x, (1,))


@case
def gradmode():
    g = C(lambda x: x + 1)
    g(x)
    with torch.no_grad():
        g(x)


@case
def autocast():
    g = C(lambda x: x @ x)
    g(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        g(x)


@case
def autocastdtype():
    g = C(lambda x: x @ x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        g(x)
    with torch.autocast("cpu", dtype=torch.float16):
        g(x)


@case
def determ():
    g = C(lambda x: x + 1)
    g(x)
    torch.use_deterministic_algorithms(True)
    g(x)
    torch.use_deterministic_algorithms(False)


@case
def threads():
    g = C(lambda x: x + 1)
    g(x)
    n = torch.get_num_threads()
    torch.set_num_threads(n + 1)
    g(x)
    torch.set_num_threads(n)


@case
def defdtype():
    g = C(lambda x: x + 1)
    g(x)
    torch.set_default_dtype(torch.float64)
    g(x)
    torch.set_default_dtype(torch.float32)


@case
def defdevice():
    g = C(lambda x: x + torch.ones(4))
    g(x)
    torch.set_default_device("cpu")
    g(x)
    torch.set_default_device(None)


@case
def tfmode():
    from torch.overrides import TorchFunctionMode

    class TM(TorchFunctionMode):
        def __torch_function__(s, f, t, a=(), k=None):
            return f(*a, **(k or {}))

    g = C(lambda x: x + 1)
    g(x)
    with TM():
        g(x)


@case
def tfdisabled():
    g = C(lambda x: x + 1)
    g(x)
    with torch._C.DisableTorchFunction():
        g(x)


@case
def functorch():
    g = C(lambda x: x + 1)
    g(x)
    torch.vmap(g)(x)


@case
def dual():
    import torch.autograd.forward_ad as fa

    g = C(lambda x: x + 1)
    g(x)
    with fa.dual_level():
        g(x)


@case
def backend():
    def b1(gm, e):
        return gm.forward

    def b2(gm, e):
        return gm.forward

    def f(x):
        return x + 1

    torch.compile(f, backend=b1)(x)
    torch.compile(f, backend=b2)(x)


@case
def symeq():
    D.config.automatic_dynamic_shapes = True
    g = torch.compile(
        lambda x, y: x.sum() + y.sum() if x.shape[0] == y.shape[0] else x.sum(),
        backend="eager",
        dynamic=True,
    )
    g(torch.randn(4, 4), torch.randn(4, 4))
    g(torch.randn(5, 4), torch.randn(6, 4))


@case
def symrange():
    g = torch.compile(lambda x: x + 1 if x.shape[0] > 10 else x - 1, backend="eager", dynamic=True)
    g(torch.randn(4, 4))
    g(torch.randn(44, 4))


@case
def symmod():
    g = torch.compile(
        lambda x: x.reshape(2, -1) if x.shape[0] % 2 == 0 else x, backend="eager", dynamic=True
    )
    g(torch.randn(4, 3))
    g(torch.randn(5, 3))


@case
def symone():
    g = torch.compile(lambda x: x + 1, backend="eager", dynamic=True)
    g(torch.randn(4, 3))
    g(torch.randn(1, 3))


@case
def symint():
    g = torch.compile(lambda x, n: x + 1 if n > 10 else x - 1, backend="eager", dynamic=True)
    g(x, 4)
    g(x, 44)


@case
def symint2():
    g = torch.compile(lambda x, n: x + n, backend="eager", dynamic=True)
    g(x, 4)
    g(x, 1)


@case
def symspec():
    g = torch.compile(
        lambda x: x + x.shape[0] if x.shape[0] == 4 else x, backend="eager", dynamic=True
    )
    g(torch.randn(4, 3))
    g(torch.randn(5, 3))


@case
def freed():
    class Holder:
        pass

    m = torch.nn.Linear(4, 4)

    def f(x, m):
        return m(x)

    g = C(f)
    g(x, m)
    del m
    gc.collect()
    g(x, torch.nn.Linear(4, 4))


@case
def freed2():
    o = Obj()
    g = C(lambda x, o: x * o.k)
    g(x, o)
    del o
    gc.collect()
    g(x, Obj())
    g(x, types.SimpleNamespace(k=3))


@case
def rangeit():
    g = C(lambda x, r: x + sum(r))
    g(x, range(3))
    g(x, range(4))


@case
def tupit():
    g = C(lambda x, r: x + sum(r))
    g(x, iter((1, 2)))
    g(x, iter((1, 2, 3)))


@case
def enumv():
    import enum

    class E(enum.Enum):
        A = 1
        B = 2

    g = C(lambda x, r: x + 1 if r is E.A else x)
    g(x, E.A)
    g(x, E.B)


@case
def nparr():
    import numpy as np

    g = C(lambda r: r + 1)
    g(np.ones(3))
    g(np.ones(4))


@case
def markdyn():
    g = C(lambda x: x + 1)
    a = torch.randn(5, 6)
    g(a)
    b = torch.randn(5, 6)
    D.mark_dynamic(b, 0)
    g(b)


@case
def sub():
    class T(torch.Tensor):
        pass

    g = C(lambda x: x + 1)
    g(x)
    g(x.as_subclass(T))


@case
def partial():
    g = C(lambda x, f: f(x))
    g(x, functools.partial(torch.add, other=1))
    g(x, functools.partial(torch.add, other=2))


@case
def keyerr():
    g = C(lambda x, d: x * d["a"]["b"])
    g(x, {"a": {"b": 1}})
    g(x, {"a": {"c": 1}})
    g(x, {"z": {"c": 1}})


@case
def defaults():
    def f(x, k=[1, 2]):
        return x * k[0]

    g = C(f)
    g(x)
    f.__defaults__[0][0] = 5
    g(x)


@case
def freed_class():
    def make(n):
        class Local:
            k = n

        return Local()

    g = C(lambda x, o: x * o.k)
    o = make(1)
    g(x, o)
    del o
    gc.collect()
    g(x, make(2))


@case
def setattr_after():
    o = Obj()
    g = C(lambda x, o: x * getattr(o, "zz", 1))
    g(x, o)
    o.zz = 9
    g(x, o)


@case
def instance_attr_deleted():
    o = Obj()
    o.j = 1
    g = C(lambda x, o: x * o.j)
    g(x, o)
    del o.j
    Obj.j = 5
    g(x, o)
    del Obj.j


@case
def set_other():
    def f(x, s):
        return x + 1 if 3 in s else x - 1

    g = C(f)
    g(x, {1, 2})
    g(x, {1, 3})


@case
def parameter_shape():
    D.config.automatic_dynamic_shapes = True
    g = C(lambda x, p: x + p.sum())
    for n in (4, 5, 6):
        g(x, torch.nn.Parameter(torch.randn(n)))


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
        print(c.__name__, type(error).__name__, error)
