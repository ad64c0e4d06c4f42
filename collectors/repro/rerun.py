"""Run a repro again for `repro run` and `repro check`: does it fail in the same way, and how
accurate is it?
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from compileboard.collectors.contract.repros import find_operation
from compileboard.collectors.repro import repro as failure
from compileboard.collectors.repro.isolation import ReproTask
from compileboard.collectors.repro.repro import (
    OUT_OF_MEMORY,
    SIGNAL,
    TIMED_OUT,
    Failure,
    NotRunnable,
    Repro,
    advise_preload,
    captured_failure,
    raised,
)
from compileboard.collectors.repro.trials import OK, Outcome

if TYPE_CHECKING:
    from compileboard.collectors.repro.judging import Judge

SAME, OTHER, PASSES, LIMITED = "same", "other", "passes", "limited"  # the answers of `run`
_LITTLE_BYTES = 1 << 16  # a disk with less is full


def rerun(task: ReproTask) -> dict[str, Any]:
    manifest, options = task.repro.manifest, task.options
    kind, level = options.get("kind") or manifest.kind, options.get("level") or manifest.level
    how = make_judge(task.repro, level, kind, is_strict=bool(options.get("strict")))
    task.progress({"text": f"compiling {manifest.node_count or '?'} operations"})
    task.load_compiler(level)
    outcome = task.runner.run(attempt, task.repro, task.device, how)
    return {**describe_outcome(task.repro, outcome, kind), "level": level}


def make_judge(repro: Repro, level: str, kind: str, *, is_strict: bool = False) -> Judge:
    """Return a judge that compares the values of an accuracy repro, or lets another repro fail at
    any stage.
    """
    from compileboard.collectors.repro.judging import Judge

    backend = repro.manifest.backend or "inductor"
    return Judge(
        "accuracy" if kind == "accuracy" else "runtime", level, backend, is_strict=is_strict
    )


def replay(task: ReproTask) -> dict[str, Any]:
    task.progress({"text": "tracing the frame"})
    outcome = task.runner.run(trace_record, task.repro.path)
    return {**describe_outcome(task.repro, outcome, task.repro.manifest.kind), "level": "dynamo"}


def trace_record(path: str) -> dict[str, Any]:
    """Trace a recorded frame in a trial. Returns the error type, because the file has nothing else.

    Raises NotRunnable if the record cannot be read.
    """
    import torch._dynamo
    from torch._dynamo.replay_record import ExecutionRecord

    try:
        with open(path, "rb") as file:
            ExecutionRecord.load(file)
    except Exception as error:  # a pickle may need anything that is missing
        raise NotRunnable(f"{path!a} cannot be read: {type(error).__name__}: {error}") from None
    # Replay names its compile 42/999, which torch 2.13 takes for a frame compiled too often, and
    # skips.
    for name in (
        "recompile_limit",
        "accumulated_recompile_limit",
        "cache_size_limit",
        "accumulated_cache_size_limit",
    ):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, 1 << 30)
    try:
        torch._dynamo.replay(path)
    except Exception as error:
        error_type, _ = failure.unwrap_error(type(error).__name__, str(error))
        return {"failure": vars(replace(raised(error_type, ""), message=str(error)))}
    return {"failure": vars(Failure(failure.PASSED))}


def attempt(repro: Repro, device: str | None, how: Judge) -> dict[str, Any]:
    from compileboard.collectors.repro.graph_loading import list_random_inputs, load_graph
    from compileboard.collectors.repro.judging import judge

    gm, inputs = load_graph(repro, how.level, device=device)
    if how.level == "dynamo":
        check_backend(how.backend, repro.manifest.preload)
    return {
        **judge(gm, inputs, how),
        "random_inputs": list_random_inputs(repro, how.level),
        "input_count": len(inputs),
    }


def check_backend(name: str, preload: tuple[str, ...]) -> None:
    from torch._dynamo.backends.registry import lookup_backend
    from torch._dynamo.exc import InvalidBackend

    try:
        lookup_backend(name)
    except InvalidBackend:
        needed = f"this repro needs the backend {name!a}, which nothing here registers"
        raise NotRunnable(f"{needed}: {advise_preload(preload)}") from None


def describe_outcome(repro: Repro, outcome: Outcome, kind: str) -> dict[str, Any]:
    outcome.check()
    manifest = repro.manifest
    expected = captured_failure(manifest)
    # torch's scripts may not name their failure.
    is_known = manifest.kind == "accuracy" or bool(
        manifest.error_type or manifest.message or manifest.signal
    )
    actual = read_failure(outcome, expected)
    value = outcome.value if outcome.status == OK else {}
    is_another_question = kind != manifest.kind
    if actual.status in (TIMED_OUT, OUT_OF_MEMORY):
        status = LIMITED
    elif not actual.fails:
        status = PASSES
    elif is_another_question or not is_known or actual.is_like(expected):
        status = SAME
    else:
        status = OTHER
    return {
        "status": status,
        "failure": actual.describe().rstrip("."),
        "failure_status": actual.status,
        "message": actual.message,
        "expected": expected.describe().rstrip(".") if is_known else None,
        "differences": value.get("differences", []),
        "random_inputs": value.get("random_inputs", []),
        "input_count": value.get("input_count", len(manifest.inputs)),
        "operation": find_operation(actual.message),
        "traceback": outcome.traceback,
        "seconds": round(outcome.seconds, 3),
    }


def read_failure(outcome: Outcome, expected: Failure) -> Failure:
    if outcome.status == OK:
        return Failure(**outcome.value["failure"])
    if outcome.status == SIGNAL or (
        outcome.signal is not None and outcome.signal == expected.signal
    ):
        return Failure(SIGNAL, signal=outcome.signal, message=outcome.output[-2_000:] or None)
    if outcome.status == TIMED_OUT:
        is_hang = expected.signal in failure.ENDED_BY_OTHERS
        return expected if is_hang else Failure(TIMED_OUT)
    if outcome.status == OUT_OF_MEMORY and expected.signal == "SIGKILL":
        return expected
    failures = [raised(*entry) for entry in outcome.errors]
    same = next((entry for entry in failures if entry.is_same(expected)), None)
    if same is not None:
        return same
    if outcome.status == OUT_OF_MEMORY:
        return Failure(OUT_OF_MEMORY)
    return failures[0]


def write_inputs(task: ReproTask) -> dict[str, Any]:
    level, output = task.options.get("level"), task.options["output"]
    outcome = task.runner.run(save_inputs, task.repro, level, task.device, output)
    outcome.check()
    if outcome.status != OK:
        raise NotRunnable(f"the inputs cannot be made: {outcome.message}")
    return {"output": output, "inputs": outcome.value}


def save_inputs(
    repro: Repro, level: str | None, device: str | None, output: str
) -> list[dict[str, Any]]:
    import torch

    from compileboard.collectors.repro.graph_loading import (
        list_placeholders,
        list_random_inputs,
        load_graph,
    )

    gm, inputs = load_graph(repro, level, device=device)
    names = [node.target for node in list_placeholders(gm)]
    # An existing file is replaced atomically, or stays.
    part = f"{output}.{os.getpid()}.part"
    try:
        torch.save(dict(zip(names, inputs)), part)
        os.replace(part, output)
    except (OSError, RuntimeError) as error:
        raise NotRunnable(
            f"{output!a} cannot be written: {_why_not_written(output, error)}"
        ) from None
    finally:
        with suppress(OSError):
            os.unlink(part)
    drawn = set(list_random_inputs(repro, level))
    return [
        _describe_input(name, value, is_drawn=name in drawn) for name, value in zip(names, inputs)
    ]


def _why_not_written(path: str, error: Exception) -> str:
    with suppress(OSError):
        if shutil.disk_usage(os.path.dirname(path)).free < _LITTLE_BYTES:
            return os.strerror(errno.ENOSPC)
    return getattr(error, "strerror", None) or str(error).split("\n")[0]


def _describe_input(name: str, value: Any, *, is_drawn: bool) -> dict[str, Any]:
    import torch

    if not isinstance(value, torch.Tensor):
        return {
            "name": name,
            "value": value if isinstance(value, (int, float, bool, str)) else None,
        }
    row: dict[str, Any] = {
        "name": name,
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "stride": list(value.stride()),
        "device": str(value.device),
        "values": "drawn" if is_drawn else "recorded",
    }
    if value.numel() and (value.dtype.is_floating_point or value.dtype.is_complex):
        finite = (
            value.detach().abs().double() if not value.dtype.is_complex else value.detach().abs()
        )
        row["nan_count"] = int(value.isnan().sum())
        row["largest"] = float(finite.nan_to_num(0.0, 0.0, 0.0).max())
    return row
