"""Programs of reported wrong advice: what is advised first now, and what comes of following it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from tests.integration.fixes.following import apply_fixes, compare
from tests.integration.fixes.recording import record_causes
from tests.programs.advised.reference import ReferenceProgram, list_reference_programs

pytestmark = pytest.mark.torch


@pytest.mark.sampled(11)
@pytest.mark.parametrize("program", list_reference_programs(), ids=lambda program: program.name)
def test_the_first_advice_does_what_it_says_and_no_harm(program: ReferenceProgram) -> None:
    causes = record_causes(program.text)
    firsts = [cause.fixes[0] for cause in causes]
    # The order of causes is by time, which differs from run to run.
    assert sorted(suggested.fix.id for suggested in firsts) == sorted(program.fix_ids)
    ready = [suggested for suggested in firsts if suggested.edits or suggested.settings]
    if not ready and program.followed is None:
        assert all(suggested.fix.is_needless for suggested in firsts)
        return
    changed = program.followed or apply_fixes(program.text, ready)
    assert compare(program.text, changed, "both").verdict in ("fewer", "none left")
