"""The smallest graph is a repro of its own: shared storage and symbols are kept."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from compileboard.collectors.contract.repros import ReproManifest  # noqa: E402
from compileboard.collectors.repro.graph_loading import load_graph  # noqa: E402
from compileboard.collectors.repro.minify.smallest import (  # noqa: E402
    describe_inputs,
    to_repro,
    without_values,
)
from compileboard.collectors.repro.repro import Repro  # noqa: E402

ORIGINAL = (
    "import torch\nVALUE = 7\n\nfrom torch.nn import *\nclass Repro(torch.nn.Module):\n    "
    "pass\nmod = Repro()\n"
)


def _add(x: Any, y: Any) -> Any:
    return (x + y * 2,)


def test_it_is_loaded_again_with_the_same_bits() -> None:
    whole = torch.randn(8)
    inputs = [whole[2:6].view(2, 2).t(), whole[4:]]
    module = make_fx(lambda x, y: (x.reshape(4) + y,))(*inputs)
    repro = to_repro(
        Repro(ReproManifest("accuracy", "aot"), ORIGINAL), "aot", module, inputs, "aten.add.Tensor"
    )
    assert repro.program.startswith("import torch\nVALUE = 7\n"), (
        "what the original sets before its graph stays"
    )
    loaded, values = load_graph(repro)
    assert all(torch.equal(left, right) for left, right in zip(values, inputs))
    assert [value.stride() for value in values] == [value.stride() for value in inputs]
    assert values[0].untyped_storage().data_ptr() == values[1].untyped_storage().data_ptr()
    assert torch.equal(loaded(*values)[0], module(*inputs)[0])
    assert (repro.manifest.operation, repro.manifest.node_count) == ("aten.add.Tensor", 3)


def test_symbols_are_written_with_their_hints() -> None:
    inputs = [torch.randn(5, 2), torch.randn(5, 2)]
    module = make_fx(_add, tracing_mode="symbolic")(*inputs)
    specs, symbols = describe_inputs(module, inputs)
    assert specs[0].shape is not None and isinstance(specs[0].shape[0], str)
    assert symbols[str(specs[0].shape[0])] == 5
    _, values = load_graph(
        to_repro(Repro(ReproManifest("compile", "aot"), ""), "aot", module, inputs, None)
    )
    assert [tuple(value.shape) for value in values] == [(5, 2), (5, 2)]


def test_values_can_be_left_out() -> None:
    inputs = [torch.randn(3), torch.randn(3)]
    repro = to_repro(
        Repro(ReproManifest("compile", "aot"), ""), "aot", make_fx(_add)(*inputs), inputs, None
    )
    assert len(repro.values) == 2
    drawn = without_values(repro)
    assert not drawn.values and {entry.digest for entry in drawn.manifest.inputs} == {None}
