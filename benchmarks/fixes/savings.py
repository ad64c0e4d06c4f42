"""Compare what a fix is said to save with what it saves.

    python -m benchmarks.fixes.savings [--backend inductor] [--repeats 3] [NAME …]

Each program is recorded as it is and with the fix in turns, in fresh processes whose caches hold
nothing of it. Where the fix is advice, the first one of the first cause is applied to the letter;
the others are made by hand. Shares are of the compile time, by the clock, so the machine has to be
quiet. What a process pays once, whichever function is compiled first, varies by more than a fix
saves: a function of no program pays it, and is left out on both sides, but of programs about that.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import ROOT, Row, print_table
from benchmarks.fixes.slow_programs import PROGRAMS
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.fixes.fix import SuggestedFix, list_fixes
from compileboard.collectors.fixes.savings import share_clock
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.run_causes import load_causes, load_recorded_run
from tests.integration.fixes.following import apply_fixes
from tests.integration.fixes.recording import record_causes

TRIED = ROOT / "tests" / "programs" / "tried"
WITHIN = 0.25
MIN_SHARE = 0.05  # of the compile time; less is noise
_FIRST = (
    "torch.compile(lambda x: (x.sin() @ x).sum())(torch.ones(8, 8, requires_grad=True)).backward()"
)


@dataclass(frozen=True)
class Program:
    name: str
    text: str
    fixed: str | None = None  # by hand; the first advice is followed where there is none
    has_empty_caches: bool = False
    is_first: bool = False  # its own functions are the first that its process compiles


@dataclass(frozen=True)
class Recorded:
    causes: list[Cause]
    clock_us: float


class Workshop:
    """A folder with a database and the caches that each run begins with."""

    def __init__(self, folder: Path, backend: str) -> None:
        self.folder, self.backend = folder, backend
        self.caches, self.count = folder / "caches", 0
        self.caches.mkdir()
        self._run("import torch\n\ntorch.compile(lambda x: x + 1)(torch.ones(3))\n", self.caches)

    def record(self, program: Program, text: str) -> Recorded:
        caches = self.folder / "own"
        shutil.rmtree(caches, ignore_errors=True)
        if program.has_empty_caches:
            caches.mkdir()
        else:
            shutil.copytree(self.caches, caches)
        if not program.is_first:  # on the line of the import: edits name lines
            text = text.replace("import torch\n", f"import torch; {_FIRST}\n", 1)
        database = self._run(text, caches)
        with closing(open_reader(database)) as connection:
            (run_id,) = connection.execute("select id from runs").fetchone()
            rows = load_recorded_run(connection, run_id).compiles
            shares = share_clock(rows)
            firsts = {row.process_id: row.key for row in reversed(rows)}
            left_out = set() if program.is_first else set(firsts.values())
            clock_us = sum(
                row.total_us * shares[row.key] for row in rows if row.key not in left_out
            )
            return Recorded(load_causes(connection, run_id), clock_us)

    def _run(self, text: str, caches: Path) -> str:
        self.count += 1
        database, path = self.folder / f"{self.count}.db", self.folder / "program.py"
        if self.backend != "inductor":
            given = f"functools.partial(torch.compile, backend={self.backend!r})"
            line = f"import torch; import functools; torch.compile = {given}"
            text = text.replace("import torch", line, 1)
        path.write_text(text, encoding="utf-8")
        own = {
            "PYTHONPATH": str(ROOT),
            "COMPILEBOARD_HOME": str(self.folder / "home"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches),
            "TRITON_CACHE_DIR": str(caches / "triton"),
            "TORCHINDUCTOR_VEC_ISA_OK": "1",  # else each process loads torch again for each
        }
        words = ("run", "--quiet", "--db", str(database), "--", sys.executable, str(path))
        finished = subprocess.run(
            [sys.executable, "-m", "compileboard.collectors", *words],
            cwd=self.folder,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode:
            raise SystemExit(f"the program failed:\n{text}\n{finished.stderr[-2000:]}")
        return str(database)


def list_programs(names: Sequence[str]) -> Iterator[Program]:
    """Yield those whose names contain one of these; to see if there is advice takes a while."""

    def is_asked(name: str) -> bool:
        return not names or any(part in name for part in names)

    programs = [Program(**program) for program in PROGRAMS]
    for path in sorted(TRIED.glob("[a-z]*.py")):
        fixed = (TRIED / "fixed" / path.name).read_text()
        programs.append(Program(path.stem, path.read_text(), fixed))
    yield from (program for program in programs if is_asked(program.name))
    texts = set()
    for fix in (*list_fixes("graph_break"), *list_fixes("recompile")):
        if not is_asked(f"catalogue: {fix.id}"):
            continue
        if fix.before not in texts and (fix.settings or _find_advice(record_causes(fix.before))):
            texts.add(fix.before)
            yield Program(f"catalogue: {fix.id}", fix.before)


def _find_advice(causes: Sequence[Cause]) -> SuggestedFix | None:
    firsts = [cause.fixes[0] for cause in causes if cause.is_fixable]
    return next((first for first in firsts if first.edits or first.settings), None)


def _predict(causes: Sequence[Cause], followed: SuggestedFix | None) -> int:
    """Sum what is said of the causes that go: all by hand, or those with the same first advice."""
    same = [
        cause
        for cause in causes
        if cause.is_fixable and (followed is None or _is_part(cause.fixes[0], followed))
    ]
    return sum(cause.saved_us or 0 for cause in same)


def _is_part(fix: SuggestedFix, followed: SuggestedFix) -> bool:
    """Whether to follow one advice is to follow another too: it names the same sources or more."""
    own, more = ({*"".join(one.settings).replace("'", ",").split(",")} for one in (fix, followed))
    return fix.edits == followed.edits and own <= more


@dataclass(frozen=True)
class Outcome:
    name: str
    base_us: float
    predicted: float
    measured: float

    @property
    def is_within(self) -> bool:
        measured = max(0.0, self.measured)  # a fix that takes more saves nothing
        largest = max(measured, self.predicted)
        return abs(self.predicted - measured) <= max(WITHIN * largest, MIN_SHARE)

    def row(self) -> Row:
        return Row(
            self.name,
            f"{self.base_us / 1e6:.2f} s",
            f"{self.predicted * self.base_us / 1e6:.2f} s, {self.predicted:.0%}",
            f"{self.measured * self.base_us / 1e6:.2f} s, {self.measured:.0%}",
            "yes" if self.is_within else "no",
        )


def measure(program: Program, shop: Workshop, repeats: int) -> Outcome | None:
    predicted, base, new = [], [], []
    fixed = program.fixed
    for _ in range(repeats):
        before = shop.record(program, program.text)
        followed = _find_advice(before.causes) if program.fixed is None else None
        if program.fixed is None:
            if followed is None:
                return None
            fixed = apply_fixes(program.text, [followed])
        after = shop.record(program, fixed or "")
        predicted.append(_predict(before.causes, followed) / before.clock_us)
        base.append(before.clock_us)
        new.append(after.clock_us)
    measured = 1 - statistics.median(new) / statistics.median(base)
    return Outcome(program.name, statistics.median(base), statistics.median(predicted), measured)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="programs whose names contain one of these; all")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(Path(folder), arguments.backend)
        for program in list_programs(arguments.names):
            outcome = measure(program, shop, arguments.repeats)
            if outcome is not None:
                outcomes.append(outcome)
                print(outcome.row(), file=sys.stderr, flush=True)
    within = sum(outcome.is_within for outcome in outcomes)
    above = [outcome.name for outcome in outcomes if outcome.predicted > 1]
    print_table(
        f"Savings, backend {arguments.backend}, {arguments.repeats} executions a side",
        [outcome.row() for outcome in outcomes],
        f"Within {WITHIN:.0%}, or {MIN_SHARE:.0%} of the compile time: {within} of "
        f"{len(outcomes)}. Above the whole compile time: {', '.join(above) or 'none'}.",
        headings=("program", "compile time", "predicted", "measured", "within"),
    )
    return 0 if within >= 0.8 * len(outcomes) and not above else 1


if __name__ == "__main__":
    sys.exit(main())
