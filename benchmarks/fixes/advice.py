"""Follow every suggested fix to the letter and count what becomes of the programs.

    python -m benchmarks.fixes.advice

Every program is recorded by our hooks into a database; the fixes of its causes that need no person
are applied to the program's text, each alone and then all together, and the program is run again
beside the one without.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from benchmarks.common import Row, print_table
from compileboard.collectors.fixes.fix import Fix, list_fixes
from tests.integration.fixes.following import count_trouble, follow
from tests.integration.fixes.recording import record_causes
from tests.integration.fixes.running import is_equal, run_text
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


def list_pairs(fixes: Iterable[Fix]) -> dict[str, tuple[str, str]]:
    """Map the fixes that help to their programs before and after."""
    return {fix.id: (fix.before, fix.after) for fix in fixes if fix.after is not None}


def main() -> int:
    """Print the table, and what did not work."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "").parse_args()
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
