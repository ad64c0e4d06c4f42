"""Settings: told whole to a child, and named in the series."""

from __future__ import annotations

import json
import lzma
import re
import shlex
from dataclasses import fields, replace
from pathlib import Path

import pytest

from compileboard.collectors.bench.experiments import drop_settings_without_effect, settings_for
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.plan.request import BenchRequest
from compileboard.collectors.bench.plan.settings import (
    SETTINGS,
    BenchSettings,
    changed,
    list_torch_variables,
    load_settings,
)
from compileboard.collectors.bench.plan.tasks import Task, plan_hash, repeat_command
from compileboard.collectors.cli.bench import bench, list_experiments, make_settings, read_request
from compileboard.collectors.cli.main import main

DATA = Path(__file__).parents[3] / "data"


def parse(*words: str) -> BenchRequest:
    return parse_words("--device", "cpu", *words)


def parse_words(*words: str) -> BenchRequest:
    with bench.make_context("bench", list(words)) as context:
        return read_request(context.params)


def test_settings_read_back_as_they_were_written() -> None:
    settings = BenchSettings(dtype="amp", inductor_config=("a=1", "b=2"), timeout_s=3.5)
    assert load_settings(settings.dump()) == settings


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        (BenchSettings(), "inductor"),
        (BenchSettings(device="cuda"), "inductor_with_cudagraphs"),
        (BenchSettings(device="cuda", disable_cudagraphs=True), "inductor_no_cudagraphs"),
        (BenchSettings(device="cuda", compile_mode="max-autotune"), "inductor_max-autotune"),
        (
            BenchSettings(backend="aot_eager", nopython=True, threads=2),
            "aot_eager_nopython_threads=2",
        ),
        (BenchSettings(inductor_config=("z=1", "a=2")), "inductor_a=2_z=1"),
        (
            BenchSettings(device="cuda", backend="inductor_of_mine"),
            "inductor_of_mine_with_cudagraphs",
        ),
        (BenchSettings(dynamic_shapes=True, dynamic_batch_only=True), "inductor_dynamic_batch"),
        (
            BenchSettings(batch_size=4, iterations_per_run=8),
            "inductor_batch=4_iterations_per_run=8",
        ),
        (
            BenchSettings(use_warm_peak_memory=True, per_process_memory_fraction=0.5),
            "inductor_warm_peak_memory_memory_fraction=0.5",
        ),
        (
            BenchSettings(quick=True, no_stack_room=True, snapshot_memory=True),
            "inductor_snapshot_memory_quick_no_stack_room",
        ),
        (
            BenchSettings(cosine=True, skip_fp64_check=True, iterations=3),
            "inductor_iterations=3_cosine_skip_fp64_check",
        ),
        (
            BenchSettings(skip_accuracy_check=True, environment=("TORCHINDUCTOR_X=1",)),
            "inductor_skip_accuracy_check_TORCHINDUCTOR_X=1",
        ),
        (BenchSettings(repeat=5, timeout_s=1, compile_repeats=9), "inductor"),
        (
            BenchSettings(ddp=True, world_size=2, distributed_master_port=6789),
            "inductor_ddp=ddp_optimizer",
        ),
        (
            BenchSettings(ddp=True, optimize_ddp_mode="no_optimization"),
            "inductor_ddp=no_optimization",
        ),
        (BenchSettings(fsdp=True, world_size=4), "inductor_fsdp2"),
    ],
)
def test_a_label_names_what_changes_the_measurement(settings: BenchSettings, label: str) -> None:
    assert settings.label() == label


@pytest.mark.parametrize(
    ("name", "new_part"),
    [
        ("bench/h200-performance", ""),
        ("bench/h200-accuracy", ""),
        ("bench/h200-user_models", ""),
        (
            "history/h200",
            "_iterations_per_run=10",
        ),  # not a default: a series of its own from now on
    ],
)
def test_results_that_were_recorded_keep_their_series(name: str, new_part: str) -> None:
    with lzma.open(DATA / f"{name}.jsonl.xz", "rt") as lines:
        results = [event for event in map(json.loads, lines) if event["kind"] == "bench_measured"]
    recorded = {(json.dumps(result["facts"]["settings"]), result["backend"]) for result in results}
    labels = {text: load_settings(text).label() for text, _label in recorded}
    assert labels == {text: f"{label}{new_part}" for text, label in recorded} != {}


def test_every_setting_is_in_the_label_or_says_why_not() -> None:
    assert list(SETTINGS) == [field.name for field in fields(BenchSettings)]
    assert all(
        (declared.label is None) == bool(declared.unlabelled) for declared, _ in SETTINGS.values()
    )


