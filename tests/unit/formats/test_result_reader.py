"""Each of upstream's formats: what is read of it, and what its zeros mean."""

from __future__ import annotations

import pytest

from compileboard.collectors.formats.merge_files import merge
from tests.unit.formats.files import HEAD, MADE, RECORDED, by_model, read, read_text

AMP = "inductor_no_cudagraphs_torchbench_amp_training_cuda_"


@pytest.mark.parametrize(
    "path", sorted([*RECORDED.iterdir(), *MADE.iterdir()]), ids=lambda path: path.name
)
def test_every_file_of_upstreams_is_known_and_read_whole(path: object) -> None:
    file = read(path)  # type: ignore[arg-type]
    assert file.kind not in ("unknown", "other", "empty")
    assert file.rejects.total == 0 and file.row_count


def test_a_recorded_performance_row_has_its_configuration_from_the_files_name() -> None:
    (measurement,) = read(RECORDED / f"{HEAD.format('Breaky', 'performance')}.csv").results
    assert (
        measurement.model,
        measurement.backend,
        measurement.dtype,
        measurement.mode,
        measurement.device,
        measurement.batch_size,
    ) == (
        *("Breaky", "inductor", "float32", "inference", "cuda"),
        8,
    )
    assert (
        measurement.values["speedup"] == 0.587451
        and measurement.values["graph_breaks"] == 4
        and measurement.status == "measured"
    )
    assert measurement.origin == "inductor_Breaky_float32_inference_cuda_performance.csv:2"


def test_the_json_twin_says_the_same_in_full_precision() -> None:
    name = HEAD.format("Breaky", "performance")
    (text,), (full,) = (
        read(RECORDED / f"{name}.csv").results,
        read(RECORDED / f"{name}.json.xz").results,
    )
    assert (
        full.values == pytest.approx(text.values, abs=5e-7)
        and full.values["speedup"] == 0.5874513480871489
    )
    assert (full.task, full.experiment, full.backend) == (text.task, text.experiment, text.backend)


def test_of_both_twins_the_values_in_full_precision_are_kept() -> None:
    name = HEAD.format("Breaky", "performance")
    files = [read(RECORDED / f"{name}.csv"), read(RECORDED / f"{name}.json.xz")]
    for given in (files, files[::-1]):
        ((_file, result),) = merge(given).results
        assert result.values["speedup"] == 0.5874513480871489


def test_a_failure_that_upstream_wrote_as_zeros_is_no_measurement() -> None:
    name = HEAD.format("WrongAnswer", "performance")
    for path in (RECORDED / f"{name}.csv", RECORDED / f"{name}.json.xz"):
        (measurement,) = read(path).results
        assert (measurement.status, measurement.reason, measurement.values) == (
            "failed",
            "unknown",
            {},
        )
    (accuracy,) = read(RECORDED / f"{HEAD.format('WrongAnswer', 'accuracy')}.csv").results
    assert (accuracy.status, accuracy.reason, accuracy.accuracy) == (
        "failed",
        "fail_to_run",
        "fail_to_run",
    )


def test_padding_is_not_read_as_a_number() -> None:
    results = by_model(read(MADE / f"{AMP}performance.csv"))
    assert results["resnet18"].values == {
        "speedup": 1.35,
        "abs_latency": 12.5,
    }  # its row is padded from there on
    assert results["timm_vovnet"].status == "failed" and results["timm_vovnet"].batch_size is None
    assert (
        "compression_ratio" not in results["dlrm"].values
        and results["dlrm"].values["graph_breaks"] == 2
    )
    assert (
        results["alexnet"].values["graph_breaks"] == 0
        and results["alexnet"].backend == "inductor_no_cudagraphs"
    )


def test_verdicts_failures_and_skips_are_told_apart() -> None:
    results = by_model(read(MADE / f"{AMP}accuracy.csv"))
    outcomes = {
        name: (measurement.status, measurement.reason, measurement.accuracy)
        for name, measurement in results.items()
    }
    assert outcomes == {
        "resnet18": ("measured", None, "pass"),
        "alexnet": ("measured", None, "fail_accuracy"),
        "timm_vovnet": ("failed", "eager_1st_run_OOM", "eager_1st_run_OOM"),
        "dlrm": ("skipped", "pass_due_to_skip", "pass_due_to_skip"),
    }


