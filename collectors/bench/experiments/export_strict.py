"""Whether `torch.export` takes the model by dynamo's analysis of its code, without a graph break."""

from __future__ import annotations

from compileboard.collectors.bench.experiments.export import export_and_judge
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.bench.worker.workbench import Workbench


def run(bench: Workbench) -> ExperimentOutcome:
    """Export by dynamo, then judge one forward of the program."""
    return export_and_judge(bench, strict=True)
