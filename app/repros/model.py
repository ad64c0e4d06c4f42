"""Repros as shown: the failure, input values, results of commands, and the next commands."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from compileboard.app.artifacts.text import CodeLines, highlight
from compileboard.app.core.labels import Label
from compileboard.app.core.page import Page
from compileboard.app.core.store import Store
from compileboard.app.repros import queries as repros
from compileboard.app.repros.queries import DistinctFailure, FailureFilter, ReproChoices, ReproRow
from compileboard.app.runs.rows import RunRow
from compileboard.app.runs.run_queries import get_run
from compileboard.collectors.contract.failures import find_telling_line
from compileboard.collectors.contract.repros import (
    ABSENT,
    FREED,
    KEPT,
    TOO_LARGE,
    WITHHELD,
    ReproInput,
    ReproManifest,
)
from compileboard.collectors.repro.findings import (
    NOT_JUDGED,
    NOT_REPRODUCED,
    ONLY_FUSED,
    RIGHT,
    UNEXPLAINED,
    Analysis,
    Bisection,
    JudgedNode,
)
from compileboard.collectors.store.repros import (
    NoSuchRepro,
    ReproResult,
    StoredRepro,
    list_results,
    load_repro,
)

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
SHOWN_CHARS = 400_000  # A page shows this much of a program.
SHOWN_INPUTS = 500
KINDS = {
    "compile": Label("Compile error", "bad", "The compiler refused the graph."),
    "runtime": Label("Run-time error", "bad", "The compiled graph raised an exception."),
    "accuracy": Label("Wrong result", "bad", "The compiled graph's result differs from eager's."),
    "crash": Label("Crash", "bad", "A signal ended the process while the compiled graph ran."),
}
VALUES = {
    KEPT: Label("kept", "good", "The bytes are stored."),
    ABSENT: Label("not recorded", "quiet", "Record with --repro-inputs."),
    FREED: Label("freed", "quiet", "The program had freed them when it failed."),
    TOO_LARGE: Label("too large", "warn", "Larger than --repro-inputs allows."),
    WITHHELD: Label("withheld", "quiet", "The run hides its source."),
}
_STATUSES = {
    "same": Label("reproduced", "bad", "The same failure as recorded."),
    "other": Label("another failure", "warn", "Another failure than the recorded one."),
    "other_failure": Label("another failure", "warn", "Another failure than the recorded one."),
    "passes": Label("passes", "good", "It does not fail there."),
    "limited": Label("limit reached", "warn", "Its time or memory ran out."),
    "differs": Label("differs", "bad", "The result differs from eager's."),
    "not_finite": Label("NaN or inf", "bad", "Eager's result is finite there."),
    "minified": Label("minimal", "good", "No smaller graph fails in the same way."),
    "not_finished": Label(
        "not finished", "warn", "A smaller graph may fail. Run it again to go on."
    ),
    "named": Label("named", "good", "What fails or is wrong is named."),
    ONLY_FUSED: Label("only when fused", "warn", "Each operation is right by itself."),
    UNEXPLAINED: Label("unexplained", "warn", "It fails, and nothing tells where."),
    NOT_REPRODUCED: Label("not reproduced", "quiet", "It does not fail there."),
}
# Commands, and what they answer.
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
    return _ADDRESS.sub("0x…", find_telling_line(message))


def describe_repro_kind(kind: str) -> Label:
    return KINDS.get(kind, Label(kind, "quiet", "A kind of a newer version."))


def describe_result(status: str) -> Label:
    return _STATUSES.get(status, Label(status.replace("_", " "), "quiet", ""))


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
    values: Label | None
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
        values=VALUES.get(state, Label(state, "quiet", "")),
        size_bytes=entry.storage_bytes,
    )


def sum_up_values(inputs: Sequence[InputText]) -> str:
    """Format as `2 of 4 tensors with values`."""
    states = [entry.values for entry in inputs if entry.values is not None]
    kept_count = sum(state == VALUES[KEPT] for state in states)
    return f"{kept_count} of {len(states)} tensors with values" if states else ""


def read_analysis(result: ReproResult) -> Analysis | None:
    """Read a stored analysis. None if it is invalid, because a database may come from anywhere."""
    try:
        return Analysis.load(result.detail)
    except (TypeError, ValueError, AttributeError):
        return None


def read_bisection(result: ReproResult) -> Bisection | None:
    try:
        return Bisection.load(result.detail)
    except (TypeError, ValueError, AttributeError):
        return None


@dataclass(frozen=True)
class OperationRow:
    node: str
    operation: str
    verdict: Label
    error: str | None
    eager_error: str | None
    dtype: str
    explains: str


_VERDICTS = {
    RIGHT: Label("right", "good", "Within the limit beside eager."),
    "wrong": Label("wrong", "bad", "The error is beyond the limit."),
    "not_finite": Label("NaN or inf", "bad", "Eager's value is finite there."),
    "unstable": Label("unstable", "warn", "A second run gave another value."),
    "random": Label("random", "quiet", "It draws random numbers."),
    NOT_JUDGED: Label("not judged", "quiet", "It could not be computed again."),
}


def list_divergences(analysis: Analysis) -> list[OperationRow]:
    return [_describe_node(row) for row in analysis.rows if isinstance(row, JudgedNode)]


def _describe_node(row: JudgedNode) -> OperationRow:
    verdict = _VERDICTS.get(str(row.verdict), Label(str(row.verdict), "quiet", ""))
    return OperationRow(
        node=str(row.node),
        operation=str(row.operation),
        verdict=Label(verdict.word, verdict.kind, str(row.reason)) if row.reason else verdict,
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
    also = f"; {' and '.join(analysis.also_wrong)} too" if analysis.also_wrong else ""
    return f"{analysis.operation} is wrong by {wrong.error}{beside}{also}"


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


Answer = TypeVar("Answer", Analysis, Bisection)
NOT_FAILING = frozenset(("passes", NOT_REPRODUCED))  # statuses of results
SAME = 20  # repros of the same failure per page


@dataclass(frozen=True)
class FailureListScreen:
    page: Page[DistinctFailure]
    choices: ReproChoices
    order: str


def build_failure_list(
    board: sqlite3.Connection,
    selected: FailureFilter,
    sort: str | None,
    cursor: str | None,
    limit: int,
) -> FailureListScreen:
    page = repros.list_failures(board, selected, sort=sort, cursor=cursor, limit=limit)
    return FailureListScreen(page, repros.list_choices(board), sort or repros.DEFAULT_ORDER)


COMPARED = {
    "error": "Error",
    "eager_error": "Eager's error",
    "limit": "Limit",
    "verdict": "Verdict",
}


@dataclass(frozen=True)
class ReproScreen:
    repro: StoredRepro
    row: ReproRow
    run: RunRow
    results: Sequence[ReproResult]
    failure: DistinctFailure
    same: Page[ReproRow]
    failure_id: int | None  # its failure on the run's page

    @property
    def title(self) -> str:
        return title_repro(self.repro.manifest)

    @cached_property
    def program(self) -> ProgramText:
        return view_program(self.repro.program)

    @cached_property
    def dynamo_program(self) -> ProgramText | None:
        return (
            None if self.repro.dynamo_program is None else view_program(self.repro.dynamo_program)
        )

    @property
    def minimal(self) -> ReproResult | None:
        return find_minimal(self.results)

    @cached_property
    def minimal_program(self) -> ProgramText | None:
        return view_program(self.minimal.program) if self.minimal and self.minimal.program else None

    @cached_property
    def inputs(self) -> list[InputText]:
        return list_inputs(self.repro.manifest, self.repro.storage_bytes)

    @cached_property
    def analysis(self) -> Analysis | None:
        answers = (read_analysis(result) for result in self.results if result.command == "analyze")
        return _choose([answer for answer in answers if answer])

    @property
    def compared(self) -> list[tuple[str, object]]:
        accuracy = self.repro.manifest.accuracy
        wrong = accuracy.get("wrong")
        names = ", ".join(map(str, wrong)) if isinstance(wrong, list) else wrong
        facts = [(label, accuracy.get(name)) for name, label in COMPARED.items()]
        return [
            (label, value)
            for label, value in (*facts, ("Wrong values", names))
            if value is not None
        ]

    @property
    def divergences(self) -> list[OperationRow]:
        return list_divergences(self.analysis) if self.analysis else []

    @cached_property
    def bisection(self) -> Bisection | None:
        answers = (read_bisection(result) for result in self.results if result.command == "bisect")
        return _choose([answer for answer in answers if answer])

    @property
    def analysis_sentence(self) -> str:
        return summarize_analysis(self.analysis) if self.analysis else ""

    @property
    def bisection_sentence(self) -> str:
        return summarize_bisection(self.bisection) if self.bisection else ""

    @property
    def bisection_facts(self) -> list[tuple[str, object]]:
        bisection = self.bisection
        if bisection is None:
            return []
        facts = [("Backend", bisection.backend), ("Subsystem", bisection.subsystem)]
        facts += [("Application", bisection.application), ("Operation", bisection.operation)]
        return [(label, value) for label, value in facts if value]

    @property
    def answer(self) -> str:
        if self.analysis and self.analysis.operation:
            return summarize_analysis(self.analysis)
        if self.bisection and self.bisection.subsystem:
            return f"Made by {summarize_bisection(self.bisection)}"
        if self.minimal and self.minimal.node_count is not None:
            return f"Fails with {self.minimal.node_count} of {self.row.node_count or '?'} nodes"
        if self.results and all(result.status in NOT_FAILING for result in self.results):
            return "Passed when it was run again"
        return "Not minimised yet"


def _choose(answers: Sequence[Answer]) -> Answer | None:
    """Return the newest answer of a failing graph, else the newest answer, so that a pass on
    another machine does not hide a failure.
    """
    return next(
        (answer for answer in answers if answer.status != NOT_REPRODUCED),
        answers[0] if answers else None,
    )


def find_minimal(results: Sequence[ReproResult]) -> ReproResult | None:
    minimal = [result for result in results if result.program and result.node_count is not None]
    return min(minimal, key=lambda result: result.node_count or 0, default=None)


def build_repro(store: Store, repro_id: str, cursor: str | None = None) -> ReproScreen | None:
    reader = store.board
    try:
        repro = load_repro(reader, repro_id)
    except NoSuchRepro:
        return None
    detail = get_run(reader, repro.run_id)
    of_run = store.open_run(repro.run_id)
    own = repros.get_repro(of_run, repro.id)
    failure = repros.get_failure(reader, own.fingerprint) if own else None
    if detail is None or own is None or failure is None:
        return None
    return ReproScreen(
        repro=repro,
        row=own,
        run=detail.run,
        results=list_results(reader, repro.id),
        failure=failure,
        same=repros.list_repros(reader, fingerprint=own.fingerprint, cursor=cursor, limit=SAME),
        failure_id=repros.find_failure(of_run, repro.id),
    )
