"""Artifacts as shown: one text, the directory, diffs, changes between compiles, provenance."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

from markupsafe import Markup

from compileboard.app.artifacts import run_queries as artifacts
from compileboard.app.artifacts.artifact_labels import (
    DYNAMO_GRAPH,
    GUARDS,
    OUTPUT_CODE,
    PROVENANCE_NAMES,
    TextView,
    describe_state,
    guess_language,
    list_metadata,
    reformat,
    view_text,
)
from compileboard.app.artifacts.diff import (
    NOISE,
    SHOWN_LIMIT,
    Fold,
    ShownRow,
    TextDiff,
    diff_texts,
)
from compileboard.app.artifacts.graph_program import RUNNABLE, build_graph_program
from compileboard.app.artifacts.provenance import (
    CODE,
    POST_GRAD,
    PRE_GRAD,
    KernelTimes,
    Links,
    Provenance,
    ProvenanceTexts,
    describe_code,
    trace_provenance,
)
from compileboard.app.artifacts.run_queries import Artifact, ArtifactRow, NeighbouringArtifacts
from compileboard.app.artifacts.text import Bytecode, highlight, is_bytecode, parse_bytecode
from compileboard.app.compiles import run_queries as compiles
from compileboard.app.compiles.model import CompileEntry, build_entries
from compileboard.app.compiles.run_queries import CompileFilter, CompileRow
from compileboard.app.core.fields import Count
from compileboard.app.core.labels import Label
from compileboard.app.core.page import Page
from compileboard.app.core.schema import one_of
from compileboard.app.core.store import Store
from compileboard.app.guards.model import GuardDiff, compare_guards
from compileboard.app.reasons import run_queries as recompiles
from compileboard.app.runs import trace_files
from compileboard.app.runs.rows import RunRow
from compileboard.app.shapes import run_queries as shapes
from compileboard.collectors.store.payloads import parse_guards

COMPARED_CHARS = 1_000_000  # per text; the largest of the recorded models has 421,000


@dataclass(frozen=True)
class ArtifactDiff:
    """Two artifacts compared. `diff` is None if one has no text; `remark` says what was not
    compared.
    """

    a: Artifact
    b: Artifact
    diff: TextDiff | None
    remark: str


def compare_artifacts(
    a: Artifact,
    b: Artifact,
    *,
    ignore: bool = True,
    context: int = 3,
    shown_limit: int = SHOWN_LIMIT,
) -> ArtifactDiff:
    missing = [artifact for artifact in (a, b) if artifact.text is None]
    if missing:
        return ArtifactDiff(
            a, b, None, "Both texts are needed for a comparison, and one is not there."
        )
    texts = [
        reformat(
            artifact.text or "",
            guess_language(artifact.name, artifact.text or "", artifact.encoding),
        )
        for artifact in (a, b)
    ]
    cut = max(map(len, texts)) > COMPARED_CHARS
    if cut:
        texts = [
            text[:COMPARED_CHARS].rpartition("\n")[0] or text[:COMPARED_CHARS] for text in texts
        ]
    remark = (
        f"Only the first {COMPARED_CHARS:,} characters of each text are compared." if cut else ""
    )
    kinds = tuple(NOISE) if ignore else ()
    diff = diff_texts(*texts, ignore=kinds, context=context, shown_limit=shown_limit)
    return ArtifactDiff(a, b, diff, remark)


@dataclass(frozen=True)
class ArtifactDiffLine:
    """A line of the comparison, or a fold of equal lines."""

    kind: Annotated[
        str,
        one_of(("same", "changed", "added", "removed", "fold")),
        "The outcome of the line, or a fold.",
    ]
    count: Annotated[Count, "Lines that it stands for: more than 1 for a fold."]
    left_number: Annotated[int | None, "Line in `a`, from 1."]
    left_text: Annotated[str | None, "That line; null if `a` has none, and for a fold."]
    right_number: Annotated[int | None, "Line in `b`, from 1."]
    right_text: Annotated[str | None, "That line; null if `b` has none, and for a fold."]


def list_diff_lines(diff: TextDiff) -> list[ArtifactDiffLine]:
    return [_make_line(part) for part in diff.parts]


def _make_line(part: ShownRow | Fold) -> ArtifactDiffLine:
    if isinstance(part, Fold):
        return ArtifactDiffLine(**vars(part), left_text=None, right_text=None)
    left, right = (
        None if side is None else "".join(text for text, _ in side)
        for side in (part.left, part.right)
    )
    return ArtifactDiffLine(part.kind, 1, part.left_number, left, part.right_number, right)


@dataclass(frozen=True)
class ArtifactPair:
    a: ArtifactRow
    b: ArtifactRow
    diff: ArtifactDiff | None
    guards: GuardDiff | None = None
    is_equal: bool = False

    @property
    def is_same(self) -> bool:
        if self.guards is not None:
            return not (self.guards.added or self.guards.removed or self.guards.changed)
        return self.is_equal or bool(self.diff and self.diff.diff and self.diff.diff.equivalent)


@dataclass(frozen=True)
class ArtifactKindComparison:
    """The artifacts of one kind of two compiles; `alone` are those of each compile without a
    partner that has a text.
    """

    key: str
    title: str
    meaning: str
    pairs: tuple[ArtifactPair, ...]
    alone: tuple[tuple[ArtifactRow, ...], tuple[ArtifactRow, ...]]
    hidden_count: int  # pairs that were not compared

    @property
    def is_same(self) -> bool:
        is_whole = self.pairs and not any(self.alone)
        return bool(is_whole) and all(pair.is_same for pair in self.pairs)


# Of two texts compared on a page with others; each pair also has a page of its own.
TOGETHER_CHARS = 250_000
SHOWN_ROWS = 250  # The page of one pair shows all rows.
_MAX_PAIRS = 8  # A compile has a graph, and a code each for forward and backward.
_SECTIONS = (
    ("guards", "Guards", "which calls the compiled code accepts", GUARDS),
    ("graph", "Graph", "what dynamo captured of the function", (DYNAMO_GRAPH,)),
    ("code", "Code", "what inductor generated", (OUTPUT_CODE,)),
)
CompileSource = tuple[sqlite3.Connection, int]  # the detail of its run, and its key


def compare_compile_artifacts(a: CompileSource, b: CompileSource) -> list[ArtifactKindComparison]:
    """Compare guards, graph and generated code of two compiles, of one run or of two."""
    return [_compare_section(a, b, *section) for section in _SECTIONS]


def _compare_section(
    a: CompileSource, b: CompileSource, key: str, title: str, meaning: str, names: Sequence[str]
) -> ArtifactKindComparison:
    here, there = (
        [row for name in names for row in artifacts.list_named(reader, compile_key=own, name=name)]
        for reader, own in (a, b)
    )
    partners = dict(artifacts.pair_artifacts(here, there))
    if not partners and here and there:  # versions of torch name their guards differently
        partners = {here[-1].id: there[-1]}
    taken = {row.id for row in partners.values()}
    alone = (
        [row for row in here if row.id not in partners],
        [row for row in there if row.id not in taken],
    )
    matched = [(row, partners[row.id]) for row in here if row.id in partners]
    pairs = []
    for row, other in matched[:_MAX_PAIRS]:
        first = artifacts.get_artifact(a[0], row.run_id, row.id)
        second = artifacts.get_artifact(b[0], other.run_id, other.id)
        if first and second and None not in (first.text, second.text):
            pairs.append(_compare_pair(first, second))
        else:
            alone[0].append(row)
            alone[1].append(other)
    return ArtifactKindComparison(
        key,
        title,
        meaning,
        tuple(pairs),
        (tuple(alone[0]), tuple(alone[1])),
        len(matched[_MAX_PAIRS:]),
    )


def _compare_pair(a: Artifact, b: Artifact) -> ArtifactPair:
    if a.name in GUARDS and a.text and b.text:
        old, new = parse_guards(a.text), parse_guards(b.text)
        if old is not None and new is not None:
            return ArtifactPair(a, b, None, compare_guards(old, new))
    length = len(a.text or "") + len(b.text or "")
    if length > TOGETHER_CHARS:
        same = a.text == b.text
        remark = (
            "The two texts are the same."
            if same
            else f"Too long to be compared here: {length:,} characters."
        )
        return ArtifactPair(a, b, ArtifactDiff(a, b, None, remark), is_equal=same)
    return ArtifactPair(a, b, compare_artifacts(a, b, shown_limit=SHOWN_ROWS))


_ALL = 1_000_000  # equal lines around a changed one: the whole text
_MAX_CHOICES = 500  # compiles offered for selection


@dataclass(frozen=True)
class DirectoryScreen:
    page: Page[CompileRow]
    count: int
    entries: Sequence[CompileEntry]
    outcomes: Mapping[str, int]
    is_cut: bool
    loose: Sequence[ArtifactRow]
    artifact_counts: Mapping[str, int]


def build_directory(
    reader: sqlite3.Connection,
    run: RunRow,
    selection: CompileFilter,
    cursor: str | None = None,
    limit: int = 20,
) -> DirectoryScreen:
    page = compiles.list_compiles(reader, run.id, selection, cursor=cursor, limit=limit)
    steps = trace_files.list_steps(reader, [row.id for row in page.rows])
    is_first = not (cursor or selection.text or selection.outcome or selection.artifact)
    return DirectoryScreen(
        page=page,
        count=compiles.count_compiles(reader, run.id, selection),
        entries=build_entries(page.rows, steps),
        outcomes=compiles.count_outcomes(reader, run.id),
        is_cut=len(steps) >= trace_files.MAX_STEPS,
        loose=artifacts.list_loose(reader, run.id) if is_first else (),
        artifact_counts=artifacts.count_names(reader, run.id),
    )


@dataclass(frozen=True)
class ArtifactScreen:
    artifact: Artifact
    compile: CompileRow | None
    neighbours: NeighbouringArtifacts
    counterparts: Sequence[tuple[str, str, ArtifactRow]]

    @property
    def state(self) -> Label:
        return describe_state(self.artifact.state, self.artifact.unreadable)

    @property
    def is_runnable(self) -> bool:
        return self.artifact.text is not None and self.artifact.name in RUNNABLE

    @cached_property
    def view(self) -> TextView | None:
        artifact = self.artifact
        return (
            None
            if artifact.text is None
            else view_text(artifact.name, artifact.text, artifact.encoding)
        )

    @cached_property
    def bytecode(self) -> Bytecode | None:
        text = self.artifact.text
        return (
            parse_bytecode(text) if text is not None and is_bytecode(self.artifact.name) else None
        )

    @cached_property
    def metadata(self) -> list[tuple[str, Any]]:
        return list_metadata({**self.artifact.envelope, **self.artifact.metadata})


def build_artifact(
    reader: sqlite3.Connection, run_id: str, artifact_id: int
) -> ArtifactScreen | None:
    artifact = artifacts.get_artifact(reader, run_id, artifact_id)
    if artifact is None:
        return None
    key = artifact.compile_key
    compile = None if key is None else compiles.get_compile(reader, run_id, key)
    neighbours = artifacts.get_neighbours(reader, artifact)
    return ArtifactScreen(
        artifact, compile, neighbours, _list_counterparts(reader, artifact, compile)
    )


def build_program(reader: sqlite3.Connection, artifact: Artifact) -> str:
    """Return a program that runs an AOT graph on inputs of the recorded types.

    Raises ValueError if the artifact is not a graph that can be run, or its text is not stored.
    """
    if artifact.name not in RUNNABLE:
        raise ValueError(
            f"artifact {artifact.id} is {artifact.name[:80]}; expected one of {', '.join(RUNNABLE)}"
        )
    if artifact.text is None:
        raise ValueError(f"artifact {artifact.id} has no text")
    key = artifact.compile_key
    title = f"{artifact.name} of compile {artifact.compile_id or 'unknown'}, as torch printed it."
    symbols = {} if key is None else shapes.list_values(reader, key)
    return build_graph_program(artifact.text, symbols, title, name_program(artifact))


def name_program(artifact: ArtifactRow) -> str:
    return f"{artifact.name}_{artifact.id}.py"


def _list_counterparts(
    reader: sqlite3.Connection, artifact: ArtifactRow, compile: CompileRow | None
) -> list[tuple[str, str, ArtifactRow]]:
    if compile is None:
        return []
    chain = compiles.list_chain(reader, compile.process_id, compile.generation, compile.frame_id)
    position = next((number for number, other in enumerate(chain) if other.id == compile.id), None)
    if position is None:
        return []
    counterparts = []
    for which, at in (("previous", position - 1), ("next", position + 1)):
        same = (
            artifacts.find_counterpart(reader, artifact, chain[at].id)
            if 0 <= at < len(chain)
            else None
        )
        if same is not None:
            counterparts.append((which, chain[at].compile_id, same))
    return counterparts


@dataclass(frozen=True)
class ArtifactDiffScreen:
    a: Artifact
    b: Artifact | None
    diff: ArtifactDiff | None
    missing: str
    chosen_key: int | None
    compiles: Sequence[CompileRow]
    choices: Sequence[ArtifactRow]


def build_artifact_diff(
    store: Store,
    a: Artifact,
    b: Artifact | None,
    against: CompileRow | None = None,
    *,
    is_exact: bool = False,
    is_whole: bool = False,
) -> ArtifactDiffScreen:
    reader, missing = store.open_run(a.run_id), ""
    if against is not None and b is None:
        same = artifacts.find_counterpart(reader, a, against.id)
        b = None if same is None else artifacts.get_artifact(reader, same.run_id, same.id)
        missing = (
            "" if b else f"Compile {against.compile_id} has no {a.name} that stands for this one."
        )
    chosen_key = against.id if against else b.compile_key if b else a.compile_key
    return ArtifactDiffScreen(
        a=a,
        b=b,
        diff=compare_artifacts(a, b, ignore=not is_exact, context=_ALL if is_whole else 3)
        if b
        else None,
        missing=missing,
        chosen_key=chosen_key,
        compiles=compiles.list_compiles(reader, a.run_id, limit=_MAX_CHOICES).rows,
        choices=[] if chosen_key is None else artifacts.list_texts(reader, compile_key=chosen_key),
    )


def read_artifact(store: Store, run_id: str, artifact_id: int) -> Artifact | None:
    own = artifacts.get_artifact(store.open_run(run_id), run_id, artifact_id)
    return own or artifacts.find_artifact(store.board, artifact_id)


@dataclass(frozen=True)
class CompileChangesScreen:
    compile: CompileRow
    older: CompileRow | None
    others: Sequence[CompileRow]
    recompiles: Sequence[recompiles.RecompileRow]
    sections: Sequence[ArtifactKindComparison]


def build_changes(
    reader: sqlite3.Connection, run_id: str, key: int, older_id: str | None = None
) -> CompileChangesScreen | None:
    """Compare a compile with `older_id`, by default the cache entry it was recompiled from; None if
    the compile does not exist.
    """
    row = compiles.get_compile(reader, run_id, key)
    if row is None:
        return None
    chain = compiles.list_chain(reader, row.process_id, row.generation, row.frame_id)
    others = [other for other in chain if other.id != row.id]
    older = next(
        (other for other in others if other.compile_id == (older_id or row.recompiled_from)), None
    )
    return CompileChangesScreen(
        compile=row,
        older=older,
        others=others,
        recompiles=recompiles.list_compile_recompiles(reader, [row.id]),
        sections=[]
        if older is None
        else compare_compile_artifacts((reader, older.id), (reader, row.id)),
    )


@dataclass(frozen=True)
class ProvenanceGroup:
    """Generated code with the other artifacts of the same graph."""

    code: ArtifactRow
    post_grad: ArtifactRow | None
    pre_grad: ArtifactRow | None
    mapping: ArtifactRow | None
    stack_traces: ArtifactRow | None

    @property
    def rows(self) -> tuple[ArtifactRow | None, ...]:
        return self.code, self.post_grad, self.pre_grad, self.mapping, self.stack_traces


def group_artifacts(rows: Sequence[ArtifactRow]) -> list[ProvenanceGroup]:
    """Group a compile's artifacts by generated code: graphs come before it, the mapping after."""
    latest: dict[str, ArtifactRow] = {}
    groups: list[ProvenanceGroup] = []
    for row in sorted(rows, key=lambda row: (row.sequence, row.id)):
        role = PROVENANCE_NAMES.get(row.name)
        if role == "code":
            groups.append(
                ProvenanceGroup(
                    row, latest.pop("post_grad", None), latest.get("pre_grad"), None, None
                )
            )
        elif role in ("mapping", "stack_traces"):
            # A compile that was cut off may have a mapping without code.
            if groups and getattr(groups[-1], role) is None:
                groups[-1] = replace(groups[-1], **{role: row})
        elif role:
            latest[role] = row
    return groups


