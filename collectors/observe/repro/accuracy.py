"""Compare the outputs and mutated inputs of a compiled graph with eager and float64.

Calls 1, 2, 4, 8 … of each shape are compared, until one differs. The program gets the result of the
one real call. Eager runs on clones made before it, with the same random state; errors of the check
are not raised. The criterion is torch's own `same()`: a result is wrong if its error exceeds a
multiple of eager's error plus a tolerance.
"""

from __future__ import annotations

import copy
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...contract import record_names
from .. import torch_compat
from ..hook_guard import HookGuard
from . import origins
from .capture import ReproCapture
from .origins import FailedGraph

MAX_INPUT_BYTES = 2 << 30
MEMORY_FACTOR = 6  # what clones, eager and float64 take of a GPU beside the inputs, at least
MAX_SHAPES = 8  # Shapes of one graph.
HALF_LIMIT = 2e-2
TOLERANCE = 1e-3  # torch._dynamo.config.repro_tolerance
CANNOT_CLONE = "its inputs cannot be cloned"
DRAWS = "it draws random numbers: compiled and eager draw others"
SAME, WRONG, SKIPPED = "same", "wrong", "skipped"


class NotComparedError(Exception):
    """The outputs of a graph cannot be compared; the message says why."""


@dataclass
class ValueDifference:
    name: str  # "output 0", "input primals_1 afterwards"
    error: float
    eager_error: float
    limit: float
    note: str | None = None

    @property
    def is_wrong(self) -> bool:
        return not self.error <= self.limit


class AccuracyCheck:
    def __init__(
        self,
        capture: ReproCapture,
        write: Callable[[str, dict[str, Any], Any, Any], None],
        guard: HookGuard,
    ) -> None:
        self._capture = capture
        self._write = write
        self._guard = guard
        self._local = threading.local()

    def wrap(
        self, call: Any, graph: FailedGraph, dynamo: FailedGraph | None, *, is_boxed: bool
    ) -> Any:
        calls: dict[Any, int] = {}  # by shapes
        ended: set[Any] = set()
        context = torch_compat.context_of()

        def checked(*args: Any) -> Any:
            given = args[0] if is_boxed else args
            key = _shapes(given)
            number = calls.get(key, 0) + 1
            if number > 1 or len(calls) < MAX_SHAPES:
                calls[key] = number
            if (
                key in ended
                or key not in calls
                or number & (number - 1)  # no power of two
                or getattr(self._local, "is_checking", False)
            ):
                return call(*args)
            values, started_s = list(given), time.perf_counter()
            reason: str | None = CANNOT_CLONE
            clones: list[Any] = []
            state: Any = None
            with self._guard:
                reason = _why_not(graph, values) or reason
                if reason == CANNOT_CLONE:
                    clones, state = clone_inputs(values), _random_state()
                    reason = None
            spent_s = time.perf_counter() - started_s
            result = call(*args)  # the program's own: whatever it raises goes on
            started_s = time.perf_counter()
            with self._guard, self._mark_checking():
                differences: list[ValueDifference] = []
                if reason is None:
                    try:
                        differences = self._compare(graph, values, clones, state, result)
                    except NotComparedError as error:
                        reason = str(error)
                    except Exception as error:
                        reason = f"{type(error).__name__}: {error}"[:300]
                spent_s += time.perf_counter() - started_s
                verdict = self._judge(
                    graph, dynamo, context, differences, reason, spent_s, clones, number
                )
                if verdict != SAME:
                    ended.add(key)
            return result

        return checked

    @contextmanager
    def _mark_checking(self) -> Iterator[None]:
        self._local.is_checking = True
        try:
            yield
        finally:
            self._local.is_checking = False

    def _compare(
        self, graph: FailedGraph, values: list[Any], clones: list[Any], state: Any, result: Any
    ) -> list[ValueDifference]:
        torch = sys.modules["torch"]
        after = _random_state()
        if _differs(after, state):
            raise NotComparedError(DRAWS)
        try:
            with torch.no_grad(), _own_precision(graph):
                eager_inputs = clone_inputs(clones)
                _set_random_state(state)
                eager = graph.graph(*eager_inputs)
                exact_inputs, exact = eager_inputs, eager
                if not _share_memory(values):  # float64 copies would not
                    exact_graph, exact_inputs = _to_float64(graph.graph, clone_inputs(clones))
                    _set_random_state(state)
                    exact = exact_graph(*exact_inputs)
        finally:
            _set_random_state(after)
        mine, reference, precise = (list(_leaves(part)) for part in (result, eager, exact))
        names = [f"output {index}" for index in range(len(mine))]
        if not len(mine) == len(reference) == len(precise):
            raise RuntimeError(f"compiled returns {len(mine)} values, eager {len(reference)}")
        for index, name in enumerate(origins.placeholder_names(graph.graph)):
            if graph.phase != "backward" or _is_written(
                graph.graph, name
            ):  # a backward may use up what it is given
                names.append(f"input {name} afterwards")
                for values_of, inputs in (
                    (mine, values),
                    (reference, eager_inputs),
                    (precise, exact_inputs),
                ):
                    values_of.append(inputs[index])
        with torch.no_grad():
            compared = [compare(*parts) for parts in zip(names, mine, reference, precise)]
        return [difference for difference in compared if difference is not None]

    def _judge(
        self,
        graph: FailedGraph,
        dynamo: FailedGraph | None,
        context: Any,
        differences: list[ValueDifference],
        reason: str | None,
        spent_s: float,
        clones: list[Any],
        call: int,
    ) -> str:
        wrong = [difference for difference in differences if difference.is_wrong]
        verdict = SKIPPED if reason is not None else WRONG if wrong else SAME
        worst = max(
            wrong or differences, key=lambda difference: _order(difference.error), default=None
        )
        fields: dict[str, Any] = {
            "level": graph.level,
            "phase": graph.phase,
            "verdict": verdict,
            "seconds": round(spent_s, 4),
            "call": call,
        }
        if reason is not None:
            fields["reason"] = reason
        if worst is not None:
            fields |= {
                "value": worst.name,
                "error": _number(worst.error),
                "eager_error": _number(worst.eager_error),
            }
            fields |= {"note": worst.note} if worst.note else {}
        is_known = graph.level == "dynamo" and getattr(self._local, "wrong_below", False)
        if graph.level == "aot":
            self._local.wrong_below = verdict == WRONG
        if worst is not None and wrong and not is_known:
            names = origins.placeholder_names(graph.graph)
            graph.live = dict(zip(names, clones))
            details = {
                **fields,
                "limit": _number(worst.limit),
                "wrong": [entry.name for entry in wrong][:20],
            }
            fields["position"] = self._capture.add_wrong(graph, dynamo, context, details)
            graph.live = {}
        self._write(record_names.GRAPH_CHECKED, fields, None, context)
        return verdict


