"""All uses of torch's private names: where to find each, in which versions, and its fallback.

`probe` looks up each name; the results are the run's capabilities, shown on its page. Versions were
checked in the sources of 2.4 to 2.13, see docs/compatibility.md.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FrameType, ModuleType
from typing import Any

MISSING = object()
OLDEST_TORCH, NEWEST_TORCH = (2, 4), (2, 13)

# capability -> (module, attribute, versions, what takes its place)
NAMES: dict[str, tuple[str, str, str, str]] = {
    "metrics": (
        "torch._dynamo.utils",
        "log_compilation_event",
        "2.4-2.13",
        "the trace events of the same name",
    ),
    "events": (
        "torch._logging._internal",
        "trace_structured",
        "2.4-2.13",
        "a handler on torch's trace logger",
    ),
    "compile_context": (
        "torch._guards",
        "CompileContext",
        "2.4-2.13",
        "events without a compile id",
    ),
    "failed_guards": (
        "torch._dynamo.guards",
        "get_and_maybe_log_recompilation_reasons",
        "2.4-2.13",
        "of each cache entry of a recompile, the first failed guard alone",
    ),
    "counters": ("torch._dynamo.utils", "counters", "2.4-2.13", "no final counters"),
    "compile_times": ("torch._dynamo.utils", "compile_times", "2.4-2.13", "no compile_times()"),
    "cudagraph_skips": (
        "torch._inductor.cudagraph_utils",
        "log_cudagraph_skip_and_bump_counter",
        "2.5-2.13",
        "the last reason of each compile, in its metrics",
    ),
    "cudagraph_recordings": (
        "torch._inductor.cudagraph_trees",
        "CUDAGraphTreeManager.record_function",
        "2.4-2.13",
        "no recordings of CUDA graphs",
    ),
    "cudagraph_warm_ups": (
        "torch._inductor.cudagraph_trees",
        "CUDAGraphTreeManager.run_eager",
        "2.4-2.13",
        "no warm-ups of CUDA graphs",
    ),
    "graph_calls": (
        "torch._dynamo.output_graph",
        "OutputGraph.install_global_unsafe",
        "2.4-2.13",
        "of what compiled code raises, only what ends the program",
    ),
    "backward_calls": (
        "torch.autograd.function",
        "FunctionMeta.__init__",
        "2.4-2.13",
        "of what compiled backwards raise, only what ends the program",
    ),
    "repro_backend_calls": (
        "torch._dynamo.output_graph",
        "OutputGraph.call_user_compiler",
        "2.4-2.13",
        "no repro of a compile that fails",
    ),
    "repro_script": (
        "torch._dynamo.repro.after_aot",
        "save_graph_repro",
        "2.4-2.13",
        "no repro of a graph that fails",
    ),
    "repro_graph_script": (
        "torch._inductor.output_code",
        "CompiledFxGraph.runnable_graph_str",
        "2.8-2.13",
        "no repro of what inductor's code raises while it runs",
    ),
    "repro_graph_calls": (
        "torch._inductor.output_code",
        "CompiledFxGraph.post_compile",
        "2.6-2.13",
        "no --repro=crash and no --repro=accuracy",
    ),
    "repro_compiles": (
        "torch._inductor.compile_fx",
        "wrap_compiler_debug",
        "2.6-2.13",
        "no --repro=accuracy of what AOTAutograd gives to the compiler",
    ),
    "minifier": ("torch._functorch.fx_minifier", "ConcreteProp", "2.4-2.13", "no repro minify"),
    "minifier_program": (
        "torch._dynamo.debug_utils",
        "NNModuleToString.convert",
        "2.4-2.13",
        "no repro minify",
    ),
    "graph_compiler": (
        "torch._inductor.compile_fx",
        "compile_fx_inner",
        "2.4-2.13",
        "no repro run, check, minify or analyze of AOTAutograd's graphs",
    ),
    "step_calls": (
        "torch._dynamo.eval_frame",
        "_maybe_set_eval_frame",
        "2.4-2.13",
        "no --steps",
    ),
    "profiler_starts": (
        "torch.autograd.profiler",
        "_prepare_profiler",
        "2.4-2.13",
        "no program that uses torch's profiler may have --steps",
    ),
    "profiler_older_starts": (
        "torch.autograd.profiler",
        "_enable_profiler",
        "2.4-2.13",
        "no program that uses torch's profiler may have --steps",
    ),
    "skip_code": (
        "torch._dynamo.eval_frame",
        "skip_code",
        "2.4-2.13",
        "compiled code is not watched",
    ),
    "backward_passes": (
        "torch.autograd",
        "_engine_run_backward",
        "2.4-2.13",
        "no gradients in trials",
    ),
    "config_defaults": (
        "torch._dynamo.config",
        "_config",
        "2.4-2.13",
        "no list of changed settings",
    ),
}

# Needed where torch writes no record of a recompile limit, and not probed.
OLDER_NAMES = {
    "recompile_limits": (
        "torch._dynamo.convert_frame",
        "exceeds_cache_size_limit",
        "2.4-2.5",
        "no recompile limits",
    )
}

CONFIG_MODULES = {
    "dynamo": "torch._dynamo.config",
    "inductor": "torch._inductor.config",
    "functorch": "torch._functorch.config",
}

# Modules that took `trace_structured` by name when they were imported, and would go on calling the
# original.
HOLDERS_PREFIX = "torch."
MAX_DYNAMIC_SOURCES = 100  # Nobody reads a longer list of one function's sources.
# Level 1 follows them through more of inductor's passes.
PROVENANCE_LEVEL = "2"
# Between a hook and log_dynamo_start: logging's, where torch's own trace is on.
MAX_FRAMES_TO_START = 16
LOGS_START = "log_dynamo_start"


# Names of before.
_OLDER = {
    "get_and_maybe_log_recompilation_reasons": "get_and_maybe_log_recompilation_reason",
    "_maybe_set_eval_frame": "set_eval_frame",
}


def release_of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())


def loaded_version() -> str:
    return str(getattr(sys.modules.get("torch"), "__version__", "0"))


def describe_too_old(version: str) -> str | None:
    """Return why nothing is recorded with this torch, None if something is."""
    if release_of(version) >= OLDEST_TORCH:
        return None
    return f"torch {version} is too old; CompileBoard records torch 2.4 and newer"


def _named(capability: str) -> tuple[str, str, str, str]:
    return NAMES.get(capability) or OLDER_NAMES[capability]


def attribute(capability: str) -> str:
    """Return the capability's attribute name in this torch version."""
    name = _named(capability)[1].rpartition(".")[2]
    return name if hasattr(owner(capability), name) else _OLDER.get(name, name)


