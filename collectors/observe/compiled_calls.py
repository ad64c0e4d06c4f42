"""Record the compiled calls of a trial.

Recorded are the duration of each call and of the program until the next one, the result or
exception, and the gradients that each backward pass left. Only the outermost call counts: a
compiled module inside a compiled function is part of it. torch must be imported.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from .torch_compat import MISSING, context_of, exclude_from_dynamo, lookup, owner
from .trial_plan import CALLS_PREFIX

MAX_CALLS = 20_000  # Times are recorded for this many calls.
# Whose values are recorded; of the later ones those whose number is a power of two.
FIRST_CALLS = 32
MAX_LEAVES = 256  # values of one call
MAX_ELEMENTS = 512  # Evenly spread, besides sum, absolute sum, minimum and maximum.
MAX_BYTES = 64 << 20  # The limit of one process.
FIRST_BACKWARDS = 8  # Gradients of these passes are recorded; later ones are sampled as calls are.
MAX_NODES = 20_000  # Nodes of autograd's graph that are searched for tensors that get gradients.
MAX_DEPTH = 20
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


class CallRecorder:
    def __init__(self, folder: str, probe_folder: str) -> None:
        self._folder = folder
        self._probe_folder = probe_folder
        self._depth = threading.local()
        self._lock = threading.Lock()
        self._names: dict[str, int] = {}
        self._call_count = self._backward_count = 0
        self._written_bytes = 0
        self._has_watched_modules = self._has_probed = False
        self._torch: Any = None

    def watch(self, torch: Any) -> None:
        self._torch = torch
        original = torch.compile

        @functools.wraps(original)
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            compiled = original(model, *args, **kwargs)
            try:
                if kwargs.get("backend", "inductor") == "inductor":
                    self._probe_processor()
                return compiled if model is None else self._wrap(compiled)
            except Exception:
                return compiled

        torch.compile = compile
        self._watch_backward()

    def _watch_backward(self) -> None:
        """Record the gradients of each backward pass. `Tensor.backward` and `torch.autograd.grad`
        both run through one function of torch.
        """
        original = lookup("backward_passes")
        if original is MISSING:
            return

        @functools.wraps(original)
        def run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            depth = self._depth
            # AOTAutograd traces a graph's backward with one of these: no pass of the program's.
            if getattr(depth, "in_backward", False) or context_of() is not None:
                return original(outputs, *args, **kwargs)
            number, self._backward_count = self._backward_count, self._backward_count + 1
            is_recorded = self._is_recorded(number, FIRST_BACKWARDS)
            leaves = self._list_leaves(outputs) if is_recorded else []
            depth.in_backward = True
            try:
                gradients = original(outputs, *args, **kwargs)
            finally:
                depth.in_backward = False
            if is_recorded:
                self._write_gradients(number, leaves, gradients)
            return gradients

        exclude_from_dynamo(run_backward.__code__)  # type: ignore[attr-defined]  # a function's
        owner("backward_passes")._engine_run_backward = run_backward

    def _list_leaves(self, outputs: Any) -> list[Any]:
        try:
            return _list_leaves(outputs)
        except Exception as error:
            self._note_loss(error)
            return []

    def _write_gradients(self, number: int, leaves: list[Any], returned: Any) -> None:
        try:
            found = [leaf.grad for leaf in leaves] + list(returned or ())
            with self._torch.no_grad():
                values = [
                    ["", *self._describe_leaf(gradient)]
                    for gradient in found[:MAX_LEAVES]
                    if gradient is not None
                ]
            self._append({"backward": number, "value": values})
        except Exception as error:
            self._note_loss(error)

    def _wrap(self, compiled: Any) -> Any:
        if not self._has_watched_modules:
            self._has_watched_modules = True
            self._watch_modules(sys.modules["torch._dynamo.eval_frame"].OptimizedModule)
        # Already recorded, or no compiled function: `torch.compile(…, disable=True)` gives back
        # what it got.
        if not hasattr(compiled, "_torchdynamo_orig_callable") or not callable(
            getattr(compiled, "__get__", None)
        ):
            return compiled
        name = self._name(getattr(compiled, "__qualname__", "") or repr(compiled))
        record = self._record

        @functools.wraps(compiled)
        def compiled_call(*args: Any, **kwargs: Any) -> Any:
            return record(name, compiled, args, kwargs)

        compiled_call._torchdynamo_wrapper_id = id(compiled_call)  # type: ignore[attr-defined]  # dynamo unwraps by it
        self._exclude(compiled_call)
        return compiled_call

    def _probe_processor(self) -> None:
        """Make inductor detect the processor now. With an empty cache folder this takes 11 s, and
        it is not part of a compile. Both sides of a trial share a folder only for this.
        """
        if self._has_probed or self._torch.cuda.is_available():
            return
        self._has_probed = True
        import torch._inductor.cpu_vec_isa as probe

        variable = "TORCHINDUCTOR_CACHE_DIR"
        own = os.environ.get(variable)
        os.environ[variable] = self._probe_folder
        try:
            probe.pick_vec_isa()
        finally:
            if own is None:
                del os.environ[variable]
            else:
                os.environ[variable] = own

    def _watch_modules(self, module_class: Any) -> None:
        original = module_class.__call__
        names: dict[int, str] = {}
        record = self._record

        @functools.wraps(original)
        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            name = names.get(id(module))
            if name is None:
                name = names[id(module)] = self._name(type(module._orig_mod).__qualname__)
            return record(name, original, (module, *args), kwargs)

        self._exclude(__call__)
        module_class.__call__ = __call__

    @staticmethod
    def _exclude(wrapper: Any) -> None:
        """Exclude our frames from Dynamo when a compiled function calls another one after a graph
        break.
        """
        for function in (wrapper, CallRecorder._record):
            exclude_from_dynamo(function.__code__)

    def _name(self, name: str) -> str:
        number = self._names[name] = self._names.get(name, 0) + 1
        return name if number == 1 else f"{name} #{number}"

    def _record(
        self, name: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        depth = self._depth
        if getattr(depth, "inside", False):
            return call(*args, **kwargs)
        depth.inside = True
        try:
            self._synchronize()  # what the program started since the last call is its time
            since = self._measure_since()
            before = self._observe()
            start_ns = time.perf_counter_ns()
            result = call(*args, **kwargs)
            self._synchronize()
            took_us = (time.perf_counter_ns() - start_ns) / 1000
        except Exception as error:
            self._write(name, 0.0, since, before, self._observe(), error, has_raised=True)
            raise
        finally:
            depth.inside = False
        self._write(name, took_us, since, before, self._observe(), result)
        return result

    def _measure_since(self) -> tuple[int, float] | None:
        """Return the thread's last call and how long the program has run since."""
        last = getattr(self._depth, "last", None)
        if last is None:
            return None
        number, resumed_ns = last
        return number, round((time.perf_counter_ns() - resumed_ns) / 1000, 3)

    def _synchronize(self) -> None:
        try:
            cuda = self._torch.cuda
            if cuda.is_initialized() and not cuda.is_current_stream_capturing():
                cuda.synchronize()
        except Exception:
            return

    def _observe(self) -> tuple[int, int, str]:
        try:
            self._synchronize()
            torch = self._torch
            counters = sys.modules["torch._dynamo.utils"].counters
            position = str(zlib.crc32(torch.default_generator.get_state().numpy().tobytes()))
            if torch.cuda.is_initialized():
                position += (
                    f" {torch.cuda.default_generators[torch.cuda.current_device()].get_offset()}"
                )
            # Up to 2.6, frames["ok"] counts frames that were skipped too.
            graphs = counters["stats"]["unique_graphs"]
            return int(counters["frames"]["total"]), int(graphs), position
        except Exception:
            return 0, 0, ""

    def _write(
        self,
        name: str,
        took_us: float,
        since: tuple[int, float] | None,
        before: Any,
        after: Any,
        result: Any,
        has_raised: bool = False,
    ) -> None:
        with self._lock:
            number = self._call_count
            self._call_count += 1
        if number >= MAX_CALLS:
            return
        body: dict[str, Any] = {"call": number, "name": name, "us": round(took_us, 3)}
        if since is not None:
            body["since"] = since
        frames = after[0] - before[0], after[1] - before[1]
        if any(frames):
            body["frames"] = frames
        if frames[0] or has_raised:  # the time of a call that raised is no step's
            body["compiled"] = True
        if after[2] != before[2]:
            body["random"] = True
        try:
            if has_raised:
                message = next(iter(str(result).strip().splitlines()), "")
                body["value"] = [["", "raised", type(result).__qualname__, message[:300]]]
            elif self._is_recorded(number, FIRST_CALLS):
                with self._torch.no_grad():
                    body["value"] = self._describe(result)
        except Exception as error:
            self._note_loss(error)
        self._append(body)
        self._depth.last = number, time.perf_counter_ns()

    def _is_recorded(self, number: int, first: int) -> bool:
        is_chosen = number < first or number & (number - 1) == 0
        return is_chosen and self._written_bytes < MAX_BYTES

    def _note_loss(self, error: Exception) -> None:
        self._append({"lost": f"{type(error).__name__}: {error}"[:200]})

    def _append(self, body: dict[str, Any]) -> None:
        text = json.dumps(body) + "\n"
        try:
            with (
                self._lock,
                open(os.path.join(self._folder, f"{CALLS_PREFIX}{os.getpid()}"), "a") as file,
            ):
                if not file.tell():
                    rank = os.environ.get("RANK")
                    file.write(
                        json.dumps({"argv": sys.argv, "rank": rank, "start_ns": time.time_ns()})
                        + "\n"
                    )
                file.write(text)
                self._written_bytes += len(text)
        except OSError:
            return

    def _describe(self, result: Any) -> list[list[Any]]:
        leaves: list[list[Any]] = []
        for path, leaf in _walk(result, "", 0):
            if len(leaves) >= MAX_LEAVES:
                leaves.append(["", "cut", None])
                break
            leaves.append([path, *self._describe_leaf(leaf)])
        return leaves

    def _describe_leaf(self, leaf: Any) -> list[Any]:
        if isinstance(leaf, self._torch.Tensor):
            return self._describe_tensor(leaf)
        if isinstance(leaf, (bool, int, float)):
            return ["number", type(leaf).__name__, [leaf]]
        if leaf is None or isinstance(leaf, (str, bytes)):
            return ["text", type(leaf).__name__, _ADDRESS.sub("0x", repr(leaf))[:500]]
        if type(leaf).__module__ == "numpy":
            return self._describe_tensor(self._torch.as_tensor(leaf))
        return ["other", type(leaf).__qualname__]

    def _describe_tensor(self, tensor: Any) -> list[Any]:
        torch = self._torch
        try:
            values = tensor.detach()
            if values.layout != torch.strided:
                values = values.to_dense()
            dtype, shape = str(values.dtype).removeprefix("torch."), list(values.shape)
            if values.is_complex():
                values = torch.view_as_real(values)
            flat = values.reshape(-1)
            is_exact = not flat.dtype.is_floating_point
            step = -(-flat.numel() // MAX_ELEMENTS) or 1
            sums: list[Any] = []
            if step > 1 and is_exact:
                whole = flat.to(device="cpu", dtype=torch.int64)
                sums = [zlib.crc32(whole.numpy().tobytes())]
            elif step > 1:
                wide = flat if flat.dtype == torch.float64 else flat.float()
                sums = [
                    float(wide.mean()),
                    float(wide.abs().mean()),
                    float(wide.min()),
                    float(wide.max()),
                ]
            wide = flat[::step].to(device="cpu")
            wide = wide.to(torch.int64 if is_exact else torch.float64)
            return ["tensor", dtype, wide.tolist(), shape, sums]
        except Exception as error:  # a subclass that has no values of its own
            return ["other", f"{type(tensor).__qualname__} ({type(error).__name__})"]


def _list_leaves(outputs: Any) -> list[Any]:
    """Return the leaf tensors to which a backward pass from these outputs adds gradients."""
    waiting = [output.grad_fn for output in outputs if getattr(output, "grad_fn", None)]
    seen, leaves = set(waiting), []
    while waiting and len(seen) < MAX_NODES:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            leaves.append(leaf)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return leaves


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > MAX_DEPTH:
        yield path, None
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _walk(entry, f"{path}[{key!r}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, entry in enumerate(value):
            yield from _walk(entry, f"{path}[{index}]", depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _walk(getattr(value, field.name, None), f"{path}.{field.name}", depth + 1)
    else:
        yield path, value
