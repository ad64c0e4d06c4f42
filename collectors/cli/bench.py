"""`bench`: select models, measure each in its own process, record, and print a summary."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import click

from compileboard.collectors.bench import suites
from compileboard.collectors.bench.execution.diff_branch import TAG, measure_both
from compileboard.collectors.bench.execution.resume import (
    drop_local_copy,
    find_pushed,
    find_resume_point,
    make_local_copy,
)
from compileboard.collectors.bench.execution.runner import Checkout, Job, PrintLine, finish, measure
from compileboard.collectors.bench.experiments import (
    DISTRIBUTED_EXPERIMENTS,
    NEEDS,
    backend_to_check,
    choose_experiments,
    drop_settings_without_effect,
    find,
    find_settings_without_effect,
    list_idle_modes,
)
from compileboard.collectors.bench.plan.models import ModelRef, read_batch_sizes, select_models
from compileboard.collectors.bench.plan.preflight import check_backend, check_settings
from compileboard.collectors.bench.plan.request import (
    GROUPS,
    INDUCTOR_SWITCHES,
    REQUESTED,
    BenchRequest,
)
from compileboard.collectors.bench.plan.settings import (
    AMP_DTYPES,
    DDP_MODES,
    SETTINGS,
    BenchSettings,
    Declaration,
    list_torch_variables,
)
from compileboard.collectors.bench.plan.tasks import Task, make_plan, plan_hash
from compileboard.collectors.bench.report.upstream_files import read_baseline
from compileboard.collectors.bench.suites.user import OnlyTarget, parse_only, read_only
from compileboard.collectors.cli.common import (
    db_option,
    ignored_flag,
    print_message,
    read_destination,
    recover_earlier_runs,
    server_options,
)
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.terminal.values import collector_command, format_table
from compileboard.collectors.trials.patches import CannotTry, RecordedProgram
from compileboard.command_line import Choice, Command, Option, Value
from compileboard.exit_codes import DONE, INTERRUPTED

DEFAULT_RANKS = 2  # on a CPU
MAX_PORT = 65535
# Flags of upstream's harness that change nothing here: a command line of it is taken as it is.
# Those that cannot be done are unknown options like any other; docs/bench-flags.md has what to use
# instead.
UNNEEDED = {
    "--fast": "is not needed: upstream lists no model of these suites as slow",
    "--inductor-settings": "is not needed: it changes nothing in upstream's harness either",
    "--multiprocess": "is not needed: each rank of --ddp and --fsdp is a process of its own",
    "--print-compilation-time": "is not needed: compile time is recorded with every result",
    "--print-memory": "is not needed: peak memory is recorded with every result",
    "--progress": "is not needed: progress is printed unless --quiet is given",
    "--generate-aot-autograd-stats": "writes no _stats.csv here: the run's page has its AOT graphs",
    "--print-dataframe-summary": "prints no table of models here: --output FILE.csv writes it",
    "--stats": "prints no counters here: the run's page has them",
}
EXAMPLES = """\
Examples:
  %(prog)s                                          the built-in suite: performance, inference
  %(prog)s --performance --accuracy --training -k transformer
  %(prog)s --only path:/home/me/nets.py,class:Net   a class with get_example_inputs(), \
as upstream's harness takes it
  %(prog)s --suite timm --device cuda --amp --output-directory out
  %(prog)s --resume                                 continue an interrupted run
