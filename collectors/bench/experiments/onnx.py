"""Export the model to ONNX and run it with onnxruntime, compared with eager.

Inputs and outputs are bound to torch's memory before timing, so a timed call converts nothing.
Source: --dynamo-onnx of upstream's benchmarks/dynamo/common.py, whose exporter
torch.onnx.export(dynamo=True) replaced.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

from compileboard.collectors.bench.experiments.export import (
    ModelExport,
    describe_failure,
    is_of_user,
)
from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.plan.models import NotAvailable
from compileboard.collectors.bench.steps import list_tensors
from compileboard.collectors.bench.worker.outcome import COLD, LOAD, ExperimentOutcome, add_samples
from compileboard.collectors.bench.worker.same_as_eager import judge
from compileboard.collectors.bench.worker.timing import time_beside_eager, time_loads
from compileboard.collectors.bench.worker.workbench import FAILURES, Workbench, eagerly, failing_as

FILE = "model.onnx"
LIBRARIES = ("onnx", "onnxscript", "onnxruntime")
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
# onnxruntime's name of a type: torch's, and ONNX's number for it.
TYPES = {
    "tensor(float)": (torch.float32, 1),
    "tensor(uint8)": (torch.uint8, 2),
    "tensor(int8)": (torch.int8, 3),
    "tensor(int16)": (torch.int16, 5),
    "tensor(int32)": (torch.int32, 6),
    "tensor(int64)": (torch.int64, 7),
    "tensor(bool)": (torch.bool, 9),
    "tensor(float16)": (torch.float16, 10),
    "tensor(double)": (torch.float64, 11),
    "tensor(complex64)": (torch.complex64, 14),
    "tensor(bfloat16)": (torch.bfloat16, 16),
}
_NODE = re.compile(r"translating node %(\w+)")
_FRAME = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+), in [^\n]*\n\s*(?P<source>[^\n]*)')


def run(bench: Workbench) -> ExperimentOutcome:
    _check_libraries(bench.settings.device)
    export = ModelExport(bench)
    made: list[OnnxModel] = []

    def compute() -> Any:
        made.append(_make_model(export))
        return made[0].result()

    outcome = judge(bench, compute, iterations=1)
    outcome.facts["export"] = export.facts
    if "error" in export.facts:  # the exporter's own message says which step failed, not why
        outcome.message = f"{export.facts['error']}: {export.facts['message']}"
    outcome.values |= export.values
    if outcome.status == "measured":
        with bench.grad():
            turns = time_beside_eager(bench, made[0].step)
            with failing_as("fail_to_run"):
                loads_s = time_loads(
                    bench, lambda: _load(bench.stages.folder / FILE, bench.settings.device)
                )
        turns.add_to(outcome)
        add_samples(outcome, LOAD, loads_s)
    return outcome


class OnnxModel:
    def __init__(self, session: Any, inputs: Inputs, eager: Any, device: str) -> None:
        leaves, self.structure = _pytree.tree_flatten(eager)
        self.leaves: list[Any] = leaves
        self.tensor_indices = [
            index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)
        ]
        described = session.get_outputs()
        if len(described) != len(self.tensor_indices):
            raise ValueError(
                f"the ONNX model has {len(described)} outputs; eager's result has "
                f"{len(self.tensor_indices)} tensors"
            )
        self.session, self.device = session, device
        self.binding = session.io_binding()
        self.outputs = [
            torch.empty(leaves[index].shape, dtype=TYPES[output.type][0], device=device)
            for index, output in zip(self.tensor_indices, described)
        ]
        for output, tensor in zip(described, self.outputs):
            self.binding.bind_output(
                output.name, device, 0, TYPES[output.type][1], list(tensor.shape), tensor.data_ptr()
            )
        self.bound: Inputs | None = None
        self.read: list[torch.Tensor] = []  # the memory of the bound inputs
        self._bind(inputs)

    def step(self, _module: Any, inputs: Inputs, collect_outputs: bool = False) -> Any:
        if inputs is not self.bound:
            self._bind(inputs)
        self.session.run_with_iobinding(self.binding)

    def result(self) -> Any:
        self.session.run_with_iobinding(self.binding)
        leaves = list(self.leaves)
        for index, tensor in zip(self.tensor_indices, self.outputs):
            leaves[index] = tensor.clone()
        return _pytree.tree_unflatten(leaves, self.structure)

    def _bind(self, inputs: Inputs) -> None:
        described = self.session.get_inputs()
        named = inputs if isinstance(inputs, dict) else {}
        names = [parameter.name for parameter in described]
        if set(names) <= set(named):
            tensors = [named[name] for name in names]
        else:
            tensors = list_tensors(inputs)
        if len(tensors) != len(described):
            raise ValueError(
                f"the ONNX model has the inputs {', '.join(names)}; the model takes "
                f"{len(tensors)} tensors"
            )
        self.read = [tensor.contiguous() for tensor in tensors]
        for parameter, tensor in zip(described, self.read):
            dtype, number = TYPES[parameter.type]
            if tensor.dtype != dtype:
                types = f"{parameter.type}; the model takes {tensor.dtype}"
                raise ValueError(f"the ONNX model's input {parameter.name} is {types}")
            self.binding.bind_input(
                parameter.name, self.device, 0, number, list(tensor.shape), tensor.data_ptr()
            )
        self.bound = inputs


def _check_libraries(device: str) -> None:
    for name in LIBRARIES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise NotAvailable(f"{error.name} is not installed") from error
    if "dynamo" not in inspect.signature(torch.onnx.export).parameters:
        raise NotAvailable(
            "torch.onnx.export(dynamo=True) comes with torch 2.5; this is torch "
            f"{torch.__version__}"
        )
    onnxruntime: Any = importlib.import_module("onnxruntime")
    if PROVIDERS[device] not in onnxruntime.get_available_providers():
        raise NotAvailable(
            f"onnxruntime-gpu is not installed: this onnxruntime has no {PROVIDERS[device]}"
        )


def _make_model(export: ModelExport) -> OnnxModel:
    bench, values, facts = export.bench, export.values, export.facts
    stage, exported = "export", None
    try:
        module = bench.copy_module()
        begin_s = time.perf_counter()
        exported = export.export(module)
        stage = "compile"
        program: Any = torch.onnx.export(exported, dynamo=True, verbose=False)
        values["export_latency"] = time.perf_counter() - begin_s
        facts |= {
            "node_count": len(list(program.model.graph)),
            "opset": program.model.opset_imports.get(""),
        }
        stage = "load"
        path = bench.stages.folder / FILE
        program.save(str(path))
        values["package_bytes"] = float(
            sum(file.stat().st_size for file in path.parent.glob(f"{FILE}*"))
        )
        begin_s = time.perf_counter()
        session = _load(path, bench.settings.device)
        values["load_latency"] = time.perf_counter() - begin_s
        values[COLD.value] = values["export_latency"] + values["load_latency"]
        stage = "run"
        with eagerly():
            eager = bench.steps.step()(module, bench.inputs)
        return OnnxModel(session, bench.inputs, eager, bench.settings.device)
    except FAILURES as error:
        cause = error.__cause__ if stage == "compile" and error.__cause__ is not None else error
        facts |= describe_failure(cause, stage)
        if exported is not None and facts["line"] is None:
            facts |= find_node(exported, str(cause))
        raise


def find_node(exported: Any, message: str) -> dict[str, Any]:
    match = _NODE.search(message)
    if match is None:
        return {}
    try:
        nodes = list(exported.run_decompositions().graph.nodes)
    except Exception:  # decomposition failures were reported before
        return {}
    trace = next((node.meta.get("stack_trace") for node in nodes if node.name == match[1]), None)
    for frame in reversed(list(_FRAME.finditer(trace or ""))):
        if is_of_user(frame["path"]):
            return {
                "line": f"{os.path.basename(frame['path'])}:{frame['line']}",
                "source": frame["source"],
            }
    return {}


def _load(path: Path, device: str) -> Any:
    onnxruntime: Any = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.intra_op_num_threads = torch.get_num_threads()
    # Its threads would keep spinning after a call, and slow the following eager call.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=[PROVIDERS[device]])
