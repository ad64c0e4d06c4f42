"""Speedup of quantized weights over compiled bfloat16, and their effect on the result.

Both sides are compiled and timed alternately: `eager_latency` and the eager samples are those of
the compiled model without quantization. The result is judged by its own errors, because no rule for
rounding fits it. Source: --quantization of upstream's benchmarks/dynamo/common.py and
torchao_backend.py, which times one side after the other and passes every model.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from statistics import median
from types import FunctionType, MethodType
from typing import Any

import torch
from torch._dynamo.testing import reset_rng_state

from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.plan.models import NotAvailable
from compileboard.collectors.bench.steps import map_tensors
from compileboard.collectors.bench.worker.outcome import COLD, ExperimentOutcome
from compileboard.collectors.bench.worker.same_as_eager import output_error
from compileboard.collectors.bench.worker.statistics import count_since, dynamo_counts
from compileboard.collectors.bench.worker.timing import TimedCall, take_turns
from compileboard.collectors.bench.worker.workbench import (
    WARM_UPS,
    Workbench,
    failing_as,
    mark_batch,
)

CONFIGS = {
    "int8dynamic": "Int8DynamicActivationInt8WeightConfig",
    "int8weightonly": "Int8WeightOnlyConfig",
    "int4weightonly": "Int4WeightOnlyConfig",
}


def run(bench: Workbench) -> ExperimentOutcome:
    quantize = _find_quantizer(bench.settings.quantization or "")
    step = bench.steps.step()
    bench.steps.use(bench.module)
    with bench.grad():
        bench.stage("eager")
        with failing_as("eager_1st_run_fail", "eager_1st_run_OOM"):
            reference = _call(step, bench.module, bench.inputs)  # in float32, before the cast
            bench.cast()
            mark_batch(bench)
            _call(step, bench.module, bench.inputs)
        quantized = bench.copy_module()
        facts = {"quantization": {"kind": bench.settings.quantization, **quantize(quantized)}}
        bench.stage("compile")
        compiled = bench.compile(step)
        compiled_quantized = bench.compile(_copy_step_code(step))
        with failing_as("fail_to_run"):
            quantized_eager = _call(step, quantized, bench.inputs)
            bench.warm_up(compiled, bench.module)
            plain_result = _call(torch._dynamo.run(compiled), bench.module, bench.inputs)
            start = dynamo_counts()
            warm_up_s = bench.warm_up(compiled_quantized, quantized)
            counts = count_since(start)
            result = _call(torch._dynamo.run(compiled_quantized), quantized, bench.inputs)
        bench.stage("compare")
        errors = {
            "quantized_error": output_error(reference, result),
            "quantized_eager_error": output_error(quantized_eager, result),
            "unquantized_error": output_error(reference, plain_result),
        }
        if errors["quantized_error"] is None:
            message = (
                "the quantized result cannot be compared with eager's: other tensors, or "
                "numbers not finite"
            )
            return ExperimentOutcome(
                status="failed", reason="fail_to_run", message=message, facts=facts
            )
        bench.stage("measure")
        with failing_as("fail_to_run"):
            sides = (
                TimedCall(torch._dynamo.run(compiled), bench.module),
                TimedCall(torch._dynamo.run(compiled_quantized), quantized),
            )
            turns = take_turns(bench, *sides)
    known = {name: error for name, error in errors.items() if error is not None}
    outcome = ExperimentOutcome(values=counts | known, facts=facts)
    compile_s = warm_up_s - WARM_UPS * median(turns.repeats["compiled"]) / 1e3
    if compile_s > 0:
        outcome.values[COLD.value] = compile_s
    turns.add_to(outcome)
    return outcome


def _call(step: Callable[..., Any], module: torch.nn.Module, inputs: Inputs) -> Any:
    reset_rng_state()
    return map_tensors(torch.Tensor.clone, step(module, inputs))


def _find_quantizer(kind: str) -> Callable[[torch.nn.Module], dict[str, Any]]:
    if kind == "noquant":
        return lambda _module: {"layer_count": 0}
    try:
        torchao: Any = importlib.import_module("torchao.quantization")
    except ModuleNotFoundError as error:
        raise NotAvailable(f"{error.name} is not installed") from error
    configuration = getattr(torchao, CONFIGS[kind], None)
    if configuration is None:
        raise NotAvailable(f"torchao has no {CONFIGS[kind]}; torchao 0.11 and later have it")

    def quantize(module: torch.nn.Module) -> dict[str, Any]:
        kinds = {name: type(parameter) for name, parameter in module.named_parameters()}
        try:
            torchao.quantize_(module, configuration())
        except ImportError as error:  # A kind may need another library: "Requires mslk >= 1.0.0".
            raise NotAvailable(describe_missing(error)) from error
        layers = [
            name
            for name, parameter in module.named_parameters()
            if type(parameter) is not kinds.get(name)
        ]
        if not layers:
            raise NotAvailable(
                f"none of its {len(kinds)} parameters is quantized by {CONFIGS[kind]}: linear "
                "layers are"
            )
        return {"layer_count": len(layers), "config": CONFIGS[kind]}

    return quantize


def describe_missing(error: ImportError) -> str:
    words = str(error).removeprefix("Requires ").split()
    return (
        f"{words[0]} is not installed"
        if str(error).startswith("Requires ") and words
        else str(error)
    )


def _copy_step_code(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same step with another code object, so that dynamo keeps the compiled code of both
    models apart. In one list of cache entries, each call would also check the other model's guards.
    """
    if not isinstance(step, MethodType):
        raise TypeError(f"expected a step of the bench, got {step!r}")
    function: Any = step.__func__
    code = function.__code__.replace(co_name=f"{function.__name__}_quantized")
    own = FunctionType(
        code, function.__globals__, code.co_name, function.__defaults__, function.__closure__
    )
    return MethodType(own, step.__self__)
