"""`show` of a run that has benchmark results."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from compileboard.collectors.cli.listing import list_text
from compileboard.collectors.terminal.run_summary import RunSummary, describe_failure, summarize
from tests.unit.formats.files import RECORDED
from tests.unit.logs.loading import query_value
from tests.unit.logs.test_result_import import HEADING, NAME, run_import, write


def show(database: Path, path: Path) -> RunSummary:
    run_import(database, path)
    summary = summarize(str(database), query_value(database, "select id from runs"))
    assert summary is not None
    return summary


def test_show_says_what_became_of_imported_results(tmp_path: Path) -> None:
    summary = show(tmp_path / "t.db", RECORDED)
    head = dict(summary.headline())
    assert (head["results"], head["graph breaks"], head["compiles"]) == ("6", "10", "not recorded")
    assert sum(outcome.count for outcome in summary.outcomes) == 6
    assert "performance: failed, fail_to_run" in summary.text()


def test_list_and_show_give_a_file_of_results_no_duration_and_no_pid(tmp_path: Path) -> None:
    database, folder = tmp_path / "t.db", tmp_path / "copied"
    shutil.copytree(RECORDED, folder)
    for number, path in enumerate(folder.iterdir()):
        os.utime(path, (1.7e9 + number,) * 2)  # as a checkout writes one after the other
    summary = show(database, folder)
    assert "took" not in summary.text() and "\n\n\n" not in summary.text()
    cells = list_text(str(database), 5).splitlines()[1].split()
    assert cells[-5:] == ["–", "10", "–", "–", "–"]  # compiles, breaks, recompiles, compiling, took
    assert query_value(database, "select count(pid) from processes") == 0


def test_show_gives_the_geomean_of_each_configuration_and_of_how_many_models(
    tmp_path: Path,
) -> None:
    rows = "cuda,a,8,2.000000,2.5\ncuda,b,8,8.000000,2.5\ncuda,c,8,0.000000,0.000000\n"
    summary = show(tmp_path / "t.db", write(tmp_path / "out", NAME, HEADING + rows))
    (line,) = summary.geomeans
    assert (line.text, line.count) == ("4.000×  torchbench training amp cuda inductor", 2)


def test_what_an_operator_raised_comes_first() -> None:
    call = "call_function myops.turn.default(*(FakeTensor(..., size=(2, 4)),), **{})"
    raised = "There was no fake impl registered. Please use `turn.register_fake`."
    message = (
        "RuntimeError when making fake tensor call\n  Explanation: Dynamo failed to run FX node "
        f"with fake tensors: {call}: got RuntimeError('{raised}')\n"
        "  Hint: Your code may result in an error when running in eager.\n\n more"
    )
    assert describe_failure(message) == f"RuntimeError: {raised} In {call}"
    assert describe_failure("this backend\n says no\n\nmore") == "this backend says no"
