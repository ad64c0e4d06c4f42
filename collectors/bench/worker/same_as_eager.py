"""Compare any result with eager's, by upstream's rule and verdicts.

A double-precision run is the reference, and two eager runs must agree first. The result's distance
from the reference may be at most that of eager, times a factor, within the tolerance. Source:
check_accuracy of upstream's benchmarks/dynamo/common.py; the comparison itself is torch's `same`.
"""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo.testing import reset_rng_state
from torch._dynamo.utils import clone_inputs, counters, same
from torch.utils import _pytree

from compileboard.collectors.bench.plan.model_facts import tolerance_for
from compileboard.collectors.bench.steps import cast_inputs
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome, describe_error
from compileboard.collectors.bench.worker.workbench import (
    FAILURES,
    StageFailed,
    Workbench,
    eagerly,
    failing_as,
    mark_batch,
)


@dataclass(frozen=True)
class Mismatch:
    where: str
    shape: tuple[int, ...]
    relative: float
    largest: float
    wrong_nan_count: int
    own: float | None  # eager's own relative distance from the double-precision reference


def describe_difference(eager: Any, compiled: Any, reference: Any = None) -> str:
    left, right = flatten_result(eager), flatten_result(compiled)
    if left.keys() != right.keys():
        eager_leaves, compiled_leaves = _describe_leaves(left), _describe_leaves(right)
        return (
            f"eager gives {eager_leaves} and the compiled model {compiled_leaves}, "
            "or in other places"
        )
    exact = flatten_result(reference) if reference is not None else {}
    far = []
    for where, first in left.items():
        second = right[where]
        if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
            continue
        if _describe_tensor(first) != _describe_tensor(second):
            kinds = _describe_tensor(first), _describe_tensor(second)
            return f"{where} is {kinds[0]} in eager and {kinds[1]} compiled"
        far.append(_measure_mismatch(where, first, second, exact.get(where)))
    differing = [mismatch for mismatch in far if mismatch.relative > 0 or mismatch.wrong_nan_count]
    if not differing:
        return ""
    worst = max(differing, key=lambda mismatch: (mismatch.wrong_nan_count, mismatch.relative))
    return _format_mismatch(worst, len(differing), len(far))


def output_error(eager: Any, other: Any) -> float | None:
    """Return the largest relative error over tensors, None if they do not match. The error of a
    tensor is the RMS of the distance over the RMS of eager's values.
    """
    left, right = flatten_result(eager), flatten_result(other)
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
    errors = [_measure_mismatch(where, first, second, None) for first, second, where in pairs]
    worst = max(mismatch.relative for mismatch in errors)
    return (
        worst
        if math.isfinite(worst) and not any(mismatch.wrong_nan_count for mismatch in errors)
        else None
    )


def flatten_result(result: Any) -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for path, leaf in _pytree.tree_flatten_with_path(result)[0]:
        where = f"result{_pytree.keystr(path)}"
        # A library's output class that is not registered with torch is replaced by its contents.
        held = (
            vars(leaf) if hasattr(leaf, "__dict__") and not isinstance(leaf, torch.Tensor) else None
        )
        leaves |= (
            {where: leaf}
            if held is None
            else {f"{where}.{name}": value for name, value in held.items()}
        )
    return leaves


def _describe_leaves(leaves: dict[str, Any]) -> str:
    number = sum(isinstance(leaf, torch.Tensor) for leaf in leaves.values())
    return f"{number} tensor" + ("s" if number != 1 else "")


