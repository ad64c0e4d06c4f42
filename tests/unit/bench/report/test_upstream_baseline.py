"""--baseline: upstream's two columns, from its own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.report.upstream_files import compare_with, read_baseline
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome

ROWS = "dev,name,batch_size,speedup,abs_latency\ncuda,Net,4,2.000000,1.0\ncuda,Broken,0,0.0,0.0\n"
NET = ModelRef("local", "Net", "module:build")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "inductor_local_float32_inference_cuda_performance.csv"
    path.write_text(ROWS)
    return path


def test_a_speedup_is_set_beside_the_baselines(file: Path) -> None:
    baseline = read_baseline(str(file))
    assert baseline == {"Net": 2.0}, "the zero of a failed row is no speedup"
    outcome = ExperimentOutcome(values={"speedup": 3.0})
    compare_with(baseline, Task("performance", NET, BenchSettings()), outcome)
    assert outcome.values == {"speedup": 3.0, "baseline": 2.0, "speedup_vs_baseline": 1.5}


@pytest.mark.parametrize(("name", "experiment"), [("Other", "performance"), ("Net", "overhead")])
def test_what_the_baseline_lacks_gets_no_zero(file: Path, name: str, experiment: str) -> None:
    outcome = ExperimentOutcome(values={"speedup": 3.0})
    task = Task(experiment, ModelRef("local", name, "module:build"), BenchSettings())
    compare_with(read_baseline(str(file)), task, outcome)
    assert outcome.values == {"speedup": 3.0}


def test_a_file_without_speedups_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("dev,name,accuracy\ncpu,Net,pass\n")
    with pytest.raises(ValueError, match=r"--baseline .*x\.csv: no row has a speedup"):
        read_baseline(str(tmp_path / "x.csv"))
    with pytest.raises(ValueError, match="No such file"):
        read_baseline(str(tmp_path / "gone.csv"))
    assert read_baseline(None) == {}
