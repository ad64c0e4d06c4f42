"""Ten planted failures of torch.compile that run on a CPU: ground truth for repro capture,
minification and analysis.

    python planted.py                 list them
python planted.py NAME            run one as a plain program (exit 0 = nothing noticed, 1 =
exception, <0 = signal)

Every function plants its own bug in THIS process when called, and returns a Case: the program to
compile, its inputs, and what is true of it. `install(NAME)` plants only the bug, for a child
process that runs a captured repro: a repro script knows the graph, the inputs and the
configuration, not a lowering, a decomposition or a custom operation that the program registered
itself.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Case:
    program: Callable[..., Any]  # compiled as a whole; takes `inputs()`
    inputs: Callable[[], list[Any]]  # a fresh set each time: some programs write to them
    kind: str  # compile, runtime, accuracy or crash
    phase: str  # forward or backward
    op: str  # what `analyze` or the minified program has to name, as it stands in the graph
    seen_by: str  # the lowest level whose comparison can see it: dynamo or aot
    backend: str = "inductor"
    train: bool = False  # call backward() on the sum of the output
    calls: list[Callable[[], list[Any]]] = field(
        default_factory=list
    )  # further calls, for what needs a second shape
    error: str = ""  # a piece of the exception's text


# -- the body that every case has around its planted operation: 20 to 40 call nodes


def _seeded(
    *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, grad: bool = False
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [
        torch.randn(shape, generator=generator).to(dtype).requires_grad_(grad) for shape in shapes
    ]


def _before(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    h = torch.addmm(b, x, w)
    h = h * torch.sigmoid(h) if not h.is_complex() else h
    h = h - h.mean(dim=-1, keepdim=True)
    h = h / (h.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    return h * 1.5 + 0.25


def _after(y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    z = y @ w
    z = torch.where(z > 0, z, z * 0.1)
    s = z.cos() + z.sin() * 0.5
    return s.sum(dim=-1), z.amax(dim=0) - z.amin(dim=0)


def _body(middle: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def program(x: Tensor, w: Tensor, b: Tensor, v: Tensor) -> Any:
        return _after(middle(_before(x, w, b)), v)

    return program


def _standard(
    dtype: torch.dtype = torch.float32, rows: int = 16, grad: bool = False
) -> Callable[[], list[Any]]:
    return lambda: _seeded((rows, 32), (32, 32), (32,), (32, 24), dtype=dtype, grad=grad)


# -- how a wrong lowering is planted


def _lowering(op: Any, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    from torch._inductor.lowering import lowerings

    for overload in getattr(torch.ops.aten, op).overloads():
        key = getattr(getattr(torch.ops.aten, op), overload)
        if key in lowerings and not getattr(lowerings[key], "planted", False):
            planted = make(lowerings[key])
            planted.planted = True  # type: ignore[attr-defined]
            lowerings[key] = planted
    _leave_caches()


def _leave_caches() -> None:
    """Use no cache: its key does not know about a changed lowering or decomposition."""
    torch._inductor.config.fx_graph_cache = False
    if hasattr(torch._functorch.config, "enable_autograd_cache"):  # since torch 2.5
        torch._functorch.config.enable_autograd_cache = False


def _lower(name: str) -> Callable[..., Any]:
    from torch._inductor.lowering import lowerings

    return lowerings[getattr(torch.ops.aten, name)]


# -- 1


def backend_refuses_op() -> Case:
    """A backend of the user's own refuses one operation of the dynamo graph."""
    from torch._dynamo.backends.registry import list_backends, register_backend

    if "planted_refuses" not in list_backends(()):

        @register_backend(name="planted_refuses")
        def planted_refuses(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
            for node in gm.graph.nodes:
                if node.target in (torch.erfinv, "erfinv"):
                    raise NotImplementedError("planted: this backend has no erfinv")
            return gm.forward

    return Case(
        _body(lambda h: torch.erfinv(h.clamp(-0.9, 0.9))),
        _standard(),
        kind="compile",
        phase="forward",
        op="erfinv",
        seen_by="dynamo",
        backend="planted_refuses",
        error="has no erfinv",
    )


# -- 2


def relu_compile_error() -> Case:
    """The C++ generated for relu does not compile (torch's own testing switch)."""
    torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
    return Case(
        _body(torch.relu),
        _standard(),
        kind="compile",
        phase="forward",
        op="relu",
        seen_by="aot",
        error="compile error",
    )


# -- 3


def crash_in_custom_op() -> Case:
    """A custom operation reads address 0 when a value is above a bound: the process dies of
    SIGSEGV.
    """
    if not hasattr(torch.ops.planted, "crash"):
        library = torch.library.Library("planted", "DEF")
        library.define("crash(Tensor x) -> Tensor")

        def crash(x: Tensor) -> Tensor:
            if x.numel() > 0 and bool((x > -1e30).any()):
                ctypes.string_at(0)
            return x.clone()

        library.impl("crash", crash, "CPU")
        library.impl("crash", lambda x: torch.empty_like(x), "Meta")
        crash_in_custom_op.library = library  # type: ignore[attr-defined]  # lives as long as the process
    return Case(
        _body(lambda h: torch.ops.planted.crash(h.tanh())),
        _standard(),
        kind="crash",
        phase="forward",
        op="planted.crash",
        seen_by="aot",
    )


# -- 4


def wrong_lowering() -> Case:
    """atan comes out 1 % too large from inductor, and only there."""
    _lowering("atan", lambda right: lambda x: _lower("mul")(right(x), 1.01))
    return Case(
        _body(torch.atan), _standard(), kind="accuracy", phase="forward", op="atan", seen_by="aot"
    )


# -- 5


def nan_only_compiled() -> Case:
    """tanh written as (e^2x - 1) / (e^2x + 1): inf / inf for large x, correct for small x."""

    def make(right: Callable[..., Any]) -> Callable[..., Any]:
        def tanh(x: Any) -> Any:
            e = _lower("exp")(_lower("mul")(x, 2.0))
            return _lower("div")(_lower("sub")(e, 1.0), _lower("add")(e, 1.0))

        return tanh

    _lowering("tanh", make)
    return Case(
        _body(lambda h: torch.tanh(h * 60.0)),
        _standard(),
        kind="accuracy",
        phase="forward",
        op="tanh",
        seen_by="aot",
    )


# -- 6


def wrong_decomposition() -> Case:
    """softplus is decomposed wrongly: the graph after AOT autograd is already wrong, inductor
    compiles it as it is.
    """
    from torch._inductor.decomposition import decompositions

    def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
        return torch.log1p(torch.exp(x * beta)) / beta + 0.01

    decompositions[torch.ops.aten.softplus.default] = softplus
    torch._inductor.decomposition.fast_random_decomps.cache_clear()
    _leave_caches()
    return Case(
        _body(F.softplus),
        _standard(),
        kind="accuracy",
        phase="forward",
        op="softplus",
        seen_by="dynamo",
    )


# -- 7


def backward_only() -> Case:
    """sign, which here only the backward of abs contains, is -0.9 for negative numbers."""

    def make(right: Callable[..., Any]) -> Callable[..., Any]:
        def sign(x: Any) -> Any:
            where, mul, lt = _lower("where"), _lower("mul"), _lower("lt")
            return where(lt(x, 0.0), mul(right(x), 0.9), right(x))

        return sign

    _lowering("sign", make)
    _lowering("sgn", make)
    return Case(
        _body(torch.abs),
        _standard(grad=True),
        kind="accuracy",
        phase="backward",
        op="sgn|sign",
        seen_by="aot",
        train=True,
    )


# -- 8


def dynamic_only() -> Case:
    """constant_pad_nd has no lowering for a size that is a symbol; the first, static compile
    works.
    """
    import sympy

    def make(right: Callable[..., Any]) -> Callable[..., Any]:
        def constant_pad_nd(x: Any, padding: Any, fill_value: Any = 0) -> Any:
            if any(isinstance(size, sympy.Expr) and size.free_symbols for size in x.get_size()):
                raise NotImplementedError("planted: padding of a dynamic size")
            return right(x, padding, fill_value)

        return constant_pad_nd

    _lowering("constant_pad_nd", make)
    return Case(
        _body(lambda h: F.pad(h, (0, 0, 1, 1), value=0.5)),
        _standard(),
        kind="compile",
        phase="forward",
        op="constant_pad_nd",
        seen_by="aot",
        calls=[_standard(rows=19), _standard(rows=23)],
        error="padding of a dynamic size",
    )


# -- 9


def bf16_only() -> Case:
    """erf is wrong for bfloat16 and right for every other type."""

    def make(right: Callable[..., Any]) -> Callable[..., Any]:
        def erf(x: Any) -> Any:
            return _lower("mul")(right(x), 1.25 if x.get_dtype() == torch.bfloat16 else 1.0)

        return erf

    _lowering("erf", make)
    return Case(
        _body(torch.erf),
        _standard(torch.bfloat16),
        kind="accuracy",
        phase="forward",
        op="erf",
        seen_by="aot",
    )


# -- 10


def aliased_mutation() -> Case:
    """A view of an input is written to; what is written back to the input is wrong, what is
    returned is right.
    """

    def make(right: Callable[..., Any]) -> Callable[..., Any]:
        def copy_(target: Any, source: Any, non_blocking: bool = False) -> Any:
            return right(target, _lower("mul")(source, 1.05), non_blocking)

        return copy_

    _lowering("copy_", make)

    def program(x: Tensor, w: Tensor, b: Tensor, v: Tensor, state: Tensor) -> Any:
        h = _before(x, w, b)
        state.view(-1)[: h.numel()].copy_(torch.cos(h).reshape(-1))
        return _after(h, v)

    def inputs() -> list[Any]:
        return [*_standard()(), torch.zeros(16, 64)]

    return Case(program, inputs, kind="accuracy", phase="forward", op="copy_", seen_by="aot")


PLANTED: dict[str, Callable[[], Case]] = {
    f.__name__: f
    for f in (
        backend_refuses_op,
        relu_compile_error,
        crash_in_custom_op,
        wrong_lowering,
        nan_only_compiled,
        wrong_decomposition,
        backward_only,
        dynamic_only,
        bf16_only,
        aliased_mutation,
    )
}


def install(name: str) -> None:
    PLANTED[name]()


def error_of(mine: Any, right: Any) -> float:
    """The largest absolute difference, NaN counted as infinite where only one side has it."""
    worst = 0.0
    for a, b in zip(torch.utils._pytree.tree_leaves(mine), torch.utils._pytree.tree_leaves(right)):
        if isinstance(a, Tensor):
            a, b = a.detach().double(), b.detach().double()
            difference = torch.where(a.isnan() & b.isnan(), 0.0, (a - b).abs())
            worst = max(
                worst, float(difference.nan_to_num(nan=float("inf")).max()) if a.numel() else 0.0
            )
    return worst


def call(program: Callable[..., Any], case: Case, arguments: list[Any]) -> list[Any]:
    """What the program returns, the gradients it leaves and its inputs afterwards."""
    result = program(*arguments)
    if case.train:
        sum(leaf.sum() for leaf in torch.utils._pytree.tree_leaves(result)).backward()
    gradients = [a.grad for a in arguments if isinstance(a, Tensor) and a.grad is not None]
    return [result, gradients, [a for a in arguments if isinstance(a, Tensor)]]


def run(case: Case) -> float:
    compiled = torch.compile(case.program, backend=case.backend)
    worst = 0.0
    for make in [case.inputs, *case.calls]:
        mine = call(compiled, case, make())
        worst = max(worst, error_of(mine, call(case.program, case, make())))
    return worst


def main(cases: dict[str, Callable[[], Case]] = PLANTED) -> None:
    if len(sys.argv) < 2:
        for name, plant in cases.items():
            print(f"{name:22} {(plant.__doc__ or '').strip().splitlines()[0]}")
        return
    case = cases[sys.argv[1]]()
    print(f"{sys.argv[1]}: largest difference from eager {run(case):.4g}")


if __name__ == "__main__":
    main()
