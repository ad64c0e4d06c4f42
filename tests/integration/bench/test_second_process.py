"""Compiled once, used by a second process: dynamo's cache, and a file compiled ahead of time."""

from __future__ import annotations

import pytest

from compileboard.collectors.contract.events import BenchMeasured, load_event
from compileboard.collectors.store.codec import unpack
from tests.integration.bench.test_bench import PLANTED, rows
from tests.integration.bench.test_flags import bench
from tests.tools.observed import Workplace

pytestmark = pytest.mark.torch

MEASURED = "select body from events where kind = 'bench_measured'"
Results = dict[tuple[str, str], BenchMeasured]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    workplace = Workplace(tmp_path_factory.mktemp("second"))
    both = ["--caching-precompile", "--aot-precompile"]
    for model, words in (("Fine", both), ("Breaks", both[1:])):
        with bench(
            workplace, *words, "--backend", "inductor", "--only", f"path:{PLANTED},class:{model}"
        ) as process:
            _, err = process.communicate(timeout=280)
        assert "aot_precompile" in err
    events = [load_event(unpack(row["body"])) for row in rows(workplace, MEASURED)]
    return {
        (event.model, event.experiment): event
        for event in events
        if isinstance(event, BenchMeasured)
    }


@pytest.mark.nightly
def test_a_second_process_compiles_nothing_that_is_cached(results: Results) -> None:
    result = results["Fine", "caching_precompile"]
    assert (result.status, result.values["unique_graphs"]) == ("measured", 1)
    assert result.facts["second_process_graph_count"] == 0
    assert min(result.values["second_process_latency"], result.values["first_call_latency"]) > 0


def test_a_graph_break_is_no_file_and_names_its_line(results: Results) -> None:
    result = results["Breaks", "aot_precompile"]
    assert (result.status, result.accuracy) == ("failed", "fail_to_run")
    assert (result.backend or "").startswith("aot_precompile_quick")
    assert result.facts["export"]["line"].startswith("planted.py:")


def test_a_file_compiled_ahead_is_judged_loaded_and_called(results: Results) -> None:
    result = results["Fine", "aot_precompile"]
    assert (result.status, result.accuracy) == ("measured", "pass") and result.values[
        "package_bytes"
    ] > 1000
    assert 0 < result.values["load_latency"] <= result.values["second_process_latency"]
    assert result.repeats["load_s"] == [result.values["load_latency"]]
