"""Whether the compiled model computes what eager computes: upstream's rules and verdicts.

A double-precision run is the reference, two eager runs must agree first, and the compiled result may be as far from the
reference as eager's own, times a factor, within the tolerance.
Source: check_accuracy of upstream's benchmarks/dynamo/common.py; the comparison itself is torch's `same`.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import torch
from torch._dynamo.testing import reset_rng_state
from torch._dynamo.utils import calculate_time_spent, clone_inputs, counters, same

from compileboard.collectors.bench.plan.model_facts import tolerance_for
from compileboard.collectors.bench.steps import cast_inputs
from compileboard.collectors.bench.worker.counters import counted_since, dynamo_counts
from compileboard.collectors.bench.worker.mismatch import describe_difference
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.bench.worker.workbench import (
    FAILURES,
    StageFailed,
    Workbench,
    eagerly,
    failing_as,
    mark_batch,
)

log = logging.getLogger(__name__)

PASSED = ("pass", "pass_due_to_skip")


def run(bench: Workbench) -> ExperimentOutcome:
    """Compare; the verdict is the outcome's `accuracy`."""
    start = dynamo_counts()
    if skip := bench.facts.reason("accuracy_skip"):
        return ExperimentOutcome(accuracy="pass_due_to_skip", facts={"skip": skip})
    facts: dict[str, Any] = {}
    try:
        with bench.grad():
            verdict, difference = _check(bench, facts)
    except StageFailed as failed:
        cause = failed.__cause__ or failed
        return _outcome(failed.reason, start, facts, cause)
    if verdict in ("eager_two_runs_differ", "fail_accuracy") and (flaky := bench.facts.reason("flaky")):
        facts["flaky"] = flaky
    outcome = _outcome(verdict, start, facts)
    outcome.message = difference or outcome.message
    return outcome


def _outcome(
    verdict: str, start: Counter[str], facts: dict[str, Any], cause: BaseException | None = None
) -> ExperimentOutcome:
    import traceback

    values = counted_since(start)
    values["compilation_latency"] = float(calculate_time_spent().get("total_wall_time", 0.0))
    outcome = ExperimentOutcome(accuracy=verdict, values=values, facts=facts)
    if verdict not in PASSED:
        outcome.status, outcome.reason = "failed", verdict
    if cause is not None:
        outcome.message = f"{type(cause).__name__}: {cause}".strip()
        outcome.traceback = "".join(traceback.format_exception(cause))
    return outcome


def _check(bench: Workbench, facts: dict[str, Any]) -> tuple[str, str]:
    """Return the verdict, and how far results are apart that should not be."""
    bench.stage("reference")
    reference = _reference(bench, facts)
    tolerance, cosine = tolerance_for(
        bench.facts,
        suite=bench.ref.suite,
        mode=bench.settings.mode,
        dtype=bench.settings.dtype,
        device=bench.settings.device,
        freezing=bench.settings.freezing,
    )
    cosine = cosine or bench.settings.cosine or (reference is None and not bench.settings.skip_fp64_check)
    facts |= {"tolerance": tolerance, "cosine": cosine}
    bench.cast()
    bench.loaded.inputs = bench.prepare_inputs(bench.inputs)
    mark_batch(bench)
    bench.stage("eager")
    first = _eager(bench, "1st")
    second = _eager(bench, "2nd")
    if not bench.facts.find("eager_differs") and not _same(first, second, None, bench, tolerance=0.0, cosine=False):
        return "eager_two_runs_differ", _describe(first, second)
    del second
    bench.stage("compile")
    result = _compiled(bench)
    if bench.facts.find("eager_differs"):
        return "pass_due_to_skip", ""
    bench.stage("compare")
    if _same(first, result, reference, bench, tolerance=tolerance, cosine=cosine):
        return "pass", ""
    if bench.settings.skip_accuracy_check:
        return "pass_due_to_skip", ""
    return "fail_accuracy", _describe(first, result, reference)


def _describe(*results: Any) -> str:
    """Describe how far results are apart; never at the price of the verdict."""
    try:
        return describe_difference(*results)
    except Exception:  # results may be of any type
        log.exception("how far the results are apart cannot be told")
        return ""


def _reference(bench: Workbench, facts: dict[str, Any]) -> Any:
    """Compute in double precision; None where the model cannot."""
    if bench.settings.skip_fp64_check:
        return None
    try:
        module = bench.copy_module().to(torch.float64)
        inputs = cast_inputs(clone_inputs(bench.inputs), torch.float64)
        bench.steps.use(module)
        with eagerly():
            result = bench.run_iterations(bench.steps.step(), module, inputs)
        return cast_inputs(result, torch.float64)
    except FAILURES as error:
        facts["reference_error"] = f"{type(error).__name__}: {error}"
        log.warning("no double-precision reference for %s: cosine similarity is compared instead", bench.ref.name)
        return None
    finally:
        bench.free()


def _eager(bench: Workbench, which: str) -> Any:
    reset_rng_state()
    with failing_as(f"eager_{which}_run_fail", f"eager_{which}_run_OOM"), eagerly():
        module = bench.copy_module()
        bench.steps.use(module)
        result = bench.run_iterations(bench.steps.step(), module, clone_inputs(bench.inputs))
    bench.free()
    return result


def _compiled(bench: Workbench) -> Any:
    reset_rng_state()
    torch._dynamo.reset()
    counters.clear()
    with failing_as("fail_to_run"):
        module = bench.copy_module()
        bench.steps.use(module)
        return bench.run_iterations(bench.compile(bench.steps.step()), module, bench.inputs)


def _same(left: Any, right: Any, reference: Any, bench: Workbench, *, tolerance: float, cosine: bool) -> bool:
    """Compare by torch's own rule; what cannot be compared is not the same."""
    try:
        return bool(
            same(
                left,
                right,
                reference,
                equal_nan=bench.settings.dtype != "float32",
                cos_similarity=cosine,
                tol=tolerance,
                use_larger_multiplier_for_smaller_tensor=bench.facts.find("larger_multiplier") is not None,
            )
        )
    except Exception:  # torch's comparison raises for shapes and types that do not fit
        log.exception("the results of %s cannot be compared", bench.ref.name)
        return False