def lookup(capability: str) -> Any:
    value: Any = owner(capability)
    name = attribute(capability)
    if name in getattr(
        value, "__dataclass_fields__", ()
    ):  # without a default it is no attribute of its class
        return value.__dataclass_fields__[name]
    return MISSING if value is MISSING else getattr(value, name, MISSING)


def load(capability: str) -> Any:
    try:
        importlib.import_module(NAMES[capability][0])
    except ImportError:
        return MISSING
    return lookup(capability)


def owner(capability: str) -> Any:
    module_name, attribute, _, _ = _named(capability)
    value: Any = sys.modules.get(module_name, MISSING)
    for part in attribute.split(".")[:-1]:
        value = getattr(value, part, MISSING)
    return value


def probe() -> dict[str, str]:
    """Return "ok", "later" (module not loaded yet) or the reason for each capability."""
    answers = {}
    for capability, (module_name, *_) in NAMES.items():
        if lookup(capability) is not MISSING:
            answers[capability] = "ok"
        elif not _is_loaded(module_name):
            answers[capability] = "later"
        else:
            answers[capability] = describe_missing(capability)
    return answers


def _is_loaded(module_name: str) -> bool:
    """Return whether a module has finished importing; it may itself be importing Dynamo."""
    module = sys.modules.get(module_name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def describe_missing(capability: str) -> str:
    module_name, attribute, versions, instead = NAMES[capability]
    return f"{module_name}.{attribute} is not in this torch (known in {versions}); {instead}"


def find_modules_with(original: Any, attribute: str) -> list[ModuleType]:
    modules = []
    for name, module in list(sys.modules.items()):
        if (
            name.startswith(HOLDERS_PREFIX)
            and getattr(module, "__dict__", {}).get(attribute) is original
        ):
            modules.append(module)
    return modules


def trace_logger_in_use() -> bool:
    """Return whether torch's trace events already have a reader: TORCH_TRACE, TORCH_COMPILE_DEBUG,
    or a handler.
    """
    internal = sys.modules.get("torch._logging._internal")
    logger = getattr(internal, "trace_log", None)
    idle = getattr(internal, "LazyTraceHandler", None)
    for handler in getattr(logger, "handlers", []):
        # torch attaches a LazyTraceHandler always; without a folder it takes itself off at the
        # first event.
        if idle is None or not isinstance(handler, idle) or handler.root_dir is not None:
            return True
    return False


def trace_file() -> str | None:
    idle = getattr(sys.modules.get("torch._logging._internal"), "LazyTraceHandler", None)
    for handler in getattr(trace_logger(), "handlers", []):
        if idle is not None and isinstance(handler, idle) and handler.stream is not None:
            try:
                return os.path.basename(os.readlink(f"/proc/self/fd/{handler.stream.fileno()}"))
            except (OSError, ValueError):  # no Linux; the program has closed it
                return None
    return None


def trace_logger() -> Any:
    return getattr(sys.modules.get("torch._logging._internal"), "trace_log", None)


def closure_cell(function: Any, name: str) -> CellType:
    """Return the closure cell of a variable."""
    cell: CellType = function.__closure__[function.__code__.co_freevars.index(name)]
    return cell


def disabled_cell(function: Any) -> CellType | None:
    code = getattr(function, "__code__", None)
    if (
        not hasattr(function, "_torchdynamo_orig_callable")
        or code is None
        or "fn" not in code.co_freevars
    ):
        return None
    return closure_cell(function, "fn")


def compiled_backward(name: str, attributes: dict[str, Any]) -> Any:
    """Return the backward of a class that AOTAutograd created for a graph, None for other classes.

    For double backward there is a second class whose backward only raises.
    """
    is_torchs = str(attributes.get("__module__")).startswith("torch._functorch.")
    if name not in ("CompiledFunction", "CompiledFunctionBackward") or not is_torchs:
        return None
    return getattr(attributes.get("backward"), "__func__", None)


def graph_script(graph: Any) -> str | None:
    if type(graph).__name__ != "CompiledFxGraph":
        return None
    script = getattr(graph, "runnable_graph_str", None)
    return script if isinstance(script, str) and "def forward" in script else None


def cache_info(payload_fn: Any) -> dict[str, Any] | None:
    """Return the dict that a cache event would write as 80 KB of JSON, or None if it is not found.

    All versions have `payload_fn=lambda: json.dumps(cache_info)`.
    """
    code = getattr(payload_fn, "__code__", None)
    if code is None or code.co_freevars != ("cache_info",):
        return None
    info = payload_fn.__closure__[0].cell_contents
    return info if isinstance(info, dict) else None


def forget_kernel_stacks() -> None:
    """Empty inductor's list of stack traces of backward kernels, which torch never empties.

    Each backward writes the whole list, so the trace grows by the square of their number. Source:
    2.9 to 2.13, _inductor_kernel_stack_trace in torch/_inductor/debug.py; a forward has a list of
    its own.
    """
    stacks = getattr(sys.modules.get("torch._inductor.debug"), "_inductor_kernel_stack_trace", None)
    if isinstance(stacks, dict):
        stacks.clear()


def exclude_from_dynamo(code: CodeType) -> bool:
    """Exclude a function's frames from Dynamo; False if this torch cannot."""
    skip = lookup("skip_code")
    if skip is MISSING:
        return False
    skip(code)
    return True


def starting_frame() -> FrameType | None:
    """Return the frame of torch's log_dynamo_start, in 2.4 and 2.5 of _compile, from inside its
    dynamo_start event.

    Its variable `code` is the code that Dynamo compiles. The event has only the bare name, and
    wrapping that function would add a frame to the stack it captures.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAX_FRAMES_TO_START):
        if frame is None or frame.f_code.co_name in (LOGS_START, "_compile"):
            return frame
        frame = frame.f_back
    return None


def list_lost_callers(start: FrameType, last_caller: Any | None) -> list[dict[str, Any]]:
    """List the frames between torch's own and the last caller in its stack (all frames if there is
    none), outermost first.

    Source: log_dynamo_start skips a fixed number of frames, in 2.13 including up to two of the
    program.
    """
    if start.f_code.co_name != LOGS_START:
        return []
    own, frame = start.f_code.co_filename, start.f_back
    lost: list[dict[str, Any]] = []
    for _ in range(MAX_FRAMES_TO_START):
        if frame is None:
            return [] if last_caller else lost[::-1]
        found = {
            "filename": frame.f_code.co_filename,
            "line": frame.f_lineno,
            "name": frame.f_code.co_name,
        }
        if last_caller and all(last_caller.get(key) == value for key, value in found.items()):
            return lost[::-1]
        if found["filename"] != own:
            lost.append(found)
        frame = frame.f_back
    return []


def interned_strings() -> dict[int, str]:
    structured = sys.modules.get("torch._logging.structured")
    table = getattr(structured, "INTERN_TABLE", {})
    return {number: text for text, number in table.items()}


def context_of(compile_id: Any = None) -> list[int | None] | None:
    """Return [compiled_autograd_id, frame_id, frame_compile_id, attempt, rank] of the current
    compile.
    """
    attempt = None
    context = lookup("compile_context")
    if context is not MISSING:
        trace_id = context.current_trace_id()
        if trace_id is not None:
            compile_id, attempt = trace_id.compile_id, trace_id.attempt
    if compile_id is None:
        return None
    return [
        getattr(compile_id, "compiled_autograd_id", None),
        getattr(compile_id, "frame_id", None),
        getattr(compile_id, "frame_compile_id", None),
        attempt,
        distributed_rank(),
    ]


def reserved_bytes(device: int) -> int | None:
    """Return the memory that torch's allocator holds on a GPU."""
    cuda = sys.modules.get("torch.cuda")
    return None if cuda is None else int(cuda.memory_reserved(device))