"""


def _list_options(name: str, declared: Declaration, default: Any) -> Iterator[Option]:
    several = isinstance(default, tuple) or name == "device"
    rest: dict[str, Any] = {"multiple": several, "group": declared.group, "default": default}
    exclusive = None if declared.flags or several else name
    for flag, (value, text) in declared.constants.items():
        yield Option([flag, name], flag_value=value, help=text, exclusive=exclusive, **rest)
    rest["exclusive"] = declared.exclusive
    if not declared.flags or not declared.help:
        return
    if isinstance(default, bool):
        rest["is_flag"] = True
    elif declared.choices:
        rest["type"] = Choice(declared.choices)
    else:
        rest["metavar"] = declared.metavar
        rest["type"] = Value(declared.read) if declared.read not in (None, int) else declared.read
    if declared.bare is not None:
        rest |= {"is_flag": False, "flag_value": declared.bare}
    if name == "device":
        rest["default"] = None  # the available one
    yield Option([*declared.flags, name], help=declared.help, **rest)


class BenchCommand(Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [self._normalise_spelling(word) for word in args])

    def _normalise_spelling(self, word: str) -> str:
        flag, equals, value = word.partition("=")
        respelled = flag.replace("_", "-")
        known = (respelled in param.opts for param in self.params)
        return f"{respelled}{equals}{value}" if flag.startswith("--") and any(known) else word


def _list_parameters() -> list[click.Parameter]:
    """Make the options of the command: group by group, then upstream's options that have no
    effect.
    """
    declared = {**REQUESTED, **SETTINGS}
    options = [
        option
        for name, declaration in declared.items()
        for option in _list_options(name, *declaration)
    ]
    options.sort(key=lambda option: GROUPS.index(option.group))
    return [
        *options,
        *(
            Option([flag, "-f"] if flag == "--fast" else [flag], **ignored_flag(reason))
            for flag, reason in UNNEEDED.items()
        ),
    ]


@click.command(cls=BenchCommand, params=_list_parameters(), epilog=EXAMPLES)
@db_option
@server_options
def bench(**values: Any) -> int:
    """Measure models eager and compiled, each experiment in a process of its own.

    The results are recorded with the compiles, graph breaks and recompiles of their processes.
    Works offline. The built-in suite needs only torch.
    """
    request = read_request(values)
    if not request.list:
        recover_earlier_runs()
    return run_bench(request, print_message)


def read_request(values: Mapping[str, Any]) -> BenchRequest:
    given = {name: values[name] for name in SETTINGS if name in values}
    devices = tuple(dict.fromkeys(given["device"] or ()))
    given["device"] = devices[0] if devices else None
    server = read_destination(dict(values))
    database = server.pop("database")
    return BenchRequest(
        database, server, given, devices=devices, **{name: values[name] for name in REQUESTED}
    )


def run_bench(arguments: BenchRequest, print_line: PrintLine) -> int:
    """Run the command; return 0 if anything was measured, 1 if nothing was and a model failed, 3 if
    all were skipped.

    Raises ValueError for an invalid request, StoreError.
    """
    if arguments.list:
        return list_models(choose_models(arguments))
    if arguments.server:
        arguments.db = make_local_copy(os.environ)
    code = _measure_request(arguments, print_line)
    if arguments.server and code != INTERRUPTED:
        drop_local_copy(arguments.db)
    return code


def _measure_request(arguments: BenchRequest, print_line: PrintLine) -> int:
    if len(arguments.devices) > 1 and (
        arguments.resume is not None or arguments.diff_branch is not None
    ):
        raise ValueError("--resume and --diff-branch take one --device")
    if arguments.verify and (arguments.server or arguments.diff_branch is not None):
        raise ValueError(
            "--verify measures again here; it cannot be combined with --server or --diff-branch"
        )
    if arguments.diff_branch is not None:
        return measure_both(arguments, make_job, print_line)
    devices = arguments.devices or (arguments.given["device"],)
    jobs = [
        make_job(replace(arguments, given={**arguments.given, "device": device}), Checkout(), {})
        for device in devices
    ]
    if not jobs[0].plan:
        print_line(
            f"part {arguments.partition_id} of {arguments.total_partitions} has no models; "
            "there is nothing to measure"
        )
        return DONE
    before = None
    if arguments.resume is not None and arguments.server:
        arguments.db, before = find_pushed(os.environ, jobs[0].identity, arguments.resume)
        jobs = [replace(job, config=replace(job.config, database=arguments.db)) for job in jobs]
    elif arguments.resume is not None:
        before = find_resume_point(arguments.db, jobs[0].identity, arguments.resume)
    run_ids: list[str] = []
    codes: list[int] = []
    for job in jobs:
        measured = measure(job, arguments, before, print_line)
        run_ids.append(measured.run_id)
        codes.append(finish(measured, arguments, print_line, run_ids=run_ids))
        if measured.interrupted:
            return INTERRUPTED
    if arguments.verify:
        from compileboard.collectors.cli.main import main

        for run_id in run_ids:
            main(["try", run_id, "--all", "--db", arguments.db])
    return min(codes)


def list_tasks(program: RecordedProgram) -> list[Task]:
    """Return the tasks of a recorded benchmark on its first device. Raises CannotTry if its options
    or models are not valid here.
    """
    words = program.argv[program.argv.index("bench") + 1 :]
    before = os.getcwd()
    os.chdir(program.folder)  # the paths of its command are relative to it
    try:
        request = read_request(bench.make_context("bench", list(words)).params)
        given = {**request.given, "device": next(iter(request.devices), None)}
        checkout = Checkout(environment=program.environment)
        # The hints of a command were printed when it was recorded.
        return make_job(replace(request, given=given), checkout, {TAG: "base"}).plan
    except (ValueError, click.ClickException) as error:
        raise CannotTry(f"the models of run {program.run_id} are not here: {error}") from None
    finally:
        os.chdir(before)


def check_output(
    arguments: BenchRequest, experiments: Sequence[str], models: Sequence[ModelRef]
) -> None:
    path = str(arguments.output)
    if not path.endswith(".csv") or path == ".csv":
        raise ValueError(f"--output {path}: expected a name that ends in .csv, as upstream's")
    suite_names = {model.suite for model in models}
    if len(experiments) > 1 or len(suite_names) > 1:
        several = ", ".join(experiments if len(experiments) > 1 else sorted(suite_names))
        raise ValueError(
            f"--output {path} is one file, of one experiment and suite; for {several} give "
            "--output-directory"
        )
    make_output(
        "--output", os.path.dirname(os.path.join(arguments.output_directory or "", path)) or None
    )


def make_output(flag: str, folder: str | None) -> None:
    """Create an output folder and test it before hours of measuring. Raises ValueError if it is not
    writable.
    """
    if folder is None:
        return
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = "it is a file" if os.path.isfile(folder) else error.strerror or str(error)
        raise ValueError(
            f"{flag} {folder}: expected a folder that files can be written to; {problem}"
        ) from error


def make_job(arguments: BenchRequest, checkout: Checkout, tags: dict[str, str]) -> Job:
    experiments = list_experiments(arguments)
    chosen = choose_models(arguments)
    asked = make_settings(arguments, checkout.environment)
    settings = drop_settings_without_effect(asked, experiments)
    batch_sizes = read_batch_sizes(arguments.batch_size_file)
    plan = make_plan(
        chosen, experiments, settings, no_skip=arguments.no_skip, batch_sizes=batch_sizes
    )
    if arguments.only is None or ":" not in arguments.only:  # a user's file may register a backend
        check_backend(settings.backend)
    check_settings(settings)
    make_output("--output-directory", arguments.output_directory)
    if arguments.output is not None:
        check_output(arguments, experiments, chosen)
    if chosen and ":" in chosen[0].only:
        check_class(read_only(chosen[0].only), arguments, batch_sizes)
    for line in (
        list_ignored_options(arguments, asked, experiments) if tags.get(TAG) != "base" else ()
    ):
        print_message(line)
    identity = (
        "" if tags else plan_hash(chosen, experiments, settings, batch_sizes)
    )  # a comparison cannot be resumed
    config = make_run_config(arguments, chosen, tags)
    if arguments.device_index is not None:
        environment = {**checkout.environment, "CUDA_VISIBLE_DEVICES": arguments.device_index}
        checkout = replace(checkout, environment=environment)
    return Job(plan, config, identity, checkout, read_baseline(arguments.baseline))


def check_class(only: OnlyTarget, arguments: BenchRequest, batch_sizes: Mapping[str, int]) -> None:
    asked = {
        "--batch-size": arguments.given["batch_size"] is not None,
        "--batch-size-file": only.name in batch_sizes,
        "--find-batch-sizes": "batch_size" in arguments.experiments,
        "--use-eval-mode": arguments.given["use_eval_mode"],
    }
    for flag in (flag for flag, is_asked in asked.items() if is_asked and only.kind == "class"):
        decides = (
            "calls self.eval() in __init__"
            if flag == "--use-eval-mode"
            else "get_example_inputs() has its batch"
        )
        raise ValueError(
            f"{flag}: the class {only.name} decides that itself: {decides}; "
            "a function marked with @compileboard.bench.model takes it"
        )


def list_ignored_options(
    arguments: BenchRequest, settings: BenchSettings, experiments: Sequence[str]
) -> list[str]:
    values = {**vars(arguments), **arguments.given}
    known = {**REQUESTED, **SETTINGS}
    asked = {name: known[name] for name in known if values.get(name) not in (None, known[name][1])}
    idle = find_settings_without_effect(asked, settings, experiments)
    if "backend" in asked and backend_to_check(arguments.experiments):
        idle["backend"] = NEEDS["a backend"].otherwise
    lines = [f"{asked[name][0].flags[0]} is left out: {why}" for name, why in idle.items()]
    own = " and ".join(dict.fromkeys(find(name).flag for name in experiments))
    modes = list_idle_modes(arguments.experiments, experiments)
    lines += [f"{find(mode).flag} is left out: {own} has no such numbers" for mode in modes]
    validates = settings.ci and "accuracy" in experiments and not settings.no_translation_validation
    if validates and find_spec("z3") is None:
        lines.append(
            "--ci leaves translation validation out: z3-solver is not installed (pip install "
            "z3-solver)"
        )
    if arguments.only and ":" not in arguments.only:
        choosing = ("filter", "exclude", "exclude_exact", "total_partitions", "partition_id")
        flags = [asked[name][0].flags[0] for name in choosing if name in asked]
        lines += [f"{flag} is left out: --only names the model" for flag in flags]
    return lines


def list_experiments(arguments: BenchRequest) -> tuple[str, ...]:
    if arguments.given["quantization"] is None:
        return choose_experiments(
            arguments.experiments or ("performance",), is_one_file=arguments.output is not None
        )
    if others := set(arguments.experiments) - {"performance", "accuracy"}:
        flags = ", ".join(sorted(find(name).flag for name in others))
        raise ValueError(
            f"--quantization replaces --performance and --accuracy, and does not go with {flags}"
        )
    return ("quantization",)


def choose_models(arguments: BenchRequest) -> list[ModelRef]:
    names = arguments.suite or ("builtin",)
    only = arguments.only or ""
    user = ":" in only  # a user's file
    models = (
        parse_only(only, suite=arguments.suite[0] if arguments.suite else None) if user else None
    )
    chosen = select_models(
        suites.list_models(names) if models is None else models,
        filter=arguments.filter,
        exclude=arguments.exclude,
        exclude_exact=arguments.exclude_exact,
        only=None if user else arguments.only,
        total_partitions=arguments.total_partitions,
        partition_id=arguments.partition_id,
    )
    if not chosen and arguments.total_partitions == 1:
        raise ValueError(
            f"no model of {', '.join(names)} is chosen; "
            f"`{collector_command('bench', '--list')}` names them all"
        )
    return chosen


def list_models(models: list[ModelRef]) -> int:
    for line in format_table([(model.suite, model.name, model.family) for model in models]):
        print(line)
    for suite in dict.fromkeys(model.suite for model in models):
        why_not = suites.describe_missing_libraries(suite)
        if why_not:
            print(f"{suite}: {why_not}", file=sys.stderr)
    return 0


def make_settings(arguments: BenchRequest, environment: Mapping[str, str]) -> BenchSettings:
    values = dict(arguments.given)
    gpu_count = 0 if values["device"] == "cpu" else count_gpus()
    device = values["device"] or ("cuda" if gpu_count else "cpu")
    values["world_size"] = _choose_world_size(
        values, arguments, gpu_count if device == "cuda" else None
    )
    if values["freezing"] and values["mode"] == "training":
        raise ValueError(
            "--freezing inlines the weights, which training changes; it goes with --inference"
        )
    if values["nopython"] and values["mode"] == "training":
        raise ValueError(
            "--nopython makes the break at backward() an error, which every training step has, "
            "as upstream's"
        )
    for experiment in map(find, list_experiments(arguments)):
        if experiment.is_inference_only and values["mode"] == "training":
            raise ValueError(
                f"{experiment.flag} measures the forward pass alone; it goes with --inference"
            )
    if values["quantization"] is not None:
        values["dtype"] = _check_quantization(values["dtype"])
    if values["compile_mode"] and values["backend"] != "inductor":
        raise ValueError(f"--mode is inductor's; the backend is {values['backend']}")
    if values["amp_dtype"] and values["dtype"] != "amp":
        raise ValueError(f"--amp-dtype is the dtype of --amp; the dtype is {values['dtype']}")
    if values["amp_dtype"] == AMP_DTYPES[device]:
        values["amp_dtype"] = None
    if values["backend"].startswith("inductor"):
        values["inductor_config"] += tuple(
            pair for name, pair in INDUCTOR_SWITCHES.items() if getattr(arguments, name)
        )
    for pair in values["inductor_config"]:
        if not re.match(r"[^=\s]+=", pair):
            raise ValueError(
                f"--inductor-config {pair}: expected KEY=VALUE, such as max_autotune=1"
            )
    values["device"] = device
    values["backend"] = backend_to_check(arguments.experiments) or values["backend"]
    if arguments.diff_branch is not None:
        # The second side would find the first one's compiles.
        values["cold_start_latency"] = True
    if values["per_process_memory_fraction"] == 1:  # upstream's default
        values["per_process_memory_fraction"] = None
    if arguments.dashboard and "performance" in (arguments.experiments or ("performance",)):
        values["use_warm_peak_memory"] = True
    if values["quick"]:
        values["repeat"], values["compile_repeats"] = 3, 1
    if folder := os.path.join(
        arguments.output_directory or "", os.path.dirname(arguments.output or "")
    ):
        values["output_directory"] = os.path.abspath(folder)
    return BenchSettings(**values, environment=list_torch_variables(environment))


def _check_quantization(dtype: str) -> str:
    if dtype not in ("float32", "bfloat16"):  # float32 is the default
        raise ValueError(
            "--quantization is measured against bfloat16; expected --bfloat16 or nothing, not "
            f"--{dtype}"
        )
    return "bfloat16"


def _choose_world_size(
    values: Mapping[str, Any], arguments: BenchRequest, gpu_count: int | None
) -> int | None:
    size: int | None = values["world_size"]
    if not values["ddp"] and values["optimize_ddp_mode"] != DDP_MODES[0]:
        raise ValueError(f"--optimize-ddp-mode {values['optimize_ddp_mode']}: add --ddp")
    if (values["distributed_master_port"] or 0) > MAX_PORT:
        raise ValueError(f"--distributed-master-port: expected a port up to {MAX_PORT}")
    if not (values["ddp"] or values["fsdp"]):
        if size is not None:
            raise ValueError(f"--world-size {size}: one process is measured; add --ddp or --fsdp")
        return None
    flag = "--ddp" if values["ddp"] else "--fsdp"
    if values["ddp"] and values["fsdp"]:
        raise ValueError(
            "--ddp and --fsdp are two ways to train with several ranks; expected one of them"
        )
    if values["mode"] != "training":
        raise ValueError(f"{flag} measures how gradients are exchanged; add --training")
    if values["compiled_autograd"] and values["fsdp"]:
        raise ValueError(
            "--fsdp cannot go with --compiled-autograd: torch runs none of FSDP2's hooks "
            "within it; leave one out"
        )
    if values["compiled_autograd"] and values["optimize_ddp_mode"] != "python_reducer":
        raise ValueError(
            "--ddp cannot go with --compiled-autograd: torch takes DDP's python reducer alone "
            "within it; "
            "add --optimize-ddp-mode python_reducer"
        )
    if arguments.device_index is not None:
        raise ValueError(
            f"--device-index {arguments.device_index} is one GPU; {flag} needs one for each rank"
        )
    if others := [
        name for name in list_experiments(arguments) if name not in DISTRIBUTED_EXPERIMENTS
    ]:
        flags = " and ".join(find(name).flag for name in DISTRIBUTED_EXPERIMENTS)
        raise ValueError(f"{find(others[0]).flag} measures one process; {flag} goes with {flags}")
    if size is None:
        size = DEFAULT_RANKS if gpu_count is None else gpu_count
    if size < 2 or (gpu_count is not None and size > gpu_count):
        have = "" if gpu_count is None else f", a GPU for each rank; {gpu_count} can be used here"
        raise ValueError(f"{flag} with a world size of {size}: expected at least 2 ranks{have}")
    return size


def count_gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible in ("", "-1") or not shutil.which("nvidia-smi"):
        return 0
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, timeout=10, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    count = len(re.findall(rb"^GPU ", listed.stdout, re.MULTILINE)) if listed.returncode == 0 else 0
    return min(count, len(visible.split(","))) if visible else count


def make_run_config(
    arguments: BenchRequest, models: list[ModelRef], tags: dict[str, str]
) -> RunConfig:
    names = list(dict.fromkeys(ref.suite for ref in models))
    return RunConfig(
        **{**arguments.server, "database": arguments.db},
        name=arguments.name or f"bench {'+'.join(names)}",
        suite=names[0] if len(names) == 1 else None,
        tags={**dict(arguments.tag), **tags},
        level=arguments.level,
        keep_source=not arguments.no_source,
    )
