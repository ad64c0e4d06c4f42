"""Repros in words: the failure, input values, results of commands, and the next commands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compileboard.app.analysis.labels import Word
from compileboard.app.analysis.text.code import CodeLines, highlight
from compileboard.collectors.contract.repros import (
    ABSENT,
    FREED,
    KEPT,
    TOO_LARGE,
    WITHHELD,
    ReproInput,
    ReproManifest,
)
from compileboard.collectors.repro.locate.findings import (
    NOT_JUDGED,
    NOT_REPRODUCED,
    ONLY_FUSED,
    RIGHT,
    UNEXPLAINED,
    Analysis,
    Bisection,
    JudgedNode,
    load_analysis,
    load_bisection,
)
from compileboard.collectors.store.repros import ReproResult

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_SAYS_NOTHING = re.compile(r"backend=.{1,200} raised:$|Set TORCH|You can suppress this exception")
SHOWN_CHARS = 400_000  # of a program on a page
SHOWN_INPUTS = 500
KINDS = {
    "compile": Word("Compile error", "bad", "The compiler refused the graph."),
    "runtime": Word("Run-time error", "bad", "The compiled graph raised an exception."),
    "accuracy": Word("Wrong result", "bad", "The compiled graph's result differs from eager's."),
    "crash": Word("Crash", "bad", "A signal ended the process while the compiled graph ran."),
}
VALUES = {
    KEPT: Word("kept", "good", "The bytes are stored."),
    ABSENT: Word("not recorded", "quiet", "Record with --repro-inputs."),
    FREED: Word("freed", "quiet", "The program had freed them when it failed."),
    TOO_LARGE: Word("too large", "warn", "Larger than --repro-inputs allows."),
    WITHHELD: Word("withheld", "quiet", "The run hides its source."),
}
_STATUSES = {
    "same": Word("reproduced", "bad", "The same failure as recorded."),
    "other": Word("another failure", "warn", "Another failure than the recorded one."),
    "other_failure": Word("another failure", "warn", "Another failure than the recorded one."),
    "passes": Word("passes", "good", "It does not fail there."),
    "limited": Word("limit reached", "warn", "Its time or memory ran out."),
    "differs": Word("differs", "bad", "The result differs from eager's."),
    "not_finite": Word("NaN or inf", "bad", "Eager's result is finite there."),
    "minified": Word("minimal", "good", "No smaller graph fails in the same way."),
    "not_finished": Word(
        "not finished", "warn", "A smaller graph may fail. Run it again to go on."
    ),
    "named": Word("named", "good", "What fails or is wrong is named."),
    ONLY_FUSED: Word("only when fused", "warn", "Each operation is right by itself."),
    UNEXPLAINED: Word("unexplained", "warn", "It fails, and nothing tells where."),
    NOT_REPRODUCED: Word("not reproduced", "quiet", "It does not fail there."),
}
# What to run, and what it answers.
STEPS = (
    ("run", "Does it still fail here?"),
    ("minify", "Which is the smallest graph that fails?"),
    ("analyze", "Which operation is wrong, and by how much?"),
    ("bisect", "Which pass, lowering or setting makes the difference?"),
)


@dataclass(frozen=True)
class ProgramText:
    lines: CodeLines
    remark: str


def view_program(text: str) -> ProgramText:
    shown = text
    if len(text) > SHOWN_CHARS:
        head = text[:SHOWN_CHARS]
        shown = head.rpartition("\n")[0] or head
    remark = (
        f"The first {len(shown):,} of {len(text):,} characters." if len(shown) < len(text) else ""
    )
    return ProgramText(highlight(shown, "graph"), remark)


def title_repro(manifest: ReproManifest) -> str:
    """Return the failure in a few words: `LoweringException in aten.relu.default`."""
    what = manifest.error_type or manifest.signal or describe_repro_kind(manifest.kind).word
    subject = manifest.operation or manifest.function
    return f"{what} in {subject}" if subject else what


def describe_message(message: str) -> str:
    """Return the most informative line of an error message, without addresses, which differ between
    runs.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    first = next(
        (line for line in lines if not _SAYS_NOTHING.match(line)), lines[0] if lines else ""
    )
    return _ADDRESS.sub("0x…", first)


def describe_repro_kind(kind: str) -> Word:
    return KINDS.get(kind, Word(kind, "quiet", "A kind of a newer version."))


def describe_result(status: str) -> Word:
    return _STATUSES.get(status, Word(status.replace("_", " "), "quiet", ""))


def format_sizes(sizes: Any) -> str | None:
    return f"[{', '.join(map(str, sizes))}]" if isinstance(sizes, list | tuple) else None


def format_error(error: Any) -> str | None:
    is_number = isinstance(error, int | float) and not isinstance(error, bool)
    return f"{error:.1e}".replace("e-0", "e-").replace("e+0", "e") if is_number else None


@dataclass(frozen=True)
class InputText:
    name: str
    what: str  # float32 [8, s0], or a number's value
    stride: str | None
    device: str | None
    notes: tuple[str, ...]
    values: Word | None
    size_bytes: int | None


