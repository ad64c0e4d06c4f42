"""Lines drawn from upstream's flags: each is heeded and labelled, or a line says it is not."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from compileboard.collectors.bench.execution.runner import Checkout, Job
from compileboard.collectors.bench.experiments import EXPERIMENTS, MODES, backend_to_check, find
from compileboard.collectors.bench.plan.request import REQUESTED, BenchRequest
from compileboard.collectors.bench.plan.settings import SETTINGS
from compileboard.collectors.cli.bench import bench, make_job
from compileboard.collectors.cli.main import main

FLAGS = json.loads(
    (Path(__file__).parents[3] / "data" / "upstream" / "flags.json").read_text(encoding="utf-8")
)
EXAMPLES = """\
--repeat 4 --iterations-per-run 4 --threads 4 --batch-size 4 --iterations 4 --filter unet
--exclude unet --exclude-exact unet --save-model-outputs-to a --compare-model-outputs-with a
--profiler-trace-name a --devices cpu --total-partitions 2 --partition-id 0 --device-index 0
--only mlp --batch-size-file sizes.txt --part head --tag main --inductor-config max_autotune=0
--optimize-ddp-mode python_reducer --distributed-master-port 6790 --output x.csv
--output-directory out --baseline before.csv --timeout 99 --per_process_memory_fraction 0.5
--amp-dtype float16 --backend aot_eager --xla-tolerance 0.1 --quantization noquant
--inductor-compile-mode max-autotune --optimus all --compilers eager
"""
VALUES = dict(re.findall(r"(\S+) (\S+)", EXAMPLES))
GIVEN_ONCE = {"--accuracy", "--performance", "--tolerance", "--training", "--inference"}
UNDRAWN = {
    "--diff-branch",
    "--disable-output",
}  # a repository is needed; there is no label, and nothing to say


def draw_lines(count: int = 45, seed: int = 25) -> list[list[str]]:
    """Draw lines as upstream takes them: a mode, training or inference, and up to four other
    flags.
    """
    rng = random.Random(seed)
    flags = sorted({*FLAGS["flags"], *FLAGS["newer"], *FLAGS["older"]} - GIVEN_ONCE - UNDRAWN)
    drawn = []
    for _ in range(count):
        mode = rng.choice(("--accuracy", "--performance", "--performance", "--tolerance"))
        words = [mode, rng.choice(("--training", "--inference"))]
        for flag in rng.sample(flags, rng.randint(1, 4)):
            words += [flag, VALUES[flag]] if flag in VALUES else [flag]
        drawn.append(words)
    return drawn


def pair_lines() -> list[list[str]]:
    """Return each experiment of upstream's beside each of its modes."""
    flags = sorted(
        {experiment.flag for experiment in EXPERIMENTS if experiment.name not in MODES}
        - {"--shapes"}
    )
    values = [[flag, VALUES[flag]] if flag in VALUES else [flag] for flag in flags]
    return [[f"--{mode}", "--inference", *words] for mode in MODES for words in values]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("words", [*draw_lines(), *pair_lines()], ids=" ".join)
def test_a_drawn_line_is_heeded_or_answered(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sizes.txt").write_text("mlp,16\n")
    Path("before.csv").write_text("dev,name,batch_size,speedup\ncpu,mlp,8,2.0\n")
    made: list[tuple[BenchRequest, Job]] = []

    def plan(request: BenchRequest, _print: object) -> int:
        made.append((request, make_job(request, Checkout(environment={}), {})))
        return 0

    monkeypatch.setattr("compileboard.collectors.cli.bench.run_bench", plan)
    code = main(["bench", *words, *([] if "--devices" in words else ["--device", "cpu"])])
    said = capsys.readouterr().err
    if code:
        assert code == 2 and re.search(r"(compileboard|Error): .{20}", said), said
        return
    [(request, job)] = made
    labels = " ".join(task.settings.label() for task in job.plan)
    check_experiments(request, {task.experiment for task in job.plan}, said)
    for param in bench.params:
        given = {word.replace("_", "-") for word in words} & {*param.opts}
        if given and not any(f"{flag} " in said for flag in param.opts):
            check_heeded(str(param.name), getattr(param, "flag_value", None), request, job, labels)
    for name, (declaration, default) in SETTINGS.items():
        if declaration.label == name and re.search(rf"(_|\b){name}(_|\b)", labels):
            assert getattr(job.plan[0].asked, name) != default, f"{labels}: {name} is not measured"


def check_heeded(name: str, constant: object, request: BenchRequest, job: Job, labels: str) -> None:
    """Check that a flag that no line tells of changed what is measured, and that the label says
    so.
    """
    declared, default = {**SETTINGS, **REQUESTED}[name]
    value = getattr(job.plan[0].asked, name) if name in SETTINGS else getattr(request, name)
    is_default_itself = constant == default or name in ("experiments", "device", "partition_id")
    assert value != default or is_default_itself, f"{name} is silent"
    if name in SETTINGS and declared.label and value != default:
        for part in value if isinstance(value, tuple) else (value,):
            assert declared.label.format(part, settings=job.plan[0].asked) in labels, (
                f"{labels}: {name} is missing"
            )


def check_experiments(request: BenchRequest, measured: set[str], said: str) -> None:
    """Check that a mode is no second experiment, and that one that is not measured is another's or
    answered.
    """
    assert measured <= {*MODES} or not measured & {*MODES}, f"{measured} are two experiments"
    known = measured | {mode for name in measured for mode in find(name).modes}
    for name in request.experiments:
        same_flag = {other.name for other in EXPERIMENTS if other.flag == find(name).flag}
        is_backend = backend_to_check(request.experiments) is not None and name not in MODES
        assert same_flag & known or is_backend or f"{find(name).flag} is left out" in said, (
            f"{name} is silent"
        )


def test_many_flags_are_drawn() -> None:
    drawn = {word for words in draw_lines() for word in words if word.startswith("--")}
    assert len(drawn) > 50 and drawn <= {*FLAGS["flags"], *FLAGS["newer"], *FLAGS["older"]}
