"""Measure a plan as one run; each task is recorded as soon as it is done."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compileboard.collectors.bench import suites
from compileboard.collectors.bench.execution.graph_search import (
    RunAgain,
    needs_graph_search,
    search_graphs,
)
from compileboard.collectors.bench.execution.resume import ResumePoint
from compileboard.collectors.bench.execution.run_writer import BenchRunWriter
from compileboard.collectors.bench.execution.task_process import (
    CACHE,
    CACHE_VARIABLE,
    ForkServer,
    clear,
    is_forkable,
    list_outputs,
    run_task,
)
from compileboard.collectors.bench.plan.request import BenchRequest
from compileboard.collectors.bench.plan.tasks import Task, repeat_command
from compileboard.collectors.bench.report.progress import Progress
from compileboard.collectors.bench.report.summary import format_breaks, list_breaks, summarize
from compileboard.collectors.bench.report.upstream_files import compare_with, write_upstream_files
from compileboard.collectors.bench.worker.outcome import (
    FIRST,
    FIRST_CALL,
    LOAD,
    SECOND,
    WARM,
    CompileTime,
    ExperimentOutcome,
    add_samples,
)
from compileboard.collectors.bench.worker.torch_setup import VARIABLE as PROCESSOR_VARIABLE
from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.push.outbox import outbox_root
from compileboard.collectors.push.outbox_report import describe_delivery
from compileboard.collectors.push.target import Target
from compileboard.collectors.record.program import end_as_interrupted
from compileboard.collectors.store.connection import StoreError
from compileboard.collectors.store.results import EXPORTS
from compileboard.collectors.terminal.progress_line import DestinationLine
from compileboard.collectors.terminal.values import collector_command, count_text
from compileboard.exit_codes import DONE, EMPTY, FAILED, INTERRUPTED

# Caches that a second process can read. Enabled by default from torch 2.6 on.
CACHES_ON = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"}


@dataclass(frozen=True)
class SecondProcess:
    suffix: str  # The suffix of its task, whose graph breaks and recompiles are not the result's.
    measures: str
    adds: CompileTime


WARM_START = SecondProcess("warm_start", FIRST, WARM)
PRECOMPILED = SecondProcess("second_process", FIRST_CALL, SECOND)


def second_process_for(task: Task) -> SecondProcess | None:
    if task.experiment in ("aot_precompile", "caching_precompile"):
        return PRECOMPILED
    return (
        WARM_START
        if task.settings.warm_start_latency and task.experiment == "performance"
        else None
    )


def measure_second_processes(
    outcome: ExperimentOutcome,
    task: Task,
    second: SecondProcess,
    cache: Path,
    run_again: RunAgain,
) -> None:
    """Add to a result how long other processes take that start with its `cache`."""
    if outcome.status != "measured":
        return
    quick = task.change(quick=True, repeat=1, compile_repeats=1)
    samples, loads_s = [], []
    for _ in range(task.settings.compile_repeats):
        again = run_again(quick, second.suffix, {CACHE_VARIABLE: str(cache)})
        outcome.duration_us += again.duration_us
        if again.status != "measured":
            outcome.facts["warm_compile_error"] = f"{again.reason}: {again.message or ''}"
            break
        if (latency_s := again.values.get(second.measures)) is not None:
            samples.append(latency_s)
        if second is PRECOMPILED:
            if (load_s := again.values.get("load_latency")) is not None:
                loads_s.append(load_s)
            if (error := again.values.get("output_error")) is not None:  # the worse of both
                outcome.values["output_error"] = max(error, outcome.values.get("output_error", 0.0))
            outcome.facts["second_process_graph_count"] = int(again.values.get("unique_graphs", 0))
    add_samples(outcome, second.adds, samples)
    add_samples(outcome, LOAD, loads_s)
    outcome.facts["warm_compile"] = "each in a process of its own, with the first one's caches"


PrintLine = Callable[[str], None]
OF_OURSELVES = Path("bench")  # tasks' folders, inside the run's spool


@dataclass(frozen=True)
class Checkout:
    """The folder and environment in which models are measured.

    For a worktree, `stands_for` has its folder and that of the checkout, and `suffix` is the part
    of the command that measures there again.
    """

    cwd: str = field(default_factory=os.getcwd)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    stands_for: tuple[str, str] | None = None
    suffix: str = ""

    def for_checkout(self, command: str) -> str:
        return (command.replace(*self.stands_for) if self.stands_for else command) + self.suffix


@dataclass(frozen=True)
class Job:
    plan: list[Task]
    config: RunConfig
    identity: str  # The plan's identity, equal in a run that `--resume` continues.
    checkout: Checkout = field(default_factory=Checkout)
    baseline: Mapping[str, float] = field(default_factory=dict)


@dataclass
class BenchReport:
    run_id: str
    results: list[BenchMeasured] = field(default_factory=list)
    interrupted: bool = False
    trouble: str | None = None  # why it is not recorded yet


def measure(
    job: Job, arguments: BenchRequest, before: ResumePoint | None, print_line: PrintLine
) -> BenchReport:
    """Run a job to its end or to Ctrl-C. Finished results are kept.

    Raises StoreError if the database can never store the run.
    """
    checkout = job.checkout
    run = BenchRunWriter(
        job.config,
        print_line,
        environment=checkout.environment,
        run_id=before.run_id if before else None,
        plan=job.identity,
        cwd=checkout.cwd,
    )
    run.open()
    measured = BenchReport(run.manifest.run_id, list(before.results) if before else [])
    if not arguments.quiet:
        run.destination = DestinationLine(job.config, measured.run_id, print_line)
        run.destination.step()
    progress = Progress(len(job.plan), quiet=arguments.quiet)
    # One per environment that torch is imported in, because a model's experiments alternate between
    # them.
    servers = {
        cached: ForkServer(run.folder / OF_OURSELVES / f"fork_server_{cached:d}")
        for cached in (False, True)
    }
    state = "failed"  # until the end is reached, so that any other exit is a failure
    try:
        end_as_interrupted()
        for task in job.plan:
            if before and (task.ref.suite, task.ref.name, task.experiment) in before.done:
                progress.done += 1
                continue
            progress.begin(task)
            blamed: list[str] = []
            measured.results.append(
                _measure_task(run, task, job, servers, blamed if arguments.minify else None)
            )
            progress.end(measured.results[-1], explain=arguments.explain)
            for line in blamed:
                print_line(line)
        state = "finished"
    except KeyboardInterrupt:
        measured.interrupted, state = True, "interrupted"
        progress.interrupt()
    finally:
        for server in servers.values():
            server.close()
        clear(run.folder / OF_OURSELVES)
        run.end(state)
        measured.trouble = run.recording.trouble
    return measured


def _measure_task(
    run: BenchRunWriter,
    task: Task,
    job: Job,
    servers: Mapping[bool, ForkServer],
    blamed: list[str] | None,
) -> BenchMeasured:
    command = job.checkout.for_checkout(repeat_command(task, collector_command("bench")))
    if why_not := task.left_out or suites.describe_missing_libraries(task.ref.suite):
        return run.write_result(task, ExperimentOutcome(status="skipped", reason=why_not), command)
    own_folder, cwd = run.folder / OF_OURSELVES, job.checkout.cwd
    folder = own_folder / f"{task.number:04}"
    second = second_process_for(task)

    def environment(suffix: str = "") -> dict[str, str]:
        # No other caches: they override --inductor-config fx_graph_cache=False.
        return {
            **(CACHES_ON if second else {}),
            PROCESSOR_VARIABLE: str(own_folder / "processor.json"),
            **run.child_environment(task.name + suffix),
            **suites.environment(task.ref.suite),
        }

    def run_again(task: Task, name: str, variables: Mapping[str, str]) -> ExperimentOutcome:
        clear(folder / name)
        own = {**environment(f"/{name}"), **variables}
        return run_task(task, folder / name, own, cwd=cwd, beat=run.beat)

    forks = servers[second is not None] if is_forkable(task) else None
    try:
        outcome = run_task(task, folder, environment(), cwd=cwd, beat=run.beat, server=forks)
        if second:
            measure_second_processes(outcome, task, second, folder / CACHE, run_again)
        compare_with(job.baseline, task, outcome)
        if blamed is not None and task.experiment not in EXPORTS and needs_graph_search(outcome):
            lines, programs = search_graphs(run, task, run_again, folder, cwd)
            blamed += lines
            if programs:
                outcome.facts["minimal_programs"] = programs
        return run.write_result(task, outcome, command)
    finally:
        if task.settings.verbose:
            _keep_log(folder, task, cwd)
        clear(folder)


def _keep_log(folder: Path, task: Task, cwd: str) -> None:
    settings = task.settings
    name = re.sub(r"[^\w.=-]", "_", f"{settings.label()}_{task.ref.name}_{task.experiment}.log")
    with contextlib.suppress(OSError):  # the numbers are still recorded
        written = b"".join(path.read_bytes() for path in list_outputs(folder))
        (Path(settings.output_directory or cwd) / name).write_bytes(written)


def finish(
    measured: BenchReport,
    arguments: BenchRequest,
    print_line: PrintLine,
    subfolder: str = "",
    run_ids: Sequence[str] = (),
) -> int:
    """Print a run's summary and write its files into `subfolder` of the output directory; return
    the exit code.

    `run_ids` are the runs that the files cover, if there are others than this one.
    """
    results = measured.results
    print(summarize(results))
    try:
        if measured.trouble is not None:
            raise StoreError(measured.trouble)
        breaks = format_breaks(
            list_breaks(arguments.db, measured.run_id), explain=arguments.explain
        )
        print(*breaks, sep="\n", end="\n" if breaks else "")
        write_upstream_files(arguments, run_ids or [measured.run_id], subfolder, print_line)
    except (StoreError, OSError) as error:  # measurements are recorded, or wait in the spool
        print_line(f"the graph breaks or the files in upstream's formats are missing: {error}")
    if arguments.server and measured.trouble is None:
        target = Target.of(RunConfig(**arguments.server))
        print_line(describe_delivery(outbox_root(os.environ), measured.run_id, target))
    state = "recorded" if measured.trouble is None else "not recorded yet:"
    if measured.interrupted:
        words = [word for word in sys.argv[1:] if word != "--resume"]
        print_line(
            f"interrupted; {state} {count_text(len(results), 'result')}. "
            f"To go on: {collector_command(*words, '--resume')}"
        )
        return INTERRUPTED
    if not arguments.server:
        show = collector_command("show", measured.run_id, database=arguments.db)
        print_line(f"{state} {count_text(len(results), 'result')}; {show}")
    statuses = {result.status for result in results}
    if statuses == {"skipped"}:
        return EMPTY
    return FAILED if "failed" in statuses and "measured" not in statuses else DONE
