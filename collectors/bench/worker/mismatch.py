"""Describe the difference of compiled results from eager's in one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree


@dataclass(frozen=True)
class Mismatch:
    where: str
    shape: tuple[int, ...]
    relative: float
    largest: float
    wrong_nan_count: int
    own: float | None  # eager's own relative distance from the double-precision reference


def describe_difference(eager: Any, compiled: Any, reference: Any = None) -> str:
    left, right = _flatten(eager), _flatten(compiled)
    if left.keys() != right.keys():
        return (
            f"eager gives {_count(left)} and the compiled model {_count(right)}, or in other places"
        )
    exact = _flatten(reference) if reference is not None else {}
    far = []
    for where, first in left.items():
        second = right[where]
        if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
            continue
        if _kind(first) != _kind(second):
            return f"{where} is {_kind(first)} in eager and {_kind(second)} compiled"
        far.append(_measure(where, first, second, exact.get(where)))
    differing = [mismatch for mismatch in far if mismatch.relative > 0 or mismatch.wrong_nan_count]
    if not differing:
        return ""
    worst = max(differing, key=lambda mismatch: (mismatch.wrong_nan_count, mismatch.relative))
    return _format_mismatch(worst, len(differing), len(far))


def output_error(eager: Any, other: Any) -> float | None:
    """Return the largest relative error over tensors, None if they do not match. The error of a
    tensor is the RMS of the distance over the RMS of eager's values.
    """
    left, right = _flatten(eager), _flatten(other)
    pairs = [
        (first, right.get(where), where)
        for where, first in left.items()
        if isinstance(first, torch.Tensor)
    ]
    fits = all(
        isinstance(second, torch.Tensor) and second.shape == first.shape
        for first, second, _ in pairs
    )
    if not pairs or not fits:
        return None
    errors = [_measure(where, first, second, None) for first, second, where in pairs]
    worst = max(mismatch.relative for mismatch in errors)
    return (
        worst
        if math.isfinite(worst) and not any(mismatch.wrong_nan_count for mismatch in errors)
        else None
    )


def _flatten(result: Any) -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for path, leaf in _pytree.tree_flatten_with_path(result)[0]:
        where = f"result{_pytree.keystr(path)}"
        # An output class of a library, where torch has not been told that it is one, is what it
        # holds.
        held = (
            vars(leaf) if hasattr(leaf, "__dict__") and not isinstance(leaf, torch.Tensor) else None
        )
        leaves |= (
            {where: leaf}
            if held is None
            else {f"{where}.{name}": value for name, value in held.items()}
        )
    return leaves


def _count(leaves: dict[str, Any]) -> str:
    number = sum(isinstance(leaf, torch.Tensor) for leaf in leaves.values())
    return f"{number} tensor" + ("s" if number != 1 else "")


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _measure(where: str, eager: torch.Tensor, compiled: torch.Tensor, exact: Any) -> Mismatch:
    first, second = _widen(eager), _widen(compiled)
    known = torch.isfinite(first) & torch.isfinite(second)
    # An infinity or NaN that both have is no difference; one that a single side has is counted.
    unlike = int(((torch.isfinite(first) | torch.isfinite(second)) & ~known).sum())
    distance, size = (second - first)[known], _root_mean_square(first[known])
    own = None
    if isinstance(exact, torch.Tensor) and exact.shape == first.shape:
        wide = _widen(exact)
        both = torch.isfinite(wide) & torch.isfinite(first)
        own = _ratio(_root_mean_square((first - wide)[both]), _root_mean_square(wide[both]))
    largest = float(distance.abs().max()) if distance.numel() else 0.0
    relative = _ratio(_root_mean_square(distance), size)
    return Mismatch(where, tuple(eager.shape), relative, largest, unlike, own)


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().cpu()
    plain = plain.to_dense() if plain.layout != torch.strided else plain
    return torch.view_as_real(plain).double() if plain.is_complex() else plain.double()


def _root_mean_square(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def _ratio(part: float, whole: float) -> float:
    return 0.0 if part == 0 else part / whole if whole else math.inf


def _format_mismatch(mismatch: Mismatch, differing_count: int, count: int) -> str:
    text = f"{differing_count} of {count} tensors differ, most in {mismatch.where} {mismatch.shape}"
    if mismatch.relative:
        size = (
            "where eager has zeros"
            if math.isinf(mismatch.relative)
            else f"{mismatch.relative:.2g} of eager's root mean square"
        )
        text += f": {size}, at most {mismatch.largest:.3g} in one element"
    if mismatch.wrong_nan_count:
        text += f"; numbers that are finite on one side alone: {mismatch.wrong_nan_count}"
    if mismatch.own is not None:
        text += f"; eager itself is {mismatch.own:.2g} from double precision"
    return text
