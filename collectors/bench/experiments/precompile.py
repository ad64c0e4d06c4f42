"""Compile in one process and load the result in a second one: a file of code, or dynamo's cached
result.

Source: --aot-precompile and --caching-precompile of upstream's benchmarks/dynamo/common.py; the
former compiles again for each timed call.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.testing import reset_rng_state

from compileboard.collectors.bench.experiments.export import describe_failure, split_inputs
from compileboard.collectors.bench.plan.models import NotAvailable
from compileboard.collectors.bench.worker.outcome import COLD, FIRST_CALL, ExperimentOutcome
from compileboard.collectors.bench.worker.same_as_eager import judge, output_error
from compileboard.collectors.bench.worker.statistics import count_since, dynamo_counts
from compileboard.collectors.bench.worker.timing import (
    interleave,
    time_beside_eager,
)
from compileboard.collectors.bench.worker.workbench import (
    FAILURES,
    Workbench,
    eagerly,
    failing_as,
    first_eager_run,
    mark_batch,
)

PACKAGE = "precompiled.bin"


def precompile_ahead(bench: Workbench) -> ExperimentOutcome:
    """Compile the model into code without weights, or load and call an earlier process's code."""
    if not hasattr(torch.compiler, "load_compiled_function"):
        raise NotAvailable(
            f"torch {torch.__version__} has no torch.compiler.load_compiled_function"
        )
    config: Any = torch._dynamo.config
    if hasattr(config, "enable_aot_compile"):
        config.enable_aot_compile = True  # off by default in torch 2.11
    path = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent / PACKAGE
    return _load(bench, path) if path.exists() else _measure(bench, path)


def _measure(bench: Workbench, path: Path) -> ExperimentOutcome:
    values: dict[str, float] = {}
    facts: dict[str, Any] = {}
    functions: list[Any] = []
    start = dynamo_counts()

    def compute() -> Any:
        try:
            module = bench.copy_module()
            begin_s = time.perf_counter()
            functions.append(_compile(bench, module))
            values[COLD.value] = time.perf_counter() - begin_s
            path.parent.mkdir(parents=True, exist_ok=True)
            functions[0].save_compiled_function(str(path))
            values["package_bytes"] = float(path.stat().st_size)
            return _call(bench, functions[0], module, bench.inputs)
        except FAILURES as error:
            facts["export"] = describe_failure(
                error, "run" if "package_bytes" in values else "compile"
            )
            raise

    outcome = judge(bench, compute, iterations=1)
    outcome.values |= count_since(start) | values
    outcome.facts |= facts
    if outcome.status == "measured":

        def compiled(module: Any, inputs: Any, collect_outputs: bool = False) -> Any:
            return _call(bench, functions[0], module, inputs)

        with bench.grad():
            time_beside_eager(bench, compiled).add_to(outcome)
    return outcome


def _compile(bench: Workbench, module: torch.nn.Module) -> Any:
    compiled: Any = torch.compile(
        call_module, fullgraph=True, dynamic=True if bench.settings.all_dynamic else None
    )
    args, kwargs = split_inputs(bench.inputs)
    with bench.steps.autocast():
        return compiled.aot_compile(((module, *args), kwargs))


def call_module(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)


def _load(bench: Workbench, path: Path) -> ExperimentOutcome:
    bench.cast()
    mark_batch(bench)
    bench.stage("compile")
    start = dynamo_counts()
    with bench.grad(), failing_as("fail_to_run"):
        bench.synchronize()
        begin_s = time.perf_counter()
        with path.open("rb") as file:
            function = torch.compiler.load_compiled_function(file)
        load_s = time.perf_counter() - begin_s
        _call(bench, function, bench.module, bench.inputs)
        bench.synchronize()
        total_s = time.perf_counter() - begin_s
        counts = count_since(start)
        reset_rng_state()
        result = _call(bench, function, bench.module, bench.inputs)
        reset_rng_state()
        with eagerly():
            error = output_error(bench.steps.step()(bench.module, bench.inputs), result)
    values = {**counts, "load_latency": load_s, FIRST_CALL: total_s}
    return ExperimentOutcome(values=values if error is None else {**values, "output_error": error})


def _call(bench: Workbench, function: Any, module: torch.nn.Module, inputs: Any) -> Any:
    args, kwargs = split_inputs(inputs)
    with bench.steps.autocast():
        return function(module, *args, **kwargs)


def cache_precompiled(bench: Workbench) -> ExperimentOutcome:
    """Measure the time a second process saves, whose first call then compiles no frame.

    `second_process_latency` is the first call of later processes.
    """
    config: Any = torch._dynamo.config
    if not hasattr(config, "caching_precompile"):
        raise NotAvailable(f"torch {torch.__version__} has no caching precompile")
    config.caching_precompile = True
    step = bench.prepare()
    with bench.grad():
        bench.stage("eager")
        with first_eager_run():
            bench.warm_up(step, bench.module, 1)  # the very first call also loads libraries
            eager_s = bench.warm_up(step, bench.module, 1)
        bench.stage("compile")
        start = dynamo_counts()
        with failing_as("fail_to_run"):
            begin_s = time.perf_counter()
            compiled = bench.compile(step)
            compiled(bench.module, bench.inputs, collect_outputs=False)
            bench.synchronize()
            first_s = time.perf_counter() - begin_s
            counts = count_since(start)
            import_module(
                "torch._dynamo.precompile_context"
            ).PrecompileContext.save_to_dynamo_cache()
            bench.stage("measure")
            turns = interleave(bench, step, compiled)
    outcome = ExperimentOutcome(values={**counts, FIRST_CALL: first_s})
    if first_s > eager_s:
        outcome.values[COLD.value] = first_s - eager_s
    turns.add_to(outcome)
    return outcome
