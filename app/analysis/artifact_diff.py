"""Two artifacts compared as people read them, with a bound on what is compared."""

from __future__ import annotations

from dataclasses import dataclass

from compileboard.app.analysis.artifact_words import guess_language, lay_out
from compileboard.app.analysis.text_diff import NOISE, SHOWN_LIMIT, TextDiff, diff_texts
from compileboard.app.queries.artifacts import Artifact

COMPARED_CHARS = 1_000_000  # of each text; the largest of the recorded models has 421 000


@dataclass(frozen=True)
class ArtifactDiff:
    """Hold two artifacts compared; `diff` is none where one has no text, `remark` says what was not compared."""

    a: Artifact
    b: Artifact
    diff: TextDiff | None
    remark: str


def compare_artifacts(
    a: Artifact, b: Artifact, *, ignore: bool = True, context: int = 3, shown_limit: int = SHOWN_LIMIT
) -> ArtifactDiff:
    """Compare two artifacts by lines; `ignore` leaves out what two runs never have in common (NOISE)."""
    missing = [it for it in (a, b) if it.text is None]
    if missing:
        return ArtifactDiff(a, b, None, "Both texts are needed for a comparison, and one is not there.")
    texts = [lay_out(it.text or "", guess_language(it.name, it.text or "", it.encoding)) for it in (a, b)]
    cut = max(map(len, texts)) > COMPARED_CHARS
    if cut:
        texts = [text[:COMPARED_CHARS].rpartition("\n")[0] or text[:COMPARED_CHARS] for text in texts]
    remark = f"Only the first {COMPARED_CHARS:,} characters of each text are compared." if cut else ""
    kinds = tuple(NOISE) if ignore else ()
    diff = diff_texts(*texts, ignore=kinds, context=context, shown_limit=shown_limit)
    return ArtifactDiff(a, b, diff, remark)
