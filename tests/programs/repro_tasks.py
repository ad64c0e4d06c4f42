"""Tasks that tests of the repro's isolation run in its driver, and what their trials do."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any

from compileboard.collectors.record.memory import allowed_bytes, available_bytes
from compileboard.collectors.repro.isolation import ReproTask
from compileboard.collectors.repro.trials import Outcome, TrialLimits


def add(left: int, right: int) -> int:
    print("adding")
    return left + right


def raise_error() -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise RuntimeError("outer") from error


def crash() -> None:
    ctypes.string_at(0)


def sleep_for_ever() -> None:
    if os.fork() == 0:
        time.sleep(1000)
    while True:
        time.sleep(1)


def take_memory() -> int:
    return len(bytearray(1 << 40))


def leave() -> None:
    os._exit(3)


def _row(outcome: Outcome) -> list[Any]:
    return [
        outcome.status,
        outcome.value,
        [list(entry) for entry in outcome.errors],
        outcome.signal,
    ]


def try_all(job: ReproTask) -> dict[str, Any]:
    """Run every way in which a trial can end."""
    short = TrialLimits(0.5)
    rows = {"add": _row(job.runner.run(add, 1, 2))}
    rows["raised"] = _row(job.runner.run(raise_error))
    rows["crash"] = _row(job.runner.run(crash))
    rows["late"] = _row(job.runner.run(sleep_for_ever, limits=short))
    rows["memory"] = _row(job.runner.run(take_memory, limits=TrialLimits(20, 1 << 28)))
    rows["left"] = _row(job.runner.run(leave))
    return {"rows": rows, "cache": os.environ["TORCHINDUCTOR_CACHE_DIR"], "folder": str(job.folder)}


def try_server(job: ReproTask) -> dict[str, Any]:
    """Run trials by way of the fork server."""
    job.runner.needs_fork_server()
    return {
        "rows": [
            _row(job.runner.run(add, 3, 4)),
            _row(job.runner.run(crash)),
            _row(job.runner.run(add, 5, 6)),
        ]
    }


def read_preloaded(job: ReproTask) -> dict[str, Any]:
    """Return what preloaded files wrote into the driver's folder."""
    return {"ran": (job.folder / "ran").read_text()}


def hang(job: ReproTask) -> dict[str, Any]:
    """Never end, in the driver itself."""
    with job.deadline("loading the repro"):
        while True:
            time.sleep(1)


def load_all(job: ReproTask) -> dict[str, Any]:
    """Load the repro's graph and inputs in a trial, and describe them."""
    outcome = job.runner.run(describe, job.repro)
    return {"row": _row(outcome), "traceback": outcome.traceback}


def describe(repro: Any) -> list[Any]:
    """Return what an input is, and what the graph's placeholder has for it."""
    from compileboard.collectors.repro.graph_loading import load_graph

    gm, inputs = load_graph(repro)
    values = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    return [
        [str(getattr(value, "shape", value)), str(getattr(fake, "shape", fake))]
        for value, fake in zip(inputs, values)
    ] + [[str(node.meta["val"].shape)] for node in gm.graph.nodes if node.name == "constant_pad_nd"]


def read_processor(job: ReproTask) -> dict[str, Any]:
    """Return whether the driver knows what the processor can do, so that trials do."""
    job.load_compiler("aot")
    import torch._inductor.cpu_vec_isa as probe

    return {"is_known": probe.valid_vec_isa_list.cache_info().currsize > 0}


def read_inductor(job: ReproTask) -> dict[str, Any]:
    """Return whether inductor is loaded before a trial of this repro."""
    job.load_compiler(job.repro.manifest.level)
    return {"is_loaded": job.runner.has_inductor or "torch._inductor.compile_fx" in sys.modules}


def read_limits(job: ReproTask) -> dict[str, Any]:
    """Return what the driver and a trial may allocate, and what is free."""
    outcome = job.runner.run(allowed_bytes)
    return {"driver": allowed_bytes(), "trial": outcome.value, "free": available_bytes()}
