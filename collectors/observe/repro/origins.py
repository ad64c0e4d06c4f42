"""Find a failed graph in the frames of torch's traceback and the objects in them."""

from __future__ import annotations

import contextlib
import io
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

from ...contract.repros import ReproInput
from .. import torch_compat

MAX_CAUSES = 10
GENERATED_CALL = "call"  # the function of inductor's generated module
BACKWARD_COMPILER = "_wrapped_bw_compiler"  # A function in torch._dynamo.backends.common.
# Frames of a compile below the backend, by function: the names of the graph, an untouched copy, and
# the inputs.
_COMPILING = {
    "debug_wrapper": ("gm", "orig_graph", "example_inputs", "kwargs"),
    "inner_debug_fn": ("gm", "orig_graph", "real_inputs", ""),
    "fx_codegen_and_compile": ("gm", "", "example_inputs", "graph_kwargs"),
}


@dataclass
class FailedGraph:
    level: str
    phase: str = "inference"
    is_compiling: bool = False
    script: str | None = None  # torch's, where it has one already
    graph: Any = None  # torch.fx.GraphModule
    inputs: Sequence[Any] = ()  # The compiler's inputs, mostly without values.
    live: dict[str, Any] = field(
        default_factory=dict
    )  # values that still are there when it ran, by name
    backend: Any = None
    compiler: Any = None  # The program's own compiler, if its backend uses aot_autograd().
    arguments: tuple[Any, ...] = ()  # Of the call around it; inputs are mostly in this order.


def causes(error: BaseException) -> Iterator[BaseException]:
    known: list[BaseException] = []
    waiting = [error]
    while waiting and len(known) < MAX_CAUSES:
        current = waiting.pop(0)
        if any(current is other for other in known):
            continue
        known.append(current)
        yield current
        for name in ("__cause__", "inner_exception"):
            with contextlib.suppress(Exception):
                inner = object.__getattribute__(current, name)
                if isinstance(inner, BaseException):
                    waiting.append(inner)


def root_cause(error: BaseException) -> BaseException:
    for _ in range(MAX_CAUSES):
        try:
            inner = object.__getattribute__(error, "inner_exception")
        except AttributeError:
            break
        if not isinstance(inner, BaseException) or inner is error:
            break
        error = inner
    return error


def _frames(error: BaseException) -> Iterator[FrameType]:
    for cause in causes(error):
        trace: TracebackType | None = cause.__traceback__
        while trace is not None:
            yield trace.tb_frame
            trace = trace.tb_next


def find_compiling(error: BaseException) -> FailedGraph | None:
    failed: FailedGraph | None = None
    for frame in _frames(error):
        names = _COMPILING.get(frame.f_code.co_name)
        if names is None or not str(frame.f_globals.get("__name__", "")).startswith("torch."):
            continue
        local = frame.f_locals
        graph, inputs = local.get(names[0]), local.get(names[2])
        if (
            graph is None
            or inputs is None
            or (failed is not None and failed.graph is not None and not names[1])
        ):
            continue
        copy = local.get(names[1])
        if copy is not None:
            graph = sys.modules["torch"].fx.GraphModule(graph, copy)
        failed = FailedGraph(
            "aot", phase_of(local.get(names[3]) or {}), True, None, graph, list(inputs)
        )
    return failed or _find_own_compiler(error)


def _find_own_compiler(error: BaseException) -> FailedGraph | None:
    for frame in _frames(error):
        if frame.f_code.co_name != BACKWARD_COMPILER:
            continue
        local = frame.f_locals
        compiler = local.get("bw_compiler_fn", local.get("bw_compiler"))  # the first since 2.13
        given: tuple[Any, ...] = local.get("args") or ()
        if len(given) == 2 and not str(getattr(compiler, "__module__", "")).startswith("torch."):
            graph, inputs = given
            return FailedGraph(
                "aot", "backward", True, None, graph, list(inputs), compiler=compiler
            )
    return None


def phase_of(options: Any) -> str:
    if options.get("is_backward"):
        return "backward"
    return "inference" if options.get("is_inference") else "forward"


