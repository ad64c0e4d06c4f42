"""Follow the advice on recompiles literally and count: `python -m benchmarks.fixes.recompile_advice`.

Each program is recorded by the hooks, and its causes get their fixes. The settings of the first are applied, and, apart
from that, the change by hand that they describe. Recompiles are counted before and after, on the eager backend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import describe_machine, scratch_folder
from compileboard.collectors.fixes.fix import SuggestedFix
from compileboard.collectors.fixes.recompile_fixes import RECOMPILE_FIXES
from tests.integration.fixes.recording import record_causes
from tests.integration.fixes.running import Outcome, is_equal, run_text
from tests.programs.user_recompiles import USER_PROGRAMS

VERDICTS = ("none left", "fewer", "no effect", "crash", "other result", "nothing to do, and says so")
NOTHING = "nothing to do, and says so"


def judge(before: Outcome, after: Outcome, eager: Outcome) -> str:
    """Return what following a piece of advice came to."""
    if after.error:
        return "crash"
    if not is_equal(after.result, eager.result):
        return "other result"
    if len(after.recompiles) >= len(before.recompiles):
        return "no effect"
    return "fewer" if after.recompiles else "none left"


def judge_program(name: str, text: str, by_hand: str | None, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (way, verdict) of each way to follow a program's advice."""
    folder.mkdir()
    before, eager = run_text(text, folder), run_text(text, folder, "eager")
    causes = [cause for cause in record_causes(text, folder / "recorded") if cause.kind == "recompile"]
    first: list[SuggestedFix] = [cause.fixes[0] for cause in causes if cause.fixes]
    settings = tuple(dict.fromkeys(setting for suggested in first for setting in suggested.settings))
    if len(first) < len(causes):
        yield "no advice", "no effect"
    if settings:
        yield "settings", judge(before, run_text(text, folder, settings=settings), eager)
    if by_hand is not None:
        yield "by hand", judge(before, run_text(by_hand, folder), eager)
    elif not settings:
        is_stated = all(suggested.fix.after is None for suggested in first)
        yield "by hand", NOTHING if is_stated else "no effect"


def main() -> None:
    """Print the table."""
    programs = [("catalogue", fix.id, fix.before, fix.after) for fix in RECOMPILE_FIXES]
    programs += [("users' programs", user.name, user.text, user.followed) for user in USER_PROGRAMS]
    counts: dict[tuple[str, str], Counter[str]] = {}
    failed = []
    with scratch_folder() as folder:
        for group, name, text, by_hand in programs:
            for way, verdict in judge_program(name, text, by_hand, Path(folder) / f"{group[0]}-{name}"):
                counts.setdefault((group, way), Counter())[verdict] += 1
                if verdict not in ("none left", NOTHING):
                    failed.append(f"{name}, {way}: {verdict}")
    print("| advice, followed literally | programs | " + " | ".join(VERDICTS) + " |")
    print("|---" * (len(VERDICTS) + 2) + "|")
    for (group, way), verdicts in counts.items():
        cells = [f"{group}, {way}", str(verdicts.total()), *(str(verdicts[verdict]) for verdict in VERDICTS)]
        print("| " + " | ".join(cells) + " |")
    print("\n" + "\n".join(failed) + f"\n\nMachine: {describe_machine()}.")


if __name__ == "__main__":
    main()
