"""Line comparison of two artifacts, with a size limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.analysis.artifacts.labels import (
    DYNAMO_GRAPH,
    GUARDS,
    OUTPUT_CODE,
    guess_language,
    lay_out,
)
from compileboard.app.analysis.guards.diff import GuardDiff, compare_guards
from compileboard.app.analysis.text.diff import NOISE, SHOWN_LIMIT, TextDiff, diff_texts
from compileboard.app.queries.run.artifacts import Artifact, ArtifactRow
from compileboard.collectors.store.payloads import parse_guards

COMPARED_CHARS = 1_000_000  # of each text; the largest of the recorded models has 421 000


@dataclass(frozen=True)
class ArtifactDiff:
    """`diff` is None if an artifact has no text; `remark` says what was not compared."""

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
        lay_out(
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
class ArtifactPair:
    a: ArtifactRow
    b: ArtifactRow
    diff: ArtifactDiff | None
    guards: GuardDiff | None = None
    is_equal: bool = False


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    meaning: str
    pairs: tuple[ArtifactPair, ...]

    @property
    def is_same(self) -> bool:
        return all(_is_same(pair) for pair in self.pairs)


def _is_same(pair: ArtifactPair) -> bool:
    if pair.guards is not None:
        return not (pair.guards.added or pair.guards.removed or pair.guards.changed)
    return pair.is_equal or bool(pair.diff and pair.diff.diff and pair.diff.diff.equivalent)


TOGETHER_CHARS = (
    250_000  # of two texts that are compared at once with others; each alone has a page of its own
)
SHOWN_ROWS = 250  # of one comparison; the page of both texts side by side has all of them
COMPARED = (*GUARDS, DYNAMO_GRAPH, OUTPUT_CODE)
_SECTIONS = (
    ("guards", "Guards", "which calls the compiled code accepts", GUARDS),
    ("graph", "Graph", "what dynamo captured of the function", (DYNAMO_GRAPH,)),
    ("code", "Code", "what inductor generated", (OUTPUT_CODE,)),
)


def compare_pairs(pairs: Sequence[tuple[Artifact, Artifact]]) -> list[Section]:
    sections = []
    for key, title, meaning, names in _SECTIONS:
        changed = tuple(_compare(a, b) for a, b in pairs if a.name in names)
        if changed:
            sections.append(Section(key, title, meaning, changed))
    return sections


def list_missing(sections: Sequence[Section]) -> list[str]:
    there = {section.key for section in sections}
    return [title for key, title, _meaning, _names in _SECTIONS if key not in there]


def _compare(a: Artifact, b: Artifact) -> ArtifactPair:
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