def compare(name: str, mine: Any, eager: Any, exact: Any) -> ValueDifference | None:
    torch = sys.modules["torch"]
    if not isinstance(eager, torch.Tensor):
        return None
    if not isinstance(mine, torch.Tensor) or mine.shape != eager.shape or mine.dtype != eager.dtype:
        return ValueDifference(name, math.inf, 0.0, 0.0, "another shape or type than eager's")
    if not eager.numel() or eager.layout is not torch.strided:
        return None
    if not (eager.is_floating_point() or eager.is_complex()):
        different = float((mine != eager).double().mean())
        return ValueDifference(
            name, different, 0.0, 0.0, "share of elements that differ" if different else None
        )
    wide = torch.complex128 if eager.is_complex() else torch.float64
    small, note = eager.numel() <= 10, None
    is_half = eager.dtype in (torch.float16, torch.bfloat16)
    own = eager.detach().to(wide)
    mine, exact = mine.detach().to(wide), own if exact is eager else exact.detach().to(wide)
    if bool((~exact.isfinite() & own.isfinite()).any()):
        exact, note = own, "float64 is not finite where eager is: compared with eager"
    regular = own.isfinite()
    if bool((mine.isfinite() != regular).any()) or bool((mine.isnan() != own.isnan()).any()):
        return ValueDifference(
            name, math.inf, 0.0, 0.0, "NaN or infinite at other places than eager"
        )
    error, eager_error = _rms(mine, exact, regular), _rms(own, exact, regular)
    multiplier = 10.0 if small and is_half else 3.0 if is_half or small else 2.0
    limit = multiplier * eager_error + TOLERANCE / 10
    if exact is own and is_half:  # there is no float64 to say what eager's own error is
        limit = HALF_LIMIT
    return ValueDifference(name, error, eager_error, limit, note)


