"""Compile, run and compare a graph. Only in trial processes, because it changes torch's state.

AOTAutograd's graphs are compiled with `compile_fx_inner`, Dynamo's with their backend. A graph with
symbolic sizes is compiled with symbolic inputs: with real ones torch would fix all sizes unless a
placeholder is a SymInt, and minifying removes those as unused inputs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch._inductor.config
from torch.fx.experimental.symbolic_shapes import has_free_symbols
from torch.utils._pytree import tree_leaves

from compileboard.collectors.observe import torch_compat
from compileboard.collectors.repro import repro as failure
from compileboard.collectors.repro.graph_loading import list_placeholders
from compileboard.collectors.repro.repro import (
    DIFFERS,
    NOT_FINITE,
    OTHER_INTEGERS,
    PASSED,
    Failure,
    NotRunnable,
)

TOLERANCE = 1e-3  # torch's own `repro_tolerance`
FEW_ELEMENTS = 1000


@dataclass(frozen=True)
class Difference:
    subject: str  # "output 0", "input 3 afterwards"
    status: str  # passed | differs | not_finite | other_integers
    # Relative RMS error against float64, or against eager without float64.
    error: float | None = None
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
    except (RuntimeError, NotImplementedError):  # sparse, or a subclass without storage
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
    is_usable = isinstance(reference, torch.Tensor) and reference.shape == eager.shape
    reference = reference.detach() if is_usable else None
    if eager.layout != torch.strided or eager.is_quantized:
        eager, compiled = _to_plain(eager), _to_plain(compiled)
    if not (eager.is_floating_point() or eager.is_complex()):
        return Difference(subject, PASSED if torch.equal(eager, compiled) else OTHER_INTEGERS)
    if not torch.equal(eager.isnan(), compiled.isnan()) or not _same_infinities(eager, compiled):
        is_better = _is_better(compiled, reference)
        return Difference(subject, PASSED if is_better else NOT_FINITE)
    return _compare_floats(subject, eager, compiled, _usable_reference(reference, eager), is_strict)


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
    except Exception:  # an operation without float64, or a dtype set by the graph: eager remains
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


def _usable_reference(reference: Any, eager: Any) -> Any:
    if reference is None or not (reference.is_floating_point() or reference.is_complex()):
        return None
    return None if bool((~reference.isfinite() & eager.isfinite()).any()) else reference


def _is_better(compiled: Any, reference: Any) -> bool:
    """Return whether compiled and float64 are finite where eager is not, as happens with wider
    accumulation.
    """
    if reference is None or not bool((reference.isfinite() & compiled.isfinite()).all()):
        return False
    return _relative_rms(compiled, reference) <= TOLERANCE * 40


def _same_infinities(eager: Any, compiled: Any) -> bool:
    if eager.is_complex():
        return bool(torch.equal(eager.isinf(), compiled.isinf()))
    infinities = ((eager.isposinf(), compiled.isposinf()), (eager.isneginf(), compiled.isneginf()))
    return all(bool(torch.equal(left, right)) for left, right in infinities)


def _to_plain(tensor: Any) -> Any:
    return tensor.dequantize() if tensor.is_quantized else tensor.to_dense()


COMPILED, EAGER = "compiled", "eager"
# Inductor settings under which no two operations are fused.
NO_FUSION = {
    "max_fusion_size": 1,
    "realize_opcount_threshold": -1,
    "epilogue_fusion": False,
    "prologue_fusion": False,
}


@dataclass(frozen=True)
class Judge:
    kind: str  # compile | runtime | accuracy | crash
    level: str = "aot"  # dynamo | aot
    backend: str = "inductor"  # The backend of Dynamo's graph.
    mode: str = COMPILED  # eager: the graph also fails without a compiler
    is_strict: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)  # Inductor's settings in this trial.


def judge(module: Any, inputs: Sequence[Any], how: Judge) -> dict[str, Any]:
    """Run a graph once and describe in which way its result is wrong, if it is.

    Raises the compiler's or graph's own exception.
    """
    with torch._inductor.config.patch(how.settings):
        if how.kind != "accuracy":
            _run_once(module, inputs, how)
            return {"failure": Failure(failure.PASSED).to_json(), "differences": []}
        differences = _compare_once(module, inputs, how)
    worst = worst_of(differences)
    status = worst.status if worst is not None else failure.PASSED
    failing = [entry.to_json() for entry in differences if entry.status != failure.PASSED]
    return {"failure": Failure(status).to_json(), "differences": failing}


def symbolic_inputs(module: Any, inputs: Sequence[Any]) -> list[Any]:
    values = [node.meta.get("val") for node in list_placeholders(module)]
    if len(values) != len(inputs) or not any(is_symbolic(value) for value in values):
        return list(inputs)
    return [value if value is not None else real for value, real in zip(values, inputs)]


def require_names(*capabilities: str) -> None:
    for capability in capabilities:
        if torch_compat.load(capability) is torch_compat.MISSING:
            raise NotRunnable(torch_compat.describe_missing(capability))


def is_symbolic(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, torch.SymInt)) and bool(has_free_symbols(value))


def compile_graph(module: Any, inputs: Sequence[Any], how: Judge) -> Callable[[list[Any]], Any]:
    arguments = symbolic_inputs(module, inputs)
    if how.level == "aot":
        require_names("graph_compiler")
        from torch._inductor.compile_fx import compile_fx_inner

        inner = compile_fx_inner(module, arguments)
        return lambda values: inner(list(values))
    from torch._dynamo.backends.registry import lookup_backend

    compiled = lookup_backend(how.backend)(module, arguments)
    return lambda values: compiled(*values)  # as dynamo calls it, regardless of its `_boxed_call`


def _run_once(module: Any, inputs: Sequence[Any], how: Judge) -> None:
    values = clone_together(inputs)
    if how.mode == EAGER:
        _call_graph(lambda arguments: module(*arguments), values, how)
    else:
        _call_graph(compile_graph(module, values, how), values, how)
    wait_for_devices(inputs)


def _compare_once(module: Any, inputs: Sequence[Any], how: Judge) -> list[Difference]:
    # another random stream than eager's is not an error
    with torch._inductor.config.patch(fallback_random=True):
        original = copy.deepcopy(module)  # compiling modifies the graph
        eager = _list_subjects(lambda arguments: original(*arguments), inputs, how)
        reference = None
        if not how.is_strict:
            reference = run_in_float64(
                original,
                inputs,
                lambda exact, values: _call_graph(lambda arguments: exact(*arguments), values, how),
            )
        values = clone_together(inputs)
        compiled = _list_subjects(compile_graph(module, values, how), inputs, how)
    wait_for_devices(inputs)
    return compare_all(eager, compiled, reference, how.is_strict)


def _list_subjects(
    function: Callable[[list[Any]], Any], inputs: Sequence[Any], how: Judge
) -> list[tuple[str, Any]]:
    torch.manual_seed(0)
    values = clone_together(inputs)
    return list_tensors(_call_graph(function, values, how), values)


def _call_graph(function: Callable[[list[Any]], Any], values: list[Any], how: Judge) -> Any:
    if how.level == "dynamo":
        return _call_with_gradients(function, values)
    with torch.no_grad():
        return function(values)


def _call_with_gradients(function: Callable[[list[Any]], Any], values: list[Any]) -> Any:
    outputs = function(values)
    losses = [
        leaf.sum()
        for leaf in tree_leaves(outputs)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_floating_point()
    ]
    if losses:
        sum(losses).backward()
    return outputs


def wait_for_devices(inputs: Sequence[Any]) -> None:
    """Synchronise accelerators, whose errors are asynchronous."""
    if any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in inputs):
        torch.cuda.synchronize()
