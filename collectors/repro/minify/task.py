"""`repro minify` in the driver: search, then verify the result as the repro that is stored."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from compileboard.collectors.contract.repros import dump_manifest
from compileboard.collectors.formats.repro_archive import write_script
from compileboard.collectors.repro.findings import (
    MINIFIED,
    NOT_REPRODUCED,
    WRONG_VERDICTS,
    JudgedNode,
    Minification,
    sort_rows,
)
from compileboard.collectors.repro.graph_loading import apply_settings, load_graph
from compileboard.collectors.repro.isolation import ReproTask
from compileboard.collectors.repro.judging import Judge, require_names
from compileboard.collectors.repro.locate.analyze import WITH_DECOMPOSITIONS, Analyzer
from compileboard.collectors.repro.minify.search import (
    GraphSearch,
    QueryLog,
    Question,
    SmallestGraph,
    TrialRunner,
)
from compileboard.collectors.repro.minify.smallest import to_repro, without_values
from compileboard.collectors.repro.repro import (
    OUT_OF_MEMORY,
    TIMED_OUT,
    Failure,
    NotRunnable,
    Repro,
    captured_failure,
)
from compileboard.collectors.repro.rerun import attempt, read_failure
from compileboard.collectors.repro.trials import OK, Outcome, TrialLimits


class DeviceTrials:
    def __init__(self, trials: TrialRunner) -> None:
        self._trials = trials
        self.limits = trials.limits

    def run(
        self, function: Callable[..., Any], *arguments: Any, limits: TrialLimits | None = None
    ) -> Outcome:
        module, inputs, *rest = arguments
        devices = [
            str(value.device) if isinstance(value, torch.Tensor) else None for value in inputs
        ]
        return self._trials.run(
            call_on_devices, function, module, list(inputs), devices, rest, limits=limits
        )


def call_on_devices(
    function: Callable[..., Any],
    module: Any,
    inputs: Sequence[Any],
    devices: Sequence[str | None],
    rest: Sequence[Any],
) -> Any:
    accelerator = next((device for device in devices if device not in (None, "cpu")), None)
    if accelerator is not None:
        module = module.to(accelerator)
    return function(module, move_together(inputs, devices), *rest)


def move_together(values: Sequence[Any], devices: Sequence[str | None]) -> list[Any]:
    storages: dict[Any, Any] = {}
    moved = []
    for value, device in zip(values, devices):
        if not isinstance(value, torch.Tensor) or device is None or str(value.device) == device:
            moved.append(value)
            continue
        if value.layout != torch.strided:
            moved.append(value.detach().to(device).requires_grad_(value.requires_grad))
            continue
        storage = value.untyped_storage()
        key = (storage.data_ptr(), value.dtype, device)
        if key not in storages:
            whole = torch.as_strided(
                value.detach(), (storage.nbytes() // value.element_size(),), (1,), 0
            )
            storages[key] = whole.to(device)
        view = torch.as_strided(storages[key], value.shape, value.stride(), value.storage_offset())
        moved.append(view.requires_grad_(value.requires_grad))
    return moved


def run(task: ReproTask) -> dict[str, Any]:
    """Minify a repro; Dynamo's graph if AOTAutograd's passes."""
    require_names("minifier", "minifier_program")
    levels = [task.options.get("level") or task.repro.manifest.level]
    if (
        levels == ["aot"]
        and task.repro.dynamo_program is not None
        and task.repro.manifest.kind == "accuracy"
    ):
        levels.append("dynamo")
    for level in levels:
        smallest = _minify_level(task, level)
        if smallest.answer.status != NOT_REPRODUCED:
            break
    if smallest.failure.status in (TIMED_OUT, OUT_OF_MEMORY):
        allowed = "--timeout" if smallest.failure.status == TIMED_OUT else "--memory"
        raise NotRunnable(
            f"the whole graph {smallest.failure.describe()} of a trial; {allowed} allows more"
        )
    return _describe(task, level, smallest)


def _minify_level(task: ReproTask, level: str) -> SmallestGraph:
    manifest, options = task.repro.manifest, task.options
    trials: TrialRunner = task.trials
    if task.trials.device.startswith("cuda"):
        task.load_compiler(level)
        apply_settings(task.repro)  # trials have those that are set before
        task.trials.needs_fork_server()
        trials = DeviceTrials(task.trials)
    with task.deadline("loading the repro"):
        module, inputs = load_graph(task.repro, level, device=task.device)
    start = time.monotonic()
    folder = Path(options["folder"]) if options.get("folder") else None
    how = Judge(
        manifest.kind, level, manifest.backend or "inductor", is_strict=bool(options.get("strict"))
    )
    # another torch may answer otherwise
    log = folder / f"queries-{torch.__version__}.jsonl" if folder is not None else None
    return GraphSearch(
        module,
        inputs,
        how,
        trials,
        expected=_expected(task.repro),
        operation=manifest.operation,
        log=QueryLog(log),
        report=lambda question: task.progress(_progress(question, time.monotonic() - start)),
        max_seconds=options.get("max_seconds") or math.inf,
        suspect=lambda module, inputs: _suspect(trials, module, inputs, how),
        keep=lambda module, inputs: _keep(task.repro, level, folder, module, inputs),
        load_compiler=lambda: task.load_compiler(level),
    ).run()


def _suspect(trials: TrialRunner, module: Any, inputs: Sequence[Any], how: Judge) -> list[str]:
    if how.kind != "accuracy":
        return []
    outcome = trials.run(list_wrong_nodes, module, inputs, how)
    return list(outcome.value) if outcome.status == OK else []


def list_wrong_nodes(module: Any, inputs: Sequence[Any], how: Judge) -> list[str]:
    analyzer = Analyzer(module, inputs, how)
    rows: list[JudgedNode] = (
        analyzer.judge_nodes(WITH_DECOMPOSITIONS) if how.level == "dynamo" else []
    )
    if not any(row.verdict in WRONG_VERDICTS for row in rows):
        rows = analyzer.judge_nodes()
    return [row.node for row in sort_rows(rows) if row.verdict in WRONG_VERDICTS]


def _progress(question: Question, seconds: float) -> dict[str, Any]:
    tried = f"question {question.query}, {seconds:.0f} s"
    return {"question": asdict(question), "text": f"{question.fewest} operations left, {tried}"}


def _keep(
    repro: Repro, level: str, folder: Path | None, module: Any, inputs: Sequence[Any]
) -> None:
    if folder is None:
        return
    smaller = to_repro(repro, level, module, inputs, None)
    text, _ = write_script(smaller.manifest, smaller.program, None, smaller.values)
    part = folder / "smallest.py.part"
    part.write_text(text, encoding="utf-8", errors="surrogatepass")
    part.replace(folder / "smallest.py")


def _expected(repro: Repro) -> Failure | None:
    manifest = repro.manifest
    if manifest.kind != "accuracy" and not (manifest.error_type or manifest.signal):
        return None
    return captured_failure(manifest)


def _describe(task: ReproTask, level: str, smallest: SmallestGraph) -> dict[str, Any]:
    answer = smallest.answer
    body: dict[str, Any] = {"program": None, "operation": None}
    if answer.answers:
        operation = (
            answer.operations[0]
            if answer.status == MINIFIED and len(answer.operations) == 1
            else None
        )
        repro = to_repro(task.repro, level, smallest.module, smallest.inputs, operation)
        if answer.status == MINIFIED:
            answer, repro = _confirm(task, smallest, answer, repro)
        text, is_whole = write_script(repro.manifest, repro.program, None, repro.values)
        body = {
            **body,
            "program": text,
            "has_all_values": is_whole,
            "operation": operation,
            "manifest": dump_manifest(repro.manifest),
        }
    return {**body, "answer": answer.dump()}


def _confirm(
    task: ReproTask, smallest: SmallestGraph, answer: Minification, repro: Repro
) -> tuple[Minification, Repro]:
    drawn = without_values(repro)
    task.load_compiler(repro.manifest.level)
    for is_random, candidate in ((True, drawn), (False, repro)):
        outcome = task.trials.run(
            attempt,
            candidate,
            repro.manifest.level,
            repro.manifest.kind,
            task.device,
            bool(task.options.get("strict")),
        )
        answer = replace(
            answer, tried_count=answer.tried_count + 1, seconds=answer.seconds + outcome.seconds
        )
        if read_failure(outcome, smallest.failure).is_same(smallest.failure):
            return replace(answer, is_confirmed=True, fails_with_random_inputs=is_random), candidate
    return replace(answer, fails_with_random_inputs=False), repro
