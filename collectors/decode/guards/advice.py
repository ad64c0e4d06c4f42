"""What to do about a failed guard, in one or two sentences that name the guard's source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from compileboard.collectors.decode.paths import is_torch

_BLANK = re.compile(r"\{(s|dim|expected|symbol)\}")
_STACK_VALUE = re.compile(r"\b___stack\d+")  # dynamo's name for what lay on the stack at a break; no user has it


@dataclass(frozen=True)
class GuardClassification:
    """What the classifier made of one guard expression."""

    category: str
    source: str | None = None
    expected: str | None = None
    actual: str | None = None
    dim: int | None = None
    symbol: str | None = None  # what else tells causes apart: the dimension, the key, the global setting
    advice: str | None = None  # which advice fits better than the category's own
    variable: str | None = None  # the closure's variable behind a cell


_ADVICE: dict[str, str] = {
    "tensor_size": (
        "Mark the dimension before the first call, torch._dynamo.mark_dynamic({s}, {dim}), or compile with "
        "torch.compile(dynamic=True). If only a few sizes occur, pad {s} to them or warm up each shape once."
    ),
    "size_one": (
        "Dimension {dim} of {s} is 0 or 1 in one of the calls, which torch.compile takes as a constant even "
        "for a dynamic dimension: torch._dynamo.decorators.mark_unbacked({s}, {dim}) avoids that, or warm up "
        "that shape too. For other sizes use torch._dynamo.mark_dynamic({s}, {dim}) or "
        "torch.compile(dynamic=True)."
    ),
    "size_after_break": (
        "Dimension {dim} of {s} differs from call to call. Take the graph break away (the run's graph breaks say "
        "how), or compile with torch.compile(dynamic=True)."
    ),
    "parameter": (
        "{s} is a parameter, whose sizes torch.compile takes as constants: set "
        "torch._dynamo.config.force_parameter_static_shapes = False to let them vary, or call with parameters "
        "of one shape."
    ),
    "tensor_stride": (
        "Give {s} one memory layout at every call, for example with {s}.contiguous() or one memory_format "
        "before the compiled call."
    ),
    "tensor_rank": (
        "Pass {s} with one number of dimensions (unsqueeze or reshape it in the caller), or accept one compile a rank."
    ),
    "tensor_dtype": (
        "Make callers pass {s} with one dtype (convert it before the compiled call), or warm up each dtype once."
    ),
    "tensor_device": "Move {s} to one device before the compiled call, or accept one compile a device.",
    "tensor_requires_grad": (
        "Call with the same requires_grad for {s} each time: detach it, or keep training and inference calls "
        "apart (each compiles once) and wrap inference in torch.no_grad() consistently."
    ),
    "dispatch_keys": (
        "{s} came as another kind of tensor: keep to either torch.inference_mode() or torch.no_grad(), and "
        "pass one tensor subclass and layout at every call."
    ),
    "functorch": (
        "{s} came from inside a torch.func transform (vmap, grad, …) in one of the calls: compile the "
        "transformed function instead, torch.compile(torch.vmap(f)), or accept one compile with and one "
        "without."
    ),
    "tensor_aliasing": "{s} are one and the same tensor in this call: pass a clone, or always pass them the same way.",
    "symbolic_shape": (
        "The compiled code holds only while this condition on {s} does. Find the source line that compares "
        "sizes and take the comparison out of the compiled region, state the range with "
        "torch._dynamo.mark_dynamic(…, min=…, max=…), or warm up both sides of it."
    ),
    "duck_shape": (
        "Two dimensions of {s} were equal at the compile, so torch took them for one. Compile with unequal "
        "example sizes, or set torch.fx.experimental._config.use_duck_shape = False."
    ),
    "zero_one": (
        "{s} was 0 or 1, which torch.compile takes as a constant even for a dynamic dimension: avoid it with "
        "torch._dynamo.decorators.mark_unbacked(tensor, dim), or warm up that size once."
    ),
    "marks": (
        "Call mark_dynamic (or its like) on the tensor before the first compiled call, and for the same "
        "dimensions each time; torch.compile(dynamic=True) needs no marks."
    ),
    "int_value": (
        "The first value of {s} is compiled in and the next call with another makes it dynamic, which costs one "
        "recompile: torch.compile(dynamic=True), or a tensor in its place, saves that one. Values that a loop, a "
        "branch or a size of 0 or 1 depends on are compiled in each time: call with each once as a warm-up and "
        "raise torch._dynamo.config.recompile_limit above their number."
    ),
    "float_value": (
        "The first value of {s} is compiled in and the next call with another makes it dynamic, which costs one "
        "recompile: pass torch.tensor({s}) or compile with torch.compile(dynamic=True) to save it. If every value "
        "recompiles, a branch depends on it, or torch._dynamo.config.specialize_float is True: set it to False."
    ),
    "string_value": (
        "Each value of {s} gives code of its own: choose the branch outside the compiled region, or warm up "
        "every value once and keep their number below torch._dynamo.config.recompile_limit."
    ),
    "other_value": "Keep {s} the same from call to call, or hoist what depends on it out of the compiled region.",
    "global_value": (
        "Do not change the global {s} between calls: pass it as an argument, make it a tensor, or read it "
        "outside the compiled region."
    ),
    "module_attribute": (
        "Keep {s} constant between calls, make it a tensor (for a module, a buffer), or update it outside the "
        "compiled region; for an integer of a module torch._dynamo.config.allow_unspec_int_on_nn_module = "
        "True lets it vary."
    ),
    "unspec_int": (
        "{s} changes between calls and torch.compile takes integer attributes of a module as constants: set "
        "torch._dynamo.config.allow_unspec_int_on_nn_module = True, make it a tensor (a buffer), or update it "
        "outside the compiled region."
    ),
    "training": (
        "Calls in train() and in eval() compile once each: warm up both, and do not switch {s} between calls "
        "without need."
    ),
    "container_length": (
        "Pass {s} with one length (pad it, or stack its tensors into one), or warm up each length once."
    ),
    "dict_keys": (
        "Build {s} with the same keys in the same order at every call; pass what comes and goes as arguments "
        "of their own."
    ),
    "object_identity": (
        "{s} is another object in this call: create functions, partials, configurations and modules once, "
        "outside the loop, and pass the same object each time."
    ),
    "same_object": (
        "{s} and {expected} were one and the same object at the compile and are two now: pass them the same "
        "way each time."
    ),
    "type_change": (
        "Pass {s} with one type at every call (always a tensor, say, or always a float), or split the function by type."
    ),
    "grad_mode": (
        "Call the compiled code consistently under torch.no_grad() or without it; training and inference then "
        "compile once each."
    ),
    "autocast": (
        "Enter torch.autocast with the same device, dtype and state around every call, or put it inside the "
        "compiled function."
    ),
    "deterministic": "Call torch.use_deterministic_algorithms once, before the first compile.",
    "global_state": (
        "Set torch's global state ({symbol}) once, before the first compile, and leave it: default dtype and "
        "device, threads, TF32, modes."
    ),
    "backend_mismatch": (
        "Create the backend callable once and reuse it (functools.partial makes a new one each time); do not "
        "compile one function with two backends."
    ),
    "invalidated": (
        "Keep {s} alive for as long as the compiled function is used: it was freed, and a new one needs a new compile."
    ),
}


_SHARED_WRAPPER = (
    "torch runs what it compiles here through a function of its own, and all such callables share that function's "
    "compiles and its recompile limit: another callable is one more compile, no fault of its own. Compile the function "
    "or module of yours that calls them, or raise torch._dynamo.config.recompile_limit above their number."
)


def suggest_in(file: str | None, category: str, suggestion: str | None) -> str | None:
    """Suggest what to do in a function of this file: in torch's own nobody can make its variables the same object."""
    shared = file is not None and is_torch(file) and category in ("object_identity", "type_change")
    return _SHARED_WRAPPER if shared else suggestion


