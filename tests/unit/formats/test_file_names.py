"""Names of upstream's files, as its runner, its CI and HUD make them."""

from __future__ import annotations

import pytest

from collectors.formats.file_names import Named, damaged, read_name, read_timings_name

CASES = {
    "inductor_torchbench_amp_training_cuda_performance.csv": Named(
        "torchbench", "amp", "training", "cuda", None, "inductor", "performance"
    ),
    "inductor_no_cudagraphs_timm_models_bfloat16_inference_cuda_h100_accuracy.csv": Named(
        "timm_models", "bfloat16", "inference", "cuda", "h100", "inductor_no_cudagraphs", "accuracy"
    ),
    "a/b/inductor_dynamic_huggingface_float32_inference_cpu_performance.json": Named(
        "huggingface", "float32", "inference", "cpu", None, "inductor_dynamic", "performance", True
    ),
    "dynamic_inductor_torchbench_inference.csv": Named(
        "torchbench", None, "inference", None, None, "inductor", None, True
    ),
    "aot_eager_timm_training.csv": Named("timm", None, "training", None, None, "aot_eager"),
    "cpu_inductor_huggingface_freezing_inference.csv": Named("huggingface", None, "inference", "cpu", None, "inductor"),
    "training_torchbench.csv": Named("torchbench", None, "training"),
    "speedup_inductor.csv": Named(backend="inductor", experiment="performance"),
    "inductor_builtin_float32_inference_cuda_performance_compilation_metrics.csv.xz": Named(
        "builtin", "float32", "inference", "cuda", None, "inductor", "performance"
    ),
    "results.csv": Named(),
}


@pytest.mark.parametrize("name", CASES)
def test_a_name_tells_its_configuration(name: str) -> None:
    assert read_name(name) == CASES[name]


def test_a_stem_is_damaged_as_rstrip_does() -> None:
    assert [damaged(it) for it in ("basics", "x_performance", "csv")] == ["basi", "x_performance", ""]


def test_raw_timings_name_their_model_and_device() -> None:
    stem = "inductor_torchbench_performance-raw_timings-meta-llama-3-cuda"
    assert read_timings_name(stem) == ("inductor_torchbench_performance", "meta-llama-3", "cuda")
