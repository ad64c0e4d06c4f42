"""Wrap each compiled graph for `--repro=crash` and `--repro=accuracy`."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ...contract.run_config import RunConfig
from .. import torch_compat
from ..hook_guard import HookGuard
from . import origins
from .accuracy import AccuracyCheck
from .capture import ReproCapture, RunningGraph
from .origins import FailedGraph
from .running import RunningGraphWriter

IN_BACKEND = "the process ended while the backend compiled this graph"
WATCHED = "__compileboard_watched__"
DISABLED = "_torchdynamo_orig_callable"


class GraphWatch:
    def __init__(
        self,
        capture: ReproCapture,
        running: RunningGraphWriter,
        check: AccuracyCheck,
        guard: HookGuard,
        config: RunConfig,
        prepare: Callable[[bool], None],
    ) -> None:
        self._capture = capture
        self._running = running
        self._is_crash = "crash" in config.repro
        self._with_values = config.repro_inputs_bytes > 0
        self._check = check if "accuracy" in config.repro else None
        self._guard = guard
        # Called before each compile, with whether inductor is loaded for it.
        self._prepare = prepare
        self._local = threading.local()

    # -- dynamo's graphs: any backend

    def wrap_backend_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call_user_compiler(output: Any, gm: Any, *rest: Any) -> Any:
            dynamo = compiling = number = None
            with self._guard:
                graph = _copy(gm) if self._check is not None else gm
                dynamo = FailedGraph(
                    "dynamo", "forward", graph=graph, inputs=origins.placeholder_values(gm)
                )
                dynamo.backend = getattr(output, "compiler_fn", None)
                self._prepare(origins.backend_name(dynamo.backend) == "inductor")
                compiling, number = self._write_compiling(dynamo)
            outer = getattr(self._local, "dynamo", None), getattr(self._local, "graph_count", 0)
            self._local.dynamo, self._local.graph_count = dynamo, 0
            try:
                with self._running.mark(number):
                    compiled = original(output, gm, *rest)
            except KeyboardInterrupt:
                with self._guard:
                    if compiling is not None:
                        self._capture.add_interrupted(compiling)
                raise
            finally:
                graph_count = self._local.graph_count
                self._local.dynamo, self._local.graph_count = outer
            with self._guard:
                if dynamo is not None and getattr(output, "package", None) is None:
                    return self._watch_call(compiled, dynamo, is_below=graph_count > 0)
            return compiled

        return call_user_compiler

    def _write_compiling(self, dynamo: FailedGraph) -> tuple[RunningGraph | None, int | None]:
        """Write the graph before its backend compiles it, because the backend may crash or never
        return.
        """
        if not self._is_crash:
            return None, None
        graph = self._capture.describe_running(dynamo, None, torch_compat.context_of(), IN_BACKEND)
        if graph is None:
            return None, None
        return graph, self._running.add(self._capture.encode_running(graph))

    def _watch_call(self, compiled: Any, dynamo: FailedGraph, *, is_below: bool) -> Any:
        call = compiled
        if self._is_crash and not is_below:  # no graph of inductor's says which one runs
            call = self._watch_running(call, dynamo, None, is_boxed=False)
        if self._check is not None:
            call = self._check.wrap(call, dynamo, None, is_boxed=False)
        if call is not compiled and isinstance(compiled, FunctionType):
            vars(call).update(vars(compiled))
            vars(call).pop(DISABLED, None)  # Dynamo would call that: up to 2.12 it looks no further
        return call

    # -- what AOTAutograd gives to inductor

    def wrap_compiler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrap_compiler_debug(*args: Any, **options: Any) -> Any:
            compiler = original(*args, **options)

            def compile_graph(gm: Any, example_inputs: Any, *rest: Any, **settings: Any) -> Any:
                outer = getattr(self._local, "reference", None)
                self._local.reference = None
                with self._guard:
                    inputs = list(example_inputs)
                    self._local.reference = FailedGraph(
                        "aot", origins.phase_of(settings), graph=_copy(gm), inputs=inputs
                    )
                try:
                    return compiler(gm, example_inputs, *rest, **settings)
                finally:
                    self._local.reference = outer

            return compile_graph

        return wrap_compiler_debug

    def wrap_post_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper of CompiledFxGraph.post_compile, through which cached graphs go too."""

        def post_compile(graph: Any, *args: Any, **options: Any) -> Any:
            result = original(graph, *args, **options)
            with self._guard:
                self._watch_graph(graph)
            return result

        return post_compile

    def _watch_graph(self, graph: Any) -> None:
        call = graph.current_callable
        if call is None or hasattr(call, WATCHED):
            return
        self._local.graph_count = getattr(self._local, "graph_count", 0) + 1
        dynamo: FailedGraph | None = getattr(self._local, "dynamo", None)
        compiled: FailedGraph | None = getattr(self._local, "reference", None)
        phase = origins.phase_of(getattr(graph, "fx_kwargs", None) or {})
        if compiled is None:  # from AOTAutograd's cache
            text = torch_compat.graph_script(graph)
            module = (
                origins.read_graph(text) if text is not None and self._check is not None else None
            )
            compiled = FailedGraph("aot", phase, script=text, graph=module)
        around = call
        if self._is_crash:
            around = self._watch_running(around, compiled, dynamo, is_boxed=True)
        if self._check is not None:
            around = self._check.wrap(
                around, compiled, dynamo if phase != "backward" else None, is_boxed=True
            )
        if around is not call:
            setattr(around, WATCHED, True)
            graph.current_callable = around

    def _watch_running(
        self, call: Any, graph: FailedGraph, dynamo: FailedGraph | None, *, is_boxed: bool
    ) -> Any:
        running = self._capture.describe_running(graph, dynamo, torch_compat.context_of())
        number = (
            self._running.add(self._capture.encode_running(running))
            if running is not None
            else None
        )
        if running is None or number is None:
            return call
        if not self._with_values:
            return self._running.wrap(call, number)
        graphs, described = self._running, running

        def write_values(arguments: tuple[Any, ...]) -> int | None:
            with self._guard:
                lines = self._capture.encode_values(
                    described, arguments[0] if is_boxed else arguments
                )
                return graphs.add_values(lines) if lines else None
            return None

        return graphs.wrap(call, number, write_values)


def _copy(graph: Any) -> Any:
    """Copy a graph module, because compilers rewrite their graph."""
    return sys.modules["torch"].fx.GraphModule(graph, copy.deepcopy(graph.graph))