def _rms(value: Any, reference: Any, regular: Any) -> float:
    """Return rms(value - reference) / rms(reference); 0 if they are equal."""
    torch = sys.modules["torch"]
    zero = torch.zeros((), dtype=reference.dtype, device=reference.device)
    reference = torch.where(regular, reference, zero)
    difference = float((torch.where(regular, value, zero) - reference).abs().square().mean().sqrt())
    size = float(reference.abs().square().mean().sqrt())
    return difference / size if size else (0.0 if difference == 0 else difference)


def clone_inputs(values: Sequence[Any]) -> list[Any]:
    """Clone tensors with their strides and offsets. Clones of tensors that share memory share it
    too.
    """
    torch = sys.modules["torch"]
    storages: dict[int, Any] = {}
    clones = []
    for value in values:
        if not isinstance(value, torch.Tensor):
            clones.append(value)
        elif (
            type(value) not in (torch.Tensor, torch.nn.Parameter)
            or value.layout is not torch.strided
        ):
            clones.append(value.detach().clone())
        else:
            storage = value.untyped_storage()
            if storage._cdata not in storages:
                storages[storage._cdata] = storage.clone()
            made = torch.empty(0, dtype=value.dtype, device=value.device)
            made.set_(storages[storage._cdata], value.storage_offset(), value.shape, value.stride())
            clones.append(made)
    return clones


def _why_not(graph: FailedGraph, values: Sequence[Any]) -> str | None:
    torch = sys.modules["torch"]
    if graph.graph is None:
        return "it came from AOTAutograd's cache, which has not all of its graph"
    for node in graph.graph.graph.nodes:
        if "c10d" in str(getattr(node.target, "namespace", "")):
            return "it talks to other ranks"
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            return DRAWS
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    size = sum(
        {
            t.untyped_storage()._cdata: t.untyped_storage().nbytes()
            for t in tensors
            if _is_plain(t)
        }.values()
    )
    if size > MAX_INPUT_BYTES:
        return f"its inputs of {size} bytes are over the limit of {MAX_INPUT_BYTES}"
    device = next((tensor.device for tensor in tensors if tensor.device.type == "cuda"), None)
    if device is not None:
        if torch.cuda.is_current_stream_capturing():
            return "it is being captured into a CUDA graph"
        free, _ = torch.cuda.mem_get_info(device)
        if size * MEMORY_FACTOR > free:
            return f"{free} bytes of the GPU's memory are free, {size * MEMORY_FACTOR} are needed"
    return None


def _share_memory(values: Sequence[Any]) -> bool:
    tensors = [
        value
        for value in values
        if isinstance(value, sys.modules["torch"].Tensor) and _is_plain(value)
    ]
    return len({tensor.untyped_storage()._cdata for tensor in tensors}) < len(tensors)


def _is_plain(tensor: Any) -> bool:
    return tensor.layout is sys.modules["torch"].strided


def _is_written(graph: Any, name: str) -> bool:
    written = {
        str(node.args[0])
        for node in graph.graph.nodes
        if str(node.target).startswith("aten.copy_.") and node.args
    }
    return name in written


@contextmanager
def _own_precision(graph: FailedGraph) -> Iterator[None]:
    """Disable autocast for graphs traced by AOTAutograd, whose casts are already in the graph."""
    torch = sys.modules["torch"]
    if graph.level != "aot":
        yield
        return
    guard = torch._C._DisableAutocast()
    try:
        yield
    finally:
        del guard


def _to_float64(graph: Any, inputs: list[Any]) -> tuple[Any, list[Any]]:
    from torch._dynamo.debug_utils import cast_to_fp64

    model, cast = cast_to_fp64(copy.deepcopy(graph), inputs)
    return model, list(cast)


def _shapes(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        getattr(value, "shape", value if isinstance(value, (int, bool)) else None)
        for value in values
    )


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _random_state() -> list[Any]:
    torch = sys.modules["torch"]
    on_gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *on_gpu]


def _set_random_state(state: list[Any]) -> None:
    torch = sys.modules["torch"]
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state_all(state[1:])


def _differs(state: list[Any], other: list[Any]) -> bool:
    return any(not bool((a == b).all()) for a, b in zip(state, other))


def _order(error: float) -> float:
    return math.inf if math.isnan(error) else error


def _number(error: float) -> float | str:
    return float(f"{error:.4g}") if math.isfinite(error) else str(error)
