"""Follow every suggested fix to the letter and count what becomes of the programs.

    python -m benchmarks.fixes.advice

Every program is recorded by our hooks into a database; the fixes of its causes that need no person
are applied to the program's text, each alone and then all together, and the program is run again
beside the one without. The programs of reported wrong advice stand alone: what is advised first of
each cause, followed as an edit or a setting where it is one and by hand elsewhere.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from benchmarks.common import Row, print_table
from compileboard.collectors.fixes.fix import Fix, list_fixes
from tests.integration.fixes.following import apply_fixes, compare, count_trouble, follow
from tests.integration.fixes.recording import record_causes
from tests.integration.fixes.running import Outcome, is_equal, run_text
from tests.programs.advised.reference import ReferenceProgram, list_reference_programs
from tests.programs.advised.surveyed_breaks import list_surveyed
from tests.programs.advised.user_recompiles import USER_PROGRAMS
from tests.tools.observed import PROGRAMS

HEADINGS = (
    "advice on",
    "programs, fixes followed",
    "crash or wrong result",
    "no effect",
    "none left, fewer",
)


REFERENCE_HEADINGS = (
    "program",
    "advised first",
    "followed",
    "breaks, recompiles, compiles",
    "came of it",
)


@dataclass
class Tally:
    """What became of the programs of one collection."""

    program_count: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    person_count: int = 0  # fixes that take a person
    unknown_count: int = 0  # causes without a fix
    failures: list[str] = field(default_factory=list)

    def add(self, verdict: str, what: str) -> None:
        """Count one verdict."""
        self.verdicts[verdict] += 1
        if verdict in ("crash", "wrong result", "no effect"):
            self.failures.append(f"{verdict}: {what}")

    def row(self, name: str) -> Row:
        """Return the tally as a line of the table."""
        verdicts = self.verdicts
        bad = verdicts["crash"] + verdicts["wrong result"]
        done = f"{verdicts['none left']}, {verdicts['fewer']}"
        return Row(
            name,
            f"{self.program_count}, {sum(verdicts.values())}",
            str(bad),
            str(verdicts["no effect"]),
            done,
        )


def follow_suggestions(texts: Mapping[str, str], kind: str) -> tuple[Tally, Tally]:
    """Follow what needs no person: each fix alone, and the first of each cause together."""
    alone, together = Tally(len(texts)), Tally()
    for name, text in texts.items():
        try:
            causes = [cause for cause in record_causes(text) if cause.kind == kind]
        except Exception:  # the compiled program itself ends: nothing is recorded of it
            causes = []
        firsts = []
        for cause in causes:
            ready = [
                suggested for suggested in cause.fixes if suggested.edits or suggested.settings
            ]
            firsts += ready[:1]
            alone.person_count += len(cause.fixes) - len(ready)
            alone.unknown_count += not cause.fixes
            for suggested in ready:
                followed = follow(text, [suggested])
                alone.add(followed.verdict, f"{name}: {suggested.title}: {followed.note}")
        if firsts:
            together.program_count += 1
            followed = follow(text, firsts)
            together.add(followed.verdict, f"{name}: {followed.note}")
    return alone, together


def follow_by_hand(fixes: Mapping[str, tuple[str, str]], kind: str) -> Tally:
    """Run programs beside the same programs with the fix made by hand."""
    tally = Tally(len(fixes))
    for name, (before, after) in fixes.items():
        old, new, eager = run_text(before), run_text(after), run_text(before, "eager")
        if new.error is not None:
            verdict = "crash"
        elif not is_equal(new.result, eager.result):
            verdict = "wrong result"
        elif not count_trouble(new, kind):
            verdict = "none left"
        else:
            verdict = (
                "fewer" if count_trouble(new, kind) < count_trouble(old, kind) else "no effect"
            )
        tally.add(verdict, f"{name}: {new.error or dict(new.gb_ids)}")
    return tally


def follow_reference(program: ReferenceProgram) -> Row:
    """Follow what is advised first of each cause of a program of reported wrong advice."""
    firsts = [cause.fixes[0] for cause in record_causes(program.text) if cause.fixes]
    ready = [suggested for suggested in firsts if suggested.edits or suggested.settings]
    before = run_text(program.text)
    changed = program.followed or (apply_fixes(program.text, ready) if ready else None)
    advised = ", ".join(suggested.fix.id for suggested in firsts)
    if changed is None:
        is_needless = bool(firsts) and all(suggested.fix.is_needless for suggested in firsts)
        came = "nothing to fix" if is_needless else "not followed"
        return Row(program.name, advised, "-", _count(before), came)
    followed = compare(program.text, changed, "both")
    return Row(
        program.name,
        advised,
        "by hand" if program.followed else "edit or setting",
        f"{_count(before)} → {_count(run_text(changed))}",
        followed.note if followed.verdict in ("crash", "wrong result") else followed.verdict,
    )


def _count(outcome: Outcome) -> str:
    return f"{outcome.trouble_count}, {len(outcome.recompiles)}, {outcome.graph_count}"


def list_pairs(fixes: Iterable[Fix]) -> dict[str, tuple[str, str]]:
    """Map the fixes that help to their programs before and after."""
    return {fix.id: (fix.before, fix.after) for fix in fixes if fix.after is not None}


def main() -> int:
    """Print the table, and what did not work."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--reference", action="store_true", help="only the reported programs")
    asked = parser.parse_args()
    reported = [follow_reference(program) for program in list_reference_programs()]
    print_table("Advice that was wrong, now", reported, headings=REFERENCE_HEADINGS)
    if asked.reference:
        return 0
    break_fixes, recompile_fixes = list_fixes("graph_break"), list_fixes("recompile")
    user_breaks = {
        path.stem: path.read_text()
        for path in sorted((PROGRAMS / "graph_breaks").glob("[a-z]*.py"))
    }
    suggested = {
        ("graph breaks: the pairs", "graph_break"): {fix.before: fix.before for fix in break_fixes},
        ("graph breaks: the survey", "graph_break"): {
            name: text for name, (_, text) in list_surveyed().items()
        },
        ("graph breaks: programs of users", "graph_break"): user_breaks,
        ("recompiles: the pairs", "recompile"): {fix.before: fix.before for fix in recompile_fixes},
        ("recompiles: programs of users", "recompile"): {
            program.name: program.text for program in USER_PROGRAMS
        },
    }
    by_hand = {
        ("graph breaks: the pairs", "graph_break"): list_pairs(break_fixes),
        ("recompiles: the pairs", "recompile"): list_pairs(recompile_fixes),
        ("recompiles: programs of users", "recompile"): {
            program.name: (program.text, program.followed)
            for program in USER_PROGRAMS
            if program.followed
        },
    }
    rows, failures, person_count, unknown_count = [], [], 0, 0
    for (name, kind), texts in suggested.items():
        alone, together = follow_suggestions(texts, kind)
        rows += [
            alone.row(f"{name}, applied alone"),
            together.row(f"{name}, the first of each cause together"),
        ]
        failures += alone.failures + together.failures
        person_count, unknown_count = (
            person_count + alone.person_count,
            unknown_count + alone.unknown_count,
        )
    for (name, kind), pairs in by_hand.items():
        tally = follow_by_hand(pairs, kind)
        rows.append(tally.row(f"{name}, made by hand"))
        failures += tally.failures
    note = f"{person_count} suggestions take a person; {unknown_count} causes have no suggestion."
    print_table("Advice, followed to the letter", rows, *failures, note, headings=HEADINGS)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
