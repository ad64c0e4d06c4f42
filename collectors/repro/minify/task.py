"""Minify a repro in the driver process, and verify that the minified repro still fails as
stored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from compileboard.collectors.contract.repros import dump_manifest
from compileboard.collectors.formats.repro_archive import write_script
from compileboard.collectors.record.spool import replace_file
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
from compileboard.collectors.repro.minify.smallest import to_repro, without_values
from compileboard.collectors.repro.minify.torch_minifier import (
    GraphSearch,
    QueryLog,
    Question,
    SmallestGraph,
)
from compileboard.collectors.repro.repro import (
    OUT_OF_MEMORY,
    TIMED_OUT,
    Failure,
    NotRunnable,
    Repro,
    captured_failure,
)
from compileboard.collectors.repro.rerun import attempt, make_judge, read_failure
from compileboard.collectors.repro.trials import OK, ForkedRunner


def run(task: ReproTask) -> dict[str, Any]:
    """Minify a repro. If an accuracy failure does not occur in its AOTAutograd graph, Dynamo's
    graph is minified.
    """
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
    return _describe_minification(task, level, smallest)


def _minify_level(task: ReproTask, level: str) -> SmallestGraph:
    manifest, options, runner = task.repro.manifest, task.options, task.runner
    if runner.device.startswith("cuda"):
        task.load_compiler(level)
        apply_settings(task.repro)  # trials inherit settings made before
        runner.needs_fork_server()
    with task.deadline("loading the repro"):
        module, inputs = load_graph(task.repro, level, device=task.device)
    start = time.monotonic()
    folder = Path(options["folder"]) if options.get("folder") else None
    how = Judge(
        manifest.kind, level, manifest.backend or "inductor", is_strict=bool(options.get("strict"))
    )
    # another torch may answer differently
    log = folder / f"queries-{torch.__version__}.jsonl" if folder is not None else None
    return GraphSearch(
        module,
        inputs,
        how,
        runner,
        expected=_expected_failure(task.repro),
        operation=manifest.operation,
        log=QueryLog(log),
        report=lambda question: task.progress(_make_progress(question, time.monotonic() - start)),
        max_seconds=options.get("max_seconds") or math.inf,
        suspect=lambda module, inputs: _list_suspects(runner, module, inputs, how),
        keep=lambda module, inputs: _save_smallest(task.repro, level, folder, module, inputs),
        load_compiler=lambda: task.load_compiler(level),
    ).run()


def _list_suspects(
    runner: ForkedRunner, module: Any, inputs: Sequence[Any], how: Judge
) -> list[str]:
    if how.kind != "accuracy":
        return []
    outcome = runner.run(list_wrong_nodes, module, inputs, how)
    return list(outcome.value) if outcome.status == OK else []


def list_wrong_nodes(module: Any, inputs: Sequence[Any], how: Judge) -> list[str]:
    analyzer = Analyzer(module, inputs, how)
    rows: list[JudgedNode] = (
        analyzer.judge_nodes(WITH_DECOMPOSITIONS) if how.level == "dynamo" else []
    )
    if not any(row.verdict in WRONG_VERDICTS for row in rows):
        rows = analyzer.judge_nodes()
    return [row.node for row in sort_rows(rows) if row.verdict in WRONG_VERDICTS]


def _make_progress(question: Question, seconds: float) -> dict[str, Any]:
    tried = f"question {question.query}, {seconds:.0f} s"
    return {"question": asdict(question), "text": f"{question.fewest} operations left, {tried}"}


def _save_smallest(
    repro: Repro, level: str, folder: Path | None, module: Any, inputs: Sequence[Any]
) -> None:
    if folder is None:
        return
    smaller = to_repro(repro, level, module, inputs, None)
    text, _ = write_script(smaller.manifest, smaller.program, None, smaller.values)
    replace_file(folder / "smallest.py", text)


def _expected_failure(repro: Repro) -> Failure | None:
    manifest = repro.manifest
    if manifest.kind != "accuracy" and not (manifest.error_type or manifest.signal):
        return None
    return captured_failure(manifest)


def _describe_minification(task: ReproTask, level: str, smallest: SmallestGraph) -> dict[str, Any]:
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
            answer, repro = _confirm_smallest(task, smallest, answer, repro)
        text, is_whole = write_script(repro.manifest, repro.program, None, repro.values)
        body = {
            **body,
            "program": text,
            "has_all_values": is_whole,
            "operation": operation,
            "manifest": dump_manifest(repro.manifest),
        }
    return {**body, "answer": answer.dump()}


def _confirm_smallest(
    task: ReproTask, smallest: SmallestGraph, answer: Minification, repro: Repro
) -> tuple[Minification, Repro]:
    drawn, manifest = without_values(repro), repro.manifest
    how = make_judge(
        repro, manifest.level, manifest.kind, is_strict=bool(task.options.get("strict"))
    )
    task.load_compiler(manifest.level)
    for is_random, candidate in ((True, drawn), (False, repro)):
        outcome = task.runner.run(attempt, candidate, task.device, how)
        answer = replace(
            answer, tried_count=answer.tried_count + 1, seconds=answer.seconds + outcome.seconds
        )
        if read_failure(outcome, smallest.failure).is_same(smallest.failure):
            return replace(answer, is_confirmed=True, fails_with_random_inputs=is_random), candidate
    return replace(answer, fails_with_random_inputs=False), repro
