"""Follow the first advice on programs of real code to the letter, and judge what becomes of them.

    python -m benchmarks.fixes.cases [NAME ...] [--show]

Each program is recorded as it is; the first fix of its first cause is applied to its text, and the
program is recorded again. Where that fix takes a person, `advised.py` has the edits of a person who
followed it: written after the advice was known, and used for no other fix.
Recordings are kept in a folder by the content of the program and of what records it, so that only
what changed is run again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import Row, print_table
from benchmarks.fixes.cases.advised import ADVISED
from benchmarks.fixes.recorded import Counts, Program, Recording, list_harms, list_programs
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.fixes.fix import SuggestedFix
from tests.integration.fixes.following import apply_fixes
from tests.programs.advised.edits import edit_program

FOLDER = Path(__file__).parent
HEADINGS = ("case", "first advice", "breaks, eager, recompiles, limits, compiles", "verdict", "why")
VERDICTS = ("works", "says it is unsure", "no effect", "harms")


@dataclass(frozen=True)
class Advice:
    """The first fix of the first cause, and the program that follows it."""

    cause: Cause | None
    fix: SuggestedFix | None
    text: str | None
    how: str

    def __str__(self) -> str:
        if self.cause is None:
            return "no cause"
        how = f" ({self.how})" if self.text else ""
        return f"{self.fix.fix.id}{how}" if self.fix else f"none: {self.cause.title}"


def take_advice(case: Program, recording: Recording) -> Advice:
    cause = next(iter(recording.causes), None)
    fix = cause.fixes[0] if cause and cause.fixes else None
    if fix is None or not fix.helps:
        return Advice(cause, fix, None, "nothing to do")
    if fix.edits or fix.settings:
        return Advice(cause, fix, apply_fixes(case.text, [fix]), "applied")
    edits = ADVISED.get((case.name, fix.fix.id))
    if edits is None or isinstance(edits, str):
        return Advice(cause, fix, None, edits or "not in advised.py")
    return Advice(cause, fix, edit_program(case.text, *edits), "by hand")


def judge(case: Program, before: Recording, advice: Advice) -> tuple[str, str, Counts | None]:
    """Return the verdict, why, and the counts of the program that followed the advice."""
    if advice.cause is None or advice.fix is None:
        return "says it is unsure", "no fix is named", None
    if not advice.fix.helps:
        if case.is_right_as_it_is and advice.cause.is_expected:
            return "works", "rightly nothing to fix", None
        if advice.fix.fix.is_needless:
            return "no effect", "said to be as it should be", None
        return "says it is unsure", "says that nothing helps", None
    if advice.text is None:
        is_known = (case.name, advice.fix.fix.id) in ADVISED
        return "no effect" if is_known else "not judged", advice.how, None
    after = Recording.make(case.name, advice.text)
    if harm := next(list_harms(before, after), None):
        return "harms", harm, after.counts
    old, new = before.counts, after.counts
    side = 0 if advice.cause.kind == "graph_break" else 1
    if not new.compile_count:
        return "no effect", "nothing is compiled any more", new
    fell = old.trouble[side] - new.trouble[side]
    rose = new.trouble[1 - side] - old.trouble[1 - side]
    if rose > 0 and 2 * rose >= fell and new.compile_count >= old.compile_count:
        return "harms", "more recompiles" if side == 0 else "more breaks", new
    if fell < 0:
        return "harms", "more of the same", new
    if new.trouble[side] and fell < advice.cause.event_count:
        return "no effect", "fewer, not as was said" if fell else "", new
    if side and new.compile_count >= old.compile_count:
        if not advice.cause.saved_us:
            return "works", "as many compiles, no saving promised", new
        return "no effect", "as many compiles", new
    return "works", "" if not new.trouble[side] else "some are left", new


def show(case: Program, before: Recording, advice: Advice) -> None:
    """Print what a reader needs to follow the advice, and to judge it."""
    print(
        f"\n## {case.name}: {case.title}\nRight: {case.facts['Right']}\nHarm: {case.facts['Harm']}"
    )
    for cause in before.causes[:3]:
        print(f"{cause.number}. [{cause.kind}] {cause.title} | {cause.file}:{cause.line}")
        print(f"   evidence: {cause.evidence[:300]}")
        for fix in cause.fixes[:3]:
            print(f"   - {fix.fix.id}: {fix.title} | cost: {fix.fix.cost}")
            for edit in fix.edits:
                print(f"     line {edit.line}+{edit.line_count}: {list(edit.replacement)}")
            for setting in fix.settings:
                print(f"     {setting}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME", help="Cases. Default: all.")
    parser.add_argument("--show", action="store_true", help="Print causes and fixes of each, too.")
    given = parser.parse_args()
    rows, tally = [], {"break": Counter(), "recompile": Counter()}
    for case in list_programs(FOLDER, given.names):
        before = Recording.make(case.name, case.text)
        advice = take_advice(case, before)
        verdict, why, counts = judge(case, before, advice)
        if given.show:
            show(case, before, advice)
        tally[case.name.partition("_")[0]][verdict] += 1
        change = f"{before.counts} → {counts or 'not run'}"
        rows.append(Row(case.name, str(advice), change, verdict, why))
        print(f"{case.name}: {verdict}", file=sys.stderr)
    notes = [
        f"{kind}: {sum(counts.values())} cases, "
        + ", ".join(f"{counts[verdict]} {verdict}" for verdict in (*VERDICTS, "not judged"))
        for kind, counts in tally.items()
    ]
    print_table("The first advice on programs of real code", rows, *notes, headings=HEADINGS)
    return 1 if any(counts["harms"] for counts in tally.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
