"""The overview's verdict: the first rule that fits decides, and names what can be found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from compileboard.app.comparison.verdict import VerdictFacts, decide_verdict
from compileboard.app.incidents.model import Incident, IncidentRun

DAY_US = 86_400_000_000
NOW_US = 1_795_305_600_000_000  # 2026-11-22


def make_incident(model: str, title: str, commit: str) -> Incident:
    unused: dict[str, Any] = dict.fromkeys(Incident.__dataclass_fields__)
    first = IncidentRun("R", commit, None, None, 0, None)
    own = {"id": model, "title": title, "state": "open", "models": [model], "first_bad": first}
    return Incident(**unused | own)


RANKER = make_incident("ranker", "ranker: speedup down 54%, graph split in three", "c7ed8b7")
ENCODER = make_incident("encoder", "encoder: compile time up 30%", "b7fb8a3")
FACTS = VerdictFacts(model_count=18, run_count=14, newest_us=NOW_US - DAY_US, now_us=NOW_US)


@pytest.mark.parametrize(
    ("facts", "state", "sentence"),
    [
        (
            {"failing": ["ranker"], "failing_since": "fae4820"},
            "failed",
            "ranker fails since fae4820",
        ),
        ({"failing": ["train.py"], "failure": "was killed"}, "failed", "train.py was killed"),
        ({"failing": ["a", "b"]}, "failed", "2 of 18 models fail"),
        ({"failing": ["b"], "incidents": [RANKER]}, "failed", "1 of 18 models worse, 1 fails"),
        ({"incidents": [RANKER]}, "incidents", "ranker speedup down 54% since c7ed8b7"),
        (
            {"incidents": [RANKER, ENCODER]},
            "incidents",
            "2 incidents open, worst: ranker speedup down 54%",
        ),
        (
            {"incidents": [RANKER, replace(ENCODER, first_bad=RANKER.first_bad)]},
            "incidents",
            "2 of 18 models worse since c7ed8b7",
        ),
        (
            {
                "incidents": [replace(RANKER, state="unconfirmed")],
                "fixes": "4 fixes save up to 3.09 s",
            },
            "unconfirmed",
            "Possible regression in ranker, confirming with the next run",
        ),
        (
            {"fixes": "4 fixes save up to 3.09 s", "newest_us": 1},
            "fixes",
            "4 fixes save up to 3.09 s",
        ),
        ({"newest_us": NOW_US - 8 * DAY_US}, "stale", "No run since 14 Nov"),
        (
            {
                "incidents": [
                    replace(RANKER, state="unconfirmed"),
                    replace(ENCODER, title="Suite s: slower", state="unconfirmed"),
                ]
            },
            "unconfirmed",
            "Possible regression in ranker and suite s, confirming with the next run",
        ),
        ({"run_count": 2}, "first", "2 runs: too few to judge a change"),
        ({"run_count": 1}, "first", "First run: 18 models"),
        ({"run_count": 0, "is_recording": True}, "recording", "Recording the first run"),
        (
            {"run_count": 0, "is_recording": True, "has_others": True},
            "recording",
            "Recording the first run of this configuration",
        ),
        ({}, "good", "No regressions in the last 14 runs"),
    ],
)
def test_the_first_rule_that_fits_decides(
    facts: dict[str, object], state: str, sentence: str
) -> None:
    verdict = decide_verdict(replace(FACTS, **facts))  # type: ignore[arg-type]
    assert (verdict.state, verdict.sentence) == (state, sentence)


def test_an_old_regression_says_how_old_it_is() -> None:
    verdict = decide_verdict(replace(FACTS, incidents=[RANKER], newest_us=NOW_US - 8 * DAY_US))
    assert verdict.context == "1 open incident. 17 models healthy. Newest run 14 Nov."
    assert (verdict.tone, verdict.incident_id) == ("bad", "ranker")
