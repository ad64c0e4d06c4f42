"""Make candidates of a trial from the fixes of a run's causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.fixes.fix import LineEdit, SuggestedFix
from compileboard.collectors.fixes.recompile_fixes import join_settings
from compileboard.collectors.trials.patches import (
    CannotTry,
    RecordedProgram,
    apply_edits,
    check_recorded,
    find_import_of_torch,
)
from compileboard.collectors.trials.trial import Candidate, PrintLine

RecordedLines = Mapping[tuple[str, int], str]


class Candidates:
    """The fixes of a run that can be applied automatically, as patched copies in a folder."""

    def __init__(self, causes: Sequence[Cause], program: RecordedProgram, folder: Path) -> None:
        self.causes = causes
        self.program = program
        self._folder = folder
        self._recorded: dict[tuple[str, int], str] = {}
        for cause in causes:
            self._recorded.update(list_recorded_lines(cause))

    def make(self, cause: Cause, suggested: SuggestedFix) -> Candidate:
        """Make the candidate of a fix. Raises CannotTry if a file changed since the run."""
        folder = self._folder / f"{cause.number}-{suggested.fix.id}"
        recorded = list_recorded_lines(cause)
        files = apply_edits(suggested.edits, recorded, self.program.roots, folder)
        return Candidate(
            suggested.title,
            tuple(files),
            suggested.settings,
            suggested.fix.id,
            (cause.number,),
            (cause.fingerprint,),
            suggested.edits,
        )

    def pick(self, number: int | None) -> Candidate | None:
        """Return a cause's first fix that can be applied automatically."""
        for cause in self.causes:
            if cause.number == number and cause.automatic is not None:
                return self.make(cause, cause.fixes[cause.automatic])
        return None

    def pick_to_write(self, number: int | None) -> Candidate | None:
        """Return the same fix as `pick`, with settings written as statements into the source.

        Raises CannotTry if a file changed since the run.
        """
        candidate = self.pick(number)
        if candidate is None:
            return None
        if candidate.settings:
            cause = next(cause for cause in self.causes if cause.number == number)
            edit = self._make_setting_edit(candidate.settings, cause.file)
            edits = (*candidate.edits, edit)
            folder = self._folder / f"{number}-written"
            files = apply_edits(edits, self._recorded, self.program.roots, folder)
            candidate = replace(candidate, files=tuple(files), edits=edits, settings=())
        check_recorded(candidate.files, self._recorded)
        return candidate

    def _make_setting_edit(self, settings: Sequence[str], file: str | None) -> LineEdit:
        names = [file] if file else []
        names += [word for word in self.program.argv if word.endswith(".py")]
        for name in names:
            for path in (root / name for root in self.program.roots):
                if path.is_file():
                    line = find_import_of_torch(path.read_text(encoding="utf-8", errors="replace"))
                    if line is not None:
                        return LineEdit(name, line + 1, 0, tuple(settings))
        raise CannotTry(
            "the program's files have no `import torch` of their own to write the setting after; "
            f"write it there yourself: {'; '.join(settings)}"
        )

    def list_choices(self, print_line: PrintLine) -> list[list[Candidate]]:
        """Return the fixes of each cause that has any, in order and without duplicates."""
        made: dict[object, Candidate] = {}
        choices = []
        for cause in self.causes:
            keys = []
            for suggested in cause.fixes:
                if not suggested.can_try or not suggested.helps or cause.is_expected:
                    continue
                try:
                    candidate = self.make(cause, suggested)
                except CannotTry as error:
                    print_line(f"fix {cause.number} is left out: {error}")
                    continue
                key = (candidate.edits, candidate.settings)
                before = made.get(key)
                if before is not None:
                    candidate = replace(
                        before,
                        numbers=before.numbers + candidate.numbers,
                        fingerprints=before.fingerprints + candidate.fingerprints,
                    )
                made[key] = candidate
                keys.append(key)
            choices.append(keys)
        return [[made[key] for key in keys] for keys in choices if keys]

    def join(self, candidates: Sequence[Candidate]) -> Candidate:
        """Combine candidates into one. Raises CannotTry if two of them conflict."""
        edits = tuple(dict.fromkeys(edit for candidate in candidates for edit in candidate.edits))
        check_apart(edits)
        settings = join_settings(s for candidate in candidates for s in candidate.settings)
        if settings is None:
            raise CannotTry("two fixes set the same to other values")
        numbers = sorted({number for candidate in candidates for number in candidate.numbers})
        fingerprints = dict.fromkeys(f for candidate in candidates for f in candidate.fingerprints)
        folder = self._folder / "-".join(map(str, ["joined", *numbers]))
        *first, last = map(str, numbers)
        return Candidate(
            f"Fixes {', '.join(first)} and {last} together" if first else candidates[0].title,
            tuple(apply_edits(edits, self._recorded, self.program.roots, folder)),
            settings,
            None,
            tuple(numbers),
            tuple(fingerprints),
            edits,
        )


def check_apart(edits: Sequence[LineEdit]) -> None:
    """Raises CannotTry if two edits change the same line."""
    ordered = sorted(edits, key=lambda edit: (edit.file, edit.line, edit.line_count))
    for before, after in pairwise(ordered):
        if before.file == after.file and after.line < before.line + max(before.line_count, 1):
            raise CannotTry(f"two fixes change line {after.line} of {after.file}")


def list_recorded_lines(cause: Cause) -> RecordedLines:
    """Return the source lines that were recorded around a cause."""
    recorded = {}
    if cause.code is not None:
        first_line, file = cause.code.first_line, cause.code.file
        recorded = {
            (file, first_line + offset): line for offset, line in enumerate(cause.code.lines)
        }
    if cause.file and cause.line and cause.source_line:
        recorded[cause.file, cause.line] = cause.source_line
    return recorded
