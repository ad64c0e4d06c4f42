"""Graphs of the planted programs as repros with their inputs' values.

python -m tests.integration.repro.planted_repros FILE [NAME …]
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zlib
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.repros import DEFAULT_VALUES_BYTES, ReproInput, ReproManifest
from compileboard.collectors.repro.repro import Repro
from tests.tools.observed import PLAIN_CODE, PYTHON, ROOT, SEARCHED


def make_repros(path: Path, *names: str) -> dict[str, Repro]:
    """Make a repro of each planted program in a process of its own; of a backward the graph of the
    backward.
    """
    environment = {**os.environ, "PYTHONPATH": SEARCHED, "OMP_NUM_THREADS": "1"}
    environment = {
        name: value for name, value in environment.items() if name not in PLAIN_CODE
    }  # nothing is compiled
    command = [PYTHON, "-m", "tests.integration.repro.planted_repros", str(path), *names]
    subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, timeout=200)
    repros: dict[str, Repro] = pickle.loads(path.read_bytes())
    return repros


def make_repro(gm: Any, inputs: list[Any], **facts: Any) -> Repro:
    """Make a repro of a wrong answer of a graph of AOTAutograd's."""
    graph = _write(gm, inputs, inputs)
    return Repro(
        ReproManifest("accuracy", "aot", inputs=graph.inputs, **facts),
        graph.program,
        values=graph.values,
    )


@dataclass
class _Graph:
    module: Any
    program: str
    inputs: tuple[ReproInput, ...]
    symbols: dict[str, int]
    values: dict[str, bytes]


class _Captured(Exception):
    pass


class _Recorder:
    """A backend that keeps graphs with what they are called with, and runs them in eager."""

    def __init__(self, is_backward: bool) -> None:
        self.dynamo: _Graph | None = None
        self.aot: _Graph | None = None
        self.is_backward = is_backward

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx

        from compileboard.collectors.repro.locate.surgery import copy_module

        original = copy_module(gm)
        compiled = compile_fx(gm, example_inputs, inner_compile=self._compile_inner)

        def call(*arguments: Any) -> Any:
            self.dynamo = _write(original, example_inputs, arguments)
            return compiled(*arguments)

        return call

    def _compile_inner(self, gm: Any, example_inputs: Any, **options: Any) -> Any:
        from compileboard.collectors.repro.locate.surgery import copy_module

        original = copy_module(gm)

        def call(arguments: list[Any]) -> Any:
            if bool(options.get("is_backward")) == self.is_backward:
                self.aot = _write(original, example_inputs, arguments)
                raise _Captured
            return original(*arguments)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call


def _write(gm: Any, example_inputs: Any, arguments: Any) -> _Graph:
    import torch

    from compileboard.collectors.observe.repro.inputs import InputReader, keep_values
    from compileboard.collectors.observe.repro.origins import placeholder_names, write_script
    from compileboard.collectors.observe.repro.script import trim_script

    reader, values = InputReader(), {}

    def keep(digest: str, body: str) -> None:
        values[digest] = zlib.decompress(b64decode(body))

    described = reader.describe(placeholder_names(gm), example_inputs)
    described = keep_values(described, arguments, DEFAULT_VALUES_BYTES, keep)
    is_grad = [isinstance(value, torch.Tensor) and value.requires_grad for value in arguments]
    described = tuple(replace(entry, requires_grad=flag) for entry, flag in zip(described, is_grad))
    return _Graph(
        gm,
        trim_script(write_script(gm, example_inputs) or "", os.environ),
        described,
        reader.symbols,
        values,
    )


def _capture(name: str) -> Repro:
    import torch

    from tests.programs import planted

    case = planted.PLANTED[name]()
    torch._dynamo.reset()
    recorder = _Recorder(case.phase == "backward")
    compiled = torch.compile(case.program, backend=recorder)
    for make in (case.inputs, *case.calls[:1]):
        with suppress(_Captured):
            planted.call(compiled, case, make())
    dynamo, aot = recorder.dynamo, recorder.aot
    assert dynamo is not None
    own = dynamo if case.backend != "inductor" or aot is None else aot
    manifest = ReproManifest(
        case.kind,
        "dynamo" if own is dynamo else "aot",
        case.phase,
        error_type={"compile": "Exception"}.get(case.kind),
        signal={"crash": "SIGSEGV"}.get(case.kind),
        backend=case.backend,
        node_count=sum(node.op.startswith("call_") for node in own.module.graph.nodes),
        inputs=own.inputs,
        symbols={**dynamo.symbols, **own.symbols},
        preload=(f"tests.programs.planted:{name}",),
        dynamo_inputs=() if own is dynamo else dynamo.inputs,
    )
    return Repro(
        manifest,
        own.program,
        None if own is dynamo else dynamo.program,
        {**dynamo.values, **own.values},
        name,
    )


if __name__ == "__main__":
    from tests.programs.planted import PLANTED

    repros = {name: _capture(name) for name in sys.argv[2:] or PLANTED}
    Path(sys.argv[1]).write_bytes(pickle.dumps(repros))
