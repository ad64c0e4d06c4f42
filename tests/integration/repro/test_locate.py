"""`analyze` and `bisect` of repros, each in a driver and trials of its own, on planted failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.repro import findings
from compileboard.collectors.repro.isolation import run_task
from compileboard.collectors.repro.repro import Repro
from compileboard.collectors.repro.trials import TrialLimits
from tests.integration.repro.planted_repros import make_repro, make_repros
from tests.tools.observed import forking_environ

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
LOCATE = "compileboard.collectors.repro.locate"
FUSION = "tests.integration.repro.planted_fusion"


def run(target: str, repro: Repro, **options: Any) -> dict[str, Any]:
    return run_task(
        f"{LOCATE}.{target}",
        repro,
        options,
        limits=TrialLimits(150.0),
        environment=forking_environ(),
    )


@pytest.fixture(scope="module")
def repros(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Repro]:
    """Make repros of three planted programs."""
    path = tmp_path_factory.mktemp("planted") / "repros"
    return make_repros(path, "backend_refuses_op", "wrong_decomposition", "dynamic_only")


@pytest.fixture(scope="module")
def fused() -> Repro:
    """Make a repro of a program that is wrong only while its values are not returned."""
    torch = pytest.importorskip("torch")
    from torch.fx.experimental.proxy_tensor import make_fx

    from tests.integration.repro.planted_fusion import program

    x = torch.linspace(-2, 2, 24).reshape(4, 6)
    return make_repro(make_fx(program)(x), [x], preload=(f"{FUSION}:install",))


@pytest.mark.nightly
def test_an_error_comes_from_the_last_operation_of_the_shortest_failing_part(
    repros: dict[str, Repro],
) -> None:
    analysis = findings.Analysis.load(run("analyze_task:analyze", repros["backend_refuses_op"]))
    assert (analysis.status, analysis.operation) == (findings.NAMED, "torch.erfinv")
    assert analysis.notes == ("The first 14 of 26 operations fail, the first 13 pass",)


@pytest.mark.nightly
def test_symbolic_sizes_stay_symbolic_in_a_part_of_the_graph(repros: dict[str, Repro]) -> None:
    analysis = findings.Analysis.load(run("analyze_task:analyze", repros["dynamic_only"]))
    assert (analysis.operation, analysis.cause) == (
        "aten.constant_pad_nd.default",
        findings.BACKEND,
    )
    assert analysis.failure == "NotImplementedError: planted: padding of a dynamic size"


@pytest.mark.nightly
def test_a_decomposition_is_named_by_dynamos_graph_and_by_torchs_bisector(
    repros: dict[str, Repro],
) -> None:
    analysis = findings.Analysis.load(run("analyze_task:analyze", repros["wrong_decomposition"]))
    assert (analysis.operation, analysis.cause) == ("torch.softplus", findings.DECOMPOSITION)
    bisection = findings.Bisection.load(
        run("bisect:bisect", repros["wrong_decomposition"], level="dynamo")
    )
    assert (bisection.subsystem, bisection.operation) == ("decomposition", "aten.softplus.default")


@pytest.mark.nightly
def test_what_is_wrong_only_when_fused_is_named_together(fused: Repro) -> None:
    analysis = findings.Analysis.load(run("analyze_task:analyze", fused))
    assert analysis.status == findings.ONLY_FUSED
    assert analysis.operations == ("aten.atan.default", "aten.mul.Tensor")
    assert {row.verdict for row in analysis.rows} == {findings.RIGHT}


def test_bisect_names_a_pass_and_the_setting_that_helps_and_leaves_the_cache(
    fused: Repro, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "inductor"
    (cache / "bisect").mkdir(parents=True)
    (cache / "bisect" / "precious").write_text("mine")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    few = replace(fused.manifest, preload=(*fused.manifest.preload, f"{FUSION}:try_few_settings"))
    bisection = findings.Bisection.load(
        run("bisect:bisect", replace(fused, manifest=few), settings=True)
    )
    assert (bisection.status, bisection.subsystem) == (findings.NAMED, "post_grad_passes")
    assert bisection.application == "post_grad_custom_post_pass"
    passing = {entry.setting: entry.passes for entry in bisection.settings}
    assert passing == {"max_fusion_size": False, "post_grad_custom_post_pass": True}
    assert [str(path.relative_to(cache)) for path in sorted(cache.rglob("*"))] == [
        "bisect",
        "bisect/precious",
    ]


def test_a_graph_that_passes_here_is_not_reproduced(fused: Repro) -> None:
    healthy = replace(fused, manifest=replace(fused.manifest, preload=()))
    assert run("analyze_task:analyze", healthy)["status"] == findings.NOT_REPRODUCED
    assert run("bisect:bisect", healthy)["status"] == findings.NOT_REPRODUCED
