"""The built-in suite's list: read without torch, no name twice, every builder there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.suites.builtin import MODELS, SUITE

ROOT = Path(__file__).resolve().parents[4]
ASKED_FOR = {  # the families of the issue
    "mlp", "cnn_batchnorm", "resnet", "depthwise_cnn", "transformer_encoder",
    "transformer_decoder", "encoder_decoder", "mixture_of_experts", "lstm", "recommendation",
    "unet", "vision_transformer", "detector",
}  # fmt: skip


def test_the_list_is_read_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None\n"
    code += "from compileboard.collectors.bench.suites.builtin import MODELS; print(len(MODELS))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stderr, int(done.stdout or 0)) == ("", len(MODELS))


def test_every_asked_for_family_is_there_once() -> None:
    names = [ref.name for ref in MODELS]
    assert len(names) == len(set(names)) >= 14
    assert ASKED_FOR - set(names) == set()
    assert {ref.suite for ref in MODELS} == {SUITE}


@pytest.mark.parametrize("ref", MODELS, ids=lambda ref: ref.name)
def test_every_builder_is_there(ref: ModelRef) -> None:
    module, name = ref.builder.split(":")
    source = ROOT / f"{module.replace('.', '/')}.py"
    defined = set()
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    assert name in defined
    assert ref.family and ref.batch_size > 0


def test_all_but_the_one_that_serves_train() -> None:
    assert [ref.name for ref in MODELS if not ref.trains] == ["cached_decoder"]
