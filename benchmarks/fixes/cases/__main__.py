"""Follow the first advice on programs of real code to the letter, and judge what becomes of them.

    python -m benchmarks.fixes.cases [NAME ...] [--show]

Each program is recorded as it is; the first fix of its first cause is applied to its text, and the
program is recorded again. Where that fix takes a person, `advised/NAME.FIX.py` is the program as a
person made it who read that fix: written after the advice was known, and used for no other fix.
Recordings are kept in a folder by the content of the program and of what records it, so that only
what changed is run again.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import ROOT, Row, print_table
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.fixes.fix import SuggestedFix
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.run_causes import load_causes
from tests.integration.fixes.following import apply_fixes
from tests.tools.observed import Workplace

FOLDER = Path(__file__).parent
KEPT = Path(tempfile.gettempdir()) / "compileboard-cases"
SAVE_RESULT = '\n\ntorch.save(globals().get("result"), "result.pt")\n'
NOT_RECORDING = ("fixes", "trials", "cli", "terminal", "repro", "bench", "push", "formats", "logs")
HEADINGS = ("case", "first advice", "breaks, eager, recompiles, limits, compiles", "verdict", "why")
VERDICTS = ("works", "says it is unsure", "no effect", "harms")
SECONDS = 300
_WARNING = re.compile(r"[\w.]+\.py:\d+: (\w*Warning: .*)")
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


@dataclass(frozen=True)
class Case:
    """A program, and what was written down of it before any advice was asked for."""

    name: str
    text: str
    title: str
    right: str
    harm: str

    @classmethod
    def read(cls, path: Path) -> Case:
        head, text = path.read_text(encoding="utf-8").removeprefix('"""').split('"""\n', 1)
        title, _, rest = head.partition("\n\n")
        facts = dict(re.findall(r"^(Reported|Right|Harm):\s(.*?)(?=^\w+:|\Z)", rest, re.M | re.S))
        right, harm = (" ".join(facts[name].split()) for name in ("Right", "Harm"))
        return cls(path.stem, f'"""{title}"""\n{text}', title, right, harm)

    @property
    def is_right_as_it_is(self) -> bool:
        return self.right.startswith("Nothing")


@dataclass(frozen=True)
class Counts:
    graph_break_count: int
    skipped_frame_count: int
    recompile_count: int
    recompile_limit_count: int
    compile_count: int

    @property
    def trouble(self) -> tuple[int, int]:
        """What is wrong because of breaks, and because of recompiles."""
        return (
            self.graph_break_count + self.skipped_frame_count,
            self.recompile_count + self.recompile_limit_count,
        )

    def __str__(self) -> str:
        return ", ".join(map(str, vars(self).values()))


@dataclass(frozen=True)
class Recording:
    """A program that was run while it was observed."""

    folder: Path

    @classmethod
    def make(cls, name: str, text: str) -> Recording:
        """Run a program, or find the recording of the same text."""
        folder = KEPT / hashlib.sha256(f"{text}{_identify_recorder()}".encode()).hexdigest()[:20]
        if not (folder / "exit").exists():
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob("test.db*"):
                left.unlink()
            (folder / f"{name}.py").write_text(text + SAVE_RESULT, encoding="utf-8")
            _run(folder, name)
        return cls(folder)

    def _read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8", errors="replace")

    @property
    def exit(self) -> str:
        return self._read("exit")

    @property
    def failure(self) -> str:
        lines = self._read("stderr").strip().splitlines()
        return lines[-1][:200] if lines else f"exit code {self.exit}"

    @property
    def printed(self) -> list[str]:
        return [_round(line.rstrip()) for line in self._read("stdout").splitlines()]

    @property
    def warnings(self) -> Counter[str]:
        """The program's own, without those of torch about compilation."""
        found = (_WARNING.search(line) for line in self._read("stderr").splitlines())
        texts = [_round(match[1]) for match in found if match]
        return Counter(text for text in texts if "ynamo" not in text and "torch" not in text)

    @property
    def result(self) -> Any:
        path = self.folder / "result.pt"
        return torch.load(path, weights_only=False) if path.exists() else None

    @cached_property
    def counts(self) -> Counts:
        with closing(open_reader(self.folder / "test.db")) as connection:
            names = ", ".join(Counts.__dataclass_fields__)
            row = connection.execute(f"select {names} from run_totals limit 1").fetchone()
        return Counts(**dict(row))

    @cached_property
    def causes(self) -> list[Cause]:
        with closing(open_reader(self.folder / "test.db")) as connection:
            (run_id,) = connection.execute("select id from runs limit 1").fetchone()
            return load_causes(connection, run_id)


def _run(folder: Path, name: str) -> None:
    done = Workplace(folder).run(folder / f"{name}.py", options=("--quiet",), timeout=SECONDS)
    (folder / "stdout").write_text(done.stdout, encoding="utf-8")
    (folder / "stderr").write_text(done.stderr, encoding="utf-8")
    (folder / "exit").write_text(str(done.returncode))


