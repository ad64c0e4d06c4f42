"""A person's own models, really built: `--only path:…,class:…`, and marked functions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.suites.user import OnlyError, parse_only
from compileboard.collectors.bench.suites.user_build import build as user_build
from compileboard.collectors.bench.worker.outcome import Stages
from compileboard.collectors.bench.worker.workbench import StageFailed, Workbench

pytestmark = pytest.mark.torch

NETS = """
import sys
import torch
from dataclasses import dataclass
from torch import nn
from beside import WIDTH
from compileboard.collectors.bench import model
from compileboard.collectors.bench.loaded import Loaded

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, 3)
    def forward(self, x):
        return self.linear(x)
    def get_example_inputs(self):
        return (torch.randn(5, WIDTH),)

@dataclass
class NoModule:
    x: int = 1

class NoInputs(nn.Module):
    pass

class BareTensor(Net):
    def get_example_inputs(self):
        return torch.randn(5, WIDTH)

class Breaks(Net):
    def __init__(self):
        raise RuntimeError("no weights here")

@model
def pair(batch_size):
    return Net(), [torch.randn(batch_size, WIDTH)]

@model(name="spoken", batch_size=2)
def loaded(batch_size):
    return Loaded(Net(), {"x": torch.randn(batch_size, WIDTH)}, loss=lambda out: out.sum())

@model
def nothing(batch_size): pass

@model
def swapped(batch_size):
    return (torch.randn(batch_size, WIDTH),), Net()
"""
DROPPING = """
import torch
from torch import nn

class Off(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
    def forward(self, x):
        result = nn.functional.dropout(self.linear(x), 0.5)
        return result + 1.0 if torch.compiler.is_compiling() else result
    def get_example_inputs(self):
        return (torch.randn(64, 16),)
"""
# Builds models as a child of the bench command does, and says what came of each.
BUILD = """
import json, sys
from compileboard.collectors.bench.suites.user import read_only
from compileboard.collectors.bench.suites.user_build import build

def describe(only, batch_size):
    try:
        it = build(batch_size, read_only(only).text)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    named = isinstance(it.inputs, dict)
    out = it.module(**it.inputs) if named else it.module(*it.inputs)
    first = list(it.inputs.values())[0] if named else it.inputs[0]
    return {"module": type(it.module).__name__, "kind": type(it.inputs).__name__,
            "in": list(first.shape), "out": list(out.shape), "loss": it.loss is not None,
            "path": sys.path[0]}

print(json.dumps([describe(only, 8) for only in sys.argv[1:]]))
"""
REFUSED = {
    "class:NoModule": "NoModule is not a class derived from torch.nn.Module",
    "class:WIDTH": "WIDTH is not a class derived from torch.nn.Module",
    "class:NoInputs": "NoInputs has no method get_example_inputs()",
    "class:BareTensor": (
        "gave a Tensor as inputs; expected a tuple or a dict of them; write `return (x,)`"
    ),
    "class:Breaks": "RuntimeError: no weights here",
    "model:nothing": "nothing(8) returned nothing; expected (module, inputs) or",
    "model:swapped": "swapped(8) returned a tuple first; expected a torch.nn.Module",
}
BUILT = ("class:Net", "model:pair", "model:spoken")


def build(*only: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *only], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("person")
    (folder / "beside.py").write_text("WIDTH = 7\n")
    (folder / "nets.py").write_text(NETS)
    return folder / "nets.py"


@pytest.fixture(scope="module")
def answers(nets: Path) -> dict[str, dict[str, Any]]:
    """Build all of them in one child: importing torch is what takes time."""
    asked = [*BUILT, *REFUSED]
    return dict(zip(asked, build(*(f"path:{nets},{part}" for part in asked))))


def test_a_class_is_built_as_upstream_builds_it(
    answers: dict[str, dict[str, Any]], nets: Path
) -> None:
    built = answers["class:Net"]
    assert (built["module"], built["kind"], built["in"], built["out"]) == (
        "Net",
        "tuple",
        [5, 7],
        [5, 3],
    )
    assert built["path"] == str(nets.parent)


def test_a_marked_function_returns_a_pair_or_says_more(answers: dict[str, dict[str, Any]]) -> None:
    pair, spoken = answers["model:pair"], answers["model:spoken"]
    assert (pair["kind"], pair["in"], pair["loss"]) == ("tuple", [8, 7], False)
    assert (spoken["kind"], spoken["in"], spoken["loss"]) == ("dict", [8, 7], True)


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_model_is_said_in_words(answers: dict[str, dict[str, Any]], what: str) -> None:
    assert REFUSED[what] in answers[what]["error"]


def test_marked_functions_of_a_file_that_imports_torch_are_listed(nets: Path) -> None:
    refs = parse_only(f"path:{nets}")
    assert [(ref.name, ref.batch_size) for ref in refs] == [
        ("pair", 8),
        ("spoken", 2),
        ("nothing", 8),
        ("swapped", 8),
    ]


def test_a_file_that_raises_as_it_is_imported_raises_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("import torch\ntorch.ones(2).reshape(3)\n")
    [answer] = build(f"path:{tmp_path / 'nets.py'},class:Net")
    assert "RuntimeError: shape '[3]' is invalid" in answer["error"]


def test_a_part_is_passed_to_a_marked_function_that_takes_one(tmp_path: Path) -> None:
    body = """
import torch
from compileboard.collectors.bench import model
@model
def parts(batch_size, part="all"):
    return torch.nn.Linear(len(part), 1), (torch.ones(batch_size, len(part)),)
@model
def whole(batch_size):
    return torch.nn.Linear(1, 1), (torch.ones(batch_size, 1),)
"""
    (tmp_path / "nets.py").write_text(body)
    assert (
        user_build(2, f"path:{tmp_path}/nets.py,model:parts", part="encoder").module.in_features
        == 7
    )
    with pytest.raises(OnlyError, match="--part encoder: whole has no parameter part"):
        user_build(2, f"path:{tmp_path}/nets.py,model:whole", part="encoder")
    ref = ModelRef("builtin", "mlp", "tests.integration.bench.test_user_models:no_parts")
    with pytest.raises(StageFailed) as failed:
        Workbench(ref, BenchSettings(part="encoder"), Stages(tmp_path)).build()
    assert "--part encoder: mlp has no parts" in str(failed.value.__cause__)


def no_parts(batch_size: int) -> None:
    raise AssertionError(batch_size)


@pytest.mark.nightly
def test_a_wrong_result_is_found_behind_dropout(tmp_path: Path) -> None:
    (tmp_path / "dropping.py").write_text(DROPPING)
    only = f"path:{tmp_path}/dropping.py,class:Off"
    command = f"bench --accuracy --inference --only {only} --backend eager --device cpu"
    done = subprocess.run(
        [sys.executable, "-m", "compileboard.collectors", *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "fail_accuracy" in done.stdout + done.stderr
