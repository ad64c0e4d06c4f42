"""Labels of results: status, accuracy, speedup, and the failures of a suite."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypedDict

from compileboard.app.core.format import format_number
from compileboard.app.core.labels import Label
from compileboard.collectors.contract.values import fit_json
from compileboard.collectors.contract.verdicts import THRESHOLD, is_wrong_answer
from compileboard.collectors.store.results import BriefResult, ResultFields, ResultRow

# Upstream's words for how a model failed.
REASONS = {
    "OOM": "out of memory",
    "timeout": "timed out",
    "fail_accuracy": "wrong answer",
    "fail_to_run": "does not run compiled",
    "model_fail_to_load": "the model does not load",
    "infra_error": "the machine or its software failed",
    "warmup_failed": "the warm-up failed",
    "eager_1st_run_OOM": "out of memory in eager mode",
    "eager_1st_run_fail": "does not run in eager mode",
    "eager_2nd_run_OOM": "out of memory in the second eager run",
    "eager_2nd_run_fail": "the second eager run failed",
    "eager_two_runs_differ": "two eager runs differ",
    "not_bitwise_equivalent": "not bitwise equal",
}
EXPERIMENTS = {
    "export": "Export, non-strict",
    "export_strict": "Export, strict",
    "aot_inductor": "AOTInductor package",
    "aot_precompile": "AOT precompile",
    "onnx": "ONNX",
}
MANY_PAGE_FAULTS = 10.0  # per warm call; 0 to 5 are normal (docs/stack-cliff.md)
ACCURACIES = {
    "pass": Label("pass", "good", "Outputs match eager mode."),
    "pass_due_to_skip": Label(
        "pass, not checked", "quiet", "A rule excludes this model from the accuracy check."
    ),
    "eager_variation": Label(
        "pass, eager varies", "quiet", "Two eager runs differ; HUD counts it as passed."
    ),
    "fail_accuracy": Label("wrong answer", "bad", "Outputs differ from eager mode."),
}


JudgedResult = BriefResult | ResultFields


def describe_experiment(experiment: str) -> str:
    return EXPERIMENTS.get(experiment) or experiment.replace("_", " ").capitalize()


def describe_status(row: ResultFields) -> Label:
    reason = REASONS.get(row.reason or "", row.reason or "")
    if row.status == "measured" and is_slower(row):
        return Label("measured, slower", "warn", "Measured. Eager mode is faster.")
    if row.status == "measured":
        return Label("measured", "good", "Measured.")
    if row.status == "failed":
        label = f"failed: {reason}" if reason else "failed"
        word = (
            f"Upstream status: {row.reason}."
            if row.reason in REASONS
            else "The measurement failed."
        )
        return Label(label, "bad", word)
    if row.status == "skipped":
        return Label(f"skipped: {reason}" if reason else "skipped", "quiet", "Left out by a rule.")
    if row.status == "not_run":
        return Label(
            f"not run: {reason}" if reason else "not run", "warn", "Due, but never started."
        )
    return Label(row.status, "quiet", "")


def describe_accuracy(accuracy: str | None) -> Label:
    if accuracy is None:
        return Label("not measured", "quiet", "No accuracy result for this model in this run.")
    known = ACCURACIES.get(accuracy)
    if known is not None:
        return known
    meaning = f"Upstream status: {accuracy}."
    return Label(
        REASONS.get(accuracy, accuracy), "bad" if is_wrong_answer(accuracy) else "quiet", meaning
    )


def describe_verdict(row: ResultRow) -> Label | None:
    judge = row.judge
    if (
        row.status == "failed"
        and judge is not None
        and judge.status == "failed"
        and row.reason == judge.reason
    ):
        return None
    if row.status == "failed" and row.accuracy == row.reason:
        return None
    if row.accuracy is None and judge is not None and "performance" in row.experiments:
        status = describe_status(judge)
        return describe_accuracy(None) if judge.status == "measured" else status
    if row.accuracy is None and row.status != "measured":
        return None
    return describe_accuracy(row.accuracy)


def is_wrong(row: JudgedResult) -> bool:
    return is_wrong_answer(row.accuracy)


def is_slower(row: JudgedResult) -> bool:
    """Return whether eager mode is faster beyond noise: by the 95% interval, else by the
    HUD's 5%.
    """
    if row.speedup is None:
        return False
    return row.speedup < 1 - THRESHOLD if row.speedup_high is None else row.speedup_high < 1


def describe_missing(row: ResultRow) -> str:
    if row.status == "failed" and row.speedup is not None:
        return "not measured"
    return {"failed": "failed", "skipped": "skipped", "not_run": "not run"}.get(
        row.status, "not measured"
    )


def describe_speedup(row: ResultFields) -> Label | None:
    low, high = row.speedup_low, row.speedup_high
    if row.speedup is None or low is None or high is None:
        return None
    if low <= 1 <= high:
        return Label(
            "no clear difference",
            "quiet",
            "The 95% interval spans 1: it may be faster or slower than eager.",
        )
    if low > 1:
        return Label("faster", "good", "The whole 95% interval is above 1.")
    return Label("slower", "bad", "The whole 95% interval is below 1: eager mode is faster.")


def describe_page_faults(row: ResultFields, values: Mapping[str, float]) -> str | None:
    compiled, eager = values.get("compiled_page_faults"), values.get("eager_page_faults")
    if compiled is None or eager is None:
        return None
    text = (
        f"Page faults per call: {format_number(compiled)} compiled, {format_number(eager)} eager."
    )
    if (
        row.device == "cuda" and compiled >= MANY_PAGE_FAULTS
    ):  # on a CPU, tensors themselves cause page faults
        text += (
            " Memory is mapped anew in each compiled call, which takes time; Python's frame "
            "stack may be the cause."
        )
    return text


# Source: `label` of the declarations in collectors/bench/plan/settings.py.
_FLAGS = (
    "with_cudagraphs",
    "no_cudagraphs",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
    "freezing",
    "compiled_autograd",
    "channels_last",
    "nopython",
    "use_eval_mode",
    "randomize_input",
    "dynamic_batch",
    "warm_peak_memory",
    "warm_start",
    "snapshot_memory",
    "quick",
    "no_stack_room",
    "cosine",
    "skip_fp64_check",
    "skip_accuracy_check",
    "specialize_int",
    "propagate_real_tensors",
    "suppress_errors",
    "checkpoint",
    "collect_outputs",
    "deterministic",
    "ci",
    "no_translation_validation",
    "verbose",
    "fsdp2",
)
_VALUES = (
    "threads",
    "batch",
    "iterations_per_run",
    "memory_fraction",
    "iterations",
    "amp_dtype",
    "part",
    "quantization",
    "ddp",
    r"TORCH[A-Z0-9_]*",
)
_FLAG = "|".join(sorted(_FLAGS, key=len, reverse=True))
_BETWEEN = re.compile(rf"_(?=(?:{_FLAG})(?:_|$)|(?:{'|'.join(_VALUES)})=)")
_FLAG_FIRST = re.compile(rf"({_FLAG})_(.+)")
_WORDS = {
    "with_cudagraphs": "CUDA graphs",
    "no_cudagraphs": "no CUDA graphs",
    "dynamic_batch": "dynamic batch",
    "checkpoint": "activation checkpointing",
    "fsdp2": "FSDP2",
}
_NAMES = {
    "iterations_per_run": "calls per repeat",
    "iterations": "checked calls",
    "memory_fraction": "memory fraction",
    "amp_dtype": "AMP",
    "ddp": "DDP",
}


@lru_cache(maxsize=4096)
def split_backend(label: str) -> tuple[str, ...]:
    """Split a backend's label into its parts: `inductor_quick_ddp=ddp_optimizer` has three."""
    parts: list[str] = []
    for piece in _BETWEEN.split(label):
        flag = _FLAG_FIRST.fullmatch(piece) if parts else None  # a flag, then an inductor setting
        parts += flag.groups() if flag else [piece]
    return tuple(part for part in parts if part)


def describe_part(part: str) -> str:
    name, equals, value = part.partition("=")
    if equals and name in _VALUES:
        return f"{_NAMES.get(name, name)} {value}"
    return _WORDS.get(part) or (part.replace("_", " ") if part in _FLAGS else part)


def describe_backend(label: str) -> str:
    return " · ".join(map(describe_part, split_backend(label)))


class MinimalProgram(TypedDict):
    repro: str | None
    graph: int | None
    graph_count: int | None
    node_count_before: int | None
    node_count: int | None
    operations: list[str] | None
    failure: str | None
    program: str | None  # None if source was not stored
    status: str | None  # minified, or stopped by its time limit


def list_minimal_programs(facts: Mapping[str, Any]) -> list[MinimalProgram]:
    return fit_json(list[MinimalProgram], facts.get("minimal_programs")) or []
