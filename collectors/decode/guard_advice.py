"""What to do about a failed guard, in one or two sentences that name the guard's source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Hold what the classifier made of one guard expression."""

    category: str
    source: str | None = None
    expected: str | None = None
    actual: str | None = None
    dim: int | None = None
    symbol: str | None = None  # what else tells causes apart: the dimension, the global setting
    hinted: bool = False  # torch itself hints at allow_unspec_int_on_nn_module


def suggest(found: Finding) -> str | None:
    """Suggest the fix for a finding; None where nothing honest can be said."""
    make = _ADVICE.get(found.category)
    return make(found, found.source or "the value") if make else None


def _size(f: Finding, s: str) -> str:
    dim = f.dim if f.dim is not None else "dim"
    if f.expected in ("0", "1") or f.actual in ("0", "1"):
        return (
            f"Dimension {dim} of {s} is 0 or 1 in one of the calls, which torch.compile specialises on even when the "
            f"dimension is dynamic: torch._dynamo.decorators.mark_unbacked({s}, {dim}) avoids it, or warm up that shape "
            f"too; for all other sizes torch._dynamo.mark_dynamic({s}, {dim}) or torch.compile(dynamic=True)."
        )
    return (
        f"Mark the dimension before the first call: torch._dynamo.mark_dynamic({s}, {dim}), or compile with "
        f"torch.compile(dynamic=True). If only a few sizes occur, pad {s} to them or warm up each shape once."
    )


def _stride(f: Finding, s: str) -> str:
    return f"Give {s} one memory layout at every call, for example {s}.contiguous() or one memory_format, before the compiled call."


def _rank(f: Finding, s: str) -> str:
    return f"Pass {s} with one number of dimensions (unsqueeze or reshape it in the caller), or accept one compile per rank."


def _dtype(f: Finding, s: str) -> str:
    return f"Make callers pass {s} with one dtype (convert it before the compiled call), or warm up each dtype once."


def _device(f: Finding, s: str) -> str:
    return f"Move {s} to one device before the compiled call, or accept one compile per device."


def _requires_grad(f: Finding, s: str) -> str:
    return (
        f"Call with the same requires_grad for {s} each time: detach it, or separate training and inference calls "
        "(each compiles once) and wrap inference in torch.no_grad() consistently."
    )


def _dispatch(f: Finding, s: str) -> str:
    return (
        f"{s} came as another kind of tensor: keep to either torch.inference_mode() or torch.no_grad(), and pass one "
        "tensor subclass and layout at every call."
    )


def _aliasing(f: Finding, s: str) -> str:
    return f"{s} are one and the same tensor in this call: pass a clone, or always pass them the same way."


def _symbolic(f: Finding, s: str) -> str:
    return (
        f"The compiled code holds only while this condition on {s} does. Look for the source line that compares sizes; "
        "take the comparison out of the compiled region, state the range with torch._dynamo.mark_dynamic(…, min=…, max=…), "
        "avoid size 0 and 1 (mark_unbacked), or warm up both sides of it."
    )


def _int(f: Finding, s: str) -> str:
    return (
        f"Let the integer vary: torch.compile(dynamic=True), or pass {s} as a tensor; if it takes few values, "
        "call with each once as a warm-up and raise torch._dynamo.config.recompile_limit above their number."
    )


def _float(f: Finding, s: str) -> str:
    return f"Pass {s} as a tensor (torch.tensor({s})), or set torch._dynamo.config.specialize_float = False, so that its value is not compiled in."


def _string(f: Finding, s: str) -> str:
    return (
        f"Each value of {s} gives code of its own: choose the branch outside the compiled region, or warm up every value "
        "once and keep their number below torch._dynamo.config.recompile_limit."
    )


def _value(f: Finding, s: str) -> str:
    return f"Keep {s} the same from call to call, or hoist what depends on it out of the compiled region."


def _global(f: Finding, s: str) -> str:
    return f"Do not change the global {s} between calls: pass it as an argument, make it a tensor, or read it outside the compiled region."


def _attribute(f: Finding, s: str) -> str:
    if f.hinted:
        return (
            f"{s} changes between calls and torch.compile takes integer attributes of a module as constants: set "
            "torch._dynamo.config.allow_unspec_int_on_nn_module = True, make it a tensor (a buffer), or update it "
            "outside the compiled region."
        )
    if s.endswith(".training"):
        return "Calls in train() and in eval() compile once each: warm up both, and do not switch between calls without need."
    return (
        f"Keep {s} constant between calls, make it a tensor (for a module, a buffer), or update it outside the compiled region; "
        "for an integer of a module torch._dynamo.config.allow_unspec_int_on_nn_module = True lets it vary."
    )


def _length(f: Finding, s: str) -> str:
    return f"Pass {s} with one length (pad it, or stack its tensors into one), or warm up each length once."


def _keys(f: Finding, s: str) -> str:
    return f"Build {s} with the same keys in the same order at every call; pass what comes and goes as arguments of their own."


def _identity(f: Finding, s: str) -> str:
    return (
        f"{s} is a new object in this call: create functions, partials, configurations and modules once, outside the "
        "loop, and pass the same object each time."
    )


def _type(f: Finding, s: str) -> str:
    return f"Pass {s} with one type at every call (for example always a tensor, or always a float), or split the function by type."


def _grad(f: Finding, s: str) -> str:
    return "Call the compiled code consistently under torch.no_grad() or without it; training and inference then compile once each."


def _autocast(f: Finding, s: str) -> str:
    return "Enter torch.autocast with the same device, dtype and state around every call, or put it inside the compiled function."


def _deterministic(f: Finding, s: str) -> str:
    return "Call torch.use_deterministic_algorithms once, before the first compile."


def _state(f: Finding, s: str) -> str:
    what = f" ({f.symbol})" if f.symbol else ""
    return f"Set torch's global state{what} once, before the first compile, and leave it: default dtype and device, threads, TF32, modes."


def _backend(f: Finding, s: str) -> str:
    return "Create the backend callable once and reuse it (functools.partial makes a new one each time); do not compile one function with two backends."


def _invalidated(f: Finding, s: str) -> str:
    return (
        f"Keep {s} alive for as long as the compiled function is used: it was freed, and a new one needs a new compile."
    )


_ADVICE: dict[str, Callable[[Finding, str], str]] = {
    "tensor_size": _size,
    "tensor_stride": _stride,
    "tensor_rank": _rank,
    "tensor_dtype": _dtype,
    "tensor_device": _device,
    "tensor_requires_grad": _requires_grad,
    "dispatch_keys": _dispatch,
    "tensor_aliasing": _aliasing,
    "symbolic_shape": _symbolic,
    "int_value": _int,
    "float_value": _float,
    "string_value": _string,
    "other_value": _value,
    "global_value": _global,
    "module_attribute": _attribute,
    "container_length": _length,
    "dict_keys": _keys,
    "object_identity": _identity,
    "type_change": _type,
    "grad_mode": _grad,
    "autocast": _autocast,
    "deterministic": _deterministic,
    "global_state": _state,
    "backend_mismatch": _backend,
    "invalidated": _invalidated,
}
