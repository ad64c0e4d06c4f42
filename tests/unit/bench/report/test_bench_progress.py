from __future__ import annotations

import pytest

from compileboard.collectors.bench.report.progress import describe, describe_graphs
from compileboard.collectors.contract.events import BenchMeasured


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "performance: graphs, ops and graph breaks not counted"),
        ({"speedup": 1.2}, "performance: graphs, ops and graph breaks not counted"),
        (
            {"unique_graphs": 2, "calls_captured": 9, "graph_breaks": 0, "unique_graph_breaks": 0},
            "Dynamo produced 2 graphs covering 9 ops with 0 graph breaks (0 unique)",
        ),
    ],
)
def test_explained_says_what_was_not_counted(values: dict[str, float], text: str) -> None:
    assert (
        describe_graphs(BenchMeasured("b", 1, 1, "local", "Net", "performance", values=values))
        == text
    )


@pytest.mark.parametrize(
    ("count", "named"), [(1, "0 (Linear)"), (4, "0 (Linear), 1 (Linear), 2 (Linear) …")]
)
def test_a_line_names_the_first_modules_that_are_not_compiled(count: int, named: str) -> None:
    eager = {
        "eager_module_count": count,
        "eager_modules": [f"{number} (Linear)" for number in range(count)],
    }
    facts = {"distributed": eager}
    result = BenchMeasured("b", 1, 1, "local", "Net", "accuracy", accuracy="pass", facts=facts)
    assert describe(result) == f"pass, {count} module{'s'[: count - 1]} not compiled: {named}"


def test_a_line_has_the_time_of_dynamos_cache_lookups() -> None:
    values = {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "cache_lookup_latency": 61.4}
    result = BenchMeasured("b", 1, 1, "local", "Net", "performance", values=values)
    assert describe(result) == "2.000x [1.900, 2.100], cache lookup 61 µs"
