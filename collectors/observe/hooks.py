"""Install and uninstall the hooks in this process."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import time
import weakref
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from ..contract import record_names
from ..contract.fingerprints import config_hash
from ..contract.run_config import SERVER_SETTINGS, RunConfig, parse_steps
from ..contract.secrets import scrub_argv, scrub_environment
from . import runtime_failures, torch_compat
from .cuda_graphs import CudaGraphs, get_skip_context
from .failed_guards import FailedGuards
from .fallbacks import ListReader, limit_record, torch_release
from .hook_guard import HookGuard
from .repro.capture import ReproCapture
from .spool_writer import Spool
from .steps import StepWindow
from .tap import TapHandler, make_tap

CONFIG_FIELDS = ("dynamo_config", "inductor_config", "functorch_config", "compiler_config")
SNAPSHOT_INTERVAL_S = 1.0
MAX_DIGESTS = 32
_METRICS_NAMES = {  # (backward, runtime) -> name
    (False, False): record_names.FORWARD_METRICS,
    (True, False): record_names.BACKWARD_METRICS,
    (False, True): record_names.FORWARD_RUNTIME_METRICS,
    (True, True): record_names.BACKWARD_RUNTIME_METRICS,
}

_installed: Hooks | None = None
_fork_hook_registered = False


class Hooks:
    def __init__(self, run_id: str, folder: str, config: RunConfig) -> None:
        self.run_id = run_id
        self.config = config
        self.redact = _as_it_is if config.keep_source else _load_redaction().redact_source
        self.capabilities = torch_compat.probe()
        server = (
            {name: getattr(config, name) for name in SERVER_SETTINGS} if config.server else None
        )
        self.spool = Spool(folder, run_id, config.database, self._describe, server)
        self.guard = HookGuard(self.spool.losses)
        self.failed_guards = FailedGuards(self.guard)
        self.repros = ReproCapture(self.spool, self.guard, self.redact, config)
        self.failures = runtime_failures.RuntimeFailures(
            self._write_failure, self.guard, self.redact, self.repros.add_running
        )
        self._replaced: list[tuple[Any, str, Any, Any]] = []  # module, attribute, original, ours
        self._handler: TapHandler | None = None
        self._known_configs: set[str] = set()
        self._digests: dict[
            str, str
        ] = {}  # Hashes of texts; each compile has the same configurations again.
        self._settings_recorded = False
        self._snapshot_due_s = 0.0
        self.cuda_graphs = CudaGraphs(self._write_cuda_graph, self.guard)
        self._hooked_once: set[str] = set()
        self.steps: StepWindow | None = None
        self._has_profiled = False  # Whether torch's profiler has been used.
        # By the compile's context: code that Dynamo began to compile.
        self._codes: weakref.WeakValueDictionary[Any, CodeType] = weakref.WeakValueDictionary()
        self._graph_watch: Any = None  # what --repro asks for
        self._running: Any = None
        self._lists = ListReader(torch_release())
        self._add_missing_events()

    # -- in and out

    def install(self) -> None:
        too_old = torch_compat.describe_too_old(torch_compat.loaded_version())
        if too_old:
            self.capabilities = dict.fromkeys(self.capabilities, too_old)
            # With the first record, the run gets to know its torch.
            self.spool.write(record_names.SNAPSHOT, {"final": True, "losses": {}})
            return
        self._replace("metrics", self._metrics_hook)
        if torch_compat.trace_logger_in_use() or self.capabilities["events"] != "ok":
            self._handler = TapHandler(self._emit, self.guard)
            logger = torch_compat.trace_logger()
            if logger is not None:
                logger.addHandler(self._handler)
                self.capabilities["events"] = "ok (beside another reader of torch's trace)"
        else:
            self._replace("events", lambda original: make_tap(original, self._emit, self.guard))
        emit = None if self._lists.logs_recompiles else self._emit_recompile
        self._replace("failed_guards", lambda original: self.failed_guards.wrap(original, emit))
        if self._lists.reads_limits:
            self._replace("recompile_limits", self._limit_hook)
        self._hook_skips()
        self._hook_cuda_graphs()
        self._replace("profiler_starts", self._profiler_hook)
        self._replace("profiler_older_starts", self._profiler_hook)
        self._watch_compiled_code()
        self._replace("repro_backend_calls", self.repros.wrap_backend_call)
        if self.config.repro:
            with self.guard:
                self._watch_graphs()
        if self.config.level == "full":
            with self.guard:
                torch_compat.track_provenance()
        if self.config.steps:
            with self.guard:
                self.open_window(*parse_steps(self.config.steps))
        atexit.register(self._at_exit)
        util = sys.modules.get("multiprocessing.util")
        if util is not None:  # its forked workers end by os._exit, past atexit
            util.register_after_fork(self, Hooks._register_worker_end)
            if sys.modules["multiprocessing.process"].parent_process() is not None:
                # This is such a worker, and torch._dynamo was loaded only now
                self._register_worker_end()

    def uninstall(self) -> None:
        """Remove the hooks, except where other code has wrapped them."""
        self._end_steps()
        self.failures.end()
        self._snapshot(final=True)
        if self._running is not None:
            self._running.end()
        runtime_failures.watch(None)
        self._restore_originals(self._replaced[::-1])
        if self._handler is not None:
            torch_compat.trace_logger().removeHandler(self._handler)
        atexit.unregister(self._at_exit)
        self.spool.close()

    def open_window(self, count: int, after: int | None) -> StepWindow | None:
        """Start timing `count` steps of this process after `after` calls (None: once nothing
        compiles).

        Returns None if steps are already being timed or this torch cannot be hooked.
        """
        if self.steps is not None and not self.steps.is_ended:
            return None
        window = StepWindow(
            count,
            after,
            self._codes,
            self._write_steps,
            self.guard,
            has_own_profiler=self._has_profiled,
        )
        replaced = len(self._replaced)
        if not self._replace("step_calls", window.wrap_entry):
            return None
        mine = self._replaced[replaced:]
        window.on_end = lambda: self._restore_originals(mine)
        self.steps = window
        return window

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Do not record anything that is compiled inside the block."""
        was_closed, self.spool.closed = self.spool.closed, True
        try:
            yield
        finally:
            self.spool.closed = was_closed
            self._known_configs.clear()  # none of those inside was written
            self._settings_recorded = False

    def _add_missing_events(self) -> None:
        for name, missing in (
            ("graph_breaks", self._lists.reads_breaks),
            ("recompiles", not self._lists.logs_recompiles),
        ):
            self.capabilities[name] = (
                "from torch's own list: this version has no event for them" if missing else "ok"
            )

    def _replace(self, capability: str, make: Any) -> bool:
        original = torch_compat.lookup(capability)
        if original is torch_compat.MISSING:
            return False
        owner, attribute = (
            torch_compat.owner(capability),
            torch_compat.attribute(capability),
        )
        ours = make(original)
        holders = torch_compat.find_modules_with(original, attribute)
        for module in {id(m): m for m in [owner, *holders]}.values():
            setattr(module, attribute, ours)
            self._replaced.append((module, attribute, original, ours))
        self.capabilities[capability] = "ok"
        return True

    def _restore_originals(self, replaced: list[tuple[Any, str, Any, Any]]) -> None:
        for module, attribute, original, ours in replaced:
            for holder in [module, *torch_compat.find_modules_with(ours, attribute)]:
                if getattr(holder, attribute, None) is ours:
                    setattr(holder, attribute, original)
        self._replaced = [one for one in self._replaced if one not in replaced]

    def _replace_once(self, capability: str, make: Any) -> None:
        """Replace a name once, possibly only after its module is loaded."""
        if capability not in self._hooked_once and self._replace(capability, make):
            self._hooked_once.add(capability)

    def _hook_skips(self) -> None:
        self._replace_once("cudagraph_skips", self._skip_hook)

    def _hook_cuda_graphs(self) -> None:
        """Hook CUDA graph recording once its module is loaded.

        Inductor loads it while it compiles the first graph to be recorded.
        """
        self._replace_once("cudagraph_recordings", self.cuda_graphs.wrap_recording)
        self._replace_once("cudagraph_warm_ups", self.cuda_graphs.wrap_eager)

    def _watch_compiled_code(self) -> None:
        with self.guard:
            if torch_compat.exclude_from_dynamo(runtime_failures.WATCHED_CODE):
                self._replace(
                    "graph_calls",
                    lambda original: runtime_failures.wrap_install_global(original, self.guard),
                )
                self._replace(
                    "backward_calls",
                    lambda original: runtime_failures.wrap_function_init(original, self.guard),
                )
            runtime_failures.watch(self.failures)

    def _watch_graphs(self) -> None:
        from .repro.accuracy import AccuracyCheck
        from .repro.running import RunningGraphWriter
        from .repro.watching import GraphWatch

        self._running = RunningGraphWriter(self.spool)
        if "crash" in self.config.repro:
            self.repros.read_last = self._running.read_last
        check = AccuracyCheck(self.repros, self.spool.write, self.guard)
        watch = self._graph_watch = GraphWatch(
            self.repros, self._running, check, self.guard, self.config, self._hook_inductor
        )
        self._replace("repro_backend_calls", watch.wrap_backend_call)

    def _hook_inductor(self, is_used: bool) -> None:
        if is_used:
            torch_compat.load("repro_compiles")
        self._replace_once("repro_compiles", self._graph_watch.wrap_compiler)
        self._replace_once("repro_graph_calls", self._graph_watch.wrap_post_compile)

    # -- what is seen

    def _emit(self, name: str, metadata: Any, payload: Any, context: Any) -> None:
        extra: dict[str, Any] | None = None
        if name == record_names.COMPILE_START:
            self._hook_skips()
            self._note_compile()
            start = torch_compat.starting_frame()
            code = start.f_locals.get("code") if start is not None else None
            if code is not None and context is not None:
                self._codes[tuple(context[:3])] = code
            metadata = _resolve_stack_files(metadata, start)
            extra = {**_frame_name(start), "trace": torch_compat.trace_file()}
        elif name == record_names.COMPILE_ERROR and (error := sys.exc_info()[1]) is not None:
            runtime_failures.mark(error, runtime_failures.COMPILE, context)
        elif name == record_names.RECOMPILE and (failed := self.failed_guards.read()):
            grad = sys.modules["torch"].is_grad_enabled()
            extra = {"failed": self.redact(failed), "grad": grad}
        self.spool.write(name, self.redact(metadata), self.redact(payload), context, extra)

    def _emit_recompile(self, reasons: list[str]) -> None:
        self._emit(record_names.RECOMPILE, None, reasons, torch_compat.context_of())

    def _write_failure(self, fields: dict[str, Any], text: str | None, context: Any) -> None:
        self.spool.write(record_names.RUNTIME_FAILED, fields, text, context)

    def _note_compile(self) -> None:
        if self.steps is not None:
            self.steps.note_compile()

    def _write_steps(self, fields: dict[str, Any], trace: str | None) -> None:
        self.spool.write(record_names.STEPS, fields, trace)

    def _profiler_hook(self, original: Any) -> Any:
        def start(*args: Any, **options: Any) -> Any:
            with self.guard:
                window = self.steps
                if window is None or not window.is_starting:  # else it is the window that uses it
                    self._has_profiled = True
                    if window is not None:
                        window.release_profiler()
            return original(*args, **options)

        return start

    def _end_steps(self) -> None:
        if self.steps is not None:
            self.steps.end()

    def _write_cuda_graph(self, fields: dict[str, Any], context: Any) -> None:
        self._note_compile()
        self.spool.write(record_names.CUDAGRAPH, self.redact(fields), None, context)

    def _metrics_hook(self, original: Any) -> Any:
        def log_compilation_event(metrics: Any) -> Any:
            with self.guard:
                self._hook_cuda_graphs()
                self._record_metrics(metrics)
                if self.config.level == "full":
                    torch_compat.forget_kernel_stacks()
            return original(metrics)

        return log_compilation_event

    def _limit_hook(self, original: Any) -> Any:
        def exceeds_cache_size_limit(*args: Any) -> Any:
            exceeded, limit = original(*args)
            if exceeded:
                with self.guard:
                    code = torch_compat.code_of_compile(sys._getframe(1))
                    context = torch_compat.context_of()
                    compile_id = str(torch_compat.lookup("compile_context").current_compile_id())
                    record = self.redact(limit_record(code, compile_id, limit))
                    self.spool.write(record_names.FORWARD_METRICS, record, None, context)
            return exceeded, limit

        return exceeds_cache_size_limit

    def _record_metrics(self, metrics: Any) -> None:
        fields = {name: value for name, value in vars(metrics).items() if value is not None}
        if not fields.get("fail_type") and (error := torch_compat.find_abort()) is not None:
            fields |= {"fail_type": type(error).__name__, "fail_reason": str(error)}
        is_backward = fields.get("is_forward") is False or type(metrics).__name__.startswith("Bwd")
        name = _METRICS_NAMES[is_backward, fields.get("is_runtime") is True]
        if not self._settings_recorded:
            self._record_settings()
        for field in CONFIG_FIELDS:
            text = fields.get(field)
            if isinstance(text, str):
                fields[field] = {
                    "config_hash": self._write_config(field.removesuffix("_config"), text)
                }
        context = torch_compat.context_of()
        self._lists.read(self._emit, context)
        if fields.get("fail_type"):
            self._lists.read_error(self._emit, context)
        self.spool.write(name, self.redact(fields), None, context, self._dynamic_sources(fields))
        if time.monotonic() >= self._snapshot_due_s:
            self._snapshot(final=False)

    def _dynamic_sources(self, fields: dict[str, Any]) -> dict[str, Any] | None:
        compile_id = str(fields.get("compile_id") or "")
        if "/" not in compile_id or compile_id.endswith("/0"):
            return None
        code = [fields.get(key) for key in ("co_filename", "co_firstlineno", "co_name")]
        sources = torch_compat.dynamic_sources(*code)
        return {"dynamic_sources": self.redact(sources)} if sources else None

    def _record_settings(self) -> None:
        self._settings_recorded = True
        with self.guard:
            self._write_config(
                "changed", self.redact(json.dumps(torch_compat.changed_settings(), sort_keys=True))
            )

    def _write_config(self, kind: str, text: str) -> str:
        digest = self._digests.get(text)
        if digest is None:
            if len(self._digests) >= MAX_DIGESTS:
                self._digests.clear()
            digest = self._digests[text] = config_hash(text)
        if digest not in self._known_configs:
            self._known_configs.add(digest)
            self.spool.write(
                record_names.CONFIG, {"config_hash": digest, "config_kind": kind, "body": text}
            )
        return digest

    def _skip_hook(self, original: Any) -> Any:
        def log_cudagraph_skip_and_bump_counter(msg: str) -> Any:
            with self.guard:
                fields = {"reason": self.redact(str(msg))}
                context = get_skip_context(sys._getframe(1))
                self.spool.write(record_names.CUDAGRAPH_SKIP, fields, None, context)
            return original(msg)

        return log_cudagraph_skip_and_bump_counter

    # -- the process

    def _describe(self) -> dict[str, Any]:
        environment = os.environ
        argv = scrub_argv(_argv())
        described: dict[str, Any] = {
            "run_id": self.run_id,
            "pid": os.getpid(),
            "argv": argv if self.config.keep_source else _load_redaction().redact_code(argv),
            "level": self.config.level,
            "task": environment.get("COMPILEBOARD_TASK") or None,
            "python_version": sys.version.split()[0],
            "capabilities": dict(self.capabilities),
            "environment": scrub_environment(environment, self.config.capture_env),
            "registry": torch_compat.registry_path(),
            "trace": torch_compat.trace_file(),
            **torch_compat.versions(),
        }
        for field, name in (
            ("rank", "RANK"),
            ("local_rank", "LOCAL_RANK"),
            ("world_size", "WORLD_SIZE"),
        ):
            value = environment.get(name, "")
            described[field] = int(value) if value.isdigit() else None
        return described

    def _snapshot(self, *, final: bool) -> None:
        self._snapshot_due_s = time.monotonic() + SNAPSHOT_INTERVAL_S
        disabling = torch_compat.list_disabling() if final else []
        if not self.spool.record_count and not self.spool.losses and not disabling:
            return
        with self.guard:
            body: dict[str, Any] = {"final": final, "counters": torch_compat.counters()}
            if final:
                body["disabling"] = disabling
                self._record_settings()
                if self._handler is not None and torch_compat.trace_logger().disabled:
                    self.spool.losses[
                        "torch's trace logger was disabled by the program's logging configuration"
                    ] = 1
                body["compile_times"] = torch_compat.compile_times()
                body["gpus"], body["cudnn_version"] = torch_compat.gpus()
            body["losses"] = dict(self.spool.losses)
            self.spool.write(record_names.SNAPSHOT, self.redact(body))

    def _at_exit(self) -> None:
        error = runtime_failures.find_end()
        self._end_steps()
        self.failures.end(error)
        if self._running is not None:
            with self.guard:
                if error is not None:
                    self.repros.add_last(error)
        self._snapshot(final=True)
        if self._running is not None:
            self._running.end()

    def after_fork(self) -> None:
        self.spool.after_fork()
        if self.steps is not None:
            self.steps.abandon()
        self.failures.clear()
        self.repros.clear()
        if self._running is not None:
            self._running.clear()
        self._known_configs.clear()
        self._settings_recorded = False
        self._snapshot_due_s = 0.0

    def _register_worker_end(self) -> None:
        with self.guard:
            sys.modules["multiprocessing.util"].Finalize(None, self._at_exit, exitpriority=-100)


