"""What dynamo itself costs: the model compiled by a backend that does nothing, against eager.

The task's backend is "eager" here, torch's own that runs the captured graph as it is.
Source: --overhead of upstream's benchmarks/dynamo/common.py.
"""

from __future__ import annotations

from compileboard.collectors.bench.experiments import performance
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.bench.worker.workbench import Workbench


def run(bench: Workbench) -> ExperimentOutcome:
    """Measure as performance does; below 1 is what guards and resuming take."""
    return performance.run(bench)
