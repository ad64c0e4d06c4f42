"""Start the ranks of a task, end all if one fails, and merge their results."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compileboard.collectors.bench.execution.task_process import (
    OUTPUT,
    make_killed_outcome,
    read_result,
    read_stage,
)
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.worker.outcome import (
    COLD,
    RESULT,
    WARM,
    ExperimentOutcome,
    Stages,
    add_samples,
)
from compileboard.collectors.bench.worker.statistics import add_speedup
from compileboard.start import shared_command

OF_RANK = "rank"  # facts of one rank's outcome


def merge_ranks(
    settings: BenchSettings, outcomes: Sequence[ExperimentOutcome], failed_rank: int | None
) -> ExperimentOutcome:
    """Merge the outcomes in rank order, or return only that of the failed rank."""
    described = _describe(settings, outcomes)
    ranks = [_sum_up(rank, of_rank) for rank, of_rank in enumerate(outcomes)]
    if failed_rank is not None:
        outcome = outcomes[failed_rank]
        outcome.message = (
            f"rank {failed_rank}: {outcome.message or outcome.reason or outcome.status}"
        )
        described["failed_rank"] = failed_rank
    else:
        outcome = _merge(outcomes)
    alone_ms, slowest_ms = (
        described.get("one_process_latency_ms"),
        outcome.values.get("abs_latency"),
    )
    if alone_ms and slowest_ms:
        outcome.values["scaling_efficiency"] = (
            alone_ms / slowest_ms
        )  # every rank has as many samples
    outcome.facts = {name: value for name, value in outcome.facts.items() if name != OF_RANK}
    outcome.facts["distributed"] = described
    outcome.facts["ranks"] = ranks
    return outcome


def _describe(settings: BenchSettings, outcomes: Sequence[ExperimentOutcome]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "kind": "ddp" if settings.ddp else "fsdp2",
        "mode": settings.optimize_ddp_mode if settings.ddp else None,
        "world_size": settings.world_size,
    }
    for outcome in outcomes:
        for name, value in outcome.facts.get("distributed", {}).items():
            known = described.get(name)
            described[name] = max(known, value) if isinstance(known, (int, float)) else value
    return described


def _merge(outcomes: Sequence[ExperimentOutcome]) -> ExperimentOutcome:
    merged = outcomes[0]
    names = {name for outcome in outcomes for name in outcome.values}
    values = {
        name: max(outcome.values[name] for outcome in outcomes if name in outcome.values)
        for name in names
    }
    repeats = {
        name: slowest_per_repeat([outcome.repeats.get(name, []) for outcome in outcomes])
        for name in {name for outcome in outcomes for name in outcome.repeats}
    }
    if repeats.get("eager") and repeats.get("compiled"):
        merged.values = values
        add_speedup(merged, repeats)
        add_samples(merged, COLD, repeats.get(COLD.samples, ()))
        add_samples(merged, WARM, repeats.get(WARM.samples, ()))
        if merged.values.get("dynamo_peak_mem") and "eager_peak_mem" in values:
            merged.values["compression_ratio"] = (
                values["eager_peak_mem"] / values["dynamo_peak_mem"]
            )
    else:
        merged.values, merged.repeats = values, repeats
    return merged


def slowest_per_repeat(samples_by_rank: Sequence[Sequence[float]]) -> list[float]:
    count = max(map(len, samples_by_rank), default=0)
    return [
        max(samples)
        for samples in zip(*(samples for samples in samples_by_rank if len(samples) == count))
    ]


def _sum_up(rank: int, outcome: ExperimentOutcome) -> dict[str, Any]:
    names = {
        "latency_ms": "abs_latency",
        "eager_latency_ms": "eager_latency",
        "peak_gb": "dynamo_peak_mem",
        "graphs": "unique_graphs",
        "graph_breaks": "graph_breaks",
    }
    summed = {"rank": rank, **{name: outcome.values.get(value) for name, value in names.items()}}
    return {**summed, "splits": None, "collectives": None, **outcome.facts.get(OF_RANK, {})}


HOST = "127.0.0.1"
STEP_S = 0.05
# Time for other ranks to end by themselves after one failed, so that the first failure can be
# found.
PATIENCE_S = 5.0
# All ranks are on one machine. Some containers lack NVLink multicast, and NCCL then fails.
RANK_VARIABLES = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0"}


@dataclass(frozen=True)
class LaunchedRank:
    rank: int
    folder: Path
    process: subprocess.Popen[bytes]


def launch(task: Task, folder: Path, stages: Stages) -> ExperimentOutcome:
    size = task.settings.world_size or 1
    asked = task.settings.distributed_master_port
    stages.begin("ranks")
    with listen(asked) as listener:
        port = int(listener.getsockname()[1])
        ranks: list[LaunchedRank] = []
        try:
            for rank in range(size):
                ranks.append(
                    _start(rank, task, folder, port, listener.fileno() if rank == 0 else None)
                )
            cause = None if _wait(ranks, folder) else _find_failed_rank(ranks)
        finally:
            end_ranks(ranks)
    outcomes = [
        read_result(rank.folder) or make_killed_outcome(rank.folder, rank.process.returncode)
        for rank in ranks
    ]
    outcome = merge_ranks(task.settings, outcomes, cause)
    stages.begin("merge")
    stages.seconds = outcome.facts.get("stages_s", {})  # a rank's stages
    if asked not in (None, port):
        outcome.facts["distributed"]["port_taken"] = asked
    return outcome


def listen(port: int | None) -> socket.socket:
    """Listen on a loopback port at which the ranks meet, or on any free port if it is taken.

    Rank 0 inherits the socket, so that no other process can take the port.
    """
    for number in (port, 0):
        if number is not None:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                listener.bind((HOST, number))
                listener.listen(128)
                return listener
            except OSError:
                listener.close()
                if number == 0:
                    raise
    raise AssertionError("port 0 is any port")


def _start(rank: int, task: Task, folder: Path, port: int, listener: int | None) -> LaunchedRank:
    own = folder / f"rank{rank}"
    own.mkdir(parents=True, exist_ok=True)
    size = task.settings.world_size or 1
    command = shared_command(
        "compileboard.collectors.bench.distributed.rank:start",
        str(os.getpid()),
        "" if listener is None else str(listener),
        str(own),
    )
    with (own / OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            command,
            env=rank_environment(
                os.environ, rank, size, port, is_cpu=task.settings.device == "cpu"
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=() if listener is None else (listener,),
        )
    return LaunchedRank(rank, own, process)


def rank_environment(
    environment: Mapping[str, str], rank: int, size: int, port: int, *, is_cpu: bool
) -> dict[str, str]:
    caches = {
        name: str(Path(environment[name]) / f"rank{rank}")
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
        if name in environment
    }
    threads = (
        {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // size))} if is_cpu else {}
    )
    return {
        **RANK_VARIABLES,
        **threads,
        **environment,
        **caches,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
    }


def _wait(ranks: list[LaunchedRank], folder: Path) -> bool:
    deadline_s: float | None = None
    while True:
        running = [rank for rank in ranks if rank.process.poll() is None]
        if deadline_s is None and any(_has_failed(rank) for rank in ranks if rank not in running):
            deadline_s = time.monotonic() + PATIENCE_S
        if not running:
            return deadline_s is None
        if deadline_s is not None and time.monotonic() > deadline_s:
            return False
        (folder / "stage").write_text(
            describe_stages({rank.rank: read_stage(rank.folder) for rank in running})
        )
        time.sleep(STEP_S)


def describe_stages(stages: Mapping[int, str]) -> str:
    if len(set(stages.values())) == 1:
        return next(iter(stages.values()))
    return ", ".join(f"{stage} (rank {rank})" for rank, stage in sorted(stages.items()))


def _has_failed(rank: LaunchedRank) -> bool:
    outcome = read_result(rank.folder)
    return outcome is None or outcome.status == "failed"


def _find_failed_rank(ranks: list[LaunchedRank]) -> int:
    """Return the rank that failed first. The others fail as a consequence.

    They see a closed connection, which is an error with a time, or are aborted by NCCL.
    """
    ended = [
        (rank, rank.process.returncode, rank.folder / RESULT)
        for rank in ranks
        if rank.process.poll() is not None
    ]
    died = [
        rank.rank for rank, code, result in ended if not result.exists() and code != -signal.SIGABRT
    ]
    failed = [
        (result.stat().st_mtime_ns, rank.rank)
        for rank, _code, result in ended
        if result.exists() and _has_failed(rank)
    ]
    aborted = [rank.rank for rank, _code, result in ended if not result.exists()]
    return next(iter([*died, *(rank for _time, rank in sorted(failed)), *aborted]))


def end_ranks(ranks: list[LaunchedRank]) -> None:
    for rank in ranks:
        if rank.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                rank.process.kill()
    for rank in ranks:
        rank.process.wait()