def test_torch_variables_are_part_of_the_settings_and_places_are_not() -> None:
    environment = {
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
        "TORCH_COMPILE_DEBUG": "1",
        "TORCH_LOGS": "x",
        "HOME": "/home/me",
    }
    places = {
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/x",
        "TORCH_COMPILE_DEBUG_DIR": "/tmp/y",
        "TORCHINDUCTOR_FREEZING": "",
    }
    url = {"TORCHINDUCTOR_REMOTE": "redis://user:word@host:1"}
    assert list_torch_variables(environment | places) == (
        "TORCHINDUCTOR_MAX_AUTOTUNE=1",
        "TORCH_COMPILE_DEBUG=1",
    )
    (digest,) = list_torch_variables(url)
    assert re.fullmatch(r"TORCHINDUCTOR_REMOTE=sha256:[0-9a-f]{8}", digest)


def test_settings_of_a_check_make_no_series_where_nothing_is_checked() -> None:
    asked = make_settings(parse("--cosine", "--skip-fp64-check", "--iterations", "3"), {})
    assert drop_settings_without_effect(asked, ["performance"]) == BenchSettings()
    assert drop_settings_without_effect(asked, ["performance", "accuracy"]) == asked


def test_the_command_of_a_result_makes_its_label_again() -> None:
    settings = BenchSettings(
        use_warm_peak_memory=True,
        snapshot_memory=True,
        no_stack_room=True,
        compile_repeats=5,
        environment=("TORCH_COMPILE_X=1", "TORCHINDUCTOR_Y=sha256:01234567"),
    )
    task = Task("performance", ModelRef("builtin", "mlp", "m:f"), settings)
    words = shlex.split(repeat_command(task, "compileboard bench"))
    assert words[:4] == ["env", "TORCH_COMPILE_X=1", "compileboard", "bench"]
    again = make_settings(parse(*words[4:]), {"TORCH_COMPILE_X": "1"})
    assert (again.label(), again.compile_repeats) == (
        replace(settings, environment=("TORCH_COMPILE_X=1",)).label(),
        5,
    )


def test_one_flag_asks_for_both_exports_as_backends_of_their_own() -> None:
    assert list_experiments(parse("--export", "--shapes")) == ("export", "export_strict", "shapes")
    tuned = BenchSettings(device="cuda", compile_mode="max-autotune", disable_cudagraphs=True)
    assert settings_for("export_strict", tuned).label() == "export_strict"
    assert settings_for("aot_inductor", tuned).label() == "aot_inductor_max-autotune", (
        "inductor compiles the package"
    )


def test_the_command_line_fills_the_settings() -> None:
    settings = make_settings(
        parse("--training", "--amp", "-n", "7", "-c", "a=1", "--timeout", "9"), {}
    )
    assert changed(settings) == {
        "mode": "training",
        "dtype": "amp",
        "repeat": 7,
        "inductor_config": ("a=1",),
        "timeout_s": 9.0,
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--freezing", "--training"], "--freezing inlines"),
        (["--export", "--training"], "--export measures the forward pass alone"),
        (
            ["--export-aot-inductor", "--training"],
            "--export-aot-inductor measures the forward pass alone",
        ),
        (["--mode", "x", "--backend", "eager"], "--mode is"),
        (["--amp-dtype", "float16"], "--amp-dtype is the dtype of --amp; the dtype is float32"),
        (["--quantization", "int8dynamic", "--training"], "goes with --inference"),
        (["--quantization", "int8dynamic", "--amp"], "expected --bfloat16 or nothing, not --amp"),
    ],
)
def test_what_cannot_go_together_is_said(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_settings(parse(*words), {})


def test_quantization_is_asked_for_by_its_kind_and_replaces_what_upstream_pastes_beside_it() -> (
    None
):
    request = parse("--quantization", "int8dynamic", "--performance", "--accuracy")
    settings = make_settings(request, {})
    assert list_experiments(request) == ("quantization",)
    assert (settings.dtype, settings.label()) == ("bfloat16", "inductor_quantization=int8dynamic")
    task = Task("quantization", ModelRef("builtin", "mlp", "m:f"), settings)
    words = shlex.split(repeat_command(task, "b"))
    assert words.count("--quantization") == 1 and make_settings(parse(*words[1:]), {}) == settings
    with pytest.raises(ValueError, match="does not go with --coverage"):
        list_experiments(parse("--quantization", "noquant", "--coverage"))


@pytest.mark.parametrize(
    "words",
    [["-n", "0"], ["--timeout", "nan"], ["--per-process-memory-fraction", "2"], ["-n", "x"]],
)
def test_a_number_out_of_range_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert "expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "is_same_plan"),
    [
        (BenchSettings(timeout_s=9.5, output_directory="/tmp/x"), True),
        (BenchSettings(quick=True), False),
        (BenchSettings(inductor_config=("b=2", "a=1")), False),
    ],
)
def test_a_run_is_resumed_with_the_settings_that_numbers_depend_on(
    settings: BenchSettings, is_same_plan: bool
) -> None:
    def digest(settings: BenchSettings) -> str:
        return plan_hash([ModelRef("builtin", "mlp", "m:f")], ["performance"], settings)

    assert (digest(settings) == digest(BenchSettings())) == is_same_plan


