"""Which executions `try --all` makes, and what it concludes from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compileboard.collectors.fixes.fix import LineEdit
from compileboard.collectors.record.program import ProgramExit
from compileboard.collectors.trials.all_fixes import FixTrialRunner, TriedCandidate
from compileboard.collectors.trials.candidates import check_apart
from compileboard.collectors.trials.execution import Counts, Execution
from compileboard.collectors.trials.patches import CannotTry
from compileboard.collectors.trials.trial import Candidate, Stopped, run_trial

COUNTS = Counts(9, 4, 4, 0, 0, 8_000_000, None)


class Saved(tuple):
    id = ""


class Program:
    """Stand in for `Executions`: each setting saves what the test says; nothing is run."""

    def __init__(self, folder, effects, stops_at=None, random_lines=False):
        self.folder, self.effects, self.stops_at = folder, effects, stops_at
        self.random_lines = random_lines
        self.order, self.saved, self.count, self.started_us = [], [], 0, 1
        self.made, self.compile_us = {}, COUNTS.compile_us

    def continue_with(self, compile_us):
        """Begin another call, while the machine has another load."""
        self.order, self.count, self.stops_at, self.compile_us = [], 0, None, compile_us
        self.started_us += 1

    def load(self, key="base"):
        return list(self.made.get(key, ()))

    def run(self, candidate, key="base"):
        if self.count == self.stops_at:
            raise Stopped("interrupted")
        self.count += 1
        names = candidate.settings if candidate else ()
        self.order.append("+".join(names) or "base")
        made = self.made.setdefault(key, [])
        folder = self.folder / f"{key}-{len(made) + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        counts, lines = replace(COUNTS, compile_us=self.compile_us), ["done"]
        for name in names:
            effect = dict(self.effects[name])
            lines = effect.pop("lines", lines)
            saved = {field: getattr(counts, field) - by for field, by in effect.items()}
            counts = replace(counts, **saved)
        lines = [*lines, f"token {'abcdefghij'[self.count % 10]}"] if self.random_lines else lines
        (folder / "stdout").write_text("\n".join(lines))
        (folder / "stderr").touch()
        notes = [("setting_applied", name) for name in names]
        exit = ProgramExit(0, None)
        execution = Execution("R", folder, exit, counts, [], notes, 1.0, self.started_us)
        made.append(execution)
        return execution

    def make_trial(self, candidate, sides, result, **rest):
        saved = Saved((candidate.title, result.outcome, rest["fingerprint"]))
        saved.id = rest["id"]
        return saved

    def save(self, trials):
        self.saved = list(trials)


def fix(name, number=1):
    return Candidate(name, settings=(name,), numbers=(number,), fingerprints=(f"c{number}",))


def join(candidates):
    names = dict.fromkeys(name for candidate in candidates for name in candidate.settings)
    return Candidate("+".join(names), settings=tuple(names))


def try_all(program, *choices, **options):
    fixes = FixTrialRunner(program, choices, join, **options)
    fixes.measure()
    return fixes


BREAK = {"graph_break_count": 1, "compile_us": 1_000_000}
LARGE = {"graph_break_count": 1, "compile_us": 3_000_000}


def test_one_base_serves_all_fixes_and_the_set_is_measured_in_turns(tmp_path):
    program = Program(tmp_path, {"a": BREAK, "b": LARGE, "c": {}})
    fixes = try_all(program, [fix("a", 1)], [fix("b", 2)], [fix("c", 3)])
    assert program.order == ["base", "a", "b", "c", "base", "b+a", "base", "b+a", "b+a"]
    assert [tried.candidate.title for tried in fixes.list_ordered()] == ["b+a", "b", "a", "c"]
    assert program.saved == [
        ("b+a", "improved", None),
        ("b", "improved", "c2"),
        ("a", "improved", "c1"),
        ("c", "unchanged", "c3"),
    ]
    assert fixes.is_complete


def test_a_fix_that_contains_the_others_is_the_best_set_without_further_executions(tmp_path):
    program = Program(tmp_path, {"a": BREAK, "b": LARGE})
    both = replace(fix("a+b", 2), settings=("a", "b"))
    fixes = try_all(program, [fix("a", 1)], [both])
    assert program.order == ["base", "a", "a+b", "base", "a+b", "base", "a+b"]
    assert [trial[0] for trial in program.saved] == ["a+b", "a"]
    assert fixes.best is not None and fixes.best.candidate is both


def test_five_fixes_take_ten_executions_and_the_smallest_is_left(tmp_path):
    choices = [[fix(name, number)] for number, name in enumerate("abcde", 1)]
    program = Program(tmp_path, dict.fromkeys("abcde", BREAK))
    fixes = try_all(program, *choices)
    assert len(program.order) == 10
    assert [candidate.title for candidate in fixes.untried] == ["e"]
    assert not fixes.is_complete


def test_a_fix_that_loses_a_line_gives_way_to_the_next_of_its_cause(tmp_path):
    program = Program(tmp_path, {"loses": {**LARGE, "lines": []}, "keeps": BREAK})
    fixes = try_all(program, [fix("loses"), fix("keeps")])
    assert program.order == ["base", "loses", "base", "keeps", "keeps", "base", "keeps"]
    assert [tried.candidate.title for tried in fixes.list_ordered()] == ["keeps", "loses"]
    assert program.saved[1] == ("loses", "different", "c1")


def test_lines_that_differ_by_themselves_fail_no_fix(tmp_path):
    program = Program(tmp_path, {"a": BREAK}, random_lines=True)
    assert try_all(program, [fix("a")]).best.is_improved


@pytest.mark.parametrize(("compile_us", "outcome"), [(-2_000_000, "worse"), (10_000, "improved")])
def test_fewer_recompiles_that_take_longer_are_measured_three_times(tmp_path, compile_us, outcome):
    effect = {"recompile_count": 2, "compile_us": compile_us}
    program = Program(tmp_path, {"a": effect})
    fixes = try_all(program, [fix("a")])
    assert (program.order.count("a"), program.order.count("base")) == (3, 3)
    assert program.saved == [("a", outcome, "c1")]
    assert (fixes.best is not None) == (outcome == "improved")


def test_a_fix_that_takes_longer_comes_after_those_that_save_and_is_in_no_set(tmp_path):
    longer = {"graph_break_count": 2, "recompile_count": 1, "compile_us": -1_500_000}
    program = Program(tmp_path, {"a": longer, "b": BREAK, "c": LARGE})
    fixes = try_all(program, [fix("a", 1)], [fix("b", 2)], [fix("c", 3)])
    ordered = fixes.list_ordered()
    assert [tried.candidate.title for tried in ordered] == ["c+b", "c", "b", "a"]
    assert ordered[-1].result.summary.endswith("compile time 19% more in one execution")


def test_what_was_measured_before_an_interruption_is_saved(tmp_path):
    program = Program(tmp_path, {"a": BREAK, "b": {**BREAK, "lines": []}}, stops_at=3)
    fixes = try_all(program, [fix("a", 1)], [fix("b", 2)])
    assert fixes.stopped.is_interrupted
    assert program.saved == [("a", "improved", "c1")]  # b may differ by itself


def test_a_continued_call_compares_times_with_a_base_of_its_own(tmp_path):
    program = Program(tmp_path, {"a": BREAK, "b": LARGE}, stops_at=2)
    choices = [[fix("a", 1)], [fix("b", 2)]]
    stopped = try_all(program, *choices)
    assert stopped.stopped and [left.title for left in stopped.untried] == ["b"]
    program.continue_with(compile_us=80_000_000)
    fixes = try_all(program, *choices)
    assert program.order == ["base", "b", "b+a", "base", "b+a", "base", "b+a"]
    saved_s = {tried.candidate.title: tried.saved_s for tried in fixes.list_ordered()}
    assert saved_s == pytest.approx({"b+a": 4.0, "b": 3.0, "a": 1.0})
    assert [len(fixes.bases), fixes.is_complete] == [4, True]
    program.continue_with(compile_us=1)
    try_all(program, *choices)
    assert program.order == []


def test_a_continued_call_names_the_fixes_that_are_no_longer_suggested(tmp_path):
    program = Program(tmp_path, {"a": {**BREAK, "lines": []}, "b": BREAK, "c": BREAK}, stops_at=4)
    assert try_all(program, [fix("a", 1)], [fix("b", 2)], [fix("c", 3)]).stopped
    assert ("a", "different", "c1") not in program.saved  # it may differ by itself
    program.continue_with(compile_us=8_000_000)
    program.stops_at = 1
    assert try_all(program, [fix("a", 1)], [fix("b", 2)], [fix("c", 3)]).stopped
    stored = program.saved
    assert ("a", "different", "c1") in stored
    program.continue_with(compile_us=8_000_000)
    fixes = try_all(program, [fix("b", 2)], [fix("c", 3)])  # the run's page no longer has a
    assert "a" not in [tried.candidate.title for tried in fixes.list_ordered()]
    assert fixes.list_earlier(stored) == [("a", "different", "c1")]


def test_two_fixes_of_a_line_exclude_each_other():
    check_apart([LineEdit("a.py", 3, 1, ("x",)), LineEdit("a.py", 4, 2, ())])
    with pytest.raises(CannotTry, match=r"line 4 of a\.py"):
        check_apart([LineEdit("a.py", 3, 2, ()), LineEdit("a.py", 4, 1, ("x",))])


def test_a_candidate_is_known_by_what_it_changes():
    assert (
        TriedCandidate(fix("a", 1)).key
        == TriedCandidate(fix("a", 2)).key
        != TriedCandidate(fix("b")).key
    )


@pytest.mark.parametrize("stops_at", [2, 3, None])
def test_a_whole_pair_counts_where_its_repeats_are_interrupted(tmp_path, stops_at):
    longer = {"graph_break_count": 2, "compile_us": -1_500_000}
    program = Program(tmp_path, {"a": longer}, stops_at=stops_at)
    program.print_line, program.save = str, list
    program.make_trial = lambda _candidate, sides, result, **_rest: list(map(len, sides))
    sides, result = run_trial(program, fix("a"), 1)
    assert sides == ([1, 1] if stops_at else [3, 3])
    assert result.outcome == ("improved" if stops_at else "worse")
    assert program.order == ["base", "a", "base", "a", "base", "a"][:stops_at]