def list_inputs(manifest: ReproManifest, storage_bytes: Mapping[str, int]) -> list[InputText]:
    counts: Counter[int | None] = Counter(entry.storage for entry in manifest.inputs)
    return [
        _describe_input(
            entry, storage_bytes, entry.storage is not None and counts[entry.storage] > 1
        )
        for entry in manifest.inputs[:SHOWN_INPUTS]
    ]


def _describe_input(
    entry: ReproInput, storage_bytes: Mapping[str, int], is_shared: bool
) -> InputText:
    if entry.kind != "tensor":
        value = entry.expression if entry.expression is not None else entry.value
        hint = (
            f" = {entry.value}" if entry.expression is not None and entry.value is not None else ""
        )
        return InputText(entry.name, f"{entry.kind} {value}{hint}", None, None, (), None, None)
    notes = []
    if is_shared:
        notes.append(f"shares storage {entry.storage}")
    if entry.storage_offset not in (0, "0"):
        notes.append(f"offset {entry.storage_offset}")
    if entry.is_parameter:
        notes.append("parameter")
    if entry.requires_grad:
        notes.append("requires grad")
    state = ABSENT if entry.values == KEPT and entry.digest not in storage_bytes else entry.values
    return InputText(
        name=entry.name,
        what=" ".join(filter(None, (entry.dtype, format_sizes(entry.shape)))),
        stride=format_sizes(entry.stride),
        device=entry.device,
        notes=tuple(notes),
        values=VALUES.get(state, Word(state, "quiet", "")),
        size_bytes=entry.storage_bytes,
    )


def sum_up_values(inputs: Sequence[InputText]) -> str:
    """Format as `2 of 4 tensors with values`."""
    states = [entry.values for entry in inputs if entry.values is not None]
    kept_count = sum(state == VALUES[KEPT] for state in states)
    return f"{kept_count} of {len(states)} tensors with values" if states else ""


def read_analysis(result: ReproResult) -> Analysis | None:
    """Return None if the stored result is invalid: a database may come from anywhere."""
    try:
        return load_analysis(result.detail)
    except (TypeError, ValueError, AttributeError):
        return None


def read_bisection(result: ReproResult) -> Bisection | None:
    try:
        return load_bisection(result.detail)
    except (TypeError, ValueError, AttributeError):
        return None


@dataclass(frozen=True)
class OperationText:
    node: str
    operation: str
    verdict: Word
    error: str | None
    eager_error: str | None
    dtype: str
    explains: str


_VERDICTS = {
    RIGHT: Word("right", "good", "Within the limit beside eager."),
    "wrong": Word("wrong", "bad", "The error is beyond the limit."),
    "not_finite": Word("NaN or inf", "bad", "Eager's value is finite there."),
    "unstable": Word("unstable", "warn", "A second run gave another value."),
    "random": Word("random", "quiet", "It draws random numbers."),
    NOT_JUDGED: Word("not judged", "quiet", "It could not be computed again."),
}


def list_divergences(analysis: Analysis) -> list[OperationText]:
    return [_describe_node(row) for row in analysis.rows if isinstance(row, JudgedNode)]


def _describe_node(row: JudgedNode) -> OperationText:
    verdict = _VERDICTS.get(str(row.verdict), Word(str(row.verdict), "quiet", ""))
    return OperationText(
        node=str(row.node),
        operation=str(row.operation),
        verdict=Word(verdict.word, verdict.kind, str(row.reason)) if row.reason else verdict,
        error=format_error(row.error),
        eager_error=format_error(row.eager_error),
        dtype=" ".join(filter(None, (str(row.dtype or ""), format_sizes(row.shape)))),
        explains=""
        if row.explains is None
        else f"{'explains' if row.explains else 'does not explain'} the output",
    )


def summarize_analysis(analysis: Analysis) -> str:
    if analysis.status == ONLY_FUSED:
        return (
            "Wrong only when fused: "
            f"{', '.join(map(str, analysis.operations)) or 'no operation by itself'}"
        )
    if analysis.status == NOT_REPRODUCED:
        return "Every operation is right there"
    wrong = next(
        (row for row in list_divergences(analysis) if row.verdict.kind in ("bad", "warn")), None
    )
    if analysis.operation is None:
        return "It fails, and no single operation explains it"
    if wrong is None or wrong.error is None:
        return (
            f"{analysis.operation} "
            f"{'gives NaN or inf' if wrong and wrong.verdict.word == 'NaN or inf' else 'fails'}"
        )
    beside = f" (eager: {wrong.eager_error})" if wrong.eager_error else ""
    return f"{analysis.operation} is wrong by {wrong.error}{beside}"


def summarize_bisection(bisection: Bisection) -> str:
    if bisection.status == NOT_REPRODUCED:
        return "It does not fail there"
    parts = [bisection.subsystem, bisection.application or bisection.operation]
    named = ": ".join(str(part) for part in parts if part)
    settings = [
        f"{setting.setting}={setting.value}"
        for setting in bisection.settings
        if setting.passes is True
    ]
    return named or (
        f"Passes with {', '.join(settings)}" if settings else "It fails, and nothing tells where"
    )


def list_steps(repro_id: str, board: str) -> list[tuple[str, str]]:
    return [
        (f"compileboard-collect repro {command} {repro_id} {board}", question)
        for command, question in STEPS
    ]
