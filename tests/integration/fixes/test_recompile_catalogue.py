"""Every fix of a recompile is run: before recompiles for its category, after does not, and the result is the same."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
from compileboard.collectors.contract.categories import CATEGORIES
from compileboard.collectors.fixes.fix import Fix
from compileboard.collectors.fixes.recompile_fixes import RECOMPILE_FIXES
from tests.integration.fixes.running import is_equal, run_text

pytestmark = pytest.mark.torch
FIXES = {fix.id: fix for fix in RECOMPILE_FIXES}


@pytest.mark.parametrize("fix", FIXES.values(), ids=FIXES.keys())
def test_before_recompiles_for_the_category_and_after_does_not(fix: Fix, tmp_path: Path) -> None:
    before, eager = run_text(fix.before, tmp_path), run_text(fix.before, tmp_path, "eager")
    categories = {recompile.guards[0].category for recompile in before.recompiles}
    assert (before.error, eager.error) == (None, None)
    assert categories and categories <= set(fix.keys)
    assert before.result is not None and is_equal(before.result, eager.result)
    if fix.after is not None:
        after = run_text(fix.after, tmp_path)
        assert (after.error, after.recompiles) == (None, [])
        assert after.gb_ids <= before.gb_ids
        assert is_equal(after.result, eager.result)


@pytest.mark.parametrize("fix", [fix for fix in FIXES.values() if fix.settings], ids=lambda fix: fix.id)
def test_settings_alone_are_the_fix(fix: Fix, tmp_path: Path) -> None:
    changed, eager = run_text(fix.before, tmp_path, settings=fix.settings), run_text(fix.before, tmp_path, "eager")
    assert (changed.error, changed.recompiles) == (None, [])
    assert is_equal(changed.result, eager.result)


def test_every_category_has_a_fix() -> None:
    assert {key for fix in RECOMPILE_FIXES for key in fix.keys} == {category.name for category in CATEGORIES}
    assert len(FIXES) == len(RECOMPILE_FIXES)
