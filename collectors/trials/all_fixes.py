"""Try every fix of a run alone, then those that helped together.

One execution of the unchanged program is the base for all fixes. Counts need one execution; times
need three per side, for which the best set and the unchanged program are executed alternately.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from compileboard.collectors.record.spool import new_run_id
from compileboard.collectors.store.dashboard import TOGETHER, Trial
from compileboard.collectors.trials.comparison import COMPILE_TIME, TrialResult, pick_timed
from compileboard.collectors.trials.execution import Execution
from compileboard.collectors.trials.patches import CannotTry, join_diffs
from compileboard.collectors.trials.trial import Candidate, Executions, Stopped, compare

TIMED_COUNT = 3  # executions a side for times
MIN_EXECUTIONS = 2 * TIMED_COUNT + 1
MAX_EXECUTIONS = 10
Join = Callable[[Sequence[Candidate]], Candidate]


@dataclass
class TriedCandidate:
    candidate: Candidate
    executions: list[Execution] = field(default_factory=list)
    result: TrialResult | None = None

    @property
    def key(self) -> str:
        text = "\0".join((join_diffs(self.candidate.files), *self.candidate.settings))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def is_improved(self) -> bool:
        return self.result is not None and self.result.outcome == "improved"

    @property
    def is_slower(self) -> bool:
        return self.result is not None and self.result.is_slower

    @property
    def saved_s(self) -> float:
        """Return the saved compile time, 0 if it was not measured."""
        verdicts = self.result.verdicts if self.result else ()
        times = (verdict for verdict in verdicts if verdict.metric is COMPILE_TIME)
        return next((verdict.base - verdict.new for verdict in times), 0.0)


class FixTrialRunner:
    """Tries all fixes of a run. `choices` are the fixes of each cause, the preferred one first."""

    def __init__(
        self,
        executions: Executions,
        choices: Sequence[Sequence[Candidate]],
        join: Join,
        max_count: int = MAX_EXECUTIONS,
        repeat_count: int = 1,
    ) -> None:
        self.executions = executions
        self.bases: list[Execution] = []
        self.tried: dict[str, TriedCandidate] = {}
        self.best: TriedCandidate | None = None
        self.stopped: Stopped | None = None
        self.trials: list[Trial] = []
        self._choices = choices
        self._join = join
        self._max_count = max_count
        self._repeat_count = repeat_count

    @property
    def untried(self) -> list[Candidate]:
        """Return the preferred fixes that were not executed."""
        done = {key for key, tried in self.tried.items() if tried.executions}
        firsts = [TriedCandidate(options[0]) for options in self._choices]
        return [tried.candidate for tried in firsts if tried.key not in done]

    @property
    def is_complete(self) -> bool:
        return self.stopped is None and not self.untried

    def measure(self) -> None:
        """Execute the fixes and save the measurements, even if stopped before the end.

        Raises CannotTry or StoreError.
        """
        try:
            self._measure()
        except Stopped as stopped:
            self.stopped = stopped
        except KeyboardInterrupt:
            self.stopped = Stopped("interrupted")
        self._judge()
        self._save()

    def _measure(self) -> None:
        self.bases = self.executions.load()
        for options in self._choices:
            self._run_alone(options[0])
        if self.tried and len(self.bases) < 2:
            self._run_base()  # It shows which output differs without a fix.
        self._judge()
        for options in self._choices:
            self._run_alternatives(options)
        self._fill()
        for tried in self.tried.values():
            if tried.result and tried.result.needs_repeats:
                self._repeat(tried)
        self._judge()
        self.best = self._choose_set()
        if self.best is not None:
            self._repeat(self.best)
            self._judge()

    def _has_room(self, count: int) -> bool:
        """Return whether `count` more executions are within the limit, besides those that measure
        the best set's times.
        """
        bases = TIMED_COUNT - len(self._list_fresh(self.bases))
        return self.executions.count + count + max(0, bases) + TIMED_COUNT <= self._max_count

    def _list_fresh(self, executions: Iterable[Execution]) -> list[Execution]:
        """Return the executions of this call; earlier ones may have run under another load."""
        own = self.executions.started_us
        return [execution for execution in executions if execution.invocation == own]

    def _run_base(self) -> None:
        self.bases.append(self.executions.run(None))

    def _run(self, tried: TriedCandidate) -> None:
        if not self._list_fresh(self.bases):
            self._run_base()
        tried.executions.append(self.executions.run(tried.candidate, tried.key))

    def _run_alone(self, candidate: Candidate) -> None:
        tried = TriedCandidate(candidate)
        if tried.key in self.tried:
            return
        tried.executions = self.executions.load(tried.key)
        if tried.executions or self._has_room(1):
            self.tried[tried.key] = tried
            if not tried.executions:
                self._run(tried)

    def _run_alternatives(self, options: Sequence[Candidate]) -> None:
        for before, candidate in pairwise(options):
            tried = self.tried.get(TriedCandidate(before).key)
            if tried is None or tried.is_improved:
                return
            self._run_alone(candidate)
            self._judge()

    def _count_turns(self, tried: TriedCandidate) -> int:
        return min(map(len, pick_timed(self.bases, tried.executions)))

    def _fill(self) -> None:
        """Execute each fix as often as requested, alternating with the unchanged program."""
        while self._has_room(1):
            alone = self.tried.values()
            short = [tried for tried in alone if self._count_turns(tried) < self._repeat_count]
            if not short:
                return
            fewest = min(len(self._list_fresh(tried.executions)) for tried in short)
            if len(self._list_fresh(self.bases)) <= fewest:
                self._run_base()
            for tried in short:
                if self._has_room(1):
                    self._run(tried)

    def _repeat(self, tried: TriedCandidate) -> None:
        """Execute both sides alternately until there are enough executions to compare times."""
        while self._count_turns(tried) < TIMED_COUNT:
            if len(self._list_fresh(tried.executions)) < TIMED_COUNT:
                if tried is not self.best and not self._has_room(1):
                    return
                self._run(tried)
            if len(self._list_fresh(self.bases)) < TIMED_COUNT:
                self._run_base()

    def _judge(self) -> None:
        for tried in self._list_tried():
            if tried.executions:
                tried.result = compare(self.bases, tried.executions, tried.candidate)

    def _list_tried(self) -> list[TriedCandidate]:
        alone = list(self.tried.values())
        return alone if self.best is None or self.best in alone else [*alone, self.best]

    def _choose_set(self) -> TriedCandidate | None:
        """Combine the fixes that helped alone, the largest saving first. A fix that changes the
        same lines as an earlier one is left out, and so is one that takes longer.
        """
        alone = self.tried.values()
        improved = [tried for tried in alone if tried.is_improved and not tried.is_slower]
        members: list[TriedCandidate] = []
        joined: Candidate | None = None
        for tried in sorted(improved, key=lambda tried: tried.saved_s, reverse=True):
            with suppress(CannotTry):
                joined = self._join([*(member.candidate for member in members), tried.candidate])
                members.append(tried)
        if len(members) < 2 or joined is None:
            return members[0] if members else None
        both = TriedCandidate(joined)
        if both.key in self.tried:  # one fix may contain the others
            return self.tried[both.key]
        both.executions = self.executions.load(both.key)
        return both

    def list_ordered(self) -> list[TriedCandidate]:
        """Return the combined set, then each fix: those that helped first, by saving."""
        alone = [tried for tried in self._list_tried() if tried.result and tried is not self.best]
        alone.sort(key=lambda tried: (not tried.is_improved, tried.is_slower, -tried.saved_s))
        return [*([self.best] if self.best and self.best.result else []), *alone]

    def _save(self) -> None:
        is_sure = len(self.bases) > 1
        for tried in self.list_ordered():
            result = tried.result
            if result is None or (not is_sure and not result.output.is_equal):
                continue  # it may differ by itself
            is_set = tried.key not in self.tried
            for fingerprint in [None] if is_set else tried.candidate.fingerprints:
                self.trials.append(
                    self.executions.make_trial(
                        tried.candidate,
                        (self.bases, tried.executions),
                        result,
                        id=self._name_trial(tried.key, fingerprint),
                        fingerprint=fingerprint,
                        more={TOGETHER: list(tried.candidate.fingerprints)} if is_set else None,
                    )
                )
        self.executions.save(self.trials)

    def list_earlier(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return those of a run's `trials` that an earlier call of this session saved, and that
        this call left alone: a fix that did not help is no longer suggested.
        """
        named = {path.read_text(encoding="utf-8") for path in self.executions.folder.glob("*.id")}
        named -= {trial.id for trial in self.trials}
        return [trial for trial in trials if trial.id in named]

    def _name_trial(self, key: str, fingerprint: str | None) -> str:
        """Return the trial's id, which stays the same when an interrupted call is continued."""
        path = self.executions.folder / f"{key}-{fingerprint or TOGETHER}.id"
        if not path.exists():
            path.write_text(new_run_id(), encoding="utf-8")
        return path.read_text(encoding="utf-8")


def find_session(root: Path, command: str, files: Iterable[Path]) -> Path:
    """Return the folder that keeps a program's executions until all fixes are tried. Its name
    depends on the contents of the program's files.
    """
    digest = hashlib.sha256(command.encode())
    for path in sorted(files):
        with suppress(OSError):
            digest.update(f"{path}\0".encode() + path.read_bytes())
    return root / digest.hexdigest()[:16]
