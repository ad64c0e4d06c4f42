"""Every column and every status of upstream's files is written where upstream has it, and read
again as it was.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from compileboard.collectors.bench.execution.task_process import DIED
from compileboard.collectors.bench.report.progress import REASONS
from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.formats.merge_files import merge, time_us_of
from compileboard.collectors.formats.reader import read_results
from compileboard.collectors.formats.result_file import ResultFile
from compileboard.collectors.formats.writer import render_files

OUTPUTS = json.loads(
    (Path(__file__).parents[2] / "data" / "upstream" / "outputs.json").read_text(encoding="utf-8")
)
TABLES = ("performance", "accuracy", "coverage", "tolerance")
NET = BenchMeasured(
    *(
        "p",
        1,
        0,
        "timm",
        "resnet50",
        "performance",
        "inference",
        "float32",
        "cuda",
        "H100",
        "inductor",
    ),
    batch_size=4,
)
PASSING = ("pass", "pass_due_to_skip")


def write(result: BenchMeasured) -> tuple[list[str], BenchMeasured]:
    """Write a result; return the file's columns, and the result that is read from it."""
    ((name, data),) = [
        (name, data) for name, data in render_files([result], {}).items() if name.endswith(".csv")
    ]
    [again] = read_results(name, data).results
    return next(csv.reader(io.StringIO(data.decode()))), again


def measured(table: str) -> BenchMeasured:
    values = {name: float(position) for position, name in enumerate(OUTPUTS[table], start=1)}
    return replace(
        NET, experiment=table, values=values, accuracy="pass" if table == "accuracy" else None
    )


@pytest.mark.parametrize("table", TABLES)
def test_the_columns_stand_in_upstreams_order(table: str) -> None:
    verdict = ["accuracy"] if table == "accuracy" else []
    columns, _ = write(measured(table))
    assert columns == ["dev", "name", "batch_size", *verdict, *OUTPUTS[table]]
    tagged, again = write(replace(measured(table), facts={"tag": "nightly"}))
    assert tagged[3] == "tag" and again.facts["tag"] == "nightly"


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table in TABLES for column in OUTPUTS[table]]
)
def test_a_column_keeps_its_number(table: str, column: str) -> None:
    result = measured(table)
    _, again = write(result)
    assert again.values[column] == result.values[column]


@pytest.mark.parametrize("status", OUTPUTS["statuses"])
def test_a_status_of_a_check_is_written_and_read(status: str) -> None:
    state, reason = ("measured", None) if status in PASSING else ("failed", status)
    columns, again = write(
        replace(NET, experiment="accuracy", status=state, reason=reason, accuracy=status)
    )
    assert columns[:4] == ["dev", "name", "batch_size", "accuracy"]
    assert again.accuracy == status or again.reason == status


def test_a_failure_of_a_timed_model_is_a_row_of_zeros() -> None:
    columns, again = write(replace(NET, status="failed", reason="OOM"))
    assert (
        columns == ["dev", "name", "batch_size", "speedup", "abs_latency"]
        and again.status == "failed"
    )


def test_each_status_that_bench_gives_is_upstreams_and_has_a_word() -> None:
    own = {*REASONS, *DIED.values()}
    assert own <= set(OUTPUTS["statuses"])
    # Bench tells which eager run failed where upstream has two words of its own.
    assert set(OUTPUTS["statuses"]) - own - set(PASSING) == {"eager_fail_to_run", "warmup_failed"}


def test_a_folder_of_tagged_results_has_each_once() -> None:
    tagged = replace(
        measured("performance"),
        backend="inductor",
        facts={"tag": "nightly", "phases_s": {"a": 1.5}},
    )
    files = [read_results(name, data) for name, data in render_files([tagged], {}).items()]
    assert len(files) == 4
    ((_, again),) = merge(files).results
    assert (again.facts["tag"], again.backend, again.facts["phases_s"]) == (
        "nightly",
        "inductor:nightly",
        {"a": 1.5},
    )


@pytest.mark.parametrize(("status", "columns"), [("measured", {"a", "b"}), ("failed", {"a"})])
def test_two_files_of_one_result_have_their_numbers_together_if_they_say_the_same(
    status: str, columns: set[str]
) -> None:
    first, second = replace(NET, values={"a": 1.0}), replace(NET, values={"b": 2.0}, status=status)
    files = [ResultFile("1.csv", "performance", [first]), ResultFile("2.csv", "", [second])]
    ((file, merged),) = merge(files).results
    assert (file.name, merged.status, set(merged.values)) == ("1.csv", "measured", columns)


@pytest.mark.parametrize(
    ("written", "time_us"),
    [
        ("10000000000", 10**16),  # seconds: the year 2286
        ("100000000000", None),  # the first number that is no year of four digits
        ("100000000001", 100_000_000_001_000),  # milliseconds: 1973
    ],
)
def test_a_time_is_in_seconds_up_to_a_limit_and_in_thousandths_above_it(
    written: str, time_us: int | None
) -> None:
    assert time_us_of(replace(NET, facts={"timestamp": written})) == time_us


@pytest.mark.parametrize("experiment", ["performance", "accuracy"])
def test_where_all_is_skipped_the_files_have_the_reasons(experiment: str) -> None:
    skipped = replace(
        NET,
        experiment=experiment,
        status="skipped",
        reason="timm is not installed: pip install timm",
    )
    files = [read_results(name, data) for name, data in render_files([skipped], {}).items()]
    assert len(files) == 2
    for file in files:
        (again,) = file.results
        assert (again.experiment, again.status, again.reason) == (
            experiment,
            "skipped",
            skipped.reason,
        )
    done = replace(NET, model="vgg16", values={"speedup": 2.0})
    (again,) = read_results(
        "performance.csv", render_files([skipped, done], {}, stem="x")["x.csv"]
    ).results
    assert again.model == "vgg16", "beside a result upstream has no row for what was skipped"
