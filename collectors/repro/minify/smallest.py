"""Convert the smallest graph to a repro: program, input descriptions and values. Imports torch."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

from compileboard.collectors.contract.repros import ABSENT, DEFAULT_VALUES_BYTES, ReproInput
from compileboard.collectors.observe.repro.inputs import InputReader, keep_values
from compileboard.collectors.repro.judging import symbolic_inputs
from compileboard.collectors.repro.minify.graph_values import call_nodes, placeholders
from compileboard.collectors.repro.repro import Repro

_MODULE = re.compile(r"^from torch\.nn import \*\s*\nclass Repro\b|^class Repro\b", re.MULTILINE)
_HEADER = (
    "import torch\nfrom torch import device, tensor\nfrom math import inf, nan\nimport "
    "torch.fx as fx\n"
)


def describe_inputs(
    module: Any, inputs: Sequence[Any]
) -> tuple[tuple[ReproInput, ...], dict[str, int]]:
    names = [str(node.target) for node in placeholders(module.graph)]
    reader = InputReader()
    described = reader.describe(names, symbolic_inputs(module, inputs))
    real = InputReader().describe(names, inputs)
    merged = tuple(
        replace(
            entry,
            storage=actual.storage,
            storage_bytes=actual.storage_bytes,
            requires_grad=actual.requires_grad,
            is_parameter=actual.is_parameter,
        )
        if entry.kind == "tensor"
        else entry
        for entry, actual in zip(described, real)
    )
    return merged, reader.symbols


def to_repro(
    repro: Repro, level: str, module: Any, inputs: Sequence[Any], operation: str | None
) -> Repro:
    specs, symbols = describe_inputs(module, inputs)
    values: dict[str, bytes] = {}

    def write(digest: str, body: str) -> None:
        values[digest] = zlib.decompress(base64.b64decode(body))

    manifest = replace(
        repro.manifest,
        level=level,
        inputs=keep_values(specs, inputs, DEFAULT_VALUES_BYTES, write),
        symbols=symbols,
        operation=operation or repro.manifest.operation,
        node_count=len(call_nodes(module.graph)),
        dynamo_inputs=(),
    )
    return Repro(
        manifest, _write_program(repro, level, module), None, values, name=f"{repro.name}, minified"
    )


def without_values(repro: Repro) -> Repro:
    inputs = tuple(
        replace(entry, values=ABSENT, digest=None) if entry.kind == "tensor" else entry
        for entry in repro.manifest.inputs
    )
    return replace(repro, manifest=replace(repro.manifest, inputs=inputs), values={})


def _write_program(repro: Repro, level: str, module: Any) -> str:
    original = repro.text(level)
    start = _MODULE.search(original)
    header = original[: start.start()].rstrip() if start is not None else _HEADER.rstrip()
    # Before 2.13 modules that torch cannot construct again were always written by their repr.
    from torch._dynamo.debug_utils import NNModuleToString

    named = signature(NNModuleToString.convert).parameters
    allowed = {"allow_unsafe_repr": True} if "allow_unsafe_repr" in named else {}
    return f"{header}\n\n{NNModuleToString.convert(module, **allowed).strip()}\n\nmod = Repro()\n"