@dataclass(frozen=True)
class ProvenancePane:
    key: str
    title: str
    meaning: str
    artifact: ArtifactRow | None
    view: TextView | None

    @property
    def missing_because(self) -> str:
        if self.artifact is None:
            return "torch wrote none for this code."
        return describe_state(self.artifact.state).meaning


@dataclass(frozen=True)
class ProvenanceScreen:
    artifact: ArtifactRow
    compile: CompileRow | None
    choices: Sequence[tuple[ArtifactRow, str]]
    provenance: Provenance
    panes: Sequence[ProvenancePane]
    mapping_rows: Sequence[ArtifactRow]
    source_codes: Sequence[Markup]

    @property
    def is_measured(self) -> bool:
        return any(kernel.measured_us is not None for kernel in self.provenance.kernels)

    @property
    def links(self) -> Links:
        return self.provenance.links


def build_provenance(
    reader: sqlite3.Connection,
    artifact: Artifact,
    measured_us: KernelTimes | None = None,
) -> ProvenanceScreen | None:
    """Join the kernels of generated code to its graphs and the program's lines.

    None if the artifact belongs to no generated code of its compile.
    """
    key = artifact.compile_key
    if key is None or artifact.name not in PROVENANCE_NAMES:
        return None
    rows = [
        row
        for name in PROVENANCE_NAMES
        for row in artifacts.list_named(reader, compile_key=key, name=name)
    ]
    groups = group_artifacts(rows)
    ids = [[row.id for row in group.rows if row] for group in groups]
    group = next(
        (group for group, own in zip(groups, ids, strict=True) if artifact.id in own), None
    )
    if group is None:
        return None
    texts = [_read_text(reader, row) for row in group.rows]
    provenance = trace_provenance(ProvenanceTexts(*texts), measured_us)
    panes = [
        _make_pane(CODE, "Generated code", "kernels, and what calls them", group.code, texts[0]),
        _make_pane(POST_GRAD, "Post-grad graph", "ATen operations", group.post_grad, texts[1]),
    ]
    if not provenance.is_backward:
        panes.append(
            _make_pane(
                PRE_GRAD, "Pre-grad graph", "as dynamo captured it", group.pre_grad, texts[2]
            )
        )
    return ProvenanceScreen(
        artifact=group.code,
        compile=compiles.get_compile(reader, artifact.run_id, key),
        choices=[(each.code, _name_code(_read_text(reader, each.code))) for each in groups],
        provenance=provenance,
        panes=panes[::-1],
        mapping_rows=[row for row in (group.mapping, group.stack_traces) if row],
        source_codes=[highlight(frame.code, "python")[0] for frame in provenance.sources],
    )


def _make_pane(
    key: str, title: str, meaning: str, row: ArtifactRow | None, text: str
) -> ProvenancePane:
    view = view_text(row.name, text, row.encoding) if row and text else None
    return ProvenancePane(key, title, meaning, row, view)


def _read_text(reader: sqlite3.Connection, row: ArtifactRow | None) -> str:
    found = None if row is None else artifacts.get_artifact(reader, row.run_id, row.id)
    return (found.text or "") if found else ""


def _name_code(code: str) -> str:
    number, kind = describe_code(code)
    return f"{kind} of graph {number}" if kind else "generated code"
