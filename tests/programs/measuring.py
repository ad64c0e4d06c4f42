"""Measure the experiments that come as lines, as a bench child would; answer with outcomes."""

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch
import torch._dynamo.utils

from compileboard.collectors.bench.experiments import load_experiment, settings_for
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.suites.user import BUILD
from compileboard.collectors.bench.worker.child import failure
from compileboard.collectors.bench.worker.outcome import Stages
from compileboard.collectors.bench.worker.workbench import Workbench

for line in sys.stdin:
    only, experiment, changes = json.loads(line)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # a child has measured nothing before
    torch.manual_seed(0)
    changes = {"backend": "eager", "quick": True, "repeat": 3, **changes}
    settings = settings_for(experiment, BenchSettings(**changes))
    ref = ModelRef("local", "it", BUILD, only, batch_size=4)
    with tempfile.TemporaryDirectory() as folder:
        bench = Workbench(ref, settings, Stages(Path(folder)))
        try:
            bench.load()
            outcome = bench.describe(load_experiment(experiment)(bench))
        except Exception as error:
            outcome = failure(error)
    print("OUTCOME" + json.dumps(asdict(outcome)), flush=True)