def _describe_tensor(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _measure_mismatch(
    where: str, eager: torch.Tensor, compiled: torch.Tensor, exact: Any
) -> Mismatch:
    first, second = _to_double(eager), _to_double(compiled)
    known = torch.isfinite(first) & torch.isfinite(second)
    # An infinity or NaN on both sides is no difference; on one side it counts.
    unlike = int(((torch.isfinite(first) | torch.isfinite(second)) & ~known).sum())
    distance, size = (second - first)[known], _root_mean_square(first[known])
    own = None
    if isinstance(exact, torch.Tensor) and exact.shape == first.shape:
        wide = _to_double(exact)
        both = torch.isfinite(wide) & torch.isfinite(first)
        own = _safe_ratio(_root_mean_square((first - wide)[both]), _root_mean_square(wide[both]))
    largest = float(distance.abs().max()) if distance.numel() else 0.0
    relative = _safe_ratio(_root_mean_square(distance), size)
    return Mismatch(where, tuple(eager.shape), relative, largest, unlike, own)


def _to_double(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().cpu()
    plain = plain.to_dense() if plain.layout != torch.strided else plain
    return torch.view_as_real(plain).double() if plain.is_complex() else plain.double()


def _root_mean_square(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def _safe_ratio(value: float, whole: float) -> float:
    return 0.0 if value == 0 else value / whole if whole else math.inf


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


log = logging.getLogger(__name__)

PASSED = ("pass", "pass_due_to_skip")


def judge(
    bench: Workbench, compute: Callable[[], Any], *, iterations: int | None = None
) -> ExperimentOutcome:
    """Return the verdict on the result of `compute`, with its distance from eager's as
    `output_error`.

    `compute` is called once, after the model and inputs are cast, and must copy the module; if it
    raises, the verdict is fail_to_run. `iterations` is the number of eager steps before the
    comparison, by default as in the settings.
    """
    outcome = ExperimentOutcome()
    try:
        with bench.grad():
            verdict, difference = _check_result(
                bench, compute, iterations or bench.settings.iterations, outcome
            )
    except StageFailed as failed:
        cause = failed.__cause__ or failed
        verdict, difference = failed.reason, describe_error(cause)
        outcome.traceback = "".join(traceback.format_exception(cause))
    if verdict in ("eager_two_runs_differ", "fail_accuracy") and (
        flaky := bench.facts.reason("flaky")
    ):
        outcome.facts["flaky"] = flaky
    outcome.accuracy, outcome.message = verdict, difference or None
    if verdict not in PASSED:
        outcome.status, outcome.reason = "failed", verdict
    return outcome


def _check_result(
    bench: Workbench, compute: Callable[[], Any], iterations: int, outcome: ExperimentOutcome
) -> tuple[str, str]:
    skip = bench.facts.reason("accuracy_skip")
    reference = None
    if skip is None:
        bench.stage("reference")
        reference = _run_reference(bench, iterations, outcome.facts)
    tolerance, cosine = tolerance_for(
        bench.facts,
        suite=bench.ref.suite,
        mode=bench.settings.mode,
        dtype=bench.settings.dtype,
        device=bench.settings.device,
        freezing=bench.settings.freezing,
    )
    cosine = (
        cosine
        or bench.settings.cosine
        or (reference is None and not bench.settings.skip_fp64_check)
    )
    bench.cast()
    bench.loaded.inputs = bench.prepare_inputs(bench.inputs)
    mark_batch(bench)
    if skip is not None:
        _run_compute(bench, compute)
        outcome.facts["skip"] = skip
        return "pass_due_to_skip", ""
    outcome.facts |= {"tolerance": tolerance, "cosine": cosine}
    bench.stage("eager")
    first = _run_eager(bench, iterations, "1st")
    second = _run_eager(bench, iterations, "2nd")
    if not bench.facts.find("eager_differs") and not is_same(
        first, second, None, bench, tolerance=0.0, cosine=False
    ):
        return "eager_two_runs_differ", _describe_error(first, second)
    del second
    result = _run_compute(bench, compute)
    if bench.facts.find("eager_differs"):
        return "pass_due_to_skip", ""
    bench.stage("compare")
    if (error := output_error(first, result)) is not None:
        outcome.values["output_error"] = error
    if is_same(first, result, reference, bench, tolerance=tolerance, cosine=cosine):
        return "pass", ""
    if bench.settings.skip_accuracy_check:
        return "pass_due_to_skip", ""
    return "fail_accuracy", _describe_error(first, result, reference)


def _describe_error(*results: Any) -> str:
    try:
        return describe_difference(*results)
    except Exception:  # results may be of any type
        log.exception("how far the results are apart cannot be told")
        return ""


def _run_reference(bench: Workbench, iterations: int, facts: dict[str, Any]) -> Any:
    if bench.settings.skip_fp64_check:
        return None
    reset_rng_state()  # as for eager: with other random numbers the comparison would be meaningless
    try:
        module = bench.copy_module(torch.float64)
        inputs = cast_inputs(clone_inputs(bench.inputs), torch.float64)
        bench.steps.use(module)
        # Otherwise dropout draws another mask than in eager mode, and eager's distance from this
        # reference would allow the compiled result the same.
        reset_rng_state()
        with eagerly():
            result = bench.run_iterations(bench.steps.step(), module, inputs, iterations)
        return cast_inputs(result, torch.float64)
    except FAILURES as error:
        facts["reference_error"] = describe_error(error)
        log.warning(
            "no double-precision reference for %s: cosine similarity is compared instead",
            bench.ref.name,
        )
        return None
    finally:
        bench.free()


def _run_eager(bench: Workbench, iterations: int, which: str) -> Any:
    reset_rng_state()
    with failing_as(f"eager_{which}_run_fail", f"eager_{which}_run_OOM"), eagerly():
        module = bench.copy_module()
        bench.steps.use(module)
        result = bench.run_iterations(
            bench.steps.step(), module, clone_inputs(bench.inputs), iterations
        )
    bench.free()
    return result


def _run_compute(bench: Workbench, compute: Callable[[], Any]) -> Any:
    bench.stage("compile")
    reset_rng_state()
    torch._dynamo.reset()
    counters.clear()
    with failing_as("fail_to_run"):
        return compute()


LARGER = "use_larger_multiplier_for_smaller_tensor"


def is_same(
    left: Any, right: Any, reference: Any, bench: Workbench, *, tolerance: float, cosine: bool
) -> bool:
    try:
        return bool(
            same(
                left,
                right,
                reference,
                equal_nan=bench.settings.dtype != "float32",
                cos_similarity=cosine,
                tol=tolerance,
                # torch 2.4 has no such argument.
                **({LARGER: True} if bench.facts.find("larger_multiplier") else {}),
            )
        )
    except Exception:  # torch's comparison raises if shapes or types do not match
        log.exception("the results of %s cannot be compared", bench.ref.name)
        return False
