"""Artifacts of a run: directory, one artifact, a diff of two, and changes in a recompile."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from compileboard.app.analysis.artifacts.changes import (
    COMPARED,
    ArtifactDiff,
    Section,
    compare_artifacts,
    compare_pairs,
    list_missing,
)
from compileboard.app.analysis.artifacts.labels import (
    TextView,
    describe_name,
    describe_state,
    list_metadata,
    view_text,
)
from compileboard.app.analysis.artifacts.program import RUNNABLE, build_graph_program
from compileboard.app.analysis.compiles import CompileEntry, build_entries
from compileboard.app.analysis.labels import Word
from compileboard.app.analysis.text.bytecode import Bytecode, is_bytecode, parse_bytecode
from compileboard.app.engines.store import Store
from compileboard.app.queries.page import Page
from compileboard.app.queries.run import artifacts, compiles, recompiles, shapes, trace_files
from compileboard.app.queries.run.artifacts import Artifact, ArtifactRow, Neighbours
from compileboard.app.queries.run.compiles import CompileFilter, CompileRow
from compileboard.app.queries.run_rows import RunRow

_ALL = 1_000_000  # equal lines around a changed one: the whole text
_MOST_CHOICES = 500  # compiles that the chooser offers


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
        is_cut=len(steps) >= trace_files.MOST_STEPS,
        loose=artifacts.list_loose(reader, run.id) if is_first else (),
        artifact_counts=artifacts.count_names(reader, run.id),
    )


@dataclass(frozen=True)
class ArtifactJson(ArtifactRow):
    """One record that torch or another program wrote into a log under a name."""

    meaning: Annotated[str, "What a record of that name is."]
    state_meaning: Annotated[str, "The state in words."]


def explain_artifact(row: ArtifactRow) -> ArtifactJson:
    values = {
        name: value for name, value in vars(row).items() if name in ArtifactRow.__dataclass_fields__
    }
    return ArtifactJson(
        **values, meaning=describe_name(row.name), state_meaning=describe_state(row.state).meaning
    )


@dataclass(frozen=True)
class ArtifactScreen:
    artifact: Artifact
    compile: CompileRow | None
    neighbours: Neighbours
    counterparts: Sequence[tuple[str, str, ArtifactRow]]

    @property
    def state(self) -> Word:
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
        compiles=compiles.list_compiles(reader, a.run_id, limit=_MOST_CHOICES).rows,
        choices=[] if chosen_key is None else artifacts.list_texts(reader, chosen_key),
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
    sections: Sequence[Section]

    @property
    def missing(self) -> list[str]:
        return list_missing(self.sections)


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
    pairs = [] if older is None else artifacts.list_pairs(reader, older.id, row.id, COMPARED)
    return CompileChangesScreen(
        compile=row,
        older=older,
        others=others,
        recompiles=recompiles.list_compile_recompiles(reader, [row.id]),
        sections=compare_pairs(pairs),
    )