def suggest(guard: GuardClassification) -> str | None:
    """Suggest the fix for a finding; None where nothing honest can be said."""
    advice = _ADVICE.get(guard.advice or _special(guard) or guard.category)
    if advice is None:
        return None
    source = _STACK_VALUE.sub("the value left at the graph break", guard.source or "the value")
    if guard.variable:
        source = f"{guard.variable} ({source})"
    values = {
        "s": source,
        "dim": str(guard.dim if guard.dim is not None else "dim"),
        "expected": guard.expected or "the other",
        "symbol": guard.symbol or "not named by torch",
    }
    # One pass: a guard's source may itself hold braces.
    return _BLANK.sub(lambda blank: values[blank.group(1)], advice)


def _special(guard: GuardClassification) -> str | None:
    """Choose advice that fits this finding better than its category's."""
    small = ("0", "1")
    if guard.category == "tensor_size" and _STACK_VALUE.match(guard.source or ""):
        return "size_after_break"
    if guard.category == "tensor_size" and (guard.expected in small or guard.actual in small):
        return "size_one"
    if guard.category == "dispatch_keys" and "FuncTorch" in f"{guard.expected}{guard.actual}":
        return "functorch"
    if guard.category == "symbolic_shape" and guard.symbol == "dimension marks":
        return "marks"
    if guard.category == "module_attribute" and guard.source and guard.source.endswith(".training"):
        return "training"
    if guard.category == "object_identity" and guard.symbol == "same object":
        return "same_object"
    return None
