"""Repros of tests/programs/planted_cuda.py, captured on an H100 with torch 2.11."""

from __future__ import annotations

import pytest

from compileboard.collectors.repro.describing import list_answers
from compileboard.collectors.repro.findings import Minification
from compileboard.collectors.repro.loading import load_path
from tests.tools.observed import ROOT

CAPTURED = ROOT / "tests" / "data" / "repros" / "cuda"
ILLEGAL = "CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("name", "kind", "error_type", "message"),
    [
        ("relu_compile_error", "compile", "RuntimeError", "Failed to import "),
        (
            "relu_runtime_error",
            "runtime",
            "AcceleratorError",
            "CUDA error: device-side assert triggered",
        ),
        (
            "relu_accuracy",
            "accuracy",
            "AccuracyError",
            "output 0: error 0.09387 beside eager's own",
        ),
        (
            "relu_accuracy_cudagraphs",
            "accuracy",
            "AccuracyError",
            "output 0: error 0.09387 beside eager's own",
        ),
        ("illegal_memory_access", "runtime", "AcceleratorError", ILLEGAL),
        ("illegal_memory_access_cudagraphs", "runtime", "AcceleratorError", ILLEGAL),
    ],
)
def test_a_failure_on_cuda_is_captured_with_its_graph(
    name: str, kind: str, error_type: str, message: str
) -> None:
    repro = load_path(CAPTURED / f"{name}.tar.gz")
    manifest = repro.manifest
    assert (manifest.kind, manifest.error_type) == (kind, error_type)
    assert (manifest.message or "").startswith(message)
    late = name.startswith("illegal_memory_access")  # the others were reported while the graph ran
    assert manifest.is_asynchronous == late
    assert (manifest.device, manifest.level, manifest.node_count) == (
        "NVIDIA H100 80GB HBM3",
        "aot",
        12,
    )
    assert {entry.device for entry in manifest.inputs} == {"cuda:0"}
    assert "torch.ops.aten.relu.default" in repro.program


def test_values_of_cuda_inputs_are_kept_unless_the_device_failed() -> None:
    states = {
        path.name.removesuffix(".tar.gz"): {
            entry.values for entry in load_path(path).manifest.inputs
        }
        for path in CAPTURED.glob("*.tar.gz")
    }
    with_values = {name for name, values in states.items() if values == {"kept"}}
    assert set(states) - with_values == {
        "relu_runtime_error"
    }  # recorded without `--repro crash`'s values


@pytest.mark.parametrize("name", ["illegal_memory_access", "illegal_memory_access_cudagraphs"])
def test_an_illegal_memory_access_was_minified_with_the_values_of_its_first_call(name: str) -> None:
    (result,) = list_answers(load_path(CAPTURED / f"{name}.tar.gz"))
    answer = Minification.load(result["detail"])
    assert (answer.nodes_before, answer.nodes_after, answer.operations) == (
        12,
        1,
        ("aten.index.Tensor",),
    )
    assert answer.is_confirmed and not answer.fails_with_random_inputs
    assert ILLEGAL in answer.failure


@pytest.mark.parametrize(
    "name",
    ["relu_compile_error", "relu_runtime_error", "relu_accuracy", "relu_accuracy_cudagraphs"],
)
def test_a_failure_on_cuda_was_minified_to_its_operation(name: str) -> None:
    whole = load_path(CAPTURED / f"{name}.tar.gz")
    (result,) = list_answers(whole)
    answer = Minification.load(result["detail"])
    assert (answer.nodes_before, answer.nodes_after, answer.operations) == (
        12,
        1,
        ("aten.relu.default",),
    )
    assert answer.is_confirmed and answer.fails_with_random_inputs
    (path,) = (CAPTURED / f"{name}.tar.gz.repro").glob("minify-*.txt")
    smallest = load_path(path)
    assert (smallest.manifest.node_count, smallest.manifest.operation) == (1, "aten.relu.default")
    assert smallest.manifest.settings == whole.manifest.settings
    assert [(entry.shape, entry.device) for entry in smallest.manifest.inputs] == [
        ((64, 32), "cuda:0")
    ]
