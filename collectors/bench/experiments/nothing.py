"""Eager against eager: the noise floor, which a speedup must exceed.

Both sides are the same call without dynamo, so the interval of their ratio holds 1 except for one
model in twenty. Source: --nothing of upstream's benchmarks/dynamo/common.py, which times its second
side through torch._dynamo.run.
"""

from __future__ import annotations

from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.bench.worker.statistics import summarize
from compileboard.collectors.bench.worker.timing import TimedCall, take_turns
from compileboard.collectors.bench.worker.workbench import Workbench, failing_as


def run(bench: Workbench) -> ExperimentOutcome:
    bench.cast()
    step = bench.steps.step()
    bench.steps.use(bench.module)
    with bench.grad(), failing_as("eager_1st_run_fail", "eager_1st_run_OOM"):
        bench.stage("eager")
        bench.warm_up(step, bench.module)
        bench.stage("measure")
        side = TimedCall(step, bench.module)
        turns = take_turns(bench, side, side)
    return summarize(turns.fault_values(), turns.repeats)
