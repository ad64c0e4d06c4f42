"""The table of experiments. To add one, add a line here and a function in a neighbouring module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from compileboard.collectors.bench.plan.settings import SETTINGS, BenchSettings, Declaration


@dataclass(frozen=True)
class Experiment:
    """An experiment and the flag that requests it. One without a help text runs together with
    another experiment of the same flag.
    """

    name: str
    code: str  # module:function of this package, which takes a Workbench in a child process
    flag: str
    help: str
    backend: str | None = None  # measured regardless of --backend
    is_inference_only: bool = False
    setting: str | None = None  # requested by the value of this setting instead of a flag
    modes: tuple[str, ...] = ()  # The modes of upstream's harness whose numbers it has.


EXPERIMENTS = (
    Experiment(
        "performance",
        "performance:run",
        "--performance",
        "Measure speedup over eager, latency, compilation time, peak memory.",
    ),
    Experiment(
        "accuracy",
        "accuracy:check_accuracy",
        "--accuracy",
        "Check that compiled computes what eager computes, by upstream's rules.",
    ),
    Experiment(
        "tolerance",
        "accuracy:measure_tolerance",
        "--tolerance",
        "Measure how far the result is from eager's on the CPU: max, mean, std.",
    ),
    Experiment(
        "coverage",
        "operators:measure_coverage",
        "--coverage",
        "Measure the share of ops and of their time that dynamo captures.",
        "eager",
        modes=("performance",),
    ),
    Experiment(
        "overhead",
        "performance:run",
        "--overhead",
        "Measure what dynamo itself costs, by a backend that does nothing.",
        "eager",
        modes=("performance",),
    ),
    Experiment(
        "nothing",
        "performance:time_eager_twice",
        "--nothing",
        "Measure eager against eager: the noise floor of the machine.",
        "nothing",
        modes=("performance",),
    ),
    Experiment(
        "quantization",
        "quantization:run",
        "--quantization",
        "",
        is_inference_only=True,
        setting="quantization",
        modes=("performance",),
    ),
    Experiment(
        "aot_precompile",
        "precompile:precompile_ahead",
        "--aot-precompile",
        "Compile into a file ahead of time; another process loads and calls it.",
        "aot_precompile",
        True,
        modes=("performance", "accuracy"),
    ),
    Experiment(
        "caching_precompile",
        "precompile:cache_precompiled",
        "--caching-precompile",
        "Measure the first call of a second process that finds what dynamo compiled.",
        modes=("performance",),
    ),
    Experiment(
        "onnx",
        "onnx:run",
        "--dynamo-onnx",
        "Check and time the ONNX export of the model in onnxruntime.",
        "onnx",
        True,
        modes=("performance", "accuracy"),
    ),
    Experiment(
        "recompile_profile",
        "recompile_profile:run",
        "--recompile-profiler",
        "Find what recompiles, and why, when one thing changes at a time.",
    ),
    Experiment(
        "shapes",
        "sizes:measure_sizes",
        "--shapes",
        "Measure speedup, recompiles and compile time at the model's other sizes.",
        modes=("performance",),
    ),
    Experiment(
        "operator_inputs",
        "operators:list_operator_inputs",
        "--log-operator-inputs",
        "Write which operators a step calls, with which arguments and how often.",
        "eager",
    ),
    Experiment(
        "export",
        "export:run",
        "--export",
        (
            "Check that torch.export takes the model: non-strict, then strict; strict alone beside "
            "--accuracy."
        ),
        "export",
        True,
        modes=("accuracy",),
    ),
    Experiment(
        "export_strict",
        "export:run",
        "--export",
        "",
        "export_strict",
        True,
        modes=("accuracy",),
    ),
    Experiment(
        "aot_inductor",
        "aot_inductor:run",
        "--export-aot-inductor",
        (
            "Measure the model exported and compiled ahead of time: verdict, speedup, compile and "
            "load time, size."
        ),
        "aot_inductor",
        True,
        modes=("performance", "accuracy"),
    ),
    Experiment(
        "batch_size",
        "sizes:find_batch_size",
        "--find-batch-sizes",
        "Find the largest batch size that runs, halving from 1024.",
    ),
)
DISTRIBUTED_EXPERIMENTS = ("performance", "accuracy")  # also available with several ranks

MODES = (
    "performance",
    "accuracy",
    "tolerance",
)  # upstream's harness has one beside any other experiment
TIMED = ("performance", "overhead", "nothing")  # they measure the time of a step
IN_TURNS = {
    *TIMED,
    "quantization",
    "aot_precompile",
    "caching_precompile",
    "onnx",
    "shapes",
    "aot_inductor",
}
EXPORTING = {"export", "export_strict", "onnx", "aot_precompile", "aot_inductor"}
CHECKING = {"accuracy", "tolerance", *EXPORTING}
# May start as forks of a process that has imported torch. performance, overhead, aot_inductor and
# batch_size measure or limit the memory of a process, and a fork owns only what it touches; the
# others were not tried as forks.
FORKED = ("accuracy", "export", "export_strict", "aot_precompile", "caching_precompile", "onnx")


def find(name: str) -> Experiment:
    return next(experiment for experiment in EXPERIMENTS if experiment.name == name)


def load_experiment(name: str) -> Callable[[Any], Any]:
    """Import an experiment's code, which imports torch."""
    module, _, function = find(name).code.partition(":")
    run: Callable[[Any], Any] = getattr(import_module(f"{__name__}.{module}"), function)
    return run


