"""The other experiments on real models, measured in one process as a bench child would."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.bench.measuring import (
    BREAKS,
    DATA,
    DYNAMIC,
    FINE,
    WRONG,
    Measured,
    measuring,
)

pytestmark = pytest.mark.torch

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


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with measuring(tmp_path_factory.mktemp("measuring")) as measured:
        yield measured


def test_tolerance_is_the_relative_distance_from_eager_on_the_cpu(measured: Measured) -> None:
    assert measured(FINE, "tolerance")["values"]["max"] < 1e-5
    wrong = measured(WRONG, "tolerance")["values"]
    assert (
        0.2 < wrong["mean"] <= wrong["max"] <= 1.0
    )  # 1 / (1 + |y|), y the output of a small layer
    assert wrong["std"] > 0


@pytest.mark.nightly
def test_a_number_that_only_one_of_the_two_has_is_a_failure(measured: Measured) -> None:
    outcome = measured(NAN, "tolerance")
    assert (outcome["status"], outcome["reason"]) == ("failed", "fail_accuracy")
    assert "of 32 numbers are finite in one" in outcome["message"]


def test_coverage_counts_what_is_captured(measured: Measured) -> None:
    whole = measured(FINE, "coverage")["values"]
    assert (whole["graphs"], whole["graph_calls"]) == (1, 1)
    assert whole["captured_ops"] == whole["total_ops"] == 2 and whole["pct_time"] == 1.0
    assert measured(BREAKS, "coverage")["values"]["graphs"] == 2
    half = measured(HALF, "coverage")["values"]
    assert (half["captured_ops"], half["total_ops"]) == (3, 6)
    assert half["pct_ops"] == 0.5 and 0 < half["pct_time"] < 1


@pytest.mark.nightly
def test_an_accuracy_check_compiles_its_iterations_together_as_upstream(measured: Measured) -> None:
    forward = measured(FINE, "accuracy", mode="inference")
    assert forward["accuracy"] == "pass"
    assert (forward["values"]["unique_graphs"], forward["values"]["calls_captured"]) == (
        1,
        4,
    )  # two of two operations
    backward = measured(FINE, "accuracy", mode="training")
    assert backward["accuracy"] == "pass" and backward["values"]["graph_breaks"] > 0


def test_overhead_compiles_nothing_whatever_the_backend(measured: Measured) -> None:
    outcome = measured(FINE, "overhead", **INDUCTOR)
    assert outcome["values"]["speedup"] > 0 and outcome["values"]["unique_graphs"] == 1
    assert len(outcome["repeats"]["compiled"]) == 3


@pytest.mark.nightly
def test_nothing_times_eager_against_itself_and_compiles_nothing(measured: Measured) -> None:
    outcome = measured(FINE, "nothing", **INDUCTOR, mode="training")
    assert outcome["status"] == "measured" and outcome["values"]["speedup"] > 0
    assert [len(samples) for samples in outcome["repeats"].values()] == [3, 3]
    assert "unique_graphs" not in outcome["values"]


def test_quantized_weights_have_errors_of_their_own_and_no_verdict(measured: Measured) -> None:
    outcome = measured(FINE, "quantization", **QUANTIZED, quantization="int8weightonly")
    values = outcome["values"]
    assert (outcome["status"], outcome["accuracy"]) == ("measured", None)
    assert outcome["facts"]["quantization"]["layer_count"] >= 1 and values["unique_graphs"] == 1
    assert 0 < values["quantized_error"] < 0.05 and 0 <= values["quantized_eager_error"] < 0.05
    assert values["unquantized_error"] < 0.02 and values["speedup"] > 0


@pytest.mark.nightly
def test_noquant_differs_from_nothing_by_no_weight(measured: Measured) -> None:
    values = measured(FINE, "quantization", quantization="noquant")["values"]
    assert (
        values["quantized_error"] == values["unquantized_error"] < 1e-6
        and values["quantized_eager_error"] < 1e-6
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("model", "kind"), [(FINE, "int4weightonly"), (NOT_LINEAR, "int8weightonly")]
)
def test_a_model_without_a_layer_that_fits_is_skipped(
    measured: Measured, model: str, kind: str
) -> None:
    outcome = measured(model, "quantization", **QUANTIZED, quantization=kind)
    assert outcome["status"] == "skipped" and "parameters is quantized by" in outcome["reason"]


def test_a_library_that_torchao_lacks_is_named() -> None:
    from compileboard.collectors.bench.experiments.quantization import describe_missing

    assert describe_missing(ImportError("Requires mslk >= 1.0.0")) == "mslk is not installed"
    assert describe_missing(ImportError("no such symbol")) == "no such symbol"


def test_an_onnx_model_is_judged_and_timed(measured: Measured) -> None:
    outcome = measured(FINE, "onnx")
    values = outcome["values"]
    assert (outcome["status"], outcome["accuracy"]) == ("measured", "pass") and values[
        "output_error"
    ] < 1e-5
    assert values["package_bytes"] > 100 and values["export_latency"] > values["load_latency"] > 0
    assert [len(samples) for samples in outcome["repeats"].values()] == [3, 3, 1]  # quick: one load
    assert outcome["facts"]["export"]["node_count"] >= 1


@pytest.mark.nightly
def test_an_operator_that_has_no_onnx_names_its_line(measured: Measured) -> None:
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
def test_what_onnxruntime_lacks_is_a_failure_of_its_loading(measured: Measured) -> None:
    outcome = measured(FINE, "onnx", dtype="bfloat16")
    assert (outcome["reason"], outcome["facts"]["export"]["stage"]) == ("fail_to_run", "load")


def test_the_recompile_profile_names_what_each_change_cost(measured: Measured) -> None:
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
def test_a_batch_that_is_marked_dynamic_compiles_once(measured: Measured) -> None:
    values = measured(BY_MODE, "recompile_profile", **DYNAMIC)["values"]
    assert values["change=batch size=3/recompiles"] == 0
    assert measured(SIZED, "performance", **DYNAMIC)["status"] == "measured"


def test_a_batch_that_no_input_has_cannot_be_marked(measured: Measured) -> None:
    outcome = measured(UNBATCHED, "accuracy", **DYNAMIC)
    assert outcome["status"] == "skipped"
    assert (
        outcome["reason"] == "--dynamic-batch-only: no input has a dimension of the batch size, 7"
    )


@pytest.mark.nightly
def test_training_is_profiled_without_gradients_switched_off(measured: Measured) -> None:
    changes = measured(FINE, "recompile_profile", mode="training")["facts"]["changes"]
    assert [change["change"] for change in changes][-2:] == ["eval mode", "bfloat16"]
    assert not [change for change in changes if "error" in change]


@pytest.mark.nightly
def test_shapes_are_measured_both_ways(measured: Measured) -> None:
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


def test_a_model_without_other_sizes_is_skipped_in_words(measured: Measured) -> None:
    outcome = measured(FINE, "shapes")
    assert outcome["status"] == "skipped" and "has no `resize`" in outcome["reason"]


def test_the_largest_batch_that_runs_is_found_by_halves(measured: Measured) -> None:
    outcome = measured(SMALL, "batch_size")
    assert outcome["values"] == {"batch_size_found": 64.0}
    assert [*outcome["facts"]["refused"]] == ["1024", "512", "256", "128"]
    assert outcome["facts"]["refused"]["128"].startswith("OOM: ")
    assert outcome["facts"]["bound_bytes"] > 0
    assert "do not change with the batch size" in measured(FIXED, "batch_size")["reason"]


@pytest.mark.nightly
def test_a_batch_that_cannot_even_be_made_is_refused_too(measured: Measured) -> None:
    outcome = measured(HUNGRY, "batch_size", batch_size=2000)
    assert outcome["values"] == {"batch_size_found": 8.0}
    assert outcome["facts"]["refused"]["16"].startswith("OOM: [enforce fail]")


def test_a_backend_that_torch_lacks_is_the_models_own_status(measured: Measured) -> None:
    outcome = measured(FINE, "performance", backend="inducter")
    assert (outcome["status"], outcome["reason"]) == ("failed", "fail_to_run")
    assert "inducter" in outcome["message"]
