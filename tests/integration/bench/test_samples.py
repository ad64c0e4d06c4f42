"""What `bench` measures more than once, and with how much room on the interpreter's stack."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.faults.frame_stack import SLOW_FAULTS, in_fresh_thread, measure_depths
from compileboard.collectors.bench.plan.settings import list_torch_variables
from compileboard.collectors.store.codec import unpack
from tests.integration.bench.test_bench import rows
from tests.tools.observed import PROGRAMS, Workplace

pytestmark = [pytest.mark.torch, pytest.mark.real_start]

# A forward pass that calls a wide function at every depth: at some depth of 200 a chunk of
# CPython's frame stack ends.
WIDE = """
import torch
from benchmarks.faults.frame_stack import descend, wide_function

CALL = wide_function()


class Wide(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)

    def forward(self, x):
        torch._dynamo.disable(descend)(lambda depth: CALL(depth), 0, 200)
        return super().forward(x).relu().softmax(1)

    def get_example_inputs(self):
        return (torch.randn(2, 4),)
"""


CHANNELS_LAST = (
    "select results.* from results join series on series.id = series_id where backend like "
    "'%channels_last%'"
)


def bench(workplace: Workplace, model: Path, *words: str, name: str = "Wide") -> None:
    command = [
        sys.executable,
        "-m",
        "compileboard.collectors",
        "bench",
        "--db",
        str(workplace.database),
        "--device",
        "cpu",
    ]
    only = f"path:{model},class:{name}"
    subprocess.run(
        [*command, "--only", only, *words],
        env=workplace.environ(),
        cwd=workplace.folder,
        check=True,
        timeout=560,
    )


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("samples")
    workplace = Workplace(folder, {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")})
    model = workplace.folder / "wide.py"
    model.write_text(WIDE)
    bench(workplace, model, "--backend", "eager", "--quick", "--no-stack-room")
    return workplace


@pytest.fixture(scope="module")
def whole(workplace: Workplace) -> Workplace:
    model = workplace.folder / "wide.py"
    again = ["--compile-repeats", "2", "--cold-start-latency"]
    bench(workplace, model, *again, "-n", "3", "--output-directory", str(workplace.folder / "out"))
    for _ in range(2):
        bench(workplace, model, "--float32", "--channels-last")
    return workplace


def result(
    workplace: Workplace, label: str
) -> tuple[dict[str, Any], dict[str, float], dict[str, list[float]]]:
    backend = "_".join([label, *list_torch_variables(workplace.environ())])
    query = (
        "select results.* from results join series on series.id = series_id where backend = "
        f"'{backend}'"
    )
    (row,) = rows(workplace, query)
    values = rows(workplace, f"select name, value from result_values where result_id = {row['id']}")
    repeats = rows(
        workplace, f"select name, body from result_repeats where result_id = {row['id']}"
    )
    samples = {repeat["name"]: json.loads(unpack(repeat["body"])) for repeat in repeats}
    return row, {row["name"]: row["value"] for row in values}, samples


@pytest.mark.nightly
def test_what_is_timed_has_room_and_its_page_faults_are_recorded(workplace: Workplace) -> None:
    if not any(
        depth.faults >= SLOW_FAULTS for depth in in_fresh_thread(lambda: measure_depths(200, 5))
    ):
        pytest.skip("this interpreter's frame stack has no cliff")
    model = workplace.folder / "wide.py"
    bench(workplace, model, "--backend", "eager", "--quick", "--iterations-per-run", "2")
    _row, with_room, _repeats = result(workplace, "eager_iterations_per_run=2_quick")
    _row, without, _repeats = result(workplace, "eager_quick_no_stack_room")
    for name in ("eager_page_faults", "compiled_page_faults"):
        assert with_room[name] < 100 < 500 < without[name], (with_room, without)


@pytest.mark.nightly
@pytest.mark.parametrize("words", [("--no-stack-room",), ()])
def test_a_backward_pass_in_a_thread_of_autograds_has_room(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    if not any(
        depth.faults >= SLOW_FAULTS for depth in in_fresh_thread(lambda: measure_depths(200, 5))
    ):
        pytest.skip("this interpreter's frame stack has no cliff")
    model = Path(shutil.copy(PROGRAMS / "pool_backward.py", tmp_path))
    bench(
        Workplace(tmp_path),
        model,
        "--backend",
        "eager",
        "--training",
        "--quick",
        *words,
        name="Model",
    )
    slow_depth_count = int(model.with_suffix(".txt").read_text())
    assert (slow_depth_count > 0) == bool(words)


@pytest.mark.nightly
def test_a_compile_time_is_the_median_of_samples_with_caches_of_their_own(
    whole: Workplace,
) -> None:
    row, values, repeats = result(whole, "inductor")
    assert len(repeats["cold_compile_s"]) == len(repeats["warm_compile_s"]) == 2
    assert row["compilation_latency_s"] == pytest.approx(median(repeats["cold_compile_s"]))
    assert row["warm_compilation_latency_s"] == pytest.approx(median(repeats["warm_compile_s"]))
    assert values["first_compilation_latency"] > 0
    assert len(repeats["eager_peak_gb"]) == len(repeats["compiled_peak_gb"]) == 3, "of single calls"
    assert "compile_again_error" not in json.loads(row["facts"])


@pytest.mark.nightly
def test_one_sample_is_cold_or_warm_by_what_torchs_caches_had(whole: Workplace) -> None:
    first, second = (json.loads(row["facts"]) | row for row in rows(whole, CHANNELS_LAST))
    assert (first["caches"], second["caches"]) == ("empty", "warm")
    assert first["compilation_latency_s"] > 0 and second["warm_compilation_latency_s"] > 0
    assert first["warm_compilation_latency_s"] is None and second["compilation_latency_s"] is None
    assert "compile again" not in first["stages_s"] and first["stages_s"]["start the compiler"] > 0
    counts = rows(whole, "select count(*) n from compilations group by run_id")
    assert len({row["n"] for row in counts}) == 1, (
        "what starts the compiler is no compile of the run's"
    )


def test_a_quick_run_compiles_once(workplace: Workplace) -> None:
    _row, _values, repeats = result(workplace, "eager_quick_no_stack_room")
    assert {name: len(samples) for name, samples in repeats.items() if "compile_s" in name} == {
        "cold_compile_s": 1
    }
    assert len(repeats["compiled_peak_gb"]) == 1


@pytest.mark.nightly
def test_the_compile_phases_are_written_as_upstream_does(whole: Workplace) -> None:
    (file,) = (whole.folder / "out").glob("*_performance_compilation_metrics.csv")
    header, row = (line.split(",") for line in file.read_text().splitlines())
    assert header[:4] == ["dev", "name", "batch_size", "_compile.compile_inner"]
    phases = dict(zip(header[3:], map(float, row[3:])))
    assert phases["_compile.compile_inner"] >= phases["fx_codegen_and_compile"] > 0
