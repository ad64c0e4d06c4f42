"""Make candidates of a trial from the reasons why CUDA graphs are re-recorded or not used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.contract.compile_labels import label_line
from compileboard.collectors.fixes.cudagraph_edits import (
    SourceFile,
    clone_argument,
    clone_result,
    find_change,
    find_function,
    mark_static,
    return_change,
)
from compileboard.collectors.fixes.fix import Fix, LineEdit
from compileboard.collectors.store.cudagraph_reasons import CudagraphReason
from compileboard.collectors.trials.patches import RecordedProgram, apply_edits
from compileboard.collectors.trials.trial import Candidate


@dataclass(frozen=True)
class CudagraphFix:
    """The fix for a reason; without edits, it has to be applied by hand."""

    reason: CudagraphReason
    fix: Fix
    edits: tuple[LineEdit, ...]

    @property
    def title(self) -> str:
        place = self.reason.call
        where = f" ({label_line(place.file, place.line)})" if place else ""
        return f"{self.fix.warn(self.fix.title)}{where}"

    def make(self, program: RecordedProgram, folder: Path) -> Candidate:
        """Make the candidate. Raises CannotTry if a file changed since the run."""
        recorded = {
            (place.file, place.line): place.code
            for place in (self.reason.call, self.reason.maker_call, self.reason)
            if place and place.file and place.line and place.code
        }
        files = apply_edits(self.edits, recorded, program.roots, folder / "cuda-graph")
        return Candidate(self.title, tuple(files), edits=self.edits)


def list_cudagraph_fixes(
    reasons: Sequence[CudagraphReason], roots: Sequence[Path]
) -> list[CudagraphFix]:
    """Return one fix for each reason that has any: the first fix with an edit, otherwise
    the first.
    """
    found = []
    for reason in reasons:
        fixes = reason.fixes
        edited = [(fix, _write(fix, reason, roots)) for fix in fixes]
        fix, edits = next((pair for pair in edited if pair[1]), (fixes[0] if fixes else None, ()))
        if fix is not None:
            found.append(CudagraphFix(reason, fix, edits))
    return found


def _write(fix: Fix, reason: CudagraphReason, roots: Sequence[Path]) -> tuple[LineEdit, ...]:
    if fix.id == "mutation_returned":
        source = _read(reason.file, roots)
        return return_change(source, reason.line) if source and reason.line else ()
    call, function = reason.call, reason.function
    if fix.id == "kept_clone":  # what is alive was made by the graph before
        call, function = reason.maker_call or call, reason.maker or function
    source = _read(call.file, roots) if call else None
    node = source.find_call(call.line, function) if source and call and call.line else None
    if source is None or node is None:
        return ()
    if fix.id in ("kept_clone", "step_marked"):
        return clone_result(source, node, marks_step=fix.id == "step_marked")
    if fix.id == "passed_clone":
        return clone_argument(source, node)
    if fix.id == "mutation_static" and reason.line:
        inside = _read(reason.file, roots)
        changed = find_change(inside, reason.line) if inside else None
        around = find_function(inside, reason.line) if inside else None
        if changed is not None and around and around.name == _bare(function):
            return mark_static(source, node, changed, around)
    return ()


def _bare(function: str | None) -> str:
    return (function or "").rpartition(".")[2]


def _read(file: str | None, roots: Sequence[Path]) -> SourceFile | None:
    for root in roots if file else ():
        path = root / (file or "")
        if path.is_file():
            return SourceFile.parse(file or "", path.read_text(encoding="utf-8", errors="replace"))
    return None
