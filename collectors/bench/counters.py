"""What dynamo counted, under the names of upstream's columns. Child processes only."""

from __future__ import annotations

from collections import Counter

from torch._dynamo.utils import counters


def dynamo_counts() -> Counter[str]:
    """Return the counters so far; subtract an earlier reading to have those of a part.

    Source: get_dynamo_stats of upstream's benchmarks/dynamo/common.py.
    """
    frames = counters["frames"]
    return Counter(
        {
            "calls_captured": counters["stats"]["calls_captured"],
            "unique_graphs": counters["stats"]["unique_graphs"],
            "fallbacks_to_eager": frames["total"] - frames["ok"],
            "graph_breaks": sum(counters["graph_break"].values()),
            "unique_graph_breaks": len(+counters["graph_break"]),
            "autograd_captures": counters["compiled_autograd"]["captures"],
            "autograd_compiles": counters["compiled_autograd"]["compiles"],
            "cudagraph_skips": counters["inductor"]["cudagraph_skips"],
        }
    )


def counted_since(start: Counter[str]) -> dict[str, float]:
    """Return what was counted after an earlier reading."""
    now = dynamo_counts()
    now.subtract(start)
    return {name: float(value) for name, value in now.items()}