def initialized_cuda() -> Any:
    """Return `torch.cuda` if the program uses a GPU, else None."""
    cuda = sys.modules.get("torch.cuda")
    return cuda if cuda is not None and cuda.is_initialized() else None


def peak_bytes_per_s(cuda: Any) -> int | None:
    """Return the GPU's peak memory bandwidth."""
    if cuda is None:
        return None
    properties = cuda.get_device_properties(cuda.current_device())
    clock_khz = getattr(properties, "memory_clock_rate", 0)
    width_bits = getattr(properties, "memory_bus_width", 0)
    return clock_khz * 1000 * 2 * width_bits // 8 or None


def list_storages(values: Any) -> Iterator[tuple[int, int]]:
    """Yield the memory address and size in bytes of each tensor in nested lists of values."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from list_storages(value)
        elif hasattr(value, "untyped_storage"):
            with contextlib.suppress(Exception):  # a subclass without a storage of its own
                yield value.untyped_storage().data_ptr(), value.numel() * value.element_size()


def make_event_recorder() -> Callable[[Any], None]:
    """Return a function that records a CUDA event on the current stream.

    torch's own function creates a Python object for the stream each time, which takes 10 µs.
    """
    torch = sys.modules["torch"]
    stream, device = torch.cuda.current_stream(), torch.cuda.current_device()
    find_current, record = torch._C._cuda_getCurrentStream, torch._C._CudaEventBase.record
    known = find_current(device)

    def record_event(event: Any) -> None:
        if find_current(device) == known:
            record(event, stream)
        else:
            event.record()

    return record_event


def profiler_range(name: str) -> Any:
    return sys.modules["torch"]._C._profiler._RecordFunctionFast(name)


def start_profiler(with_cuda: bool) -> Any:
    """Start torch's profiler and return it; None while the program itself uses it."""
    torch = sys.modules["torch"]
    if torch._C._autograd._profiler_enabled() or torch.autograd.profiler._is_profiler_enabled:
        return None
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CPU, *([activity.CUDA] if with_cuda else [])]
    profiler = torch.profiler.profile(activities=activities)
    profiler.start()
    return profiler


