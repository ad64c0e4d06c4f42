"""`bench`: choose the models, measure each in a process of its own, record, and sum up."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from collectors.bench import suites
from collectors.bench.child import Task
from collectors.bench.experiments import settings_for
from collectors.bench.isolate import Done, clear, run_task
from collectors.bench.models import ModelRef
from collectors.bench.outcome import Outcome
from collectors.bench.plan import Planned, make_plan, plan_hash, repeat_command
from collectors.bench.progress import Progress
from collectors.bench.recorded import PLAN_TAG, Before, BenchRun, find_before
from collectors.bench.selection import select
from collectors.bench.settings import Settings
from collectors.bench.suites.user import parse_only
from collectors.bench.summary import summarize
from collectors.events import BenchMeasured
from collectors.record import hints
from collectors.record.launch import Request

Say = Callable[[str], None]
FAILED, USAGE_ERROR, INTERRUPTED = 1, 2, 130
OF_OURSELVES = Path("bench")  # tasks' folders, inside the run's spool


def bench_command(arguments: argparse.Namespace, say: Say) -> int:
    """Run the command; 0 if anything was measured, 1 if all failed.

    Raises: ValueError in words for what cannot be asked for; StoreError.
    """
    chosen = choose_models(arguments)
    if arguments.list:
        return list_models(chosen)
    settings = settings_of(arguments)
    experiments = tuple(dict.fromkeys(arguments.experiments or ["performance"]))
    plan = make_plan(chosen, experiments, settings, no_skip=arguments.no_skip)
    identity = plan_hash(chosen, experiments, settings)
    before = None if arguments.resume is None else find_before(arguments.db, identity, arguments.resume)
    run = BenchRun(request_of(arguments, chosen, identity), say, run_id=before.run_id if before else None)
    run.open()
    served = hints.dashboard("serve", database=arguments.db)
    whisper: Say = (lambda _: None) if arguments.quiet else say
    whisper(f"run {run.manifest.run_id} is recorded in {arguments.db}; see it with: {served}")
    return _measure(run, plan, settings, before, arguments, say)


def _measure(
    run: BenchRun,
    plan: list[Planned],
    settings: Settings,
    before: Before | None,
    arguments: argparse.Namespace,
    say: Say,
) -> int:
    progress = Progress(len(plan), quiet=arguments.quiet)
    results: list[BenchMeasured] = []
    interrupted = False
    try:
        for planned in plan:
            if before and (planned.ref.suite, planned.ref.name, planned.experiment) in before.done:
                progress.known(planned)
                continue
            progress.begin(planned, settings)
            results.append(_one(run, planned, settings))
            progress.end(results[-1], explain=arguments.explain)
    except KeyboardInterrupt:
        interrupted = True
        progress.interrupt()
    finally:
        clear(run.folder / OF_OURSELVES)
        run.end(interrupted=interrupted)
    print(summarize(results, explain=arguments.explain))
    if interrupted:
        again = hints.collect("bench", "…", "--resume", database=arguments.db)
        say(f"interrupted; what was measured is recorded. The same command with --resume goes on: {again}")
        return INTERRUPTED
    show = hints.collect("show", run.manifest.run_id, database=arguments.db)
    say(f"recorded {len(results)} results; {show}")
    return FAILED if results and all(it.status == "failed" for it in results) else 0


def _one(run: BenchRun, planned: Planned, settings: Settings) -> BenchMeasured:
    """Do one task and record its result."""
    command = repeat_command(planned, settings, hints.collect("bench"))
    settings = settings_for(planned.experiment, settings)
    why_not = planned.left_out or suites.missing(planned.ref.suite)
    if why_not:
        done = Done(Outcome(status="skipped", reason=why_not), 0, 0)
        return run.keep(planned, settings, done, command)
    folder = run.folder / OF_OURSELVES / f"{planned.number:04}"
    environment = {**run.child_environment(planned.name), **suites.environment(planned.ref.suite)}
    task = Task(planned.experiment, planned.ref, settings)
    try:
        done = run_task(task, folder, environment, cwd=os.getcwd(), beat=run.beat)
        return run.keep(planned, settings, done, command)
    finally:
        clear(folder)


def choose_models(arguments: argparse.Namespace) -> list[ModelRef]:
    """Return the models that were asked for, in their order.

    Raises: ValueError if there are none.
    """
    names = arguments.suite or ["builtin"]
    user = arguments.only is not None and ":" in arguments.only
    models = parse_only(arguments.only, suite=arguments.suite[0] if arguments.suite else None) if user else None
    found = select(
        suites.list_models(names) if models is None else models,
        filter=arguments.filter or (),
        exclude=arguments.exclude or (),
        exclude_exact=arguments.exclude_exact or (),
        only=None if user else arguments.only,
        total_partitions=arguments.total_partitions,
        partition_id=arguments.partition_id,
    )
    if not found:
        raise ValueError(
            f"no model of {', '.join(names)} is chosen; `{hints.collect('bench', '--list')}` names them all"
        )
    return found


def list_models(models: list[ModelRef]) -> int:
    """Print the models, a line each."""
    suite_width = max(len(it.suite) for it in models)
    width = max(len(it.name) for it in models)
    for ref in models:
        print(f"{ref.suite:<{suite_width}}  {ref.name:<{width}}  {ref.family}".rstrip())
    for suite in dict.fromkeys(it.suite for it in models):
        why_not = suites.missing(suite)
        if why_not:
            print(f"{suite}: {why_not}", file=sys.stderr)
    return 0


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Make the settings of the arguments.

    Raises: ValueError where two of them cannot go together.
    """
    device = arguments.device or ("cuda" if _has_gpu() else "cpu")
    mode = arguments.mode_of or "inference"
    if arguments.freezing and mode == "training":
        raise ValueError("--freezing inlines the weights, which training changes; it goes with --inference")
    if arguments.compile_mode and arguments.backend != "inductor":
        raise ValueError(f"--mode is inductor's; the backend is {arguments.backend}")
    same = {
        name: getattr(arguments, name)
        for name in Settings.__dataclass_fields__
        if hasattr(arguments, name) and name not in ("mode", "dtype", "device", "repeat", "inductor_config")
    }
    output = arguments.output_directory
    return Settings(
        **{
            **same,
            "mode": mode,
            "dtype": arguments.dtype or "float32",
            "device": device,
            "repeat": 3 if arguments.quick else arguments.repeat,
            "inductor_config": tuple(arguments.inductor_config or ()),
            "output_directory": os.path.abspath(output) if output else None,
            "timeout_s": arguments.timeout,
        }
    )


def _has_gpu() -> bool:
    """Tell whether a GPU can be used, without importing torch: asking for its list needs the driver alone."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1") or not shutil.which("nvidia-smi"):
        return False
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return False
    return listed.returncode == 0 and b"GPU" in listed.stdout


def request_of(arguments: argparse.Namespace, models: list[ModelRef], identity: str) -> Request:
    """Describe the run: its name and suite are the models' suites."""
    names = list(dict.fromkeys(ref.suite for ref in models))
    return Request(
        command=[],
        database=arguments.db,
        name=arguments.name or f"bench {'+'.join(names)}",
        suite=names[0] if len(names) == 1 else None,
        tags={**dict(arguments.tag), PLAN_TAG: identity},
        level=arguments.level,
        keep_source=not arguments.no_source,
    )
