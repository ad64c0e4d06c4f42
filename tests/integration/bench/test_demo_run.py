"""The demo's history, really measured: two of its versions, of one model."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from examples.demo_history.history import Setup, measure_history
from examples.demo_history.versions import VERSIONS, Edit, read_project
from tests.tools.observed import Workplace

pytestmark = pytest.mark.torch

_, ENCODER, RANKER = read_project()["bench_models.py"].split("@compileboard.bench.model")
FIRST = replace(
    VERSIONS[0], edits=(Edit("bench_models.py", "@compileboard.bench.model" + RANKER, ""),)
)
PRINTS = next(version for version in VERSIONS if "print the largest" in version.subject)
FOUND = """
select runs.git_subject, runs.git_branch, results.status, results.graph_breaks,
  (select count(*) from commits where hash = runs.git_commit)
from runs join results on results.run_id = runs.id
order by runs.id
"""


@pytest.mark.nightly
def test_versions_are_runs_of_their_own_commits(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPILEBOARD_HOME", str(workplace.home))
    setup, lines = Setup(str(workplace.database), "cpu", "eager"), []
    assert measure_history(setup, lines.append, versions=[FIRST, PRINTS]) == 2
    with closing(sqlite3.connect(workplace.database)) as connection:
        first, second = connection.execute(FOUND).fetchall()
    assert first == (FIRST.subject, "main", "measured", 0, 1)
    assert second[:3] == (PRINTS.subject, "main", "measured") and second[3] > 0 and second[4] == 1
    assert "[2/2]" in lines[1] and "graph breaks" in lines[1]
    assert measure_history(setup, lines.append, versions=[FIRST, PRINTS]) == 0, (
        "it is there already"
    )
