"""Models of other libraries, built where the library is installed: no hub, no download.

One model of each family; `COMPILEBOARD_ALL_MODELS=1` builds every one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from compileboard.collectors.bench import suites
from compileboard.collectors.bench.plan.models import ModelRef

pytestmark = [pytest.mark.torch, pytest.mark.nightly]

# Builds, calls once, and once compiled with a backend that compiles nothing. The network is closed.
CHECK = """
import importlib, json, socket, sys
def closed(*_, **__): raise OSError("a builder asked the network")
socket.socket.connect = socket.getaddrinfo = closed
import torch
module, function, argument = sys.argv[1:]
torch.manual_seed(0)
it = getattr(importlib.import_module(module), function)(1, argument)
inputs = it.resize(it.sizes[0])
call = (lambda m: m(**inputs)) if isinstance(inputs, dict) else (lambda m: m(*inputs))
def first(out):
    if isinstance(out, torch.Tensor):
        return out
    return next(iter(out.values())) if hasattr(out, "values") else out[0]
it.module.eval()
with torch.no_grad():
    eager, compiled = first(call(it.module)), first(call(torch.compile(it.module, backend="eager")))
same = torch.allclose(eager, compiled, rtol=1e-3, atol=1e-3)
loss = it.loss(call(it.module)) if it.loss else None
loss = None if loss is None else loss.dim()
print(json.dumps({"same": same, "finite": bool(eager.isfinite().all()), "loss": loss}))
"""


def chosen() -> list[ModelRef]:
    models = suites.list_models(["torchvision", "timm", "transformers"])
    if os.environ.get("COMPILEBOARD_ALL_MODELS") == "1":
        return models
    return list({(ref.suite, ref.family): ref for ref in models}.values())


@pytest.mark.parametrize("ref", chosen(), ids=lambda ref: f"{ref.suite}-{ref.name}")
def test_a_model_is_built_offline_and_computes_the_same_when_captured(ref: ModelRef) -> None:
    if importlib.util.find_spec(ref.suite) is None:
        pytest.skip(f"{ref.suite} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", CHECK, *ref.builder.split(":"), str(ref.argument)],
        env={**os.environ, **suites.environment(ref.suite)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["same"] and answer["finite"] and answer["loss"] in (None, 0)


@pytest.mark.parametrize("suite", ["torchvision", "timm", "transformers"])
def test_a_model_that_the_library_lost_is_said_to_be_unavailable(suite: str) -> None:
    if importlib.util.find_spec(suite) is None:
        pytest.skip(f"{suite} is not installed")
    builder = suites.list_models([suite])[0].builder.partition(":")[0]
    program = (
        "from compileboard.collectors.bench.suites import transformers\n"
        "transformers.RECIPES['GoneForCausalLM'] = transformers.RECIPES['LlamaForCausalLM']\n"
        "from compileboard.collectors.bench.plan.models import NotAvailable\n"
        f"from {builder} import build\n"
        "try: build(1, 'GoneForCausalLM')\nexcept NotAvailable as error: print(error.reason)"
    )
    environment = {**os.environ, **suites.environment(suite)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert suite in done.stdout and "GoneForCausalLM" in done.stdout
