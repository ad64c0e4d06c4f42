"""Compare one operation's compiled value, on the compiled values of its inputs. Only in workers.

The operation is repeated on those inputs in float64 and in its own dtype. A value is wrong if its
error exceeds three times eager's, a few units in the last place, and the effect of rounding the
inputs once, since a fused kernel may use unrounded inputs. Errors of other operations are in the
inputs and not counted.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from compileboard.collectors.repro.findings import (
    NOT_FINITE,
    NOT_JUDGED,
    RANDOM,
    RIGHT,
    WRONG,
    JudgedNode,
)
from compileboard.collectors.repro.judging import clone_together

EAGER_FACTOR = 3.0
ROUNDINGS = 8.0  # units in the last place of the dtype
_SYSTEMATIC_DRAWS, _DRAWS = 4, 6
ENVELOPE = 2.0  # times the effect of rounding the inputs
LOW_PRECISION = (torch.float16, torch.bfloat16)
_EXACT_DTYPES = {torch.complex32: torch.complex128, torch.complex64: torch.complex128}
# Their values are uninitialized memory.
UNINITIALISED = (
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "new_empty_strided",
)
# Their integers are positions: positions of equal values are equally right.
_POSITIONS = (
    "argmax",
    "argmin",
    "max",
    "min",
    "sort",
    "topk",
    "argsort",
    "mode",
    "median",
    "nanmedian",
    "kthvalue",
)
# Tried before an operation is considered random.
_RANDOM = re.compile(
    "rand|dropout|bernoulli|multinomial|normal|uniform|exponential_|cauchy_|geometric_|poisson|gumbel|rng"
)
_MATRIX = (
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "matmul",
    "linear",
    "addmv",
    "mv",
    "dot",
    "_scaled_mm",
    "_addmm_activation",
)
_CONVOLUTIONS = ("convolution", "convolution_backward", "conv1d", "conv2d", "conv3d")


@dataclass(frozen=True)
class NodeOperation:
    name: str  # "aten.max.dim"
    function: Callable[..., Any]
    key: int | None = None
    is_random: bool = False

    @property
    def short_name(self) -> str:
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else parts[0]


def judge_node(
    row: JudgedNode, operation: NodeOperation, args: Any, kwargs: Any, compiled: Any
) -> JudgedNode:
    """Judge a compiled value without modifying any value. `args` are compiled values of the node's
    inputs.
    """
    row = replace(
        row,
        element_count=compiled.numel(),
        dtype=name_dtype(compiled.dtype),
        shape=tuple(compiled.shape),
    )
    if operation.short_name in UNINITIALISED:
        return replace(row, verdict=NOT_JUDGED, reason="its memory is not set")
    if compiled.layout != torch.strided or compiled.is_quantized:
        return replace(row, verdict=NOT_JUDGED, reason=f"layout {compiled.layout}")
    if compiled.numel() == 0:
        return row
    try:
        eager = _call_operation(operation, args, kwargs)
        if operation.is_random and not _is_repeatable(operation, args, kwargs, eager):
            return replace(row, verdict=RANDOM, reason="draws random numbers")
    except Exception as error:
        return replace(row, verdict=NOT_JUDGED, reason=f"eager raised {type(error).__name__}")
    if not isinstance(eager, torch.Tensor):
        return replace(row, verdict=NOT_JUDGED, reason="it returns no tensor")
    if eager.shape != compiled.shape or eager.dtype != compiled.dtype:
        reason = f"{describe(compiled)} instead of {describe(eager)}"
        return replace(row, verdict=WRONG, error=math.inf, reason=reason)
    return _judge_value(row, operation, args, kwargs, compiled, eager)


def describe(tensor: Any) -> str:
    """Return dtype and shape: float32[16, 32]."""
    return f"{name_dtype(tensor.dtype)}{list(tensor.shape)}"


def name_dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _judge_value(
    row: JudgedNode, operation: NodeOperation, args: Any, kwargs: Any, compiled: Any, eager: Any
) -> JudgedNode:
    exact = _call_exactly(operation, args, kwargs, compiled)
    reference = eager if exact is None else exact
    is_float = compiled.is_floating_point() or compiled.is_complex()
    envelope = cache(partial(_find_envelope, operation, args, kwargs, reference))
    if not is_float:
        return _judge_integers(row, operation, args, kwargs, compiled, eager, reference, envelope)
    compiled, eager, reference = (_widen_dtype(value) for value in (compiled, eager, reference))
    missing = _count_not_finite(compiled, eager, reference, envelope, row, args)
    error, eager_error, size = (
        _relative_rms(compiled, reference),
        _relative_rms(eager, reference),
        _relative_rms(reference),
    )
    scale = size if size > 0 else 1.0
    terms = _count_terms(operation, args, kwargs, compiled)
    # sums are accumulated at least in float32
    rounding = _dtype_epsilon(row.dtype) * ROUNDINGS + min(
        _dtype_epsilon(row.dtype), _dtype_epsilon("float32")
    ) * math.sqrt(terms)
    limit = max(EAGER_FACTOR * eager_error, rounding * size, _smallest_normal(row.dtype))
    excess = error
    if error > limit:
        excess = _rms_beyond(compiled, reference, envelope()[0])
    verdict = NOT_FINITE if missing else WRONG if excess > limit else RIGHT
    return replace(
        row,
        verdict=verdict,
        error=error / scale,
        eager_error=None if exact is None else eager_error / scale,
        limit=max(limit, error if verdict == RIGHT else 0.0) / scale,
        not_finite_count=missing,
        reason=None if exact is not None else "it has no float64: judged beside eager",
    )


def _judge_integers(
    row: JudgedNode,
    operation: NodeOperation,
    args: Any,
    kwargs: Any,
    compiled: Any,
    eager: Any,
    reference: Any,
    envelope: Envelope,
) -> JudgedNode:
    if reference.dtype != compiled.dtype or reference.shape != compiled.shape:
        reference = eager
    differs, eager_differs = compiled != reference, eager != reference
    is_position = operation.short_name in _POSITIONS and compiled.dtype == torch.int64
    if is_position and bool(differs.any()):
        differs = differs & ~_are_equal_values(args, kwargs, compiled, eager)
    elif bool(differs.any()):
        distance = (compiled.double() - reference.double()).abs()
        differs = differs & (distance > envelope()[0])
    # where eager is as far from float64, neither is wrong
    differs = differs & (compiled != eager)
    count = int(differs.sum())
    share, eager_share = (
        float((compiled != reference).double().mean()),
        float(eager_differs.double().mean()),
    )
    verdict = WRONG if count > EAGER_FACTOR * int(eager_differs.sum()) else RIGHT
    return replace(
        row,
        verdict=verdict,
        error=share,
        eager_error=eager_share,
        limit=0.0 if verdict == WRONG else share,
    )


def _are_equal_values(args: Any, kwargs: Any, compiled: Any, eager: Any) -> Any:
    same, source = torch.zeros_like(compiled, dtype=torch.bool), args[0]
    numbers = [value for value in (*args[1:], *kwargs.values()) if isinstance(value, int)]
    for dim in [None, *(value for value in numbers if not isinstance(value, bool))]:
        try:
            flat = source.reshape(-1)
            if dim is None and compiled.dim() == 0:
                return torch.isclose(
                    flat[compiled],
                    flat[eager],
                    rtol=_dtype_epsilon(name_dtype(source.dtype)),
                    atol=0.0,
                )
            dim = -1 if dim is None else dim
            first, second = compiled, eager
            if compiled.dim() == source.dim() - 1:
                first, second = compiled.unsqueeze(dim), eager.unsqueeze(dim)
            values, others = source.gather(dim, first), source.gather(dim, second)
            epsilon = ENVELOPE * _dtype_epsilon(name_dtype(source.dtype))
            close = (values == others) | (values - others).abs().le(epsilon * values.abs())
            same = same | close.reshape(compiled.shape)
        except (RuntimeError, IndexError):
            continue
    return same


# Bound on the effect of rounding the inputs, and where the result stays finite; computed when
# called.
Envelope = Callable[[], tuple[Any, Any]]


def _find_envelope(
    operation: NodeOperation, args: Any, kwargs: Any, unrounded: Any
) -> tuple[Any, Any]:
    reference = _widen_dtype(unrounded)
    change = torch.zeros_like(reference.abs() if reference.is_complex() else reference)
    finite = torch.ones_like(change, dtype=torch.bool)
    for draw in range(_DRAWS):
        moved = _call_exactly(operation, args, kwargs, unrounded, _make_rounding(draw))
        if moved is None or moved.shape != unrounded.shape:
            continue
        moved = _widen_dtype(moved)
        finite &= moved.isfinite()
        change = torch.maximum(change, (moved - reference).abs().nan_to_num(nan=0.0, posinf=0.0))
    return change * ENVELOPE, finite


def _make_rounding(draw: int) -> Callable[[Any], Any]:
    generator = torch.Generator().manual_seed(draw)
    ordinals = itertools.count()

    def move(tensor: Any) -> Any:
        ordinal = next(ordinals)
        if draw < _SYSTEMATIC_DRAWS:
            signs: Any = -1.0 if (draw & 1) ^ (draw >> 1 & ordinal & 1) else 1.0
        else:
            signs = (
                torch.randint(0, 2, tensor.shape, generator=generator).to(tensor.device) * 2.0 - 1.0
            )
        return _widen_dtype(tensor) * (1.0 + _dtype_epsilon(name_dtype(tensor.dtype)) * signs)

    return move


def _call_operation(operation: NodeOperation, args: Any, kwargs: Any) -> Any:
    arguments, keywords = tree_map(lambda value: clone_together([value])[0], (args, kwargs))
    with torch.no_grad():
        value = operation.function(*arguments, **keywords)
    return value if operation.key is None else operator.getitem(value, operation.key)


def _is_repeatable(operation: NodeOperation, args: Any, kwargs: Any, eager: Any) -> bool:
    """Return whether another seed gives the same result, as for attention without dropout."""
    with torch.random.fork_rng(devices=[eager.device] if eager.is_cuda else []):
        torch.manual_seed(int(torch.randint(1 << 30, ())) + 1)
        return bool(
            torch.equal(eager.nan_to_num(), _call_operation(operation, args, kwargs).nan_to_num())
        )


def _call_exactly(
    operation: NodeOperation,
    args: Any,
    kwargs: Any,
    compiled: Any,
    move: Callable[[Any], Any] | None = None,
) -> Any:
    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if not (value.is_floating_point() or value.is_complex()):
                return value.clone()
            return _widen_dtype(value) if move is None else move(value)
        if isinstance(value, torch.dtype):
            return _EXACT_DTYPES.get(value, torch.float64 if value.is_floating_point else value)
        return value

    if any(isinstance(value, torch.nn.Module) for value in tree_leaves((args, kwargs))):
        return None
    try:
        value = _call_operation(operation, *tree_map(convert, (args, kwargs)))
    except Exception:  # no float64 version, or a dtype set by the operation
        return None
    if not isinstance(value, torch.Tensor) or value.shape != compiled.shape:
        return None
    is_wide = value.dtype in (torch.float64, torch.complex128)
    return value if is_wide == (compiled.is_floating_point() or compiled.is_complex()) else None


def _widen_dtype(tensor: Any) -> Any:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def _count_not_finite(
    compiled: Any, eager: Any, reference: Any, envelope: Envelope, row: JudgedNode, args: Any
) -> int:
    appeared = ~compiled.isfinite() & eager.isfinite() & reference.isfinite()
    if bool(appeared.any()):
        largest = torch.finfo(getattr(torch, str(row.dtype))).max
        appeared &= (reference.abs() < largest * (1 - 16 * _dtype_epsilon(row.dtype))) & envelope()[
            1
        ]
    other = (
        ~compiled.isfinite()
        & ~eager.isfinite()
        & ~reference.isfinite()
        & (compiled.isnan() != eager.isnan())
    )
    vanished = compiled.isfinite() & ~eager.isfinite() & ~reference.isfinite()
    inputs = [value for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
    is_wider = any(value.dtype in LOW_PRECISION or not bool(_is_finite(value)) for value in inputs)
    if is_wider:  # a fused kernel may have had the finite, wider value of an input
        return int(appeared.sum())
    return int((appeared | vanished | other).sum())


def _is_finite(tensor: Any) -> Any:
    return tensor.isfinite().all() if tensor.is_floating_point() or tensor.is_complex() else True


def _relative_rms(value: Any, right: Any = None) -> float:
    finite = value.isfinite() if right is None else value.isfinite() & right.isfinite()
    difference = (value if right is None else value - right)[finite]
    return float(difference.abs().square().mean().sqrt()) if difference.numel() else 0.0


def _rms_beyond(value: Any, right: Any, allowed: Any) -> float:
    finite = value.isfinite() & right.isfinite()
    beyond = ((value - right).abs() - allowed).clamp(min=0.0)[finite]
    return float(beyond.square().mean().sqrt()) if beyond.numel() else 0.0


def _count_terms(
    operation: NodeOperation, args: Sequence[Any], kwargs: Any, compiled: Any
) -> float:
    """Return the maximum number of summands per element; rounding errors grow as its square
    root.
    """
    tensors = [
        value
        for value in tree_leaves((args, kwargs))
        if isinstance(value, torch.Tensor) and value.numel()
    ]
    if not tensors:
        return 1.0
    most = max(int(tensor.numel()) for tensor in tensors)
    if operation.short_name in _CONVOLUTIONS:
        return max(float(most) / float(compiled.shape[0]), 1.0)
    longest = max((tensor.shape[-1] if tensor.dim() else 1) for tensor in tensors)
    is_sum = operation.short_name in _MATRIX or not operation.name.startswith(("aten.", "prims."))
    return max(float(most) / float(compiled.numel()), float(longest) if is_sum else 1.0)


def _dtype_epsilon(dtype: str | None) -> float:
    kind = getattr(torch, dtype or "float64")
    return float(torch.finfo(kind).eps) if kind.is_floating_point or kind.is_complex else 0.0


def _smallest_normal(dtype: str | None) -> float:
    return float(torch.finfo(getattr(torch, dtype or "float64")).tiny)


def is_random(target: Any) -> bool:
    if torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
        return True
    return _RANDOM.search(getattr(target, "__name__", str(target))) is not None