def test_expected_rows_are_baselines_with_empty_cells_left_out() -> None:
    file = read(MADE / "inductor_torchbench_training.csv")
    assert file.kind == "expected_accuracy" and file.results[0].suite == "torchbench"
    measurement = by_model(file)["dlrm"]
    assert (
        measurement.values == {"expected_graph_breaks": 2}
        and measurement.facts["expected_accuracy"] == "pass"
    )
    assert (measurement.status, measurement.reason, measurement.accuracy) == (
        "not_run",
        "expected, not measured",
        None,
    )


def test_hud_rows_are_two_experiments_and_know_their_commits() -> None:
    results = read(MADE / "hud_export.csv").results
    outcomes = [
        (
            measurement.model,
            measurement.experiment,
            measurement.status,
            measurement.reason,
            measurement.facts["commit"][0],
        )
        for measurement in results
        if measurement.model == "dlrm"
    ]
    assert outcomes == [
        ("dlrm", "performance", "failed", "OOM", "a"),
        ("dlrm", "accuracy", "failed", "OOM", "a"),
        ("dlrm", "performance", "not_run", "upstream wrote 0 where nothing was run", "b"),
        ("dlrm", "accuracy", "measured", None, "b"),
    ]
    assert results[0].values == {
        "speedup": 1.35,
        "compilation_latency": 21.3,
        "compression_ratio": 0.98,
        "abs_latency": 12.5,
        "dynamo_peak_mem": 1.2,
    }
    assert results[0].hardware == "h100"


def test_records_of_the_database_become_one_result_a_model_and_commit() -> None:
    first, second = read(MADE / "database.json").results
    assert first.values == {"speedup": pytest.approx(1.36), "abs_latency": 12.5}
    assert (
        first.facts["value_lists"] == {"speedup": [1.35, 1.37]}
        and first.facts["commit"] == "a" * 40
    )
    assert (first.hardware, first.suite, first.experiment) == (
        "NVIDIA H100",
        "torchbench",
        "performance",
    )
    assert (second.experiment, second.accuracy, second.facts["commit"]) == (
        "accuracy",
        "pass",
        "b" * 40,
    )


def test_pr_time_files_have_no_heading() -> None:
    (expected, _), (result, _) = (
        read(MADE / "expected_results.csv").results,
        read(MADE / "pr_time_results.csv").results,
    )
    name = "compile_time_instruction_count"
    assert expected.values == {
        f"expected_{name}": 2_937_000_000,
        f"expected_{name}_noise_margin": 0.1,
    }
    assert expected.status == "not_run"
    assert (result.experiment, result.values) == ("pr_time", {name: 2_940_017_622})
    assert read(MADE / "add_loop_eager.json").results[0].experiment == "pr_time"


def test_raw_timings_are_read_without_numpy() -> None:
    (addition,) = read(MADE / "basics-raw_timings-mlp-cpu.npy").additions
    assert addition.model == "mlp"
    assert addition.repeats == {
        "eager": [1.0, 1.01, 0.99],
        "compiled": pytest.approx([0.8, 0.81, 0.79]),
    }


def test_graph_breaks_lose_their_second_quotes_and_keep_their_stacks() -> None:
    rows = read(RECORDED / f"{HEAD.format('Breaky', 'performance')}_graph_breaks.csv").breaks
    assert [row.reason.split("\n")[0] for row in rows[2:4]] == [
        "generic_jump TensorVariable()",
        "Call to `torch._dynamo.graph_break()`",
    ]
    assert rows[0].stack[-1] == ("/srv/bench/bench_models.py", 27, "forward") and len(rows) == 5


def test_phases_under_another_models_heading_are_left_out() -> None:
    heading = "dev,name,batch_size,_compile.compile_inner,build_guards\n"
    name = "x_performance_compilation_metrics.csv"
    file = read_text(heading + "cpu,mlp,8,1.500000,0.250000\ncpu,cnn,8,2.000000,0\n", name)
    assert [addition.phases_s for addition in file.additions] == [
        {"_compile.compile_inner": 1.5, "build_guards": 0.25}
    ]
    assert file.rejects.count("misplaced_phases") == 1


def test_two_branches_of_one_model_are_two_series() -> None:
    file = read_text(
        "dev,name,batch_size,tag,speedup,abs_latency\ncpu,mlp,8,main,1.5,2.5\ncpu,mlp,8,mine,1.6,2.4\n"
    )
    assert [(result.backend, result.facts["tag"]) for result in file.results] == [
        ("inductor:main", "main"),
        ("inductor:mine", "mine"),
    ]
