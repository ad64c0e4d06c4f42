"""Compiled once, used by a second process: dynamo's cache, and a file compiled ahead of time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from compileboard.collectors.contract.events import BenchMeasured, load_event
from compileboard.collectors.store.codec import unpack
from tests.integration.bench.test_bench import PLANTED, rows
from tests.integration.bench.test_flags import bench
from tests.tools.observed import Workplace

pytestmark = pytest.mark.torch

MEASURED = "select body from events where kind = 'bench_measured'"
Measure = Callable[[str, str], BenchMeasured]


@pytest.fixture(scope="module")
def measure(tmp_path_factory: pytest.TempPathFactory) -> Measure:
    """Return a function that measures a model, once each experiment."""

    @cache
    def measure(model: str, experiment: str) -> BenchMeasured:
        workplace = Workplace(tmp_path_factory.mktemp("second"))
        words = ["--backend", "inductor", "--only", f"path:{PLANTED},class:{model}"]
        with bench(workplace, f"--{experiment.replace('_', '-')}", *words) as process:
            _, err = process.communicate(timeout=280)
        assert experiment in err
        (event,) = [load_event(unpack(row["body"])) for row in rows(workplace, MEASURED)]
        assert isinstance(event, BenchMeasured)
        return event

    return measure


@pytest.mark.nightly
def test_a_second_process_compiles_nothing_that_is_cached(measure: Measure) -> None:
    result = measure("Fine", "caching_precompile")
    assert (result.status, result.values["unique_graphs"]) == ("measured", 1)
    assert result.facts["second_process_graph_count"] == 0
    assert min(result.values["second_process_latency"], result.values["first_call_latency"]) > 0


def test_a_graph_break_is_no_file_and_names_its_line(measure: Measure) -> None:
    result = measure("Breaks", "aot_precompile")
    assert (result.status, result.accuracy) == ("failed", "fail_to_run")
    assert (result.backend or "").startswith("aot_precompile_quick")
    assert result.facts["export"]["line"].startswith("planted.py:")


def test_a_file_compiled_ahead_is_judged_loaded_and_called(measure: Measure) -> None:
    result = measure("Fine", "aot_precompile")
    assert (result.status, result.accuracy) == ("measured", "pass") and result.values[
        "package_bytes"
    ] > 1000
    assert 0 < result.values["load_latency"] <= result.values["second_process_latency"]
    assert result.repeats["load_s"] == [result.values["load_latency"]]
