"""Planted failures are minified to the planted operation, in a driver with its own trials."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from compileboard.collectors.repro.findings import (  # noqa: E402
    Minification,
)
from compileboard.collectors.repro.isolation import run_task  # noqa: E402
from compileboard.collectors.repro.loading import load_path  # noqa: E402
from compileboard.collectors.repro.repro import (  # noqa: E402
    NotRunnable,
    Repro,
)
from compileboard.collectors.repro.trials import TrialLimits  # noqa: E402
from tests.integration.repro.planted_repros import make_repros  # noqa: E402
from tests.tools.observed import forking_environ  # noqa: E402

TASK = "compileboard.collectors.repro.minify.task:run"
PLANTED = {
    "backend_refuses_op": "torch.erfinv",
    "relu_compile_error": "aten.relu.default",
    "crash_in_custom_op": "planted.crash.default",
    "wrong_lowering": "aten.atan.default",
    "nan_only_compiled": "aten.tanh.default",
    "wrong_decomposition": "torch.softplus",
    "backward_only": "aten.sign.default",
    "dynamic_only": "aten.constant_pad_nd.default",
    "bf16_only": "aten.erf.default",
    "aliased_mutation": "aten.copy_.default",
}


# Each of the others takes half a minute of inductor and takes the same way: `ALL_PLANTED=1 pytest`
# runs them too.
SHORT = (
    "backend_refuses_op",
    "crash_in_custom_op",
    "wrong_lowering",
    "wrong_decomposition",
    "dynamic_only",
)
QUICK_ONES = ("crash_in_custom_op", "dynamic_only")
TRIED = tuple(PLANTED) if os.environ.get("ALL_PLANTED") else SHORT


@pytest.fixture(scope="module")
def repros(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Repro]:
    planted = make_repros(tmp_path_factory.mktemp("planted") / "repros.pickle", *TRIED)
    return {
        name: replace(repro, manifest=replace(repro.manifest, error_type=None))
        for name, repro in planted.items()
    }


def _minify(
    repro: Repro, timeout: float = 200, preload: Sequence[str] = (), **options: Any
) -> tuple[Minification, dict[str, Any]]:
    body = run_task(
        TASK,
        repro,
        options,
        limits=TrialLimits(timeout),
        preload=preload,
        environment=forking_environ(),
    )
    return Minification.load(body["answer"]), body


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK_ONES else pytest.param(name, marks=pytest.mark.nightly)
        for name in TRIED
    ],
)
def test_a_planted_failure_is_minified_to_its_operation(
    repros: dict[str, Repro], name: str
) -> None:
    answer, body = _minify(repros[name])
    assert (answer.status, answer.operations) == ("minified", (PLANTED[name],))
    assert answer.level == (
        "dynamo" if name in ("backend_refuses_op", "wrong_decomposition") else "aot"
    )
    assert answer.is_confirmed, "its program fails as it stands there"
    assert answer.nodes_before >= 25
    assert "class Repro" in body["program"]


@pytest.mark.nightly
def test_a_search_that_was_ended_goes_on_and_leaves_its_smallest_program(
    repros: dict[str, Repro], tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    repro = repros["backend_refuses_op"]
    answer, _ = _minify(repro, folder=str(folder), max_seconds=0.15)
    finished, _ = _minify(repro, folder=str(folder))
    assert answer.status in ("not_finished", "minified")
    assert finished.status == "minified" and finished.tried_count < 14
    assert load_path(folder / "smallest.py").manifest.node_count == 1
    assert list(folder.glob("queries-*.jsonl"))


def test_another_failure_than_the_recorded_one_is_not_minified(repros: dict[str, Repro]) -> None:
    repro = repros["backend_refuses_op"]
    other = replace(
        repro, manifest=replace(repro.manifest, error_type="KeyError", message="'erfinv'")
    )
    answer, body = _minify(other)
    assert answer.status == "other_failure" and body["program"] is None
    assert answer.sentence() == (
        "captured: KeyError: 'erfinv'; here: NotImplementedError: planted: this backend has no "
        "erfinv."
    )


@pytest.mark.nightly
def test_a_graph_that_reaches_the_limit_could_not_be_run(
    repros: dict[str, Repro], tmp_path: Path
) -> None:
    (tmp_path / "never.py").write_text(
        "import time\n"
        "from torch._inductor.graph import GraphLowering\n"
        "GraphLowering.run = lambda *_: time.sleep(600)\n"
    )
    with pytest.raises(
        NotRunnable,
        match="the whole graph reached the time limit of a trial; --timeout allows more",
    ):
        _minify(repros["wrong_lowering"], timeout=10, preload=[str(tmp_path / "never.py")])
