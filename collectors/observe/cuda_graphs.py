"""Write an event for each recording of a CUDA graph, and for each warm-up run before it.

torch records a graph when a compiled function is called and none of its graphs can be replayed.
Replays are not hooked. Source: torch/_inductor/cudagraph_trees.py of 2.6 to 2.13.
"""

from __future__ import annotations

import itertools
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from ..contract.record_names import PATH_NOT_ENDED
from . import torch_compat
from .hook_guard import HookGuard

MAX_SIBLINGS = 4  # the newest: torch goes through all at each call
LONGEST = 4000  # characters of a reason, which names each input that moved
_DEEPEST = 10_000
_INPUT = re.compile(r"^input name: (.+?)\. data pointer", re.MULTILINE)

Write = Callable[[dict[str, Any], Any], None]


class CudaGraphs:
    def __init__(self, write: Write, guard: HookGuard) -> None:
        self._write = write
        self._guard = guard
        # By the manager, of which there is one a device and thread:
        self._trees: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._tree_numbers = itertools.count()

    def wrap_recording(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def record_function(manager: Any, new_inputs: Any, function_id: Any) -> Any:
            reasons: list[list[Any]] = []
            with self._guard:
                reasons = _list_reasons(sys._getframe(1), manager, new_inputs, function_id)
            return self._measure(original, (manager, new_inputs, function_id), "recording", reasons)

        return record_function

    def wrap_eager(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run_eager(manager: Any, new_inputs: Any, function_id: Any) -> Any:
            if function_id in manager.warmed_up_functions:  # while others are still warming up
                return original(manager, new_inputs, function_id)
            return self._measure(original, (manager, new_inputs, function_id), "warm_up", [])

        return run_eager

    def _measure(
        self, original: Callable[..., Any], arguments: Any, stage: str, reasons: list[list[Any]]
    ) -> Any:
        manager, _inputs, function_id = arguments
        before = None
        with self._guard:
            before = torch_compat.reserved_bytes(manager.device_index)
        begin = time.perf_counter_ns()
        result = original(*arguments)
        end = time.perf_counter_ns()
        with self._guard:
            if manager not in self._trees:
                self._trees[manager] = next(self._tree_numbers)
            fields = {
                "stage": stage,
                "tree": self._trees[manager],
                "device": manager.device_index,
                "graph_function": function_id.id,
                "mode": manager.id_to_mode[function_id].name.lower(),
                "duration_us": (end - begin) // 1000,
                "reserved_before_bytes": before,
                "reserved_after_bytes": torch_compat.reserved_bytes(manager.device_index),
                "call_count": torch_compat.compiled_call_count(),
                **_describe_position(manager.current_node),
                "reasons": reasons,
            }
            self._write(fields, context_of(manager, function_id))
        return result


def context_of(manager: Any, function_id: Any) -> Any:
    return torch_compat.context_of(getattr(manager, "id_to_compile_id", {}).get(function_id))


def get_skip_context(frame: FrameType | None) -> Any:
    """Return the compile context of a skip that torch logs while compiling or running a graph.

    While a graph is running, it comes from torch's manager in the frame that logs the skip.
    """
    for _ in range(2):
        if frame is None:
            break
        names = frame.f_locals
        if "function_id" in names and hasattr(names.get("self"), "id_to_mode"):
            return context_of(names["self"], names["function_id"])
        frame = frame.f_back
    return torch_compat.context_of()


def _describe_position(node: Any) -> dict[str, int | None]:
    """Return the numbers of a graph and of its parent, and the graph's depth in its tree."""
    parents = list(_list_parents(node))
    return {
        "graph": node.id.id,
        "parent_graph": parents[0].id.id if parents else None,
        "depth": len(parents),
    }


def _list_parents(node: Any) -> Iterator[Any]:
    for _ in range(_DEEPEST):
        node = node.parent
        if node is None:
            return
        yield node


def _list_reasons(
    frame: FrameType, manager: Any, new_inputs: list[Any], function_id: Any
) -> list[list[Any]]:
    """Return [graph, status, text, inputs, input count] for each graph that was not replayed.

    torch has checked them in `_run`, and may have left the path of graphs since then. Its result
    for the last graph is still available; the other graphs are checked again.
    """
    names = frame.f_locals
    last = names.get("status"), names.get("status_logger")
    if None in last:  # none was checked
        return _explain_place(manager, function_id)
    siblings = list(names["child_nodes"][function_id])[-MAX_SIBLINGS:]
    answers = [sibling.check_invariants(list(new_inputs)) for sibling in siblings[:-1]]
    reasons = []
    for sibling, (status, describe) in zip(siblings, [*answers, last], strict=True):
        whole = str(describe())
        text = whole[:LONGEST]
        inputs = _describe_inputs(sibling.wrapped_function.placeholders, new_inputs, text)
        count = len(_INPUT.findall(whole))
        reasons.append([sibling.id.id, status.name, text, inputs, count])
    return reasons


def _explain_place(manager: Any, function_id: Any) -> list[list[Any]]:
    """Explain why a function that used to begin a path of graphs is now recorded after another
    function.

    torch ends a path at a new step, or once the program holds none of its outputs. Neither
    happened, and torch records no reason.
    """
    began, node = manager.roots.get(function_id), manager.current_node
    if node is None or not began:
        return []
    path = (node, *_list_parents(node))
    if any(each.wrapped_function.id == function_id for each in path):
        return []  # the next of several calls in a step
    return [[began[-1].id.id, PATH_NOT_ENDED, "", {}, 0]]


def _describe_inputs(placeholders: Any, new_inputs: list[Any], text: str) -> dict[str, list[Any]]:
    """Return the type and shape of each input named in torch's message."""
    named = set(_INPUT.findall(text))
    return {
        placeholder.name: [str(value.dtype), list(value.shape)]
        for placeholder, value in zip(placeholders, new_inputs, strict=True)
        if placeholder.name in named
    }