def choose_experiments(names: Sequence[str], *, is_one_file: bool) -> tuple[str, ...]:
    """Return the experiments that flags request.

    As in upstream's harness, one of MODES with another experiment only selects which of its numbers
    are written, and an export is then strict. With coverage and overhead, accuracy and tolerance
    check their backend.
    """
    modes = tuple(name for name in names if name in MODES)
    others = [name for name in names if name not in MODES]
    if not others or backend_to_check(names):
        return modes
    if modes or is_one_file:
        return tuple("export_strict" if name == "export" else name for name in others)
    flags = [find(name).flag for name in others]
    return tuple(
        dict.fromkeys(other.name for flag in flags for other in EXPERIMENTS if other.flag == flag)
    )


def backend_to_check(names: Collection[str]) -> str | None:
    """Return the backend whose answers a mode checks if the other experiment only measures
    times.
    """
    others = {*names} - {*MODES}
    is_check = others < {*names} and "performance" not in names
    return "eager" if is_check and others and others <= {"coverage", "overhead"} else None


def list_idle_modes(names: Collection[str], experiments: Collection[str]) -> list[str]:
    """Return the requested modes whose numbers none of the experiments has."""
    known = {mode for name in experiments for mode in (name, *find(name).modes)}
    return [mode for mode in MODES if mode in names and mode not in known]


def settings_for(name: str, settings: BenchSettings) -> BenchSettings:
    if name == "batch_size":
        settings = replace(settings, batch_size=None)  # searched for, instead of the model's own
    if name == "accuracy":
        settings = replace(
            settings, suppress_errors=False
        )  # as upstream: a fallback to eager is not compiled
    if name not in TIMED:
        settings = replace(settings, collect_outputs=False)
    own = find(name).backend
    if own is None:
        return settings
    if own == "aot_inductor":
        # inductor compiles the package, without CUDA graphs.
        return replace(settings, backend=own, disable_cudagraphs=False)
    return replace(settings, backend=own, compile_mode=None, inductor_config=(), freezing=False)


@dataclass(frozen=True)
class Need:
    is_met: Callable[[BenchSettings, set[str]], bool]  # called with settings and experiments
    otherwise: str


NEEDS: dict[str, Need] = {
    "a GPU": Need(lambda settings, _: settings.is_cuda, "the device is the CPU"),
    "a trace": Need(
        lambda settings, _: settings.export_profiler_trace, "it goes with --export-profiler-trace"
    ),
    "ranks": Need(lambda settings, _: settings.is_distributed, "it goes with --ddp or --fsdp"),
    "training": Need(lambda settings, _: settings.is_training, "--inference has no backward pass"),
    "gradients": Need(
        lambda settings, names: settings.is_training and bool(names & {*TIMED}),
        "it goes with --training --performance",
    ),
    "--ci": Need(
        lambda settings, names: settings.ci and "accuracy" in names, "it goes with --ci --accuracy"
    ),
    "inductor": Need(
        lambda settings, names: any(settings_for(name, settings).is_inductor for name in names),
        "inductor compiles nothing here",
    ),
    "CUDA graphs": Need(
        lambda settings, names: settings.is_cuda and NEEDS["inductor"].is_met(settings, names),
        "only inductor on a GPU has CUDA graphs",
    ),
    "a backend": Need(
        lambda _, names: any(find(name).backend is None for name in names),
        "the experiment has a backend of its own",
    ),
    "graph breaks": Need(
        lambda _, names: bool(names - EXPORTING - {"nothing", "operator_inputs", "batch_size"}),
        "dynamo breaks no graph here",
    ),
    "fallbacks": Need(
        lambda _, names: names != {"accuracy"}, "--accuracy checks no frame that fell back to eager"
    ),
    "a size": Need(lambda _, names: names != {"batch_size"}, "--find-batch-sizes looks for it"),
    "a check": Need(lambda _, names: bool(names & CHECKING), "no experiment here compares answers"),
    "timing": Need(
        lambda _, names: bool(names & IN_TURNS), "no experiment here times eager against compiled"
    ),
    "speedup": Need(
        lambda _, names: bool(names & {"performance", "overhead"}), "it goes with --performance"
    ),
    "performance": Need(lambda _, names: "performance" in names, "it goes with --performance"),
}


def find_settings_without_effect(
    declared: Mapping[str, tuple[Declaration, Any]],
    settings: BenchSettings,
    experiments: Iterable[str],
) -> dict[str, str]:
    names = set(experiments)
    needs = {
        name: NEEDS[declaration.needs]
        for name, (declaration, _) in declared.items()
        if declaration.needs
    }
    return {
        name: need.otherwise for name, need in needs.items() if not need.is_met(settings, names)
    }


def drop_settings_without_effect(
    settings: BenchSettings, experiments: Iterable[str]
) -> BenchSettings:
    """Return the settings without those that have no effect. Otherwise they would make a series of
    its own with equal numbers.
    """
    idle = find_settings_without_effect(SETTINGS, settings, experiments)
    return replace(settings, **{name: SETTINGS[name][1] for name in idle})
