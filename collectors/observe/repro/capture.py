"""Capture failed graphs so that they can be run again. This code runs only after an exception."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from ...contract import record_names
from ...contract.repros import (
    MAX_ERROR_CHARS,
    MAX_PROGRAM_CHARS,
    MAX_REPROS,
    WITHHELD,
    ReproInput,
    ReproManifest,
    dump_manifest,
    find_operation,
    program_digest,
)
from ...contract.run_config import RunConfig
from .. import torch_compat
from ..hook_guard import HookGuard
from ..runtime_failures import clean_text, text_of, write_traceback
from ..spool_writer import Spool
from . import inputs as repro_inputs
from . import origins, preload, script
from .origins import FailedGraph

MARK = "__compileboard_repro__"  # on an exception: (process, position)
MAX_TRACEBACK_CHARS = 64_000
MAX_FUNCTIONS = 10_000
# Dynamo's and autograd's own control flow: nothing has failed.
CONTROL_FLOW = frozenset(("SkipFrame", "RestartAnalysis", "Unsupported", "_StopRecomputationError"))
_DEVICE_ERROR = re.compile(r"(?:CUDA|HIP)(?: driver)? error: ")


@dataclass(frozen=True)
class RunningGraph:
    manifest: ReproManifest
    programs: dict[str, str | None]
    context: Any


class ReproCapture:
    def __init__(
        self, spool: Spool, guard: HookGuard, redact: Callable[[Any], Any], config: RunConfig
    ) -> None:
        self._spool = spool
        self._write = spool.write
        self._guard = guard
        self._redact = redact
        self._config = config
        # With --repro=crash: what ran last.
        self.read_last: Callable[[], list[dict[str, Any]]] = list
        self._busy = threading.local()
        self.clear()

    def clear(self) -> None:
        self._digests: set[str] = set()
        self._functions: dict[
            tuple[int | None, ...], tuple[CodeType, Any]
        ] = {}  # with their backend, by compile
        self.count = 0

    # -- what fails

    def wrap_backend_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper of OutputGraph.call_user_compiler, through which every backend is
        called.
        """

        def call_user_compiler(output: Any, gm: Any, *rest: Any) -> Any:  # the inputs since 2.9
            with self._guard:
                self._remember(output)
            try:
                return original(output, gm, *rest)
            except Exception as error:
                # Our own frame is the traceback's first; `raise` adds none.
                BaseException.with_traceback(
                    error, error.__traceback__ and error.__traceback__.tb_next
                )
                with self._guard, self._try_enter() as alone:
                    if alone and not _is_control_flow(error) and _find_mark(error) is None:
                        self._capture_compile(
                            error, output, gm, rest[0] if rest else output.example_inputs()
                        )
                raise

        return call_user_compiler

    def add_running(
        self,
        error: BaseException,
        context: Any,
        failure_position: int | None,
        arguments: tuple[Any, ...] = (),
    ) -> None:
        """Capture a graph that raised while running or whose backward failed to compile. Never
        raises.
        """
        with self._guard, self._try_enter() as alone:
            if not alone or not isinstance(error, Exception) or _is_control_flow(error):
                return
            if _find_mark(error) is not None or self.count >= MAX_REPROS:
                return
            if self.add_last(error, context, failure_position):
                return
            failed = origins.find_running(error)
            compiling = (
                None if failed is not None and failed.live else origins.find_compiling(error)
            )
            failed = compiling or failed
            if failed is not None:
                # A backward's saved tensors may have hooks of the program's, which run when they
                # are asked for.
                is_asked = failed.phase != "backward" or self._config.repro_inputs_bytes
                failed.arguments = arguments if is_asked else ()
                self._add(failed, error, context, failure_position=failure_position)

    def add_wrong(
        self, graph: FailedGraph, dynamo: FailedGraph | None, context: Any, accuracy: dict[str, Any]
    ) -> int | None:
        before = self.count
        self._add(
            graph,
            None,
            context,
            dynamo=dynamo,
            backend=(dynamo or graph).backend,
            accuracy=accuracy,
        )
        return before if self.count > before else None

    def describe_running(
        self,
        graph: FailedGraph,
        dynamo: FailedGraph | None,
        context: Any,
        message: str | None = None,
    ) -> RunningGraph | None:
        program, described, symbols = self._write_program(graph)
        if program is None:
            return None
        dynamo_program: str | None = None
        dynamo_inputs: tuple[ReproInput, ...] = ()
        if dynamo is not None:
            dynamo_program, dynamo_inputs, _ = self._write_program(dynamo)
        manifest = replace(
            self._describe(graph, None, context, (dynamo or graph).backend),
            kind="crash",
            message=message,
            inputs=described,
            dynamo_inputs=dynamo_inputs,
            symbols=symbols,
            node_count=script.count_calls(program),
        )
        return RunningGraph(
            manifest, {"program": program, "dynamo_program": dynamo_program}, context
        )

    def add_interrupted(self, graph: RunningGraph) -> None:
        """Keep a graph whose compile was interrupted with Ctrl-C."""
        if self.count < MAX_REPROS:
            manifest = replace(graph.manifest, signal="SIGINT")
            fields = {"position": self._next_position(), "manifest": dump_manifest(manifest)}
            self._write(record_names.REPRO, fields, graph.programs, graph.context)

    def encode_running(self, graph: RunningGraph) -> bytes:
        fields = {"position": MAX_REPROS, "manifest": dump_manifest(graph.manifest)}
        return self._spool.encode(record_names.REPRO, fields, graph.programs, graph.context)

    def encode_values(self, graph: RunningGraph, arguments: Sequence[Any]) -> list[bytes]:
        cuda = sys.modules["torch"].cuda
        if (
            cuda.is_initialized() and cuda.is_current_stream_capturing()
        ):  # Reading a value would end the capture.
            return []
        bodies: dict[str, str] = {}
        call = FailedGraph(graph.manifest.level, arguments=tuple(arguments))
        inputs = self._keep_values(graph.manifest.inputs, call, bodies)
        with_values = replace(graph, manifest=replace(graph.manifest, inputs=inputs))
        lines = [self.encode_running(with_values)] if bodies else []
        for digest, body in bodies.items():
            fields = {"position": MAX_REPROS, "digest": digest}
            lines.append(self._spool.encode(record_names.REPRO_VALUES, fields, body))
        return lines

    def add_last(
        self, error: BaseException, context: Any = None, failure_position: int | None = None
    ) -> bool:
        """Capture the graph that ran last before an asynchronous device error; return whether there
        is one.

        The device can no longer be read, so input values are those written earlier.
        """
        if self.count >= MAX_REPROS or not _is_device_error(error) or _find_mark(error) is not None:
            return False
        records = self.read_last()
        if not records:
            return False
        first = records[0]
        digest = program_digest(first["p"]["program"], ())
        if digest in self._digests:
            return True
        self._digests.add(digest)
        manifest = {
            **first["m"]["manifest"],
            "kind": "runtime",
            "error_type": type(error).__name__,
            "message": self._clean(text_of(error), MAX_ERROR_CHARS),
            "traceback": self._clean(write_traceback(error, None), MAX_TRACEBACK_CHARS),
            "is_asynchronous": True,
        }
        position = self._next_position()
        _mark(error, position)
        fields: dict[str, Any] = {"position": position, "manifest": manifest}
        if failure_position is not None:
            fields["failure_position"] = failure_position
        self._write(record_names.REPRO, fields, first["p"], first.get("c") or context)
        for record in records[1:]:
            self._write(
                record_names.REPRO_VALUES, {**record["m"], "position": position}, record["p"], None
            )
        return True

    def _remember(self, output: Any) -> None:
        code = getattr(getattr(output, "root_tx", None), "f_code", None)
        if isinstance(code, CodeType) and len(self._functions) < MAX_FUNCTIONS:
            self._functions[tuple(torch_compat.context_of() or ())] = (
                code,
                getattr(output, "compiler_fn", None),
            )

    def _capture_compile(self, error: Exception, output: Any, gm: Any, example_inputs: Any) -> None:
        dynamo = FailedGraph("dynamo", "forward", True, None, gm, origins.placeholder_values(gm))
        names = origins.placeholder_names(gm)
        dynamo.live = dict(zip(names, example_inputs))
        failed = origins.find_compiling(error)
        if failed is not None:
            failed.arguments = tuple(example_inputs)
        backend = getattr(output, "compiler_fn", None)
        self._add(
            failed or dynamo, error, torch_compat.context_of(), dynamo=dynamo, backend=backend
        )

    @contextlib.contextmanager
    def _try_enter(self) -> Iterator[bool]:
        """Yield False while this thread is already capturing, because torch's code may compile
        something.
        """
        alone = not getattr(self._busy, "now", False)
        self._busy.now = True
        try:
            yield alone
        finally:
            if alone:
                self._busy.now = False

    # -- what is kept

    def _add(
        self,
        failed: FailedGraph,
        error: BaseException | None,
        context: Any,
        *,
        dynamo: FailedGraph | None = None,
        backend: Any = None,
        failure_position: int | None = None,
        accuracy: dict[str, Any] | None = None,
    ) -> None:
        if self.count >= MAX_REPROS:
            self._guard.losses[f"repros beyond the first {MAX_REPROS} of this process"] += 1
            return
        program, described, symbols = self._write_program(failed)
        if program is None:
            return
        digest = program_digest(program, described)
        if digest in self._digests:
            return
        self._digests.add(digest)
        position = self._next_position()
        if error is not None:
            _mark(error, position)
        dynamo_program: str | None = None
        dynamo_inputs: tuple[ReproInput, ...] = ()
        bodies: dict[
            str, str
        ] = {}  # of storages, by digest: the program's graph and dynamo's have most in common
        if dynamo is not None and dynamo is not failed:
            with self._guard:
                dynamo_program, dynamo_inputs, more = self._write_program(dynamo)
                symbols = {**more, **symbols}
                dynamo_inputs = self._keep_values(dynamo_inputs, dynamo, bodies)
        described = self._keep_values(described, failed, bodies)
        manifest = self._describe(failed, error, context, backend)
        if accuracy is not None:
            message = (
                f"{accuracy['value']}: error {accuracy['error']} beside eager's own "
                f"{accuracy['eager_error']}"
            ) + (f", in call {accuracy['call']}" if accuracy.get("call", 1) > 1 else "")
            manifest = replace(
                manifest,
                kind="accuracy",
                error_type="AccuracyError",
                message=message,
                accuracy=accuracy,
            )
        manifest = replace(manifest, inputs=described, dynamo_inputs=dynamo_inputs, symbols=symbols)
        if manifest.node_count is None:
            manifest = replace(manifest, node_count=script.count_calls(program))
        fields: dict[str, Any] = {"position": position, "manifest": dump_manifest(manifest)}
        if failure_position is not None:
            fields["failure_position"] = failure_position
        payload = {"program": program, "dynamo_program": dynamo_program}
        self._write(record_names.REPRO, fields, payload, context)
        for digest, body in bodies.items():
            self._write(
                record_names.REPRO_VALUES, {"position": position, "digest": digest}, body, None
            )

    def _next_position(self) -> int:
        position = self.count
        self.count += 1
        return position

    def _write_program(
        self, failed: FailedGraph
    ) -> tuple[str | None, tuple[ReproInput, ...], dict[str, int]]:
        text = failed.script or origins.write_script(failed.graph, failed.inputs)
        if text is None or len(text) > MAX_PROGRAM_CHARS:
            self._guard.losses["repro: torch has no script of this graph"] += 1
            return None, (), {}
        program = script.trim_script(text, os.environ, keep_source=self._config.keep_source)
        if not script.is_python(program):
            self._guard.losses["repro: torch's script of this graph is no Python"] += 1
            return None, (), {}
        symbols = script.read_symbols(text)
        if failed.inputs:
            reader = repro_inputs.InputReader()
            described = reader.describe(origins.placeholder_names(failed.graph), failed.inputs)
            symbols |= reader.symbols
        else:
            described = script.read_inputs(text)
        parameters = [_is_parameter(value) for value in origins.match_arguments(described, failed)]
        described = tuple(
            replace(e, is_parameter=e.is_parameter or is_one)
            for e, is_one in zip(described, parameters)
        )
        return program, described, symbols

    def _keep_values(
        self, described: tuple[ReproInput, ...], failed: FailedGraph, bodies: dict[str, str]
    ) -> tuple[ReproInput, ...]:
        max_bytes = self._config.repro_inputs_bytes
        if not max_bytes:
            return described
        if not self._config.keep_source:
            return tuple(
                replace(e, values=WITHHELD) if e.kind == "tensor" else e for e in described
            )
        values = origins.match_arguments(described, failed)
        return repro_inputs.keep_values(described, values, max_bytes, bodies.setdefault)

    def _describe(
        self, failed: FailedGraph, error: BaseException | None, context: Any, backend: Any
    ) -> ReproManifest:
        root = origins.root_cause(error) if error is not None else None
        message = self._clean(text_of(root), MAX_ERROR_CHARS) if root is not None else None
        code, own_backend = self._functions.get(tuple(context or ()), (None, None))
        backend = backend if backend is not None else own_backend
        is_wrong = type(root).__name__ == "AccuracyError"
        settings = {
            kind: {name: entry["value"] for name, entry in changed.items()}
            for kind, changed in torch_compat.changed_settings().items()
        }
        return ReproManifest(
            kind="accuracy" if is_wrong else "compile" if failed.is_compiling else "runtime",
            level=failed.level,
            phase=failed.phase,
            error_type=type(root).__name__ if root is not None else None,
            message=message,
            traceback=self._clean(write_traceback(error, None), MAX_TRACEBACK_CHARS)
            if error is not None
            else None,
            operation=find_operation(message),
            function=getattr(code, "co_qualname", code.co_name) if code else None,
            file=preload.relative_path(code.co_filename) if code else None,
            line=code.co_firstlineno if code else None,
            backend=origins.backend_name(backend),
            compiler=origins.backend_name(failed.compiler),
            node_count=origins.count_nodes(failed.graph) if failed.graph is not None else None,
            settings=self._clean_values(settings),
            versions=_versions(),
            device=_device_of(failed),
            preload=self._preload(failed, failed.compiler or backend),
        )

    def _preload(self, failed: FailedGraph, backend: Any) -> tuple[str, ...]:
        if not self._config.keep_source:
            return ()
        with self._guard:
            listed = preload.list_preload(failed.graph, backend)
            if failed.graph is None and failed.script:
                names = {
                    name.replace(".", "::", 1)
                    for name in re.findall(r"torch\.ops\.(\w+\.\w+)", failed.script)
                }
                listed = tuple(dict.fromkeys((*listed, *preload.operation_modules(names))))
            return listed
        return ()

    def _clean(self, text: str, max_length: int) -> str:
        return clean_text(text, max_length, self._redact)

    def _clean_values(self, settings: dict[str, dict[str, str]]) -> dict[str, dict[str, Any]]:
        return {
            kind: {name: self._clean(text, 500) for name, text in entry.items()}
            for kind, entry in settings.items()
        }


