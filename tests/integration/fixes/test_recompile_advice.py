"""Advice on recompiles, followed literally: recorded, chosen by cause, applied, counted again."""

import pytest

pytest.importorskip("torch")
from compileboard.collectors.fixes.fix import Fix, list_fixes
from tests.integration.fixes.recording import record_causes
from tests.integration.fixes.running import is_equal, run_text
from tests.programs.advised.user_recompiles import USER_PROGRAMS, UserProgram

pytestmark = pytest.mark.torch
RECOMPILE_FIXES = list_fixes("recompile")
BEFORE = {fix.id: fix.before for fix in RECOMPILE_FIXES} | {
    program.name: program.text for program in USER_PROGRAMS
}
# The size differs first of all before the break as well, and the others have two fixes each.
OTHER_FIRST = {
    "size-in-buckets": "size-of-an-input",
    "size-unbacked": "size-zero-or-one",
    "size-multiple": "size-compared",
    "value-after-a-break": "size-of-an-input",
    "size-after-a-break": "size-of-an-input",
    "variants-that-stay": "int-that-the-code-needs",
    **dict.fromkeys(
        ("counter", "global-number", "int", "layer-index", "module-int"), "dynamic-number"
    ),
}


@pytest.mark.sampled(23)
@pytest.mark.parametrize("name", BEFORE)
def test_settings_of_the_first_fixes_leave_fewer_recompiles(name: str) -> None:
    causes = [cause for cause in record_causes(BEFORE[name]) if cause.kind == "recompile"]
    assert causes and all(cause.fixes for cause in causes)
    settings = tuple(
        dict.fromkeys(setting for cause in causes for setting in cause.fixes[0].settings)
    )
    if not settings:
        return
    before, changed = run_text(BEFORE[name]), run_text(BEFORE[name], settings=settings)
    eager = run_text(BEFORE[name], "eager")
    assert changed.error is None and len(changed.recompiles) < len(before.recompiles)
    assert (
        before.graph_breaks or not changed.recompiles
    )  # those of code after a break are the break's
    assert is_equal(changed.result, eager.result)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fix", RECOMPILE_FIXES, ids=lambda fix: fix.id)
def test_its_own_program_gets_a_fix_first(fix: Fix) -> None:
    causes = [cause for cause in record_causes(fix.before) if cause.kind == "recompile"]
    assert OTHER_FIRST.get(fix.id, fix.id) in [cause.fixes[0].fix.id for cause in causes]


@pytest.mark.sampled(11)
@pytest.mark.parametrize("program", USER_PROGRAMS, ids=lambda program: program.name)
def test_advice_on_a_users_program_followed_by_hand_leaves_none(program: UserProgram) -> None:
    causes = [cause for cause in record_causes(program.text) if cause.kind == "recompile"]
    assert tuple(cause.fixes[0].fix.id for cause in causes) == program.fix_ids
    if program.followed is None:
        assert all(cause.fixes[0].title.startswith("Nothing to fix") for cause in causes)
        return
    followed, eager = run_text(program.followed), run_text(program.text, "eager")
    assert (followed.error, followed.recompiles) == (None, [])
    assert is_equal(followed.result, eager.result)