def find_running(error: BaseException) -> FailedGraph | None:
    torch = sys.modules["torch"]
    failed: FailedGraph | None = None
    level, phase = "dynamo", "forward"
    for frame in _frames(error):
        name = frame.f_code.co_name
        if str(frame.f_globals.get("__name__")).startswith(
            "torch._functorch._aot_autograd."
        ):  # around its graph
            phase = (
                name
                if name in ("forward", "backward")
                else phase
                if level == "aot"
                else "inference"
            )
            level = "aot"
        if (
            name == "__call__"
            and (script := torch_compat.graph_script(frame.f_locals.get("self"))) is not None
        ):
            owner = frame.f_locals["self"]
            failed = FailedGraph(
                "aot", phase_of(getattr(owner, "fx_kwargs", None) or {}), script=script
            )
        elif name == GENERATED_CALL and failed is not None and "async_compile" in frame.f_globals:
            failed.live = _tensors(frame)
        elif (
            failed is None
            and frame.f_code.co_filename.startswith("<eval_with_key>")
            and name == "forward"
        ):
            graph = frame.f_locals.get("self")
            if isinstance(graph, torch.fx.GraphModule):
                graph = _unbox(graph) if level == "aot" else graph
                failed = FailedGraph(level, phase, graph=graph, inputs=placeholder_values(graph))
                failed.live = _tensors(frame)
        elif failed is None and _is_interpreter(frame):  # the backend aot_eager's, up to 2.12
            interpreter = frame.f_locals["self"]
            graph = interpreter.module
            failed = FailedGraph(level, phase, graph=graph, inputs=placeholder_values(graph))
            failed.live = {
                node.name: value
                for node, value in interpreter.env.items()
                if isinstance(value, torch.Tensor)
            }
    return failed


def _unbox(graph: Any) -> Any:
    """Copy a graph, whose code then takes its inputs one by one: aot_eager's takes a list in
    2.13.
    """
    fx = sys.modules["torch"].fx
    copied = fx.Graph()
    copied.output(copied.graph_copy(graph.graph, {}))
    return fx.GraphModule(graph, copied)


def _is_interpreter(frame: FrameType) -> bool:
    return (
        frame.f_code.co_name == "run"
        and frame.f_globals.get("__name__") == "torch.fx.interpreter"
        and isinstance(
            getattr(frame.f_locals.get("self"), "module", None),
            sys.modules["torch"].fx.GraphModule,
        )
    )


def _tensors(frame: FrameType) -> dict[str, Any]:
    torch = sys.modules["torch"]
    return {
        name: value for name, value in frame.f_locals.items() if isinstance(value, torch.Tensor)
    }


def match_arguments(described: Sequence[ReproInput], failed: FailedGraph) -> list[Any]:
    """Return the live value of each input or None, matched by name, otherwise by position.

    AOTAutograd may drop and merge inputs, so positions are used only if the number of inputs is the
    same.
    """
    arguments = list(failed.arguments)
    saved = None
    if arguments and failed.phase == "backward":
        with contextlib.suppress(Exception):  # they may be freed already
            saved = arguments[0].saved_tensors
        if saved is None:  # the gradients come last
            arguments = [*[None] * (len(described) - len(arguments) + 1), *arguments[1:]]
    if saved is not None:  # of autograd's context; the gradients are its arguments after it
        tensors = iter(
            [*saved, *(part for part in arguments[1:] if hasattr(part, "untyped_storage"))]
        )
        arguments = [next(tensors, None) if entry.kind == "tensor" else None for entry in described]
        if next(tensors, None) is not None:
            arguments = []
    if len(arguments) != len(described):
        arguments = [None] * len(described)
    return [failed.live.get(entry.name, argument) for entry, argument in zip(described, arguments)]


def placeholder_values(graph: Any) -> list[Any]:
    values = []
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            value = node.meta.get("example_value", node.meta.get("val"))
            if value is None and (argument := node.meta.get("grapharg")) is not None:
                value = getattr(argument, "fake_tensor", None)
            values.append(value)
    return values


def placeholder_names(graph: Any) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "placeholder"]


def count_nodes(graph: Any) -> int:
    return sum(node.op.startswith("call_") for node in graph.graph.nodes)


def backend_name(backend: Any) -> str | None:
    backend = getattr(backend, "_torchdynamo_orig_backend", backend)
    name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", None)
    return (
        str(name) if name is not None else type(backend).__name__ if backend is not None else None
    )


def read_graph(text: str) -> Any:
    start, end = text.find("class Repro("), text.find("def load_args(")
    body = text[start:end]
    if (
        start < 0
        or end < start
        or "triton_kernel_wrapper" in body
        or re.search(r"^        self\.\w+ =|register_", body, re.M)
    ):
        return None
    torch = sys.modules["torch"]
    names: dict[str, Any] = {
        "torch": torch,
        "tensor": torch.tensor,
        "device": torch.device,
        "inf": math.inf,
    }
    names |= {"nan": math.nan, "fx": torch.fx, "math": math}
    exec(compile(body, "<compileboard: torch's repro>", "exec"), names)  # noqa: S102
    return torch.fx.symbolic_trace(names["Repro"]())


def write_script(graph: Any, inputs: Sequence[Any]) -> str | None:
    save = torch_compat.load("repro_script")
    if save is torch_compat.MISSING:
        return None
    text = io.StringIO()
    save(text, graph, inputs, "inductor", save_dir=None)
    return text.getvalue() if "def forward" in text.getvalue() else None