def name_called(entry: FrameType) -> tuple[str | None, int]:
    """Return the name of the compiled function that a wrapper calls (for a module, its class), and
    the `id` of the function or module.
    """
    function = entry.f_locals.get("fn")
    module = getattr(function, "__self__", None)
    if module is None:
        return getattr(function, "__qualname__", None), id(function)
    return type(module).__qualname__, id(module)


def compiled_call_count() -> int | None:
    """Return how often the program has called compiled functions."""
    guard = sys.modules.get("torch._dynamo.mutation_guard")
    return getattr(getattr(guard, "GenerationTracker", None), "generation", None)


def code_of_compile(frame: FrameType) -> CodeType:
    """Return the code object that torch compiles, from a frame of its `_compile`."""
    code: CodeType = frame.f_locals["code"]
    return code


def distributed_rank() -> int | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank())


def dynamic_sources(file: str | None, first_line: int | None, name: str | None) -> str | None:
    """Return the sources that torch made dynamic in a code object: "L['x']:0,L['x']:2,L['n']".

    Source: torch/_dynamo/pgo.py (CodeId, FrameStateSizeEntry, render_code_state) of 2.13.
    """
    states = getattr(sys.modules.get("torch._dynamo.pgo"), "_CODE_STATE", None) or {}
    entries: dict[str, None] = {}
    for code, state in list(states.items()):
        if code.firstlineno != first_line or code.name != name or code.filename != file:
            continue
        for source, entry in list(state.automatic_dynamic.items()):
            if isinstance(entry.size, tuple):
                dims = (
                    dim
                    for dim, size in enumerate(entry.size)
                    if type(size).__name__ == "AutoDynamic"
                )
                entries.update(dict.fromkeys(f"{source}:{dim}" for dim in dims))
            elif type(entry.scalar).__name__ == "AutoDynamic":
                entries[source] = None
            if len(entries) >= MAX_DYNAMIC_SOURCES:
                return None
    return ",".join(entries) or None


