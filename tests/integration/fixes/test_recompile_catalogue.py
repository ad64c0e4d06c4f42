"""Every fix of a recompile is run: before recompiles for its category, after does not, and the result is the same."""

import pytest

from compileboard.collectors.contract.categories import CATEGORIES
from compileboard.collectors.fixes.fix import Fix
from compileboard.collectors.fixes.recompile_fixes import RECOMPILE_FIXES
from tests.integration.fixes.fix_programs import is_same, run_program

pytest.importorskip("torch")
pytestmark = pytest.mark.torch
FIXES = {fix.id: fix for fix in RECOMPILE_FIXES}


@pytest.mark.parametrize("fix", FIXES.values(), ids=FIXES.keys())
def test_before_recompiles_for_the_category_and_after_does_not(fix: Fix) -> None:
    before, eager = run_program(fix.before, name=fix.id), run_program(fix.before, name=fix.id, eager=True)
    assert (before.error, eager.error) == (None, None)
    assert before.recompiles and set(before.categories) <= set(fix.keys), before.recompiles
    assert before.result is not None and is_same(before.result, eager.result)
    if fix.after is None:
        return
    after = run_program(fix.after, name=fix.id)
    assert (after.error, after.recompiles) == (None, [])
    assert {graph_break.gb_id for graph_break in after.graph_breaks} <= {
        graph_break.gb_id for graph_break in before.graph_breaks
    }
    assert is_same(after.result, eager.result)


@pytest.mark.parametrize("fix", [fix for fix in FIXES.values() if fix.settings], ids=lambda fix: fix.id)
def test_settings_alone_are_the_fix(fix: Fix) -> None:
    changed, eager = run_program(fix.before, settings=fix.settings), run_program(fix.before, eager=True)
    assert (changed.error, changed.recompiles) == (None, [])
    assert is_same(changed.result, eager.result)


def test_every_category_has_a_fix() -> None:
    covered = {key for fix in RECOMPILE_FIXES for key in fix.keys}
    assert covered == {category.name for category in CATEGORIES}
    assert len(FIXES) == len(RECOMPILE_FIXES)
