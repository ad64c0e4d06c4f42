"""Upstream's files, read and written again, are equal to the byte, padding included."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.events import BenchMeasured, GraphBroke
from compileboard.collectors.decode.records import PathNamer
from compileboard.collectors.formats.merge_files import build_break_table, merge
from compileboard.collectors.formats.raw_timings import read_timings, to_repeats, write_timings
from compileboard.collectors.formats.reader import break_event, read_results
from compileboard.collectors.formats.result_file import name_task
from compileboard.collectors.formats.writer import (
    format_recompiles,
    render_files,
    render_untabled,
    write_files,
)
from tests.unit.formats.files import MADE, RECORDED, read

MEASURED = BenchMeasured(
    *(
        "p",
        1,
        0,
        "torchbench",
        "alexnet",
        "performance",
        "training",
        "amp",
        "cuda",
        "H100",
        "inductor",
    ),
    batch_size=8,
    values={"speedup": 1.25, "abs_latency": 2.0, "graph_breaks": 3.0},
    task="t/alexnet",
)


def read_folder(*paths: Path) -> tuple[list[BenchMeasured], dict[str, list[GraphBroke]]]:
    files = [read(path) for path in paths]
    merged = merge(files)
    breaks: dict[str, list[GraphBroke]] = {}
    for file in files:
        for number, row in enumerate(file.breaks):
            task = name_task(build_break_table(file, merged.stems), row.model)
            breaks.setdefault(task, []).append(break_event(row, PathNamer(), "p", number, 0))
    return [result for _file, result in merged.results], breaks


def cells(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


def test_an_export_is_a_backends_row_among_the_verdicts() -> None:
    counts = {"export_latency": 0.5, "calls_captured": 4.0}
    export = replace(
        MEASURED,
        experiment="export",
        backend="export",
        mode="inference",
        accuracy="pass",
        values=counts,
    )
    written = render_files([export], {})
    name = "export_torchbench_amp_inference_cuda_accuracy.csv"
    assert written[name].decode() == (
        "dev,name,batch_size,accuracy,calls_captured\ncuda,alexnet,8,pass,4\n"
    )


def test_a_package_has_a_row_of_its_verdict_and_one_of_its_times() -> None:
    named = {"experiment": "aot_inductor", "backend": "aot_inductor", "mode": "inference"}
    values = {**MEASURED.values, "compilation_latency": 9.0, "package_bytes": 1e6}
    wrong = replace(MEASURED, **named, status="failed", accuracy="fail_accuracy", values=values)
    written = render_files([replace(wrong, facts={"phases_s": {"compile_file": 8.0}})], {})
    assert [name for name in written if "compilation_metrics.csv" in name] == [
        "aot_inductor_torchbench_amp_inference_cuda_performance_compilation_metrics.csv"
    ]
    [verdict], [times] = (
        cells(written[f"aot_inductor_torchbench_amp_inference_cuda_{table}.csv"])
        for table in ("accuracy", "performance")
    )
    assert (verdict["accuracy"], verdict["compilation_latency"]) == ("fail_accuracy", "9.000000")
    assert "package_bytes" not in verdict and (times["speedup"], times["package_bytes"]) == (
        "1.250000",
        "1000000.000000",
    )


@pytest.mark.parametrize("with_json", [False, True])
def test_the_recorded_tables_are_written_again_to_the_byte(with_json: bool) -> None:
    expected = {path.name: path.read_bytes() for path in RECORDED.glob("*.csv")}
    paths = [path for path in RECORDED.iterdir() if with_json or path.suffix == ".csv"]
    written = render_files(*read_folder(*sorted(paths)))
    assert {name: written[name] for name in expected} == expected
    added = {name for name in written if name.endswith(".csv")} - set(expected)
    assert all(name.endswith("_graph_break_deduped.csv") for name in added)


@pytest.mark.parametrize(
    ("experiment", "words"), [("nothing", "nothing"), ("quantization", "speedup_torchao")]
)
def test_a_table_of_speedups_is_read_as_the_experiment_that_it_is_of(
    experiment: str, words: str
) -> None:
    written = render_files([replace(MEASURED, experiment=experiment)], {})
    assert [*written] == [
        f"inductor_torchbench_amp_training_cuda_{words}{suffix}" for suffix in (".csv", ".json")
    ]
    for name, data in written.items():
        [result] = read_results(name, data).results
        assert (result.experiment, result.backend, result.values) == (
            experiment,
            "inductor",
            MEASURED.values,
        ), name


def test_why_a_model_is_no_onnx_model_is_upstreams_second_file() -> None:
    failure = {
        "stage": "compile",
        "error": "ConversionError",
        "message": "no decomposition",
        "line": "nets.py:3",
    }
    failed = replace(
        MEASURED,
        experiment="onnx",
        backend="onnx",
        status="failed",
        values={},
        facts={"export": failure},
    )
    results = [failed, replace(failed, model="resnet", status="measured", facts={})]
    [row] = cells(
        render_files(results, {})["onnx_torchbench_amp_training_cuda_dynamo_onnx_export_error.csv"]
    )
    assert [*row] == [
        *(
            "device",
            "model_name",
            "batch_size",
            "rule_id",
            "rule_name",
            "diagnostic_level",
            "diagnostic_message",
        ),
        *("exception_type_name", "exception_message"),
    ]
    assert (row["model_name"], row["exception_type_name"], row["rule_id"]) == (
        "alexnet",
        "ConversionError",
        "",
    )


def test_padding_failures_and_missing_peaks_are_written_again_to_the_byte() -> None:
    paths = sorted(MADE.glob("inductor_no_cudagraphs_*.csv"))
    written = render_files(*read_folder(*paths))
    assert {path.name: written[path.name] for path in paths} == {
        path.name: path.read_bytes() for path in paths
    }


def test_the_json_twin_says_the_same_when_it_is_read_again() -> None:
    results, breaks = read_folder(*sorted(RECORDED.iterdir()))
    files = render_files(results, breaks)
    again = {}
    for name, data in files.items():
        if name.endswith(("ce.json", "cy.json")):
            again |= {
                (result.model, result.experiment): result
                for result in read_results(name, data).results
            }
    for result in results:
        twin = again[result.model, result.experiment]
        assert (twin.values, twin.status, twin.accuracy, twin.task) == (
            result.values,
            result.status,
            result.accuracy,
            result.task,
        )
        assert (twin.suite, twin.backend, twin.dtype, twin.device) == (
            result.suite,
            result.backend,
            result.dtype,
            result.device,
        )


def test_deduped_breaks_are_sorted_and_one_of_a_reason() -> None:
    (name, data), *_ = [
        item
        for item in render_files(*read_folder(*sorted(RECORDED.glob("*Breaky*")))).items()
        if "deduped" in item[0]
    ]
    reasons = [row["reason"] for row in cells(data)]
    assert name == "inductor_Breaky_float32_inference_cuda_accuracy_graph_break_deduped.csv"
    assert len(reasons) == 4 and reasons == sorted(reasons)


def test_what_was_not_run_has_no_row_and_what_failed_has_zeros() -> None:
    results = [
        replace(
            MEASURED, model="skipped", status="skipped", reason="timm is not installed", values={}
        ),
        replace(MEASURED, model="failed", status="failed", reason="OOM", values={}),
        MEASURED,
        replace(MEASURED, experiment="accuracy", status="failed", reason="OOM", values={}),
    ]
    files = render_files(results, {})
    performance = (
        files["inductor_torchbench_amp_training_cuda_performance.csv"].decode().splitlines()
    )
    assert performance == [
        "dev,name,batch_size,speedup,abs_latency,graph_breaks",
        "cuda,failed,0,0.000000,0.000000,0",
        "cuda,alexnet,8,1.250000,2.000000,3",
    ]
    assert (
        files["inductor_torchbench_amp_training_cuda_accuracy.csv"].decode().splitlines()[1]
        == "cuda,alexnet,0,OOM"
    )


def test_a_file_has_a_model_once() -> None:
    others = [replace(MEASURED, hardware="A100"), replace(MEASURED, hardware="A100", batch_size=16)]
    names = [name for name in render_files([MEASURED, *others], {}) if name.endswith(".csv")]
    assert names == [
        "inductor_A100_batch16_torchbench_amp_training_cuda_performance.csv",
        "inductor_A100_torchbench_amp_training_cuda_performance.csv",
        "inductor_torchbench_amp_training_cuda_performance.csv",
    ]


def test_a_formula_stays_what_the_model_is_called() -> None:
    files = render_files([replace(MEASURED, model="=cmd()", suite="../../etc", backend="a/b")], {})
    assert next(iter(files)) == "a_b_etc_amp_training_cuda_performance.csv"
    assert cells(next(iter(files.values())))[0]["name"] == "=cmd()"


def test_a_folder_gets_the_files_and_raw_timings_are_numpys(tmp_path: Path) -> None:
    timed = replace(MEASURED, repeats={"eager": [1.0, 1.01, 0.99], "compiled": [0.8, 0.81, 0.79]})
    names = write_files(render_files([timed], {}, raw_timings=True), tmp_path / "out")
    assert sorted(names) == sorted(path.name for path in (tmp_path / "out").iterdir())
    (timings,) = (tmp_path / "out").glob("*-raw_timings-alexnet-cuda.npy")
    assert len(timings.read_bytes()) == len((MADE / "basics-raw_timings-mlp-cpu.npy").read_bytes())
    assert to_repeats(read_timings(timings.read_bytes())) == {
        name: pytest.approx(values) for name, values in timed.repeats.items()
    }


@given(st.lists(st.tuples(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9)), max_size=20))
def test_timings_come_back(pairs: list[tuple[float, float]]) -> None:
    repeats = {
        "eager": [eager for eager, _ in pairs],
        "compiled": [compiled for _, compiled in pairs],
    }
    again = to_repeats(read_timings(write_timings(repeats)))
    assert again == {name: pytest.approx(values) for name, values in repeats.items()}


@given(
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
    .map(str.strip)
    .filter(bool),
    st.floats(0.001, 1e6),
    st.integers(0, 10**6),
)
def test_any_model_and_number_come_back(name: str, speedup: float, count: int) -> None:
    name = name.replace("\0", "x").replace(
        "\r", "x"
    )  # csv quotes neither, upstream's writer no more than ours
    measurement = replace(
        MEASURED,
        model=name,
        values={"speedup": speedup, "abs_latency": 1.0, "graph_breaks": float(count)},
    )
    files = render_files([measurement], {})
    (again,) = read_results(
        *next(item for item in files.items() if item[0].endswith(".csv"))
    ).results
    assert again.model == name and again.values["graph_breaks"] == count
    assert again.values["speedup"] == pytest.approx(speedup, abs=5.1e-7)


def test_a_file_that_is_named_has_all_results_and_its_name_whole() -> None:
    results = [
        replace(MEASURED, facts={"phases_s": {"_compile": 1.0}}),
        replace(MEASURED, model="vgg16", task="t/vgg16"),
    ]
    graph_break = read_folder(
        RECORDED / "inductor_Breaky_float32_inference_cuda_accuracy_graph_breaks.csv"
    )[1]
    breaks = {"t/alexnet": next(iter(graph_break.values()))}
    files = render_files(results, breaks, stem="inference_resvcs")
    ends = (".csv", ".json", "_compilation_metrics.csv", "_compilation_metrics.json")
    breaks_ends = ("_graph_breaks.csv", "_graph_breaks_deduped.csv")
    assert set(files) == {f"inference_resvcs{end}" for end in (*ends, *breaks_ends)}
    assert [row["name"] for row in cells(files["inference_resvcs.csv"])] == ["alexnet", "vgg16"]
    assert render_files([], {}, stem="x") == {}


def test_a_file_that_is_named_has_upstreams_columns_alone() -> None:
    result = replace(MEASURED, values={**MEASURED.values, "recompiles": 2.0, "speedup_low": 1.0})
    (of_ours,) = (
        data for name, data in render_files([result], {}).items() if name.endswith(".csv")
    )
    assert {"recompiles", "speedup_low"} <= set(cells(of_ours)[0])
    named = render_files([result], {}, stem="inference")
    assert list(cells(named["inference.csv"])[0]) == [
        "dev", "name", "batch_size", "speedup", "abs_latency", "graph_breaks",
    ]  # fmt: skip


def test_a_file_that_is_named_has_the_modes_table_of_a_package() -> None:
    values = {"speedup": 1.5, "abs_latency": 2.0, "compilation_latency": 3.0}
    result = replace(MEASURED, experiment="aot_inductor", accuracy="pass", values=values)
    for mode, column in (("performance", "speedup"), ("accuracy", "accuracy")):
        (row,) = cells(render_files([result], {}, stem="x", modes=[mode])["x.csv"])
        assert column in row and ("speedup" in row) is (mode == "performance")
        assert row["graph_breaks"] == "0"  # upstream's checkers read it
    (checked,) = [
        name for name in render_files([result], {}, modes=["accuracy"]) if name.endswith(".csv")
    ]
    assert checked.endswith("_accuracy.csv"), "the mode's file alone"


@pytest.mark.parametrize("experiment", ["onnx", "aot_precompile"])
def test_a_mode_chooses_verdicts_or_times_of_what_is_judged_and_timed(experiment: str) -> None:
    result = replace(MEASURED, experiment=experiment, accuracy="pass")
    for modes, first in ((["accuracy"], "accuracy"), (["performance"], "speedup"), ([], "speedup")):
        for stem in ("x", None):
            files = render_files([result], {}, stem=stem, modes=modes)
            (row,) = cells(next(data for name, data in files.items() if name.endswith(".csv")))
            assert [*row][3] == first


def test_what_has_no_table_has_files_of_its_own() -> None:
    found = replace(MEASURED, experiment="batch_size", values={"batch_size_found": 64.0})
    change = {"change": "bfloat16", "recompiles": 1, "reasons": ["0/0: dtype mismatch"]}
    profiled = replace(
        MEASURED, experiment="recompile_profile", values={}, facts={"changes": [change]}
    )
    programs = [{"program": text} for text in ("one", None, "two")]
    wrong = replace(
        MEASURED, model="a/b", experiment="accuracy", facts={"minimal_programs": programs}
    )
    files = render_untabled([found, profiled, wrong, replace(found, status="failed", values={})])
    assert files.pop("recompile_profiler_log.csv").endswith(
        b'bfloat16: recompiles 1\n  0/0: dtype mismatch\n"\n'
    )
    assert files == {
        "batch_sizes.csv": b"alexnet,64\n",
        "a_b_repro.py": b"one",
        "a_b_repro_2.py": b"two",
    }
    assert render_files([found], {}, stem="x") == {"x.csv": b"alexnet,64\n"}
    none = format_recompiles(
        {"changes": [change | {"recompiles": 0}], "graph_break_reasons": {"print": 2}}
    )
    assert "2 × print" in none and none.endswith("No recompilation detected.\n")
