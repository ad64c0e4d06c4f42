"""Labels of results: status, accuracy, speedup, and the failures of a suite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from compileboard.app.analysis.labels import Word
from compileboard.app.format import format_number
from compileboard.collectors.contract.verdicts import THRESHOLD, is_wrong_answer
from compileboard.collectors.store.rollups.results import ResultFields, ResultRow

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
MANY_PAGE_FAULTS = 10.0  # of a warm call; 0 to 5 are normal (docs/stack-cliff.md)
ACCURACIES = {
    "pass": Word("pass", "good", "Outputs match eager mode."),
    "pass_due_to_skip": Word(
        "pass, not checked", "quiet", "A rule excludes this model from the accuracy check."
    ),
    "eager_variation": Word(
        "pass, eager varies", "quiet", "Two eager runs differ; HUD counts it as passed."
    ),
    "fail_accuracy": Word("wrong answer", "bad", "Outputs differ from eager mode."),
}


class JudgedResult(Protocol):
    @property
    def status(self) -> str:
        """The status."""

    @property
    def accuracy(self) -> str | None:
        """The accuracy check's result."""

    @property
    def speedup(self) -> float | None:
        """The speedup."""

    @property
    def speedup_high(self) -> float | None:
        """The upper end of the speedup's interval."""


def describe_experiment(experiment: str) -> str:
    return EXPERIMENTS.get(experiment) or experiment.replace("_", " ").capitalize()


def describe_status(row: ResultFields) -> Word:
    reason = REASONS.get(row.reason or "", row.reason or "")
    if row.status == "measured" and is_slower(row):
        return Word("measured, slower", "warn", "Measured. Eager mode is faster.")
    if row.status == "measured":
        return Word("measured", "good", "Measured.")
    if row.status == "failed":
        label = f"failed: {reason}" if reason else "failed"
        word = (
            f"Upstream status: {row.reason}."
            if row.reason in REASONS
            else "The measurement failed."
        )
        return Word(label, "bad", word)
    if row.status == "skipped":
        return Word(f"skipped: {reason}" if reason else "skipped", "quiet", "Left out by a rule.")
    if row.status == "not_run":
        return Word(
            f"not run: {reason}" if reason else "not run", "warn", "Due, but never started."
        )
    return Word(row.status, "quiet", "")


def describe_accuracy(accuracy: str | None) -> Word:
    if accuracy is None:
        return Word("not measured", "quiet", "No accuracy result for this model in this run.")
    known = ACCURACIES.get(accuracy)
    if known is not None:
        return known
    meaning = f"Upstream status: {accuracy}."
    return Word(
        REASONS.get(accuracy, accuracy), "bad" if is_wrong_answer(accuracy) else "quiet", meaning
    )


def describe_verdict(row: ResultRow) -> Word | None:
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
    """Return True if eager mode is faster beyond noise: by the 95% interval, else by HUD's 5%."""
    if row.speedup is None:
        return False
    return row.speedup < 1 - THRESHOLD if row.speedup_high is None else row.speedup_high < 1


def describe_missing(row: ResultRow) -> str:
    if row.status == "failed" and row.speedup is not None:
        return "not measured"
    return {"failed": "failed", "skipped": "skipped", "not_run": "not run"}.get(
        row.status, "not measured"
    )


def describe_speedup(row: ResultFields) -> Word | None:
    low, high = row.speedup_low, row.speedup_high
    if row.speedup is None or low is None or high is None:
        return None
    if low <= 1 <= high:
        return Word(
            "no clear difference",
            "quiet",
            "The 95% interval spans 1: it may be faster or slower than eager.",
        )
    if low > 1:
        return Word("faster", "good", "The whole 95% interval is above 1.")
    return Word("slower", "bad", "The whole 95% interval is below 1: eager mode is faster.")


def describe_page_faults(row: ResultFields, values: Mapping[str, float]) -> str | None:
    compiled, eager = values.get("compiled_page_faults"), values.get("eager_page_faults")
    if compiled is None or eager is None:
        return None
    text = (
        f"Page faults per call: {format_number(compiled)} compiled, {format_number(eager)} eager."
    )
    if (
        row.device == "cuda" and compiled >= MANY_PAGE_FAULTS
    ):  # on a CPU, tensors themselves map memory
        text += (
            " Memory is mapped anew in each compiled call, which takes time; Python's frame "
            "stack may be the cause."
        )
    return text