def _as_it_is(value: Any) -> Any:
    return value


def _load_redaction() -> Any:
    """Import the redaction only for runs without source, because compiling its patterns takes 0.6
    ms.
    """
    from ..contract import redaction

    return redaction


def _argv() -> list[str]:
    return [str(argument) for argument in getattr(sys, "orig_argv", None) or sys.argv]


def _frame_name(start: FrameType | None) -> dict[str, str]:
    """Return the qualified name of the function that Dynamo compiles.

    Python 3.10 has none; there the recorder's source index finds the name.
    """
    code: Any = start.f_locals.get("code") if start is not None else None
    return {"qualname": code.co_qualname} if hasattr(code, "co_qualname") else {}


def _resolve_stack_files(metadata: Any, start: FrameType | None) -> Any:
    names: dict[int, str] = {}
    frames = []
    for frame in metadata.get("stack", []):
        filename = frame.get("filename")
        if isinstance(filename, int):
            names = names or torch_compat.interned_strings()
            frame = {**frame, "filename": names.get(filename)}
        frames.append(frame)
    if start is not None and frames:
        last = frames[-2] if len(frames) > 1 else None
        frames[-1:-1] = torch_compat.list_lost_callers(start, last)
    return {**metadata, "stack": frames}


def current() -> Hooks | None:
    return _installed


