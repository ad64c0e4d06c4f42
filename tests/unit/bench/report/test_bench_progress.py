from __future__ import annotations

import pytest

from compileboard.collectors.bench.report.progress import explained
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
        (
            {"unique_graphs": 2, "calls_captured": 9, "graph_breaks": 1},
            "Dynamo produced 2 graphs covering 9 ops with 1 graph breaks (unique ones not counted)",
        ),
    ],
)
def test_explained_says_what_was_not_counted(values: dict[str, float], text: str) -> None:
    assert explained(BenchMeasured("b", 1, 1, "local", "Net", "performance", values=values)) == text
