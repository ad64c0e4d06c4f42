"""What is suggested for a recorded break is followed to the letter: no program ends, and breaks are gone or fewer."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from compileboard.collectors.fixes.break_fixes import suggest_break_fixes
from compileboard.collectors.fixes.breaks.catalogue import BREAK_FIXES
from tests.integration.fixes.applying import apply_fix, apply_fixes
from tests.integration.fixes.running import is_equal, list_break_facts, run_program, run_text
from tests.programs.surveyed_breaks import list_surveyed
from tests.tools.observed import PROGRAMS

pytestmark = pytest.mark.torch
SILENT = {"function_pure", "print_removed", "breakpoint_removed"}
PAIRS = {text: fix_id for fix_id, text in ((fix.id, fix.before) for fix in reversed(BREAK_FIXES.values()))}
USERS = sorted(path for path in (PROGRAMS / "graph_breaks").glob("*.py") if path.name != "__init__.py")
NOTHING_TO_APPLY = {"early_exit", "layer_drop", "sampling", "timed_model"}  # they take a person


def follow_each(path: Path, folder: Path) -> int:
    """Apply each suggestion of each break alone, and check what it does; count them."""
    text = path.read_text(encoding="utf-8")
    before, eager = run_program(path), run_program(path, "eager")
    applied = 0
    for facts in list_break_facts(before, path):
        for suggested in suggest_break_fixes(facts):
            if not suggested.edits and not suggested.settings:
                continue
            after = run_text(apply_fix(text, suggested), folder)
            assert after.error is None, (suggested.title, after.error)
            assert after.trouble_count < before.trouble_count, (suggested.title, after.gb_ids)
            assert is_equal(after.result, eager.result), suggested.title
            assert suggested.fix.id in SILENT or after.printed == eager.printed, suggested.title
            applied += 1
    return applied


@pytest.mark.parametrize("text", [pytest.param(text, id=fix_id) for text, fix_id in PAIRS.items()])
def test_each_pairs_own_break_gets_its_fix_and_following_it_removes_the_break(text: str, tmp_path: Path) -> None:
    path = tmp_path / "recorded.py"
    path.write_text(text, encoding="utf-8")
    follow_each(path, tmp_path)
    recorded = list_break_facts(run_program(path), path)
    suggested = {suggestion.fix.id for facts in recorded for suggestion in suggest_break_fixes(facts)}
    expected = {fix.id for fix in BREAK_FIXES.values() if fix.before == text}
    assert expected <= suggested or PAIRS[text] == "try_condition"


@pytest.mark.parametrize(("gb_id", "text"), [pytest.param(*pair, id=name) for name, pair in list_surveyed().items()])
def test_the_programs_of_the_survey(gb_id: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "recorded.py"
    path.write_text(text, encoding="utf-8")
    recorded = list_break_facts(run_program(path), path)
    if gb_id == "GB4315":  # the program ends: no break is recorded
        assert recorded == []
        return
    assert recorded[0].gb_id == gb_id and suggest_break_fixes(recorded[0])
    follow_each(path, tmp_path)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in USERS])
def test_a_program_that_no_fix_was_written_for(path: Path, tmp_path: Path) -> None:
    applied = follow_each(path, tmp_path)
    assert (applied == 0) is (path.stem in NOTHING_TO_APPLY)
    before = run_program(path)
    facts = list_break_facts(before, path)
    assert all(suggest_break_fixes(each) for each in facts if each.gb_id != "GB0092")
    suggested = [[fix for fix in suggest_break_fixes(each) if fix.edits or fix.settings][:1] for each in facts]
    after = run_text(apply_fixes(path.read_text(encoding="utf-8"), list(chain.from_iterable(suggested))), tmp_path)
    assert after.error is None and after.trouble_count <= before.trouble_count - bool(applied)