def _is_control_flow(error: BaseException) -> bool:
    return any(kind.__name__ in CONTROL_FLOW for kind in type(error).__mro__)


def _is_device_error(error: BaseException) -> bool:
    return (
        type(error).__name__ == "AcceleratorError"
        or _DEVICE_ERROR.match(text_of(error)) is not None
    )


def _mark(error: BaseException, position: int) -> None:
    with contextlib.suppress(Exception):
        BaseException.__setattr__(error, MARK, (os.getpid(), position))


def _find_mark(error: BaseException) -> tuple[int, int] | None:
    for cause in origins.causes(error):
        with contextlib.suppress(AttributeError):
            marked: tuple[int, int] = object.__getattribute__(cause, MARK)
            return marked
    return None


def _is_parameter(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].nn.Parameter)


def _versions() -> dict[str, str | None]:
    versions = torch_compat.versions()
    return {
        "torch": versions["torch_version"],
        "python": sys.version.split()[0],
        "cuda": versions["cuda_version"],
        "triton": versions["triton_version"],
    }


def _device_of(failed: FailedGraph) -> str:
    torch = sys.modules["torch"]
    for value in (*failed.inputs, *failed.live.values()):
        if isinstance(value, torch.Tensor) and value.device.type == "cuda":
            return str(torch.cuda.get_device_name(value.device))
    if failed.script and "device(type='cuda'" in failed.script and torch.cuda.is_initialized():
        return str(torch.cuda.get_device_name())
    return "cpu"
