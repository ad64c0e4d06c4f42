from dataclasses import replace
from pathlib import Path

import pytest

from compileboard.collectors.record.program import ProgramExit
from compileboard.collectors.trials.comparison import compare_executions
from compileboard.collectors.trials.execution import Call, Counts, Execution, ProcessCalls


def execute(folder: Path, times_us: list[float]) -> Execution:
    for name in ("stdout", "stderr"):
        (folder / name).touch()
    calls = [Call(n, "f", us, False, False, None, after_us=0) for n, us in enumerate(times_us)]
    counts = Counts(1, 0, 0, 0, 0, 1_000_000, None)
    return Execution(
        "RUN", folder, ProgramExit(0, None), counts, [ProcessCalls(None, 0, calls)], []
    )


def test_a_program_that_ends_well_with_the_fix_alone_is_improved(tmp_path: Path) -> None:
    well = execute(tmp_path, [4.0] * 9)
    failing = replace(
        execute(tmp_path, [4.0] * 3),
        exit=ProgramExit(1, None),
        counts=replace(well.counts, failure_count=1),
    )
    assert compare_executions([failing], [well], {}, ()).outcome == "improved"
    assert compare_executions([failing], [failing, well], {}, ()).outcome != "improved"


@pytest.mark.parametrize(
    ("repeat_count", "step", "outcome"),
    [
        (1, "one sample each: not judged", "unchanged"),
        (3, "worse (3 samples a side, ±1.5%)", "worse"),
    ],
)
def test_step_times_take_three_executions_a_side_to_be_judged(
    tmp_path, repeat_count, step, outcome
):
    base, new = (
        [execute(tmp_path, [ms * 1000.0 * (1 + 0.01 * n)] * 40) for n in range(repeat_count)]
        for ms in (4.0, 10.0)
    )
    result = compare_executions(base, new, {}, ())
    (verdict,) = [verdict for verdict in result.verdicts if verdict.metric.label == "Step"]
    assert (verdict.text, result.outcome) == (step, outcome)


@pytest.mark.parametrize(("step_count", "takes_longer"), [(9, True), (400, False)])
def test_a_fix_takes_longer_where_its_steps_save_less_than_it_compiles_longer(
    tmp_path, step_count, takes_longer
):
    base, new = (execute(tmp_path, [ms * 1000.0] * step_count) for ms in (2.0, 1.0))
    first, *others = new.calls[0].calls
    new.calls[0].calls[:] = [replace(first, frames=(1, 1)), *others]
    counts = replace(new.counts, graph_break_count=0, compile_us=1_200_000)
    base = replace(base, counts=replace(base.counts, graph_break_count=1))
    result = compare_executions([base], [replace(new, counts=counts)], {}, ())
    assert (result.outcome, result.slower) == (
        "improved",
        ["compile time 20% more in one execution"],
    )
    assert result.needs_repeats and result.is_slower == takes_longer
