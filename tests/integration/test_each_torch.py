"""What no other test shows in a few seconds, for `make versions`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.bench.test_bench import PLANTED, bench, result
from tests.integration.repro import spooled_repros
from tests.tools.observed import Workplace

pytestmark = pytest.mark.torch

CUDA_GRAPHS = """
    import torch
    from torch._inductor import cudagraph_utils
    from torch._inductor.cudagraph_trees import CUDAGraphTreeManager

    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    for watched in (CUDAGraphTreeManager.record_function, CUDAGraphTreeManager.run_eager):
        print(watched.__module__)
    skip = getattr(cudagraph_utils, "log_cudagraph_skip_and_bump_counter", None)
    print(getattr(skip, "__module__", None))
"""
LOADED = {"ok", "later"}
FAILING = """
    import torch

    def refuse(graph, inputs):
        raise ValueError("refused")

    torch.compile(lambda x: x.sin() + 1, backend=refuse)(torch.ones(2))
"""


OLD = """
    import torch

    torch.__version__ = "2.3.1+cpu"
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    import compileboard

    try:
        compileboard.install()
    except ImportError as error:
        print(error)
"""


def watched_modules(workplace: Workplace) -> tuple[list[str], dict[str, str]]:
    done = workplace.run(workplace.write(CUDA_GRAPHS))
    assert done.returncode == 0, done.stderr
    capabilities = json.loads(workplace.value("select capabilities from processes"))
    return [name.rpartition(".")[2] for name in done.stdout.split()], capabilities


def test_recordings_of_cuda_graphs_are_watched(workplace: Workplace) -> None:
    modules, capabilities = watched_modules(workplace)
    assert modules[:2] == ["cuda_graphs", "cuda_graphs"]
    assert {capabilities["cudagraph_recordings"], capabilities["cudagraph_warm_ups"]} <= LOADED


def test_skips_of_cuda_graphs_are_watched_or_it_is_said(workplace: Workplace) -> None:
    modules, capabilities = watched_modules(workplace)
    if modules[2] == "None":
        assert "is not in this torch" in capabilities["cudagraph_skips"]
        pytest.skip(capabilities["cudagraph_skips"])
    assert (modules[2], capabilities["cudagraph_skips"]) == ("hooks", "ok")


def test_a_model_is_measured_and_judged(workplace: Workplace) -> None:
    both = ("--performance", "--accuracy")
    done = bench(workplace, "--only", f"path:{PLANTED}", *both, "-k", "^Fine$")
    assert done.returncode == 0, done.stderr
    row = result((workplace, done), "Fine", "performance")
    assert (row["status"], row["speedup"] > 0) == ("measured", True)
    assert result((workplace, done), "Fine", "accuracy")["accuracy"] == "pass"


def test_a_recorded_failure_is_run_again(workplace: Workplace) -> None:
    assert workplace.run(workplace.write(FAILING)).returncode == 1
    listed = workplace.collect("repro", "list", "--db", workplace.database, "--json")
    (repro,) = json.loads(listed.stdout)
    again = workplace.collect("repro", "run", repro["id"], "--db", workplace.database, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["status"] == "same"


def test_a_wrong_decomposition_is_captured_as_dynamos_graph(tmp_path: Path) -> None:
    """The graph that inductor got has the wrong operation already: eager runs it as wrongly."""
    spooled = spooled_repros.observe(
        tmp_path, spooled_repros.PLANTED, "wrong_decomposition", repro=("accuracy",)
    )
    assert spooled.returncode == 0, spooled.stderr
    (repro,) = spooled.repros
    assert (repro.manifest.kind, repro.manifest.level) == ("accuracy", "dynamo")


@pytest.mark.real_start  # before it changes torch's version, a fork has the hooks
def test_a_torch_too_old_is_refused_in_a_sentence(workplace: Workplace) -> None:
    done = workplace.run(workplace.write(OLD))
    sentence = "torch 2.3.1+cpu is too old; CompileBoard records torch 2.4 and newer"
    assert (done.returncode, done.stdout) == (0, f"nothing can be recorded: {sentence}\n")
    assert done.stderr.splitlines()[-1] == f"compileboard: nothing was recorded: {sentence}"
    (row,) = workplace.rows("select capabilities from processes")
    assert set(json.loads(row["capabilities"]).values()) == {sentence}
