"""One rank of a task, in its own process."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from compileboard.collectors.bench.distributed.launcher import OF_RANK
from compileboard.collectors.bench.plan.tasks import Task, read_task
from compileboard.collectors.bench.worker.child import (
    exit_now,
    failure,
    import_torch,
    remove_hooks,
    run_experiment,
    write_result,
)
from compileboard.collectors.bench.worker.outcome import (
    ExperimentOutcome,
    Stages,
    describe_error,
)
from compileboard.collectors.record.program import end_with

if TYPE_CHECKING:
    from torch.distributed import Store

    from compileboard.collectors.bench.distributed.parallel import RankWorkbench


def start(parent: str, listener: str, folder_name: str) -> None:
    """Run a rank. `listener` is the descriptor of the socket that rank 0 inherits, "" for the
    others.
    """
    end_with(int(parent))
    folder = Path(folder_name)
    stages, task = Stages(folder), read_task(folder.parent)
    try:
        import_torch(task, stages)
        store = join(task, stages, int(listener) if listener else None)
        bench, outcome = _measure(task, stages, store)
    except BaseException as error:
        bench, outcome = None, failure(error)
    write_result(folder, outcome, stages)
    if bench is not None and outcome.status == "measured" and task.experiment == "performance":
        _compare_with_one_process(bench, outcome)
        write_result(folder, outcome, stages)
    exit_now()


def join(task: Task, stages: Stages, listener: int | None) -> Store:
    import torch
    import torch.distributed as dist

    stages.begin("join")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    timeout = timedelta(seconds=task.settings.timeout_s)
    is_cuda = task.settings.is_cuda
    if is_cuda:
        torch.cuda.set_device(rank)
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        size,
        is_master=rank == 0,
        timeout=timeout,
        **({} if listener is None else {"master_listen_fd": listener}),
    )
    dist.init_process_group(
        "nccl" if is_cuda else "gloo",
        store=store,
        rank=rank,
        world_size=size,
        timeout=timeout,
        device_id=torch.device("cuda", rank) if is_cuda else None,
    )
    if task.settings.ddp:
        torch._dynamo.config.optimize_ddp = task.settings.optimize_ddp_mode
    return store


def _measure(task: Task, stages: Stages, store: Store) -> tuple[RankWorkbench, ExperimentOutcome]:
    from compileboard.collectors.bench.distributed.parallel import (
        RankWorkbench,
        check_gradients,
        count_collectives,
        count_splits,
        describe_parts,
    )

    splits = count_splits()
    bench = RankWorkbench(task.ref, task.settings, stages, store)
    outcome = run_experiment(task, bench)
    if task.experiment == "accuracy":
        check_gradients(bench, outcome)
    facts: dict[str, Any] = outcome.facts.setdefault("distributed", {})
    if bench.are_inputs_alike:
        facts["inputs"] = "alike on every rank"
    outcome.facts[OF_RANK] = {"splits": sum(splits)}
    if outcome.status == "measured" and task.experiment == "performance":
        outcome.facts[OF_RANK]["collectives"] = count_collectives(bench)
    if outcome.status == "measured":
        facts |= describe_parts(bench)
    return bench, outcome


def _compare_with_one_process(bench: RankWorkbench, outcome: ExperimentOutcome) -> None:
    import torch.distributed as dist

    from compileboard.collectors.bench.distributed.parallel import time_alone

    dist.barrier()
    if bench.rank:
        return
    remove_hooks()  # this compiles what no other rank does
    bench.stage("one process")
    facts = outcome.facts["distributed"]
    try:
        facts["one_process_latency_ms"] = median(time_alone(bench))
    except Exception as error:  # it may be too large for one GPU: keep the ranks' measurements
        facts["one_process_error"] = describe_error(error)