def install_hooks(run_id: str, folder: str, config: RunConfig) -> Hooks:
    """Install the hooks and return them, or the ones already installed."""
    global _installed, _fork_hook_registered
    if _installed is None:
        hooks = Hooks(run_id, folder, config)
        hooks.install()
        _installed = hooks
    if not _fork_hook_registered:
        os.register_at_fork(
            after_in_child=_after_fork_in_child
        )  # Permanent: Python cannot undo it.
        _fork_hook_registered = True
    return _installed


def _after_fork_in_child() -> None:
    if _installed is not None:
        with _installed.guard:
            _installed.after_fork()


def uninstall_hooks() -> bool:
    global _installed
    if _installed is None:
        return False
    _installed.uninstall()
    _installed = None
    return True


def current_of_other_copy() -> Hooks | None:
    for name in ("compileboard.collectors", "_compileboard"):
        other = sys.modules.get(f"{name}.observe.hooks")
        if (
            other is not None
            and other.__name__ != __name__
            and hasattr(other, "current_of_other_copy")
        ):
            installed: Hooks | None = other.current()
            return installed
    return None


def install_from_environment() -> None:
    environment = os.environ
    config = RunConfig.from_environment(environment)
    install_hooks(environment["COMPILEBOARD_RUN_ID"], environment["COMPILEBOARD_SPOOL"], config)
