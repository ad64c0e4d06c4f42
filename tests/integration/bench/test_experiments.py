"""The other experiments on real models, measured in one process as a bench child would."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.tools.observed import ROOT

pytestmark = pytest.mark.torch

DATA = ROOT / "tests" / "data" / "bench"
MEASURE = """
import json, sys, tempfile
from dataclasses import asdict
from pathlib import Path
import torch
from compileboard.collectors.bench.worker.child import failure
from compileboard.collectors.bench.experiments import load_experiment, settings_for
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.worker.outcome import Stages
from compileboard.collectors.bench.suites.user import BUILD
from compileboard.collectors.bench.worker.workbench import Workbench

for only, experiment, changes in json.loads(sys.argv[1]):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # a child has measured nothing before
    torch.manual_seed(0)
    changes = {"backend": "eager", "quick": True, "repeat": 3, **changes}
    settings = settings_for(experiment, BenchSettings(**changes))
    ref = ModelRef("local", "it", BUILD, only, batch_size=4)
    bench = Workbench(ref, settings, Stages(Path(tempfile.mkdtemp())))
    try:
        bench.load()
        outcome = bench.describe(load_experiment(experiment)(bench))
    except Exception as error:
        outcome = failure(error)
    print("OUTCOME" + json.dumps(asdict(outcome)))
