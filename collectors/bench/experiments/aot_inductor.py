"""Export the model, compile it ahead of time into a package, and measure it.

A package does not check sizes unless asked to, so its result for another batch is recorded
separately. Source: --export-aot-inductor of upstream's benchmarks/dynamo/common.py, which does not
call the package while warming up and so measures no memory.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._inductor
from torch._dynamo.testing import reset_rng_state

from compileboard.collectors.bench.experiments.export import (
    ModelExport,
    split_inputs,
)
from compileboard.collectors.bench.experiments.performance import (
    add_peaks,
    read_phases,
    settled_peaks,
)
from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.steps import list_tensors
from compileboard.collectors.bench.worker.outcome import (
    EXPORT,
    LOAD,
    ExperimentOutcome,
    add_samples,
    describe_error,
)
from compileboard.collectors.bench.worker.same_as_eager import describe_difference, output_error
from compileboard.collectors.bench.worker.timing import (
    resize_batch,
    time_beside_eager,
    time_loads,
)
from compileboard.collectors.bench.worker.workbench import (
    StageFailed,
    Workbench,
    batch_dimension,
    eagerly,
    failing_as,
)

CHECK_VARIABLE = "AOTI_RUNTIME_CHECK_INPUTS"
MAX_ERROR = 1e-3  # relative: a correct answer for another batch may be as far from eager's
MAX_MESSAGE_LENGTH = 300


class AotPackage:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.runner: Any = None

    def step(self, module: Any, inputs: Inputs, collect_outputs: bool = True) -> Any:
        args, kwargs = split_inputs(inputs)
        return self.runner(*args, **kwargs)


def run(bench: Workbench) -> ExperimentOutcome:
    if not hasattr(torch._inductor, "aoti_load_package"):
        return ExperimentOutcome(
            status="skipped",
            reason=f"packages of AOTInductor need torch 2.6; this is {torch.__version__}",
        )
    export = ModelExport(bench)
    with tempfile.TemporaryDirectory() as folder:
        package = AotPackage(Path(folder) / "model.pt2")
        try:
            outcome = export.judge(lambda: _make(export, package))
            if package.runner is not None and "error" not in export.facts:
                with bench.grad():
                    _measure(bench, package, outcome)
                    if (check := _check_batch(bench, package, outcome)) is not None:
                        outcome.facts["batch_check"] = check
                export.add_times(outcome)
        except StageFailed as failed:  # while being timed
            outcome.status, outcome.reason = "failed", failed.reason
            outcome.message = describe_error(failed.__cause__ or failed)
        finally:
            package.runner = None  # its files stay unpacked as long as it exists
            gc.collect()
    return outcome


def _make(export: ModelExport, package: AotPackage) -> Any:
    bench = export.bench
    program = export.export_first()
    exported_s = time.perf_counter()
    export.begin("compile")
    torch._inductor.aoti_compile_and_package(
        program, package_path=str(package.path), inductor_configs=_list_options(bench)
    )
    compiled_s = time.perf_counter()
    export.begin("load")
    runner = torch._inductor.aoti_load_package(str(package.path))
    loaded_s = time.perf_counter()
    export.values |= {
        "load_latency": loaded_s - compiled_s,
        # As upstream: all that the first call waits for.
        "compilation_latency": export.values[EXPORT.value] + loaded_s - exported_s,
        "package_bytes": float(package.path.stat().st_size),
    }
    export.facts["compile_s"] = round(compiled_s - exported_s, 3)
    export.begin("run")
    package.runner = runner
    reset_rng_state()  # tracing may have drawn random numbers
    return package.step(None, bench.inputs)


def _list_options(bench: Workbench) -> dict[str, Any]:
    from torch._inductor import list_mode_options

    mode = bench.settings.compile_mode
    options = dict(list_mode_options()[mode]) if mode not in (None, "default") else {}
    return {**options, "triton.cudagraphs": False}


def _measure(bench: Workbench, package: AotPackage, outcome: ExperimentOutcome) -> None:
    bench.free()
    turns = time_beside_eager(bench, package.step)
    with failing_as("fail_to_run"):
        peaks = settled_peaks(bench, bench.steps.step(), package.step)
        loads_s = time_loads(bench, lambda: torch._inductor.aoti_load_package(str(package.path)))
    turns.add_to(outcome)
    outcome.facts["phases_s"] = read_phases()
    add_peaks(outcome, peaks, first=False)
    add_samples(outcome, LOAD, loads_s)


def _check_batch(
    bench: Workbench, package: AotPackage, outcome: ExperimentOutcome
) -> dict[str, Any] | None:
    """Return the package's result for a batch larger by one, with and without its input check.

    None if no input has the batch. A smaller batch is not tried: unchecked, the package would read
    beyond its end.
    """
    batch_size = bench.batch_size or 0
    if all(batch_dimension(tensor, batch_size) is None for tensor in list_tensors(bench.inputs)):
        return None
    bench.stage("another batch")
    inputs = resize_batch(bench.inputs, batch_size, batch_size + 1)
    report: dict[str, Any] = {"batch_size": batch_size + 1}
    try:
        with eagerly():
            expected = bench.steps.step()(bench.module, inputs)
    except Exception as error:  # a model that supports one batch size
        return {**report, "error": f"eager: {describe_error(error)}"[:MAX_MESSAGE_LENGTH]}
    limit = max(MAX_ERROR, 4 * outcome.values.get("output_error", 0.0))
    report["unchecked"] = _try_batch(package, inputs, expected, limit)
    checked = AotPackage(package.path)
    # It is read only at the first call after loading, so load again.
    with patch.dict(os.environ, {CHECK_VARIABLE: "1"}):
        checked.runner = torch._inductor.aoti_load_package(str(package.path))
        report["checked"] = _try_batch(checked, inputs, expected, limit)
    return report


def _try_batch(package: AotPackage, inputs: Inputs, expected: Any, limit: float) -> dict[str, str]:
    try:
        result = package.step(None, inputs)
        error = output_error(expected, result)
        difference = describe_difference(expected, result)
    except Exception as refusal:
        return {"status": "refused", "message": describe_error(refusal)[:MAX_MESSAGE_LENGTH]}
    if error is not None and error <= limit:
        return {"status": "right", "message": ""}
    return {"status": "wrong", "message": difference[:MAX_MESSAGE_LENGTH]}