def _identify_recorder() -> str:
    """Return what identifies this torch and the code that records, without that which judges."""
    digest = hashlib.sha256(metadata.version("torch").encode())
    collectors = ROOT / "collectors"
    for path in sorted(collectors.rglob("*.py")):
        if path.relative_to(collectors).parts[0] not in NOT_RECORDING:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _round(line: str) -> str:
    return _NUMBER.sub(lambda number: f"{float(number[0]):.3g}", line)


def list_differences(old: Any, new: Any, path: str = "result") -> Iterator[str]:
    """Yield where two results differ, in type too: a float that became a tensor is one."""
    if type(old) is not type(new):
        yield f"{path} is {type(old).__name__}, now {type(new).__name__}"
    elif isinstance(old, torch.Tensor):
        if old.shape != new.shape or old.dtype != new.dtype:
            yield f"{path} is {old.dtype}{list(old.shape)}, now {new.dtype}{list(new.shape)}"
        elif not torch.allclose(
            old.detach().double(), new.detach().double(), rtol=1e-4, atol=1e-5, equal_nan=True
        ):
            yield f"{path} has other values"
    elif isinstance(old, dict):
        if old.keys() != new.keys():
            yield f"{path} has other keys"
        for key in old.keys() & new.keys():
            yield from list_differences(old[key], new[key], f"{path}[{key!r}]")
    elif isinstance(old, (list, tuple)):
        if len(old) != len(new):
            yield f"{path} has {len(old)} items, now {len(new)}"
        for number, (left, right) in enumerate(zip(old, new)):
            yield from list_differences(left, right, f"{path}[{number}]")
    elif isinstance(old, float):
        if abs(old - new) > 1e-5 + 1e-4 * abs(old) and old == old:
            yield f"{path} is {old:.6g}, now {new:.6g}"
    elif old != new:
        yield f"{path} is {old!r}, now {new!r}"


def list_harms(before: Recording, after: Recording) -> Iterator[str]:
    if after.exit != before.exit:
        yield f"ends with {after.failure}"
    yield from list_differences(before.result, after.result)
    if before.printed != after.printed:
        lost, new = (
            list((Counter(one) - Counter(other)).elements())
            for one, other in (
                (before.printed, after.printed),
                (after.printed, before.printed),
            )
        )
        yield f"lines lost: {lost[:2]}, new: {new[:2]}" if lost or new else "lines in another order"
    if lost := before.warnings - after.warnings:
        yield f"{lost.total()} warnings lost: {next(iter(lost))[:80]}"


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
        return f"{self.fix.fix.id} ({self.how})" if self.fix else f"none: {self.cause.title}"


def take_advice(case: Case, recording: Recording) -> Advice:
    cause = next(iter(recording.causes), None)
    fix = cause.fixes[0] if cause and cause.fixes else None
    if fix is None or not fix.helps:
        return Advice(cause, fix, None, "nothing to do")
    if fix.edits or fix.settings:
        return Advice(cause, fix, apply_fixes(case.text, [fix]), "applied")
    by_hand = FOLDER / "advised" / f"{case.name}.{fix.fix.id}.py"
    return Advice(cause, fix, by_hand.read_text() if by_hand.exists() else None, "by hand")


def judge(case: Case, before: Recording, advice: Advice) -> tuple[str, str, Counts | None]:
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
        return "not judged", f"write advised/{case.name}.{advice.fix.fix.id}.py", None
    after = Recording.make(case.name, advice.text)
    if harm := next(list_harms(before, after), None):
        return "harms", harm, after.counts
    old, new = before.counts, after.counts
    side = 0 if advice.cause.kind == "graph_break" else 1
    if sum(new.trouble) > sum(old.trouble):
        return "harms", "more breaks, eager functions or recompiles", new
    if new.trouble[side] >= old.trouble[side]:
        return "no effect", "", new
    if side and new.compile_count >= old.compile_count:
        if not advice.cause.saved_us:
            return "works", "as many compiles, no saving promised", new
        return "no effect", "as many compiles", new
    return "works", "" if not new.trouble[side] else "some are left", new


def show(case: Case, before: Recording, advice: Advice) -> None:
    """Print what a reader needs to follow the advice, and to judge it."""
    print(f"\n## {case.name}: {case.title}\nRight: {case.right}\nHarm: {case.harm}")
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
    for path in sorted(FOLDER.glob("*_*.py")):
        if path.stem.startswith("__") or (given.names and path.stem not in given.names):
            continue
        case = Case.read(path)
        before = Recording.make(case.name, case.text)
        try:
            advice = take_advice(case, before)
            verdict, why, counts = judge(case, before, advice)
        except (sqlite3.Error, ValueError) as error:
            raise SystemExit(f"{case.name}: {error} ({before.folder})") from error
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