"""
FINE, BREAKS, WRONG = (
    f"path:{DATA}/planted.py,model:{name}" for name in ("Fine", "Breaks", "WrongAnswer")
)
SIZED, HUNGRY, UNBATCHED, HALF, BY_MODE, NAN, SMALL, NOT_LINEAR = (
    f"path:{DATA}/varied.py,model:{name}"
    for name in (
        "sized",
        "hungry",
        "unbatched",
        "HalfCaptured",
        "ByMode",
        "NotANumberCompiled",
        "SmallOnly",
        "NothingLinear",
    )
)
UNTRANSLATED = f"path:{DATA}/varied.py,model:Untranslated"
FIXED = f"path:{DATA}/varied.py,class:FixedInputs"
INDUCTOR = {"backend": "inductor", "compile_mode": "max-autotune"}
QUANTIZED = {"backend": "aot_eager", "dtype": "bfloat16"}
DYNAMIC = {"dynamic_batch_only": True}
TASKS: list[tuple[str, str, dict[str, Any]]] = [
    *((only, "tolerance", {}) for only in (FINE, WRONG, NAN)),
    *((only, "coverage", {}) for only in (FINE, BREAKS, HALF)),
    (FINE, "overhead", INDUCTOR),
    (FINE, "nothing", {**INDUCTOR, "mode": "training"}),
    *(
        (FINE, "quantization", {**QUANTIZED, "quantization": kind})
        for kind in ("int8weightonly", "int4weightonly")
    ),
    (FINE, "quantization", {"quantization": "noquant"}),
    (NOT_LINEAR, "quantization", {**QUANTIZED, "quantization": "int8weightonly"}),
    *((only, "onnx", {}) for only in (FINE, UNTRANSLATED)),
    (FINE, "onnx", {"dtype": "bfloat16"}),
    (BY_MODE, "recompile_profile", {}),
    (BY_MODE, "recompile_profile", DYNAMIC),
    (FINE, "recompile_profile", {"mode": "training"}),
    *((only, "shapes", {}) for only in (SIZED, FINE)),
    (SIZED, "shapes", {"dynamic_shapes": True}),
    *((only, "batch_size", {}) for only in (SMALL, FIXED)),
    (HUNGRY, "batch_size", {"batch_size": 2000}),
    (SIZED, "performance", DYNAMIC),
    (UNBATCHED, "accuracy", DYNAMIC),
    *((FINE, "accuracy", {"mode": mode}) for mode in ("inference", "training")),
    (FINE, "performance", {"backend": "inducter"}),
]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, json.dumps(TASKS)],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT,
    )
    outcome_list = [
        json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("OUTCOME")
    ]
    assert len(outcome_list) == len(TASKS), done.stderr[-3000:]
    return {json.dumps(task): outcome for task, outcome in zip(TASKS, outcome_list)}


@pytest.fixture
def measured(outcomes: dict[str, dict[str, Any]]) -> Any:
    return lambda only, experiment, **changes: outcomes[json.dumps((only, experiment, changes))]


def test_tolerance_is_the_relative_distance_from_eager_on_the_cpu(measured: Any) -> None:
    assert measured(FINE, "tolerance")["values"]["max"] < 1e-5
    wrong = measured(WRONG, "tolerance")["values"]
    assert (
        0.2 < wrong["mean"] <= wrong["max"] <= 1.0
    )  # 1 / (1 + |y|), y the output of a small layer
    assert wrong["std"] > 0


@pytest.mark.nightly
def test_a_number_that_only_one_of_the_two_has_is_a_failure(measured: Any) -> None:
    outcome = measured(NAN, "tolerance")
    assert (outcome["status"], outcome["reason"]) == ("failed", "fail_accuracy")
    assert "of 32 numbers are finite in one" in outcome["message"]


def test_coverage_counts_what_is_captured(measured: Any) -> None:
    whole = measured(FINE, "coverage")["values"]
    assert (whole["graphs"], whole["graph_calls"]) == (1, 1)
    assert whole["captured_ops"] == whole["total_ops"] == 2 and whole["pct_time"] == 1.0
    assert measured(BREAKS, "coverage")["values"]["graphs"] == 2
    half = measured(HALF, "coverage")["values"]
    assert (half["captured_ops"], half["total_ops"]) == (3, 6)
    assert half["pct_ops"] == 0.5 and 0 < half["pct_time"] < 1


@pytest.mark.nightly
def test_an_accuracy_check_compiles_its_iterations_together_as_upstream(measured: Any) -> None:
    forward = measured(FINE, "accuracy", mode="inference")
    assert forward["accuracy"] == "pass"
    assert (forward["values"]["unique_graphs"], forward["values"]["calls_captured"]) == (
        1,
        4,
    )  # two of two operations
    backward = measured(FINE, "accuracy", mode="training")
    assert backward["accuracy"] == "pass" and backward["values"]["graph_breaks"] > 0


def test_overhead_compiles_nothing_whatever_the_backend(measured: Any) -> None:
    outcome = measured(FINE, "overhead", **INDUCTOR)
    assert outcome["values"]["speedup"] > 0 and outcome["values"]["unique_graphs"] == 1
    assert len(outcome["repeats"]["compiled"]) == 3


@pytest.mark.nightly
def test_nothing_times_eager_against_itself_and_compiles_nothing(measured: Any) -> None:
    outcome = measured(FINE, "nothing", **INDUCTOR, mode="training")
    assert outcome["status"] == "measured" and outcome["values"]["speedup"] > 0
    assert [len(samples) for samples in outcome["repeats"].values()] == [3, 3]
    assert "unique_graphs" not in outcome["values"]


def test_quantized_weights_have_errors_of_their_own_and_no_verdict(measured: Any) -> None:
    outcome = measured(FINE, "quantization", **QUANTIZED, quantization="int8weightonly")
    values = outcome["values"]
    assert (outcome["status"], outcome["accuracy"]) == ("measured", None)
    assert outcome["facts"]["quantization"]["layer_count"] >= 1 and values["unique_graphs"] == 1
    assert 0 < values["quantized_error"] < 0.05 and 0 <= values["quantized_eager_error"] < 0.05
    assert values["unquantized_error"] < 0.02 and values["speedup"] > 0


@pytest.mark.nightly
def test_noquant_differs_from_nothing_by_no_weight(measured: Any) -> None:
    values = measured(FINE, "quantization", quantization="noquant")["values"]
    assert (
        values["quantized_error"] == values["unquantized_error"] < 1e-6
        and values["quantized_eager_error"] < 1e-6
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("model", "kind"), [(FINE, "int4weightonly"), (NOT_LINEAR, "int8weightonly")]
)
def test_a_model_without_a_layer_that_fits_is_skipped(measured: Any, model: str, kind: str) -> None:
    outcome = measured(model, "quantization", **QUANTIZED, quantization=kind)
    assert outcome["status"] == "skipped" and "parameters is quantized by" in outcome["reason"]


def test_a_library_that_torchao_lacks_is_named() -> None:
    from compileboard.collectors.bench.experiments.quantization import describe_missing

    assert describe_missing(ImportError("Requires mslk >= 1.0.0")) == "mslk is not installed"
    assert describe_missing(ImportError("no such symbol")) == "no such symbol"


def test_an_onnx_model_is_judged_and_timed(measured: Any) -> None:
    outcome = measured(FINE, "onnx")
    values = outcome["values"]
    assert (outcome["status"], outcome["accuracy"]) == ("measured", "pass") and values[
        "output_error"
    ] < 1e-5
    assert values["package_bytes"] > 100 and values["export_latency"] > values["load_latency"] > 0
    assert [len(samples) for samples in outcome["repeats"].values()] == [3, 3, 1]  # quick: one load
    assert outcome["facts"]["export"]["node_count"] >= 1


@pytest.mark.nightly
def test_an_operator_that_has_no_onnx_names_its_line(measured: Any) -> None:
    outcome = measured(UNTRANSLATED, "onnx")
    failure = outcome["facts"]["export"]
    assert (outcome["status"], outcome["accuracy"], failure["stage"]) == (
        "failed",
        "fail_to_run",
        "compile",
    )
    assert failure["operator"] == "aten.sort.stable" and failure["line"].startswith("varied.py:")
    assert "argsort" in failure["source"] and outcome["message"].startswith(
        "ConversionError: Error when translating"
    )


@pytest.mark.nightly
def test_what_onnxruntime_lacks_is_a_failure_of_its_loading(measured: Any) -> None:
    outcome = measured(FINE, "onnx", dtype="bfloat16")
    assert (outcome["reason"], outcome["facts"]["export"]["stage"]) == ("fail_to_run", "load")


def test_the_recompile_profile_names_what_each_change_cost(measured: Any) -> None:
    outcome = measured(BY_MODE, "recompile_profile")
    changes = {change["change"]: change for change in outcome["facts"]["changes"]}
    assert [*changes] == [
        "same",
        "batch size=3",
        "batch size=2",
        "train mode",
        "grad mode",
        "bfloat16",
    ]
    again = {name: change["recompiles"] for name, change in changes.items()}
    assert again == {
        "same": 0,
        "batch size=3": 1,
        "batch size=2": 0,
        "train mode": 1,
        "grad mode": 1,
        "bfloat16": 1,
    }
    assert "training" in changes["train mode"]["reasons"][0]
    assert "expected 4, actual 3" in changes["batch size=3"]["reasons"][0]
    assert outcome["values"]["recompiles"] == 4 <= outcome["values"]["guard_failures"]


@pytest.mark.nightly
def test_a_batch_that_is_marked_dynamic_compiles_once(measured: Any) -> None:
    values = measured(BY_MODE, "recompile_profile", **DYNAMIC)["values"]
    assert values["change=batch size=3/recompiles"] == 0
    assert measured(SIZED, "performance", **DYNAMIC)["status"] == "measured"


def test_a_batch_that_no_input_has_cannot_be_marked(measured: Any) -> None:
    outcome = measured(UNBATCHED, "accuracy", **DYNAMIC)
    assert outcome["status"] == "skipped"
    assert (
        outcome["reason"] == "--dynamic-batch-only: no input has a dimension of the batch size, 7"
    )


@pytest.mark.nightly
def test_training_is_profiled_without_gradients_switched_off(measured: Any) -> None:
    changes = measured(FINE, "recompile_profile", mode="training")["facts"]["changes"]
    assert [change["change"] for change in changes][-2:] == ["eval mode", "bfloat16"]
    assert not [change for change in changes if "error" in change]


@pytest.mark.nightly
def test_shapes_are_measured_both_ways(measured: Any) -> None:
    outcome = measured(SIZED, "shapes")
    values = outcome["values"]
    assert [values[f"shape={size}/recompiles"] for size in (4, 6, 10)] == [
        0,
        1,
        0,
    ]  # static, then dynamic for good
    assert [values[f"shape={size}/dynamic/recompiles"] for size in (4, 6, 10)] == [0, 0, 0]
    assert values["shape=4/compilation_latency"] > 0 and values["shape=10/dynamic/speedup"] > 0
    assert (
        len(outcome["repeats"]["shape=6/eager"])
        == len(outcome["repeats"]["shape=6/dynamic/compiled"])
        == 3
    )
    asked = measured(SIZED, "shapes", dynamic_shapes=True)["values"]
    assert "shape=4/speedup" not in asked and "shape=4/dynamic/speedup" in asked


def test_a_model_without_other_sizes_is_skipped_in_words(measured: Any) -> None:
    outcome = measured(FINE, "shapes")
    assert outcome["status"] == "skipped" and "has no `resize`" in outcome["reason"]


def test_the_largest_batch_that_runs_is_found_by_halves(measured: Any) -> None:
    outcome = measured(SMALL, "batch_size")
    assert outcome["values"] == {"batch_size_found": 64.0}
    assert [*outcome["facts"]["refused"]] == ["1024", "512", "256", "128"]
    assert outcome["facts"]["refused"]["128"].startswith("OOM: ")
    assert outcome["facts"]["bound_bytes"] > 0
    assert "do not change with the batch size" in measured(FIXED, "batch_size")["reason"]


@pytest.mark.nightly
def test_a_batch_that_cannot_even_be_made_is_refused_too(measured: Any) -> None:
    outcome = measured(HUNGRY, "batch_size", batch_size=2000)
    assert outcome["values"] == {"batch_size_found": 8.0}
    assert outcome["facts"]["refused"]["16"].startswith("OOM: [enforce fail]")


def test_a_backend_that_torch_lacks_is_the_models_own_status(measured: Any) -> None:
    outcome = measured(FINE, "performance", backend="inducter")
    assert (outcome["status"], outcome["reason"]) == ("failed", "fail_to_run")
    assert "inducter" in outcome["message"]
