"""`bench --verify` runs a model again with its fixes, as `try --all` does a program."""

from __future__ import annotations

import pytest

from tests.tools.observed import Workplace

pytestmark = [pytest.mark.torch, pytest.mark.nightly, pytest.mark.timeout(900)]

NETS = """
    import compileboard
    import torch

    class Scaled(torch.nn.Module):
        def forward(self, x):
            largest = x.abs().max().item()
            return x / largest

    @compileboard.bench.model
    def scaled(batch_size):
        return Scaled(), [torch.randn(batch_size, 16)]

    @compileboard.bench.model
    def plain(batch_size):
        return torch.nn.Linear(16, 4), [torch.randn(batch_size, 16)]
"""


def test_fixes_of_a_model_are_tried_in_a_process_like_its_own(workplace: Workplace) -> None:
    nets = workplace.write(NETS, "nets.py")
    words = ("--only", f"path:{nets}", "--backend", "eager", "--quick", "--verify")
    done = workplace.collect("bench", "--db", workplace.database, *words, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "local/scaled/performance:\n" in done.stdout
    assert "local/plain/performance:\n" not in done.stdout
    (trial,) = workplace.rows("select run_id, fix_id, outcome, summary from trials")
    (run,) = workplace.rows("select id from runs where source = 'bench'")
    assert (trial["run_id"], trial["outcome"]) == (run["id"], "improved")
    assert trial["summary"].startswith("2 breaks → 0, recompiles 0 → 0, output equal")
    later = workplace.collect(
        "try", "--db", workplace.database, run["id"], "--patch", "-", input=""
    )
    assert (later.returncode, "a benchmark of many models" in later.stderr) == (2, True)
