"""Exports of real models: a program is judged, and a refusal names the model's own line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from compileboard.collectors.bench.experiments import export
from compileboard.collectors.bench.plan.settings import BenchSettings
from tests.integration.bench.measuring import DATA, DYNAMIC, FINE, WRONG, Measured, measuring
from tests.integration.bench.test_bench_steps import load
from tests.tools.observed import ROOT

pytestmark = pytest.mark.torch

BRANCHES, NO_KERNEL = (
    f"path:{DATA}/branching.py,class:{name}" for name in ("Branches", "HasNoKernel")
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with measuring(tmp_path_factory.mktemp("measuring")) as measured:
        yield measured


def test_a_program_that_computes_what_eager_does_passes(measured: Measured) -> None:
    plain, strict = measured(FINE, "export"), measured(FINE, "export_strict")
    for outcome in (plain, strict):
        assert (outcome["status"], outcome["accuracy"]) == ("measured", "pass")
        assert outcome["values"]["export_latency"] > 0 and outcome["values"]["output_error"] < 1e-6
        assert outcome["facts"]["export"].pop("first_export_s") > 0
        assert outcome["facts"]["export"] == {"node_count": 6}
        assert outcome["repeats"]["export_s"] == [outcome["values"]["export_latency"]]  # quick
    assert strict["values"]["unique_graphs"] == 1 and "unique_graphs" not in plain["values"]


@pytest.mark.nightly
def test_a_program_that_computes_something_else_does_not(measured: Measured) -> None:
    outcome = measured(WRONG, "export_strict")
    assert (outcome["status"], outcome["reason"]) == ("failed", "fail_accuracy")
    assert outcome["values"]["output_error"] > 0.5


class NotesGradMode(torch.nn.Linear):
    """A layer that notes whether gradients are on; copies of it note in one list."""

    noted: ClassVar[list[bool]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.noted.append(torch.is_grad_enabled())
        return super().forward(x)


@pytest.mark.nightly
def test_later_exports_have_the_grad_mode_of_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(NotesGradMode, "noted", [])
    bench = load(BenchSettings(backend="export"), NotesGradMode(4, 4), monkeypatch, tmp_path)
    outcome = export.run(bench)
    assert outcome.accuracy == "pass" and len(outcome.repeats["export_s"]) == 3
    assert set(NotesGradMode.noted) == {False}, "the mode of inference"


def test_a_line_of_the_hooks_is_no_line_of_the_model() -> None:
    from compileboard.collectors.bench.experiments.export import is_of_user

    hooks, model = (
        ROOT / "collectors" / "observe" / "tap.py",
        ROOT / "collectors" / "bench" / "suites" / "builtin",
    )
    assert not is_of_user(str(hooks)) and not is_of_user(
        torch.__file__
    )  # the hooks are loaded by another path
    assert is_of_user(str(model / "mlp.py")) and is_of_user("/home/me/net.py")


@pytest.mark.parametrize("experiment", ["export", "export_strict"])
def test_a_branch_is_named_by_its_line_and_an_unsound_draft_is_no_pass(
    measured: Measured, experiment: str
) -> None:
    outcome = measured(BRANCHES, experiment)
    assert (outcome["status"], outcome["reason"], outcome["accuracy"]) == (
        "failed",
        "fail_to_run",
        "fail_to_run",
    )
    export = outcome["facts"]["export"]
    assert (export["stage"], export["line"], export["operator"]) == (
        "export",
        "branching.py:14",
        None,
    )
    assert export["source"] == "if y.mean() > 0:"
    [failure] = export["draft"]["failures"]
    assert not export["draft"]["is_sound"] and export["draft"]["seconds"] > 0
    assert (failure["kind"], failure["line"]) == ("DATA_DEPENDENT_ERROR", "branching.py:14")


def test_an_operator_without_a_kernel_is_named(measured: Measured) -> None:
    export = measured(NO_KERNEL, "export")["facts"]["export"]
    assert (export["operator"], export["line"]) == ("branching::no_kernel", "branching.py:29")
    assert (
        export["draft"]["failures"][0]["message"]
        == "branching.no_kernel.default has no fake kernel"
    )


@pytest.mark.nightly
def test_a_dynamic_batch_stays_dynamic(measured: Measured) -> None:
    outcome = measured(FINE, "export", **DYNAMIC)
    assert (
        outcome["accuracy"] == "pass" and outcome["facts"]["export"]["dynamic_dimension_count"] == 1
    )


def test_a_package_is_judged_timed_and_tried_with_another_batch(measured: Measured) -> None:
    outcome = measured(FINE, "aot_inductor")
    assert (outcome["status"], outcome["accuracy"]) == ("measured", "pass")
    values, facts = outcome["values"], outcome["facts"]
    samples = ("eager", "compiled", "load_s", "export_s")
    assert [len(outcome["repeats"][name]) for name in samples] == [3, 3, 1, 1]  # quick
    assert {
        "speedup",
        "abs_latency",
        "eager_latency",
        "eager_peak_mem",
        "dynamo_peak_mem",
    } <= values.keys()
    first_load_s = (
        values["compilation_latency"]
        - facts["export"]["first_export_s"]
        - facts["export"]["compile_s"]
    )
    assert first_load_s > 0 and values["load_latency"] == outcome["repeats"]["load_s"][0] > 0
    assert values["package_bytes"] > 10_000 and values["output_error"] < 1e-5
    check = facts["batch_check"]
    assert check["batch_size"] == 5 and check["unchecked"]["status"] == "wrong"
    assert (
        check["checked"]["status"] == "refused"
        and "expected: 4, but got: 5" in check["checked"]["message"]
    )


@pytest.mark.nightly
def test_a_package_of_a_model_that_does_not_export_fails_as_the_export_does(
    measured: Measured,
) -> None:
    outcome = measured(BRANCHES, "aot_inductor")
    export = outcome["facts"]["export"]
    assert (outcome["reason"], export["stage"], export["line"]) == (
        "fail_to_run",
        "export",
        "branching.py:14",
    )
    assert not export["draft"]["is_sound"] and "speedup" not in outcome["values"]