def test_the_digest_of_a_plan_stays_the_same_between_releases() -> None:
    models = [ModelRef("builtin", "mlp", "m:f")]
    settings = replace(BenchSettings(), compile_repeats=3)
    assert plan_hash(models, ["performance", "accuracy"], settings) == "bdf87f95cb4dc4ba"


@pytest.mark.parametrize(
    ("words", "label"),
    [
        (["--amp", "--amp-dtype", "float16"], "inductor_amp_dtype=float16"),
        (["--amp", "--amp-dtype", "bfloat16"], "inductor"),  # what --amp is on a CPU
        (
            ["--specialize-int", "--propagate-real-tensors"],
            "inductor_specialize_int_propagate_real_tensors",
        ),
        (["--suppress-errors", "--collect-outputs"], "inductor_suppress_errors_collect_outputs"),
        (
            ["--enable-activation-checkpointing", "--compiled-autograd"],
            "inductor_compiled_autograd_checkpoint",
        ),
        (["--deterministic"], "inductor_deterministic"),
        (
            [
                "--disable-split-reductions",
                "--disable-persistent-reductions",
                "--disable-divisible-by-16",
            ],
            "inductor_split_reductions=0_triton.divisible_by_16=0_triton.persistent_reductions=0",
        ),
        (["--disable-split-reductions", "--backend", "eager"], "eager"),
    ],
)
def test_settings_of_torch_are_in_the_label(words: list[str], label: str) -> None:
    settings = make_settings(parse(*words), {})
    assert settings.label() == label
    again = make_settings(parse(*settings.list_arguments()), {})
    assert again == settings


def test_cuda_graphs_are_off_whatever_the_mode_has() -> None:
    cuda = BenchSettings(device="cuda", disable_cudagraphs=True)
    assert (
        replace(cuda, compile_mode="max-autotune").label() == "inductor_max-autotune_no_cudagraphs"
    )
    assert (
        replace(cuda, compile_mode="default").label() == "inductor_default"
    )  # a mode without them
    assert (
        replace(cuda, compile_mode="max-autotune", device="cpu").label() == "inductor_max-autotune"
    )


def test_a_setting_is_of_the_experiments_that_heed_it() -> None:
    asked = BenchSettings(suppress_errors=True, collect_outputs=True)
    assert settings_for("accuracy", asked) == BenchSettings()
    assert settings_for("performance", asked) == asked
    assert settings_for("shapes", asked) == BenchSettings(suppress_errors=True)


def test_ranks_are_two_on_a_cpu_and_as_many_as_asked() -> None:
    assert make_settings(parse("--ddp", "--training"), {}).world_size == 2
    assert make_settings(parse("--fsdp", "--training", "--world-size", "4"), {}).world_size == 4
    assert make_settings(parse("--training"), {}).world_size is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ddp"], "--ddp measures how gradients are exchanged; add --training"),
        (["--ddp", "--fsdp", "--training"], "expected one of them"),
        (["--world-size", "2"], "--world-size 2: one process is measured; add --ddp or --fsdp"),
        (["--fsdp", "--training", "--world-size", "1"], "expected at least 2 ranks$"),
        (
            ["--ddp", "--training", "--tolerance"],
            "--tolerance measures one process; --ddp goes with --performance and",
        ),
        (
            ["--ddp", "--training", "--distributed-master-port", "70000"],
            "expected a port up to 65535",
        ),
        (
            ["--ddp", "--training", "--device-index", "1"],
            "--device-index 1 is one GPU; --ddp needs one for each rank",
        ),
        (
            ["--optimize-ddp-mode", "no_optimization"],
            "--optimize-ddp-mode no_optimization: add --ddp",
        ),
        (
            ["--fsdp", "--training", "--compiled-autograd"],
            "--fsdp cannot go with --compiled-autograd: .* leave one out$",
        ),
        (
            ["--ddp", "--training", "--compiled-autograd"],
            "--ddp cannot go .* add --optimize-ddp-mode python_reducer$",
        ),
    ],
)
def test_ranks_that_cannot_be_had_are_refused_in_words(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_settings(parse(*words), {})


def test_each_rank_on_a_gpu_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compileboard.collectors.cli.bench.count_gpus", lambda: 2)
    request = parse_words("--device", "cuda", "--ddp", "--training")
    assert make_settings(request, {}).world_size == 2
    request.given = {**request.given, "world_size": 3}
    with pytest.raises(ValueError, match="a GPU for each rank; 2 can be used here"):
        make_settings(request, {})