def break_list() -> list[Any]:
    """Return the graph breaks that torch keeps until reset(); replaces the event of 2.6 and
    later.
    """
    return list(getattr(sys.modules.get("torch._dynamo.utils"), "graph_break_reasons", ()))


def kept_record_count() -> int:
    return len(getattr(sys.modules.get("torch._dynamo.utils"), "_compilation_metrics", ()))


def track_provenance() -> None:
    """Make inductor write the nodes and lines of each kernel, unless that changes cache keys.

    From torch 2.12 on it does, and existing caches would not be used. See docs/provenance.md.
    """
    own = {"INDUCTOR_PROVENANCE", "TORCH_COMPILE_DEBUG"} & set(os.environ)
    if own or release_of(loaded_version()) >= (2, 12):
        return
    os.environ["INDUCTOR_PROVENANCE"] = PROVENANCE_LEVEL
    trace = getattr(sys.modules.get("torch._inductor.config"), "trace", None)
    if hasattr(trace, "provenance_tracking_level"):
        trace.provenance_tracking_level = int(PROVENANCE_LEVEL)  # type: ignore[union-attr]


def versions() -> dict[str, str | None]:
    torch = sys.modules["torch"]
    version = getattr(torch, "version", None)
    triton = sys.modules.get("triton")
    return {
        "torch_version": getattr(torch, "__version__", None) and str(torch.__version__),
        "torch_git": getattr(version, "git_version", None),
        "cuda_version": getattr(version, "cuda", None),
        "triton_version": getattr(triton, "__version__", None),
    }


