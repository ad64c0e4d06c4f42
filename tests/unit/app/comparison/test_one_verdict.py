"""Two runs have the same count and words on every page, in every report and in the terminal."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.cli.main import main
from compileboard.app.reports.markdown import prose
from compileboard.collectors.bench.report.summary import compare, summarize
from compileboard.collectors.bench.worker.statistics import compute_speedup
from compileboard.collectors.contract.events import BenchMeasured
from tests.unit.app.benched import ACCURACY, DAY_US, add_results, measure
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.seed import START_US

MODELS = {
    "Resnet18": (2.03, 1.92, 8.2),
    "Bert4": (2.48, 1.41, 12.2),
    "GPT2x4": (3.45, 2.2, 13.9),
    "Mlp": (4.0, 3.2, 2.4),
}
Results = Sequence[BenchMeasured]


def bench(
    seed: int,
    slower: Mapping[str, float] | None = None,
    *,
    samples: int = 3,
    compiled: Mapping[str, float] | None = None,
    eager: float = 1.0,
) -> list[BenchMeasured]:
    """Measure the models as bench does: repeats that scatter by 1%, cold compiles by 2%."""
    chance = random.Random(seed)
    results = []
    for model, (eager_ms, compiled_ms, cold_s) in MODELS.items():
        cold_s *= (slower or {}).get(model, 1.0)
        compiled_ms *= (compiled or {}).get(model, 1.0)
        repeats = {
            "eager": [eager * eager_ms * chance.lognormvariate(0, 0.01) for _ in range(30)],
            "compiled": [compiled_ms * chance.lognormvariate(0, 0.01) for _ in range(30)],
            "cold_compile_s": [cold_s * chance.lognormvariate(0, 0.02) for _ in range(samples)],
        }
        values = {
            **compute_speedup(repeats["eager"], repeats["compiled"]),
            "eager_latency": median(repeats["eager"]),
            "abs_latency": median(repeats["compiled"]),
            "compilation_latency": median(repeats["cold_compile_s"]),
            "graph_breaks": 0.0,
            "unique_graphs": 1.0,
        }
        results.append(
            measure(model=model, values=values, repeats=repeats, task=f"{model}-performance")
        )
    return results


@dataclass(frozen=True)
class Verdicts:
    """What each place says of base and new."""

    overview: str
    api: dict[str, Any]
    page: str
    markdown: str
    html: str
    check: dict[str, Any]
    check_code: int
    bench: str

    def counts(self) -> set[tuple[int, int]]:
        """Return how many models each place calls worse and better, over all metrics."""
        matches = re.findall(r"(\d+) worse, (\d+) better", self.bench)
        assert len(matches) == 1, matches
        self.check_sentence()
        ours = self.check["model_counts"]
        words = [
            {metric["verdict"] for metric in model["metrics"].values()}
            for model in self.api["models"]
        ]
        of_api = (
            sum("worse" in word for word in words),
            sum("better" in word and "worse" not in word for word in words),
        )
        return {
            *((int(a), int(b)) for a, b in matches),
            (ours["worse"] + ours["both"], ours["better"]),
            of_api,
        }

    def check_sentence(self) -> None:
        """Assert that all say one sentence, and that nothing is worse where `check` passes."""
        summary = self.api["summary"]
        assert all(
            prose(summary["sentence"]) in text or summary["sentence"] in text
            for text in (self.page, self.html)
        )
        assert prose(summary["sentence"], 1000) in self.markdown
        assert summary["sentence"].startswith(self.check["changes"])
        if summary["tone"] == "bad":
            assert self.check_code == 1

    def words(self, metric: str, rule: str) -> dict[str, str]:
        """Return the verdict of each model as the API has it, after looking that `check` says the
        same.
        """
        api = {model["model"]: model["metrics"][metric]["verdict"] for model in self.api["models"]}
        (rule_report,) = [
            other_rule for other_rule in self.check["rules"] if other_rule["name"] == rule
        ]
        check = {verdict["name"]: verdict["verdict"] for verdict in rule_report["verdicts"]}
        known = {
            "worse": "SLOWER",
            "better": "FASTER",
            "single": "FEW_SAMPLES",
            "eager": "EAGER_MOVED",
            "wrong": "WRONG_ANSWER",
        }
        for model, word in api.items():
            assert (
                check[model] == known[word] if word in known else check[model] in ("PASS", "NOISE")
            )
        return api

    def total(self, metric: str) -> tuple[str, dict[str, int]]:
        (metric_total,) = [
            other_metric for other_metric in self.api["metrics"] if other_metric["metric"] == metric
        ]
        return metric_total["verdict"], metric_total["verdicts"]

    def headline(self, name: str) -> str:
        """Return what the overview says of the change of a number."""
        tile = self.overview[self.overview.index(f"metric={name}&") :]
        (text,) = re.findall(
            r'<dd class="glance__change[^"]*">(.*?)</dd>', tile[: tile.index("</div>")], re.S
        )
        return text


@pytest.fixture
def say(
    client: FlaskClient,
    store: sqlite3.Connection,
    database: Path,
    capsys: pytest.CaptureFixture[str],
) -> Any:
    def read(base: Results, new: Results) -> Verdicts:
        add_results(store, "BASE", *base, started_us=START_US)
        add_results(store, "NEW", *new, started_us=START_US + DAY_US)
        code = main(
            ["check", "--db", str(database), "--run", "NEW", "--baseline", "BASE", "--json", "-"]
        )
        sides = "base=BASE&new=NEW"
        return Verdicts(
            overview=unescape(client.get("/").text),
            api=client.get(f"/api/v1/compare?{sides}").json["data"],
            page=unescape(client.get(f"/compare?{sides}").text),
            markdown=client.get(f"/compare/report.md?{sides}").text,
            html=unescape(client.get(f"/compare/report.html?{sides}").text.split("<main")[1]),
            check=json.loads(capsys.readouterr().out),
            check_code=code,
            bench=compare(base, new),
        )

    return read


@on_both_engines
def test_what_is_worse_is_worse_everywhere(say: Any) -> None:
    answers = say(bench(1), bench(2, {"Bert4": 2.4, "GPT2x4": 2.1}))
    assert answers.counts() == {(2, 0)}
    words = answers.words("compilation_latency_s", "compile-time")
    assert words == {"Bert4": "worse", "GPT2x4": "worse", "Mlp": "noise", "Resnet18": "noise"}
    assert answers.total("compilation_latency_s") == ("worse", {"worse": 2, "noise": 2})
    assert answers.headline("compilation_latency_s").startswith("▲")
    assert answers.check_code == 1 and answers.check["headline"].startswith("FAIL: 2 verdicts")
    assert answers.bench.count("compile time worse (3 samples a side, ±") == 2
    assert (
        answers.markdown.count("| worse |") == 2
        and answers.markdown.count("| 3 samples a side, ±") == 2
    )


@on_both_engines
def test_what_was_measured_once_is_judged_nowhere(say: Any) -> None:
    slower = dict.fromkeys(MODELS, 1.668)
    answers = say(bench(1, samples=1), bench(1, slower, samples=1))
    assert answers.counts() == {(0, 0)}
    assert set(answers.words("compilation_latency_s", "compile-time").values()) == {"single"}
    assert answers.total("compilation_latency_s") == ("single", {"single": 4})
    assert re.search(r"▲ 67% from .*, not judged", answers.headline("compilation_latency_s"))
    assert "glance__change--" not in answers.overview
    assert (answers.check_code, answers.check["headline"].partition(":")[0]) == (0, "PASS")
    assert "result--bad" not in answers.page and "result--bad" not in answers.html
    (rule,) = [rule for rule in answers.check["rules"] if rule["name"] == "compile-time"]
    assert all("one sample each: not judged" in verdict["detail"] for verdict in rule["verdicts"])
    assert {
        model["metrics"]["compilation_latency_s"]["basis"] for model in answers.api["models"]
    } == {"one sample each: not judged"}


@on_both_engines
def test_a_change_that_is_too_small_is_shown_with_the_limit_of_its_metric(say: Any) -> None:
    answers = say(bench(1), bench(1, dict.fromkeys(MODELS, 1.08)))
    assert answers.total("compilation_latency_s")[0] == "negligible"
    for text in (answers.page, answers.html, answers.markdown):
        (label,) = re.findall(r"geomean of 4 models: (within \d+%)", text)
        assert label == "within 10%"


@on_both_engines
def test_what_moved_with_eager_mode_is_red_nowhere(say: Any) -> None:
    answers = say(bench(1), bench(2, eager=0.7))
    assert answers.counts() == {(0, 0)}
    assert set(answers.words("speedup", "speedup").values()) == {"eager"}
    assert answers.total("speedup") == ("eager", {"eager": 4})
    assert answers.headline("geomean_speedup").endswith("not judged")
    assert answers.check_code == 0
    assert answers.bench.count("eager mode moved (30 samples a side, ±") == 4
    assert all(
        model["warning"].startswith("speedup changed because eager mode did")
        for model in answers.api["models"]
    )
    assert all(
        "eager mode got faster (−" in model["metrics"]["speedup"]["detail"]
        for model in answers.api["models"]
    )


def check_answer(model: str, accuracy: str) -> BenchMeasured:
    """Check a model's answer, as the accuracy experiment does."""
    failure = {} if accuracy == "pass" else {"status": "failed", "reason": accuracy}
    return measure(
        **ACCURACY | {"model": model, "accuracy": accuracy, "task": f"{model}-accuracy"} | failure
    )


