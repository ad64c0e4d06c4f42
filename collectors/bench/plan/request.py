"""The options of a `bench` command, except those that say how to measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compileboard.collectors.bench.experiments import EXPERIMENTS
from compileboard.collectors.bench.plan.settings import (
    COMPILED,
    COUNT,
    MEASURED,
    declare,
    list_declared,
)
from compileboard.collectors.bench.suites import SUITES
from compileboard.collectors.terminal.values import read_tag

GROUPS = (
    "models",
    "experiments (default --performance)",
    "what is compiled",
    "how it is measured",
    "the run",
)
INDUCTOR_SWITCHES = {  # the --inductor-config entries that a flag stands for
    "disable_split_reductions": "split_reductions=0",
    "disable_persistent_reductions": "triton.persistent_reductions=0",
    "disable_divisible_by_16": "triton.divisible_by_16=0",
}
MODELS, EXPERIMENT, RUN = declare(GROUPS[0]), declare(GROUPS[1]), declare(GROUPS[-1])


@dataclass
class BenchRequest:
    db: str  # With a server, this is the additional local database.
    server: Mapping[str, Any] = field(
        default_factory=dict
    )  # settings of a run on a server, from SERVER_SETTINGS
    given: Mapping[str, Any] = field(default_factory=dict)
    suite: tuple[str, ...] = MODELS(
        (),
        (
            f"Suite: {', '.join(suite.name for suite in SUITES)}; repeatable. See --list. Default: "
            "builtin."
        ),
        metavar="NAME",
    )
    only: str | None = MODELS(
        None,
        "One model: its name, path:FILE.py,class:NAME as upstream takes it, or path:FILE.py "
        "for the "
        "functions marked with @compileboard.bench.model.",
        metavar="MODEL",
    )
    filter: tuple[str, ...] = MODELS(
        (), "Only models whose name matches; repeatable.", flags=("--filter", "-k"), metavar="REGEX"
    )
    exclude: tuple[str, ...] = MODELS(
        (), "No models whose name matches; repeatable.", flags=("--exclude", "-x"), metavar="REGEX"
    )
    exclude_exact: tuple[str, ...] = MODELS((), "Not this model; repeatable.", metavar="NAME")
    total_partitions: int = MODELS(1, "Number of parts to cut the list into. Default: 1.", **COUNT)
    partition_id: int = MODELS(0, "Part to measure, from 0. Default: 0.", metavar="N", read=int)
    no_skip: bool = MODELS(False, "Also measure models that are known not to work here.")
    list: bool = MODELS(False, "Print the models that are chosen, and measure nothing.")
    experiments: tuple[str, ...] = EXPERIMENT(
        (),
        "",
        constants={
            experiment.flag: (experiment.name, experiment.help)
            for experiment in EXPERIMENTS
            if experiment.help
        },
    )
    batch_size_file: str | None = COMPILED(
        None, "Batch sizes of single models: a file of lines NAME,SIZE.", metavar="FILE"
    )
    devices: tuple[str, ...] = ()  # measured one after the other; empty: the available one
    device_index: str | None = COMPILED(
        None, "GPU to measure on, by CUDA's index.", metavar="N", needs="a GPU"
    )
    dashboard: bool = MEASURED(
        False, "Measure as upstream's dashboard: peak memory of one warm step.", needs="performance"
    )
    disable_split_reductions: bool = COMPILED(
        False, "Use inductor without split reductions.", needs="inductor"
    )
    disable_persistent_reductions: bool = COMPILED(
        False, "Use Triton without persistent reductions.", needs="inductor"
    )
    disable_divisible_by_16: bool = COMPILED(
        False, "Give Triton no hint of sizes divisible by 16.", needs="inductor"
    )
    name: str | None = RUN(None, "Name of the run. Default: bench and its suites.", metavar="NAME")
    tag: tuple[tuple[str, str], ...] = RUN(
        (),
        "Tag of the run; one word alone is upstream's tag; repeatable.",
        metavar="KEY=VALUE",
        read=read_tag,
    )
    resume: str | None = RUN(
        None,
        "Continue an interrupted run. Default: the newest of the same command.",
        metavar="[RUN]",
        bare="",
    )
    diff_branch: str | None = RUN(
        None,
        "Measure this branch or commit of the repository as well, in a throw-away worktree, "
        "and compare; the "
        "checkout is not touched.",
        metavar="REF",
    )
    baseline: str | None = RUN(
        None,
        "Performance CSV of upstream's form to compare speedups with.",
        metavar="FILE",
        needs="performance",
    )
    output: str | None = RUN(
        None,
        "Name of upstream's CSV; its JSON and compilation metrics are written beside it.",
        metavar="FILE.csv",
    )
    disable_output: bool = RUN(False, "Write none of upstream's files.")
    dump_raw_metrics: bool = RUN(
        False, "Write the timings as upstream's .npy files too.", needs="timing"
    )
    log_graph_breaks: bool = RUN(False, "Write upstream's graph-break files too.")
    explain: bool = RUN(
        False,
        "Print graphs, ops and breaks of each model, and list the breaks.",
        flags=("--explain", "--print-graph-breaks"),
    )
    minify: bool = RUN(
        False,
        "Run a model that fails or is wrong once more, compare each of its graphs with eager "
        "and float64, and minify "
        "the one to blame: its minimal program is kept with the result.",
    )
    verify: bool = RUN(
        False,
        "Then try the fixes of each model on copies of its source, as `try RUN --all` does.",
    )
    level: str = RUN(
        "light",
        "Level of detail; full records torch's own trace of each process too. Default: light.",
        choices=("light", "full"),
    )
    no_source: bool = RUN(False, "Store no line of the models' source code.")
    quiet: bool = RUN(
        False, "Print no progress, only the summary.", flags=("--quiet", "-q"), exclusive="words"
    )

    @property
    def output_directory(self) -> str | None:
        output: str | None = self.given["output_directory"]
        return output


REQUESTED = list_declared(BenchRequest)
