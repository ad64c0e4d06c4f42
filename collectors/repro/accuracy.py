"""Compare the outputs and mutated inputs of a compiled graph with eager and float64.

torch's own comparison accepts everything if the float64 reference has NaN, and ignores inputs. Here
a reference with a NaN that eager lacks is ignored, and every input is compared too.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from compileboard.collectors.repro.failure import DIFFERS, NOT_FINITE, OTHER_INTEGERS, PASSED

TOLERANCE = 1e-3  # torch's own `repro_tolerance`
FEW_ELEMENTS = 1000


@dataclass(frozen=True)
class Difference:
    subject: str  # "output 0", "input 3 afterwards"
    status: str  # passed | differs | not_finite | other_integers
    error: float | None = (
        None  # relative RMS beside float64, or beside eager where there is no float64
    )
    eager_error: float | None = None
    has_reference: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in asdict(self).items()
            if value is not None and not (isinstance(value, float) and not math.isfinite(value))
        }


def clone_together(values: Sequence[Any], dtype: Any = None) -> list[Any]:
    storages: dict[Any, Any] = {}
    clones = []
    for value in values:
        if not isinstance(value, torch.Tensor):
            clones.append(value)
            continue
        clone = _clone_view(value.detach(), storages, dtype)
        clones.append(clone.requires_grad_(value.requires_grad) if value.requires_grad else clone)
    return clones


def _clone_view(tensor: Any, storages: dict[Any, Any], dtype: Any) -> Any:
    to_dtype = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    try:
        storage = tensor.untyped_storage()
        key = (storage.data_ptr(), tensor.dtype, tensor.device)
        count = storage.nbytes() // tensor.element_size()
    except (RuntimeError, NotImplementedError):  # sparse, a subclass: it has no storage of its own
        return tensor.clone().to(to_dtype)
    if storage.data_ptr() == 0 or tensor.layout != torch.strided:
        return tensor.clone().to(to_dtype)
    if key not in storages:
        whole = torch.as_strided(tensor, (count,), (1,), 0)
        storages[key] = whole.clone().to(to_dtype)
    return torch.as_strided(storages[key], tensor.shape, tensor.stride(), tensor.storage_offset())


def list_tensors(outputs: Any, inputs: Sequence[Any]) -> list[tuple[str, Any]]:
    subjects = [(f"output {number}", leaf) for number, leaf in enumerate(tree_leaves(outputs))]
    for number, value in enumerate(inputs):
        if isinstance(value, torch.Tensor):
            subjects.append((f"input {number} afterwards", value))
            if value.is_leaf and value.grad is not None:
                subjects.append((f"gradient of input {number}", value.grad))
    return subjects


def compare(
    subject: str, eager: Any, compiled: Any, reference: Any = None, is_strict: bool = False
) -> Difference:
    """Compare one tensor: by float64 and eager's own error, or bitwise if `is_strict`."""
    if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
        same = type(eager) is type(compiled) and (eager == compiled or eager != eager)
        return Difference(subject, PASSED if same else OTHER_INTEGERS)
    eager, compiled = eager.detach(), compiled.detach()
    if eager.shape != compiled.shape or eager.dtype != compiled.dtype:
        return Difference(subject, DIFFERS)
    if eager.layout != torch.strided or eager.is_quantized:
        eager, compiled = _to_plain(eager), _to_plain(compiled)
    if not (eager.is_floating_point() or eager.is_complex()):
        return Difference(subject, PASSED if torch.equal(eager, compiled) else OTHER_INTEGERS)
    if not torch.equal(eager.isnan(), compiled.isnan()) or not _same_infinities(eager, compiled):
        if not _is_better(eager, compiled, reference):
            return Difference(subject, NOT_FINITE)
        return Difference(subject, PASSED)
    return _compare_floats(subject, eager, compiled, _usable(reference, eager), is_strict)


