"""What changed from one compile of a frame to another: guards, the captured graph, the generated code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.analysis.artifact_diff import ArtifactDiff, compare_artifacts
from compileboard.app.analysis.artifact_words import DYNAMO_GRAPH, GUARDS, OUTPUT_CODE
from compileboard.app.analysis.guard_diff import GuardDiff, compare_guards
from compileboard.app.queries.artifacts import Artifact, ArtifactRow
from compileboard.collectors.payloads import parse_guards


@dataclass(frozen=True)
class Pair:
    """Hold one artifact of each compile and what differs; `guards` is set where both are guards that could be read."""

    a: ArtifactRow
    b: ArtifactRow
    diff: ArtifactDiff | None
    guards: GuardDiff | None = None
    is_equal: bool = False


@dataclass(frozen=True)
class Section:
    """Hold what changed in one kind of artifact."""

    key: str
    title: str
    meaning: str
    pairs: tuple[Pair, ...]

    @property
    def is_same(self) -> bool:
        """Say whether nothing of it changed but what two compiles never have in common."""
        return all(_is_same(pair) for pair in self.pairs)


def _is_same(pair: Pair) -> bool:
    if pair.guards is not None:
        return not (pair.guards.added or pair.guards.removed or pair.guards.changed)
    return pair.is_equal or bool(pair.diff and pair.diff.diff and pair.diff.diff.equivalent)


TOGETHER_CHARS = 250_000  # of two texts that are compared at once with others; each alone has a page of its own
SHOWN_ROWS = 250  # of one comparison; the page of both texts side by side has all of them
COMPARED = (*GUARDS, DYNAMO_GRAPH, OUTPUT_CODE)
_SECTIONS = (
    ("guards", "Guards", "which calls the compiled code accepts", GUARDS),
    ("graph", "Graph", "what dynamo captured of the function", (DYNAMO_GRAPH,)),
    ("code", "Code", "what inductor generated", (OUTPUT_CODE,)),
)


def compare_pairs(pairs: Sequence[tuple[Artifact, Artifact]]) -> list[Section]:
    """Compare the artifacts of two compiles, kind by kind; a kind without a pair has no section."""
    sections = []
    for key, title, meaning, names in _SECTIONS:
        found = tuple(_compare(a, b) for a, b in pairs if a.name in names)
        if found:
            sections.append(Section(key, title, meaning, found))
    return sections


def list_missing(sections: Sequence[Section]) -> list[str]:
    """List the kinds that could not be compared: one of the two compiles has none, or no text of it was kept."""
    there = {section.key for section in sections}
    return [title for key, title, _meaning, _names in _SECTIONS if key not in there]


def _compare(a: Artifact, b: Artifact) -> Pair:
    if a.name in GUARDS and a.text and b.text:
        old, new = parse_guards(a.text), parse_guards(b.text)
        if old is not None and new is not None:
            return Pair(a, b, None, compare_guards(old, new))
    length = len(a.text or "") + len(b.text or "")
    if length > TOGETHER_CHARS:
        same = a.text == b.text
        said = "The two texts are the same." if same else f"Too long to be compared here: {length:,} characters."
        return Pair(a, b, ArtifactDiff(a, b, None, said), is_equal=same)
    return Pair(a, b, compare_artifacts(a, b, shown_limit=SHOWN_ROWS))
