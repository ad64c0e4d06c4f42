"""What is suggested for a recorded break is followed to the letter: no program ends, and breaks are
gone or fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch")
from compileboard.collectors.fixes.break_fixes import suggest_break_fixes
from compileboard.collectors.fixes.fix import BreakFacts, SuggestedFix, find_fix, list_fixes
from compileboard.collectors.observe.fallbacks import torch_release
from tests.integration.fixes.following import follow
from tests.integration.fixes.recording import record_causes
from tests.integration.fixes.running import is_equal, list_break_facts, run_program, run_text
from tests.programs.advised.edits import edit_program
from tests.programs.advised.surveyed_breaks import list_surveyed
from tests.tools.observed import PROGRAMS

pytestmark = pytest.mark.torch
WORKING = ("fewer", "none left")
ENDS = "GB4315"  # the program ends with it: no break is recorded
# Chosen by whose the file is, or by what else is compiled: tests/unit/fixes/test_causes.py, below.
OF_A_RUN = {"library_call", "library_outside", "library_parts", "ddp_compiled_inside"}
PAIRS = {
    fix.before: fix.id
    for fix in reversed(list_fixes("graph_break"))
    if fix.gone_in is None or torch_release() < fix.gone_in
}
USERS = sorted(
    path for path in (PROGRAMS / "graph_breaks").glob("*.py") if path.name != "__init__.py"
)
TAKE_A_PERSON = {"early_exit", "layer_drop", "sampling", "timed_model"}

LAYER_DROP_BY_HAND = (
    ("            x = layer(x).relu()\n", "            x = run(layer, x)\n"),
    (
        "class Stack",
        "@torch.compile\ndef run(layer, x):\n    return layer(x).relu()\n\n\nclass Stack",
    ),
    ("model = torch.compile(Stack())", "model = Stack()"),
)


def record_breaks(text: str, folder: Path) -> list[BreakFacts]:
    """Record a program by our hooks, and return the facts of its breaks."""
    path = folder / "recorded.py"
    path.write_text(text, encoding="utf-8")
    return list_break_facts(run_program(path), path)


def check_each(text: str, suggestions: Sequence[SuggestedFix]) -> None:
    """Follow each fix that needs no person alone."""
    for suggested in suggestions:
        if suggested.edits or suggested.settings:
            followed = follow(text, [suggested])
            assert followed.verdict in WORKING, (suggested.title, followed)


@pytest.mark.sampled(23)
@pytest.mark.parametrize("text", [pytest.param(text, id=fix_id) for text, fix_id in PAIRS.items()])
def test_each_pairs_own_break_gets_its_fix_and_following_it_works(
    text: str, tmp_path: Path
) -> None:
    suggestions = [
        suggested
        for facts in record_breaks(text, tmp_path)
        for suggested in suggest_break_fixes(facts)
    ]
    expected = {
        fix.id for fix in list_fixes("graph_break") if fix.before == text and ENDS not in fix.keys
    } - OF_A_RUN
    assert expected <= {suggested.fix.id for suggested in suggestions}
    check_each(text, suggestions)


@pytest.mark.sampled(23)
@pytest.mark.parametrize(
    ("gb_id", "text"), [pytest.param(*pair, id=name) for name, pair in list_surveyed().items()]
)
def test_the_programs_of_the_survey(gb_id: str, text: str, tmp_path: Path) -> None:
    recorded = record_breaks(text, tmp_path)
    assert [facts.gb_id for facts in recorded[:1]] == ([] if gb_id == ENDS else [gb_id])
    assert all(suggest_break_fixes(facts) for facts in recorded[:1])
    check_each(text, [suggested for facts in recorded for suggested in suggest_break_fixes(facts)])


@pytest.mark.sampled(11)
@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in USERS])
def test_a_program_that_no_fix_was_written_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    causes = [cause for cause in record_causes(text) if cause.kind == "graph_break"]
    assert causes and all(cause.fixes for cause in causes)
    check_each(text, [suggested for cause in causes for suggested in cause.fixes])
    firsts = [
        next((fix for fix in cause.fixes if fix.edits or fix.settings), None) for cause in causes
    ]
    together = [suggested for suggested in firsts if suggested]
    assert (together == []) is (path.stem in TAKE_A_PERSON)
    if together:
        assert follow(text, together).verdict in WORKING


def test_a_random_branch_in_a_loop_is_decided_in_the_caller(tmp_path: Path) -> None:
    text = (PROGRAMS / "graph_breaks" / "layer_drop.py").read_text(encoding="utf-8")
    assert [suggest_break_fixes(facts)[0].fix.id for facts in record_breaks(text, tmp_path)] == [
        "loop_body"
    ]
    followed = run_text(edit_program(text, *LAYER_DROP_BY_HAND))
    assert (followed.error, followed.trouble_count, followed.graph_count > 0) == (None, 0, True)
    assert is_equal(followed.result, run_text(text, "eager").result)


@pytest.mark.parametrize(
    ("name", "is_eager"), [("ddp_own_code", False), ("ddp_compiled_inside", True)]
)
def test_a_model_in_ddp_runs_eagerly_only_if_no_graph_has_an_operation(
    name: str, is_eager: bool
) -> None:
    (cause,) = record_causes(find_fix("graph_break", name).before)
    assert (cause.fixes[0].fix.id, cause.is_eager) == (name, is_eager)
    assert not cause.saved_us  # compiling the model takes more than it saves
    assert cause.is_expected is not is_eager