def registry_path() -> str | None:
    folder = os.path.dirname(getattr(sys.modules.get("torch._dynamo"), "__file__", None) or "")
    path = os.path.join(folder, "graph_break_registry.json")
    return path if folder and os.path.exists(path) else None


def gpus() -> tuple[list[dict[str, Any]], str | None]:
    """Return the GPUs that the program has initialised, and cuDNN's version. No GPU is
    initialised.
    """
    torch = sys.modules["torch"]
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return [], None
    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices.append(
            {
                "name": properties.name,
                "memory_bytes": properties.total_memory,
                "compute_capability": f"{properties.major}.{properties.minor}",
            }
        )
    cudnn = torch.backends.cudnn.version()
    return devices, None if cudnn is None else str(cudnn)


def changed_settings() -> dict[str, dict[str, dict[str, str]]]:
    """Return settings that differ from torch's defaults: {"dynamo": {name: {"value": …, "default":
    …}}}.
    """
    changed: dict[str, dict[str, dict[str, str]]] = {}
    for kind, name, value, default in list_changed_settings():
        changed.setdefault(kind, {})[name] = {
            "value": repr(value)[:500],
            "default": repr(default)[:500],
        }
    return changed


def list_disabling() -> list[str]:
    """Return what turns torch.compile off in this process: variables, a setting, the stance.

    Source: `_optimize` and `DynamoStance` of torch/_dynamo/eval_frame.py; 2.5 has no stance.
    """
    names = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
    found = [f"{name}=1" for name in names if os.environ.get(name) == "1"]
    config = sys.modules.get("torch._dynamo.config")
    if not found and getattr(config, "disable", False) is True:
        found = ["torch._dynamo.config.disable = True"]
    stance = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    if getattr(stance, "stance", None) == "force_eager":
        found.append('torch.compiler.set_stance("force_eager")')
    return found


def find_abort() -> BaseException | None:
    """Return the exception that ends the compile whose record is written, if torch does not record
    it: KeyboardInterrupt and SystemExit.
    """
    error = sys.exc_info()[1]
    if error is None or isinstance(error, Exception) or error.__traceback__ is None:
        return None
    # One that the program handles while it compiles is of the program's own frame.
    return error if "_dynamo" in error.__traceback__.tb_frame.f_code.co_filename else None


def list_changed_settings() -> Iterator[tuple[str, str, Any, Any]]:
    """Yield kind, name, value and default."""
    for kind, module_name in CONFIG_MODULES.items():
        module = sys.modules.get(module_name)
        if module is None:
            continue
        defaults = _defaults(module)
        current = (
            module.get_config_copy() if hasattr(module, "get_config_copy") else dict(module._config)
        )
        for name, value in current.items():
            if name in defaults and not _same(value, defaults[name]):
                yield kind, name, value, defaults[name]


def _defaults(module: Any) -> dict[str, Any]:
    """Return a module's default settings. Entries have a `default` since torch 2.6; before, the
    defaults are a plain dict.
    """
    entries = getattr(module, "_config", {})
    plain = getattr(module, "_default", None)
    if isinstance(plain, dict):
        return plain
    return {name: entry.default for name, entry in entries.items() if hasattr(entry, "default")}


def _same(value: Any, default: Any) -> bool:
    try:
        return bool(value == default)
    except Exception:  # a config value may be anything, tensors included
        return value is default


def compile_times() -> dict[str, float]:
    """Return torch's compile_times() summed by phase, in seconds."""
    function = lookup("compile_times")
    if function is MISSING:
        return {}
    headers, rows = function(repr="csv")
    return {
        str(name): sum(float(part) for part in str(row).split(",") if part.strip())
        for name, row in zip(headers, rows)
    }


def counters() -> dict[str, dict[str, Any]]:
    table = lookup("counters")
    if table is MISSING:
        return {}
    return {
        str(name): {str(key): count for key, count in group.items()}
        for name, group in list(table.items())
    }
