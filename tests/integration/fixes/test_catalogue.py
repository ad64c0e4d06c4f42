"""Each fix of the catalogue is run: before breaks or recompiles as its file says, after not."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from compileboard.collectors.fixes.fix import Fix, list_fixes
from compileboard.collectors.observe.fallbacks import torch_release
from tests.integration.fixes.following import SILENT
from tests.integration.fixes.running import Outcome, is_equal, run_text

pytestmark = pytest.mark.torch
CONSEQUENCES = {"GB0092"}  # what another break leaves cannot be rebuilt
RAISES = {
    "try_condition": "RuntimeError when making fake tensor call"
}  # the compiled program ends, with GB4315
FIXES = (*list_fixes("graph_break"), *list_fixes("recompile"))


@pytest.mark.sampled(23)
@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_before_has_the_trouble_and_after_has_none(fix: Fix) -> None:
    before, eager = run_text(fix.before), run_text(fix.before, "eager")
    assert eager.error is None
    mode = "fullgraph" if fix.kind == "graph_break" else "compiled"
    changed = [run_text(fix.after, mode)] if fix.after else []
    if fix.gone_in is not None:
        if torch_release() < fix.gone_in:
            pytest.skip("this torch still breaks")
        changed = [run_text(fix.before, mode)]
    elif fix.id in RAISES:
        assert RAISES[fix.id] in str(before.error)
    else:
        causes = list_causes(before, fix)
        assert before.error is None and is_equal(before.result, eager.result)
        assert causes and causes[0] in fix.keys and set(causes) - CONSEQUENCES <= set(fix.keys)
    changed += [run_text(fix.before, mode, fix.settings)] if fix.settings else []
    for after in changed:
        if fix.kind == "recompile" and before.graph_count:
            assert (after.graph_count >= before.graph_count) == (fix.left == "each")
        assert (after.error, list_causes(after, fix)) == (None, [])
        assert fix.kind == "recompile" or (after.skipped_count == 0 and after.graph_count > 0)
        assert after.gb_ids <= before.gb_ids
        assert is_equal(after.result, eager.result), (after.result, eager.result)
        assert after.printed == ("" if fix.id in SILENT else eager.printed)


def list_causes(outcome: Outcome, fix: Fix) -> list[str]:
    if fix.kind == "graph_break":
        return list(outcome.gb_ids)
    return [recompile.guards[0].category for recompile in outcome.recompiles]