@on_both_engines
@pytest.mark.parametrize("answers", [("fail_accuracy", "fail_accuracy"), ("fail_accuracy", "pass")])
def test_a_wrong_answer_is_faster_or_slower_nowhere(say: Any, answers: tuple[str, str]) -> None:
    base, new = (
        [*bench(1), check_answer("Mlp", answers[0])],
        bench(2, {"Mlp": 2.0}, compiled={"Mlp": 0.7}),
    )
    answers_of_all = say(base, [*new, check_answer("Mlp", answers[1])])
    for metric, rule in (("speedup", "speedup"), ("compilation_latency_s", "compile-time")):
        assert answers_of_all.words(metric, rule)["Mlp"] == "wrong"
        assert "Mlp" not in {
            model
            for model, word in answers_of_all.words(metric, rule).items()
            if word in ("worse", "better")
        }
        assert answers_of_all.total(metric)[0] not in ("worse", "better")
    fixed = int(answers[1] == "pass")
    assert re.search(rf"\b0 worse\D*{fixed} better", answers_of_all.bench)
    assert [change["kind"] for change in answers_of_all.api["summary"]["models"]] == [
        "better"
    ] * fixed
    assert answers_of_all.check["model_counts"] == {
        "worse": 0,
        "better": fixed,
        "both": 0,
        "neither": 4 - fixed,
    }
    assert "wrong answer (30 samples a side" in answers_of_all.bench
    (wrong,) = [model for model in answers_of_all.api["models"] if model["model"] == "Mlp"]
    assert wrong["metrics"]["graph_breaks"]["verdict"] == "same"  # what is counted is judged
    assert wrong["metrics"]["speedup"]["detail"].startswith("the answer is wrong on base")