def compare_all(
    eager: Sequence[tuple[str, Any]],
    compiled: Sequence[tuple[str, Any]],
    reference: Sequence[tuple[str, Any]] | None,
    is_strict: bool = False,
) -> list[Difference]:
    """Compare all outputs and inputs. Raises ValueError if the numbers of values differ."""
    if len(eager) != len(compiled):
        raise ValueError(f"eager returned {len(eager)} values, the compiled graph {len(compiled)}")
    exact = (
        [value for _, value in reference]
        if reference is not None and len(reference) == len(eager)
        else None
    )
    return [
        compare(subject, value, compiled[index][1], exact[index] if exact else None, is_strict)
        for index, (subject, value) in enumerate(eager)
    ]


def worst_of(differences: Sequence[Difference]) -> Difference | None:
    """Return the most serious difference: NaN before wrong floats before wrong integers."""
    order = (NOT_FINITE, DIFFERS, OTHER_INTEGERS, PASSED)
    return min(
        differences,
        key=lambda entry: (order.index(entry.status), -(entry.error or 0.0)),
        default=None,
    )


def run_in_float64(
    module: Any, inputs: Sequence[Any], call: Callable[[Any, list[Any]], Any]
) -> list[tuple[str, Any]] | None:
    from torch._dynamo.debug_utils import cast_to_fp64

    try:
        exact, _ = cast_to_fp64(copy.deepcopy(module), [])
        arguments = clone_together(inputs, torch.float64)
        return list_tensors(call(exact, arguments), arguments)
    except (
        Exception
    ):  # an operation that float64 has not, a dtype that the graph asks for: eager is what is left
        return None


def _compare_floats(
    subject: str, eager: Any, compiled: Any, reference: Any, is_strict: bool
) -> Difference:
    if reference is None:
        error = _relative_rms(compiled, eager)
        passes = torch.allclose(eager, compiled, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        eager_error = None
    else:
        error, eager_error = _relative_rms(compiled, reference), _relative_rms(eager, reference)
        is_noisy = reference.numel() < FEW_ELEMENTS or eager.dtype in (
            torch.float16,
            torch.bfloat16,
        )
        limit = (3.0 if is_noisy else 2.0) * eager_error + TOLERANCE / 10
        passes = error <= limit or torch.allclose(
            eager, compiled, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
        )
    if is_strict:
        passes = torch.equal(eager.nan_to_num(), compiled.nan_to_num())
    return Difference(
        subject, PASSED if passes else DIFFERS, error, eager_error, reference is not None
    )


def _relative_rms(value: Any, right: Any) -> float:
    """Return rms(value − right) / rms(right) over elements that are finite in both."""
    to_dtype = torch.complex128 if right.is_complex() else torch.float64
    value, right = value.to(to_dtype), right.to(to_dtype)
    finite = value.isfinite() & right.isfinite()
    if not bool(finite.any()):
        return 0.0
    difference, size = (
        (value - right)[finite].abs().square().mean().sqrt(),
        right[finite].abs().square().mean().sqrt(),
    )
    return float(difference / size) if float(size) > 0 else float(difference)


def _usable(reference: Any, eager: Any) -> Any:
    if not isinstance(reference, torch.Tensor) or reference.shape != eager.shape:
        return None
    reference = reference.detach()
    if not (reference.is_floating_point() or reference.is_complex()):
        return None
    return None if bool((~reference.isfinite() & eager.isfinite()).any()) else reference


def _is_better(eager: Any, compiled: Any, reference: Any) -> bool:
    """Return whether compiled and float64 are finite where eager is not, as with wider
    accumulation.
    """
    exact = (
        reference
        if isinstance(reference, torch.Tensor) and reference.shape == eager.shape
        else None
    )
    if exact is None or not bool(exact.isfinite().all()) or not bool(compiled.isfinite().all()):
        return False
    return _relative_rms(compiled, exact.detach()) <= TOLERANCE * 40


def _same_infinities(eager: Any, compiled: Any) -> bool:
    if eager.is_complex():
        return bool(torch.equal(eager.isinf(), compiled.isinf()))
    infinities = ((eager.isposinf(), compiled.isposinf()), (eager.isneginf(), compiled.isneginf()))
    return all(bool(torch.equal(left, right)) for left, right in infinities)


def _to_plain(tensor: Any) -> Any:
    return tensor.dequantize() if tensor.is_quantized else tensor.to_dense()
