"""Names of upstream's files, as its runner, its CI and HUD make them."""

from __future__ import annotations

import pytest

from compileboard.collectors.formats.result_file import (
    FileNameInfo,
    damage_stem,
    read_name,
    read_timings_name,
)

CASES = {
    "inductor_torchbench_amp_training_cuda_performance.csv": FileNameInfo(
        "torchbench", "amp", "training", "cuda", None, "inductor", "performance"
    ),
    "inductor_no_cudagraphs_timm_models_bfloat16_inference_cuda_h100_accuracy.csv": FileNameInfo(
        "timm_models", "bfloat16", "inference", "cuda", "h100", "inductor_no_cudagraphs", "accuracy"
    ),
    "a/b/inductor_dynamic_huggingface_float32_inference_cpu_performance.json": FileNameInfo(
        "huggingface", "float32", "inference", "cpu", None, "inductor", "performance", True
    ),
    "dynamic_inductor_torchbench_inference.csv": FileNameInfo(
        "torchbench", None, "inference", None, None, "inductor", None, True
    ),
    "aot_eager_timm_training.csv": FileNameInfo(
        "timm_models", None, "training", None, None, "aot_eager"
    ),
    "cpu_inductor_huggingface_freezing_inference.csv": FileNameInfo(
        "huggingface", None, "inference", "cpu", None, "inductor_freezing"
    ),
    "ours_mine_amp_training_cuda_accuracy.csv": FileNameInfo(
        "mine", "amp", "training", "cuda", None, "ours", "accuracy"
    ),
    "inference_timm_models0.csv": FileNameInfo("timm_models", None, "inference"),
    "training_torchbench.csv": FileNameInfo("torchbench", None, "training"),
    "speedup_inductor.csv": FileNameInfo(backend="inductor", experiment="performance"),
    "inductor_builtin_float32_inference_cuda_performance_compilation_metrics.csv.xz": FileNameInfo(
        "builtin", "float32", "inference", "cuda", None, "inductor", "performance"
    ),
    "nothing.csv": FileNameInfo(backend="nothing", experiment="nothing"),
    "nothing_huggingface_amp_inference_cuda_performance.csv": FileNameInfo(
        "huggingface", "amp", "inference", "cuda", None, "nothing", "performance"
    ),
    "onnx_builtin_float32_inference_cpu_dynamo_onnx.csv": FileNameInfo(
        "builtin", "float32", "inference", "cpu", None, "onnx", "onnx"
    ),
    (
        "inductor_quantization=int8dynamic_builtin_bfloat16_inference_cpu_speedup_torchao.csv"
    ): FileNameInfo(
        "builtin",
        "bfloat16",
        "inference",
        "cpu",
        None,
        "inductor_quantization=int8dynamic",
        "quantization",
    ),
    "results.csv": FileNameInfo(),
}


@pytest.mark.parametrize("name", CASES)
def test_a_name_tells_its_configuration(name: str) -> None:
    assert read_name(name) == CASES[name]


@pytest.mark.parametrize(
    "names",
    [
        (
            "dynamic_inductor_torchbench_amp_inference_cuda_accuracy",
            "cuda_inductor_dynamic_torchbench_amp_inference_accuracy",
        ),
        (
            "cpu_inductor_amp_freezing_torchbench_inference",
            "inductor_freezing_torchbench_amp_inference_cpu",
        ),
        (
            "cpu_aot_inductor_torchbench_amp_freezing_inference",
            "cpu_aot_inductor_amp_freezing_torchbench_inference",
        ),
        (
            "dynamic_cpu_max_autotune_inductor_amp_freezing_torchbench_inference",
            "inductor_freezing_max_autotune_torchbench_amp_inference_cpu_dynamic",
        ),
        (
            "inductor_with_cudagraphs_timm_training",
            "training_timm_models1_inductor_with_cudagraphs",
        ),
    ],
)
def test_the_order_of_words_makes_no_other_series(names: tuple[str, str]) -> None:
    first, second = (read_name(name) for name in names)
    assert first == second and first.backend


def test_flags_stand_behind_the_backend_in_one_order() -> None:
    backends = [
        read_name(name).backend
        for name in ("cpu_aot_inductor_torchbench_amp_freezing_inference", "x_torchbench")
    ]
    assert backends == ["aot_inductor_freezing", None]
    assert read_name(
        "dynamic_cpu_max_autotune_inductor_amp_freezing_torchbench_inference"
    ).backend == ("inductor_max_autotune_freezing")


def test_a_stem_is_damaged_as_rstrip_does() -> None:
    assert [damage_stem(name) for name in ("basics", "x_performance", "csv")] == [
        "basi",
        "x_performance",
        "",
    ]


def test_raw_timings_name_their_model_and_device() -> None:
    stem = "inductor_torchbench_performance-raw_timings-meta-llama-3-cuda"
    assert read_timings_name(stem) == ("inductor_torchbench_performance", "meta-llama-3", "cuda")
