"""Five small programs in the torch at hand: as much is recorded as torch's own log of them says."""

from __future__ import annotations

import re

import pytest

from tests.integration.test_every_event import names_in
from tests.tools.observed import PROGRAMS, Workplace, torch_release

pytestmark = pytest.mark.torch
FULL = (pytest.mark.nightly, pytest.mark.each_torch)
FIVE = PROGRAMS / "five.py"
RECORDED = """
select compile_count as compiles, graph_break_count as breaks, recompile_count as recompiles
from run_totals
"""


def count_in_log(workplace: Workplace, word: str) -> dict[str, int]:
    """Run a program without us; torch 2.4 and 2.5 log no graph breaks, the program counts them."""
    folder = workplace.folder / "trace"
    done = workplace.plain(FIVE, word, env={"TORCH_TRACE": str(folder)})
    assert done.returncode == 0, done.stderr
    names = names_in(folder)
    (log,) = folder.iterdir()
    compile_ids = re.findall(r'"frame_id": (\d+), "frame_compile_id": (\d+)', log.read_text())
    counted = int(done.stdout.splitlines()[-1])
    # Of a compile that reaches the limit torch 2.5 logs the recompile alone, 2.4 nothing.
    unlogged = int(word == "limit" and torch_release() < (2, 5))
    again = {compile_id for compile_id in compile_ids if compile_id[1] != "0"}
    logs_recompiles = torch_release() >= (2, 5)
    return {
        "compiles": len(set(compile_ids)) + unlogged,
        "breaks": names["artifact:dynamo_graph_break_reason"] or counted,
        "recompiles": names["artifact:recompile_reasons"]
        if logs_recompiles
        else len(again) + unlogged,
    }


@pytest.mark.parametrize("level", ["light", pytest.param("full", marks=FULL)])
@pytest.mark.parametrize("word", ["graph_break", "size", "global_number", "limit", "training"])
def test_as_much_is_recorded_as_torch_logs(workplace: Workplace, word: str, level: str) -> None:
    done = workplace.run(FIVE, word, options=("--level", level))
    assert done.returncode == 0, done.stderr
    (recorded,) = workplace.rows(RECORDED)
    logged = count_in_log(workplace, word)
    assert recorded == logged
    assert workplace.value("select recompile_limit_count from run_totals") == (word == "limit")