@on_both_engines
def test_noise_of_two_runs_of_one_program_is_nothing_anywhere(say: Any) -> None:
    answers = say(bench(1), bench(2))
    assert answers.counts() == {(0, 0)}
    assert answers.check_code == 0
    assert set(answers.words("speedup", "speedup").values()) <= {"noise", "negligible"}
    assert "glance__change--" not in answers.overview


@on_both_engines
def test_a_slower_model_is_worse_in_speedup_and_latency_everywhere(say: Any) -> None:
    answers = say(bench(1), bench(2, compiled={"Mlp": 1.3}))
    assert answers.counts() == {(1, 0)}
    assert answers.words("speedup", "speedup")["Mlp"] == "worse"
    assert answers.total("abs_latency_ms")[1]["worse"] == 1
    (rule,) = [rule for rule in answers.check["rules"] if rule["name"] == "speedup"]
    (slower,) = [verdict for verdict in rule["verdicts"] if verdict["fails"]]
    assert (slower["name"], slower["verdict"]) == ("Mlp", "SLOWER")
    assert "30 samples a side, ±" in slower["detail"]


@on_both_engines
def test_a_baseline_file_is_judged_alike(say: Any) -> None:
    base, new = bench(1), bench(2, compiled={"Mlp": 1.3})
    answers = say(base, new)
    speedups = {result.model: result.values["speedup"] for result in base}
    files = [
        measure(
            model=measurement.model,
            values=measurement.values | {"baseline": speedups[measurement.model]},
            repeats=measurement.repeats,
        )
        for measurement in new
    ]
    (line,) = [line for line in summarize(files).splitlines() if "than the baseline" in line]
    assert line.startswith("worse than the baseline") and "Mlp (" in line
    assert answers.words("speedup", "speedup")["Mlp"] == "worse"


@on_both_engines
def test_rules_that_are_upstreams_say_whose_verdict_it_is(say: Any) -> None:
    base, new = bench(1), bench(2)
    new[0].values["graph_breaks"] = 2.0
    answers = say(base, new)
    (rule,) = [rule for rule in answers.check["rules"] if rule["name"] == "graph-breaks"]
    details = [verdict["detail"] for verdict in rule["verdicts"] if verdict["fails"]]
    assert details and all(
        detail.endswith("; as check_graph_breaks.py decides") for detail in details
    )


@on_both_engines
def test_latest_and_previous_name_the_same_runs_on_the_page_the_api_and_in_check(
    say: Any, client: FlaskClient
) -> None:
    say(bench(1), bench(2))
    json = client.get("/api/v1/compare?base=previous&new=latest").json
    assert json is not None and [json["data"][name]["asked"] for name in ("base", "new")] == [
        "BASE",
        "NEW",
    ]
    assert client.get("/compare?base=previous&new=latest").status_code == 200
    assert client.get("/compare?base=latest&new=previous").status_code == 400
