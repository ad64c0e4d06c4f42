"""Cache lookups: the components of their keys, differences, and the nearest earlier key of
a miss.
"""

from __future__ import annotations

import heapq
import re
import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any, TypeVar

import orjson

from compileboard.app.artifacts.text import FieldChange, compare_fields, read_fields
from compileboard.app.caches.run_queries import (
    RUNS_BACK,
    Lookup,
    NearestLookup,
    get_detail,
    get_lookup,
    list_earlier,
    list_runs_before,
    read_texts,
)
from compileboard.app.core.page import Page
from compileboard.app.core.store import Store, open_run_or_board
from compileboard.app.runs import failures
from compileboard.app.runs.failures import CacheLookup, CacheResult
from compileboard.collectors.store.payloads import Component, parse_components

# Source: FxGraphHashDetails in torch/_inductor/codecache.py and AOTAutogradCacheDetails of 2.11 and
# 2.13. The most frequently changed first, which is the order of a comparison's lines.
_WORDS: dict[str, str] = {
    "gm": (
        "The graph itself: changed by other code, another path through it, or constants "
        "compiled in."
    ),
    "example_inputs": "One input of the graph: changed by another shape, stride, dtype, device "
    "or requires_grad, "
    "by a size that became dynamic, or by inputs in another order.",
    "inductor_config": "A setting of torch._inductor.config: changed by code, by options= or "
    "mode= of torch.compile, "
    "or by an environment variable.",
    "fx_kwargs": "How the graph is compiled: forward or backward, inference, CUDA graphs, "
    "which inputs keep their "
    "address (static_input_idxs).",
    "inputs_to_check": "Which inputs' alignment is checked at run time: changed by which of "
    "them keep their address "
    "and are aligned.",
    "user_defined_triton_source": (
        "The source of a Triton kernel that the graph calls: changed by editing it."
    ),
    "triton_kernel_source_codes": (
        "The source of the Triton kernels that the graph calls: changed by editing them."
    ),
    "aot_config": "What AOTAutograd was told of the inputs: where each comes from, whether "
    "sizes are dynamic, whether "
    "it is an inference.",
    "autograd_config": (
        "The settings of torch._functorch.config, as one: changed by code or an environment "
        "variable."
    ),
    "grad_enabled": (
        "Whether gradients were enabled: changed by torch.no_grad or torch.inference_mode."
    ),
    "autocast_state": (
        "Automatic mixed precision by device: changed by torch.autocast and its dtype."
    ),
    "disable_amp": "Whether automatic mixed precision was on: changed by torch.autocast.",
    "deterministic_algorithms": "Changed by torch.use_deterministic_algorithms.",
    "deterministic_algorithms_settings": "Changed by torch.use_deterministic_algorithms, its "
    "warn_only, or "
    "torch.utils.deterministic.fill_uninitialized_memory.",
    "cuda_matmul_settings": "Precision of CUDA matrix products: changed by "
    "torch.backends.cuda.matmul (TF32, reduced "
    "precision) or torch.set_float32_matmul_precision.",
    "default_dtype": "Changed by torch.set_default_dtype.",
    "cpp_runtime_thread_count": "How many threads CPU code is compiled for: changed by "
    "torch.set_num_threads, "
    "OMP_NUM_THREADS or a machine with other cores.",
    "saved_tensors_hooks_fx_wrap_cache_hashes": (
        "Hooks on saved tensors that are compiled in: changed by their code."
    ),
    "sac_context_fn_hashes": (
        "Functions that choose what activation checkpointing keeps: changed by their code."
    ),
    "region_activation_memory_budget": "How much memory the graph may keep for the backward.",
    "custom_estimator_solver_uuids": "Custom estimators of the partitioner's run time and memory.",
    "cache_key_tag": (
        "torch.compiler.config.cache_key_tag: a text that people set to keep caches apart."
    ),
    "torch_version": (
        "The build of torch, as a hash of its sources: changed by installing another one."
    ),
    "system_info": "The machine: the GPU's model, and the versions of CUDA (or HIP) and Triton.",
    "provenance_tracking_level": (
        "Whether inductor tracks which nodes a kernel comes from; `--level full` turns it on."
    ),
    "precompile_enabled": "Whether the compile is for torch's precompilation.",
    "custom_backend_passes": "Graph passes of other device backends.",
    "_fuse_ddp_communication_passes": (
        "Which passes fuse the collectives of DDP: changed by inductor's settings."
    ),
    "_custom_partitioner_fn": (
        "A custom function that splits forward and backward: changed by its uuid()."
    ),
}
_PASSES = "A custom graph pass: changed by setting one, or by its uuid()."
_POSITIONS = {name: position for position, name in enumerate(_WORDS)}


def explain_component(name: str) -> str:
    group = _find_group(name)
    return _WORDS.get(group) or (_PASSES if "_custom" in group and group.endswith("_pass") else "")


def order_component(name: str) -> tuple[int, str, int, str]:
    group, key = _find_group(name), name.partition("[")[2]
    number = key.rstrip("]")
    is_number = number.isascii() and number.isdigit() and len(number) < 9
    return _POSITIONS.get(group, len(_POSITIONS)), group, int(number) if is_number else -1, key


def _find_group(name: str) -> str:
    group = name.partition("[")[0]
    # torch._inductor.config_comms and similar modules are settings too.
    return "inductor_config" if group.startswith("inductor_config_") else group


_UNREADABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffd]")
_SIZE = re.compile(r"^(?:torch\.Size\(\[(.*)\]\)|\((.*)\))$", re.DOTALL)
_NAMED = re.compile(r"^(?P<group>\w+)\[(?P<key>.*)\]$", re.DOTALL)


@dataclass(frozen=True)
class ComponentChange:
    """One component of the key that differs."""

    name: Annotated[str, "torch's name of it."]
    summary: Annotated[str, "How it differs."]
    explanation: Annotated[str, "Its meaning and what changes it; empty where unknown."]
    before: Annotated[str | None, "Its text; null where it is not there, or bytes."]
    after: Annotated[str | None, "Its text; null where it is not there, or bytes."]
    fields: Annotated[
        tuple[FieldChange, ...], "Fields that differ, where torch writes it with fields."
    ] = ()


@dataclass(frozen=True)
class KeyDiff:
    changed: tuple[ComponentChange, ...]
    only_in_miss: tuple[ComponentChange, ...]
    only_in_earlier: tuple[ComponentChange, ...]
    same_count: int

    @property
    def count(self) -> int:
        return len(self.changed) + len(self.only_in_miss) + len(self.only_in_earlier)


@dataclass(frozen=True)
class KeyFingerprint:
    """A cache key as 16-byte hashes of its components, valid within one Python process."""

    names: array[int]
    pairs: array[int]


def fingerprint_key(components: Iterable[Component]) -> KeyFingerprint:
    identities = {component.name: component.identity for component in components}
    return KeyFingerprint(
        array("q", map(hash, identities)), array("q", map(hash, identities.items()))
    )


def find_nearest_earlier(
    miss: Sequence[Component] | KeyFingerprint,
    earlier: Iterable[Sequence[Component] | KeyFingerprint],
) -> int | None:
    """Return the position of the earlier key with the fewest differences, or None if there is no
    earlier key. The latest wins a tie.

    `earlier` is in order of time and is read once.
    """
    sought = miss if isinstance(miss, KeyFingerprint) else fingerprint_key(miss)
    names, pairs = set(sought.names), set(sought.pairs)
    best, fewest = None, 0
    for position, entry in enumerate(earlier):
        other = entry if isinstance(entry, KeyFingerprint) else fingerprint_key(entry)
        # A component of both with another hash counts once, one of a single side once: |A| + |B| -
        # names - pairs.
        common = sum(map(names.__contains__, other.names)) + sum(
            map(pairs.__contains__, other.pairs)
        )
        differing = len(names) + len(other.names) - common
        if best is None or differing <= fewest:
            best, fewest = position, differing
    return best


def compare_keys(miss: Iterable[Component], earlier: Iterable[Component]) -> KeyDiff:
    now, was = _index_by_name(miss), _index_by_name(earlier)
    both = [name for name in now if name in was]
    changed = [name for name in both if now[name].identity != was[name].identity]
    return KeyDiff(
        changed=tuple(_describe_change(was[name], now[name]) for name in _sort_names(changed)),
        only_in_miss=tuple(
            _describe_single(now[name], True) for name in _sort_names(now.keys() - was.keys())
        ),
        only_in_earlier=tuple(
            _describe_single(was[name], False) for name in _sort_names(was.keys() - now.keys())
        ),
        same_count=len(both) - len(changed),
    )


def _index_by_name(components: Iterable[Component]) -> dict[str, Component]:
    # A damaged key may repeat a name; the result must not depend on the order.
    return {
        component.name: component
        for component in sorted(
            components, key=lambda component: (component.name, component.digest, component.value)
        )
    }


def _sort_names(names: Iterable[str]) -> list[str]:
    return sorted(names, key=order_component)


def _describe_change(was: Component, now: Component) -> ComponentChange:
    before, after = _format_component(was.value), _format_component(now.value)
    fields: tuple[FieldChange, ...] = ()
    if now.name == "gm":
        summary = "the graph differs"
    elif before is None or after is None:
        summary = f"{_label_component(now.name)} differs; torch records it as bytes"
    elif before == after:
        summary = (
            f"{_label_component(now.name)} differs in its hash; torch's text for it is the same"
        )
    else:
        old, new = read_fields(before), read_fields(after)
        fields = compare_fields(old, new) if old and new else ()
        changes = [
            f"{field.name} {_format_value(field.before)} → {_format_value(field.after)}"
            for field in fields
        ]
        difference = ", ".join(changes) or f"{_shorten(before)} → {_shorten(after)}"
        summary = f"{_label_component(now.name)}: {difference}"
    return ComponentChange(now.name, summary, explain_component(now.name), before, after, fields)


def _describe_single(component: Component, is_miss: bool) -> ComponentChange:
    value = _format_component(component.value)
    side = "the miss" if is_miss else "the earlier key"
    summary = f"{_label_component(component.name)}: only in {side}"
    before, after = (None, value) if is_miss else (value, None)
    return ComponentChange(
        component.name, summary, explain_component(component.name), before, after
    )


def _label_component(name: str) -> str:
    match = _NAMED.match(name)
    if match is None:
        return name
    group, key = match["group"], match["key"]
    if group.startswith("inductor_config"):
        module = group.removeprefix("inductor_config").removeprefix("_")
        return f"inductor setting {module}.{key}" if module else f"inductor setting {key}"
    return f"input {key}" if group == "example_inputs" else name


def _format_component(value: str) -> str | None:
    return None if _UNREADABLE.search(value) else value


def _format_value(value: str | None) -> str:
    if value is None:
        return "not there"
    size = _SIZE.match(value)
    return _shorten(f"[{(size[1] or size[2] or '').rstrip(',')}]" if size else value)


def _shorten(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


Entry = TypeVar("Entry")
_CANDIDATES = 4  # compared by component, among those that share the most lines
_GRAPH = "gm"  # the component that is the graph's code
_CALL = re.compile(r"= ([A-Za-z_][\w.]*)\(")
# Share of common calls. In captures of torch 2.11 two compiles of one function share 0.67 to 1.00,
# two models that use one wrapper of their library 0.28 to 0.53, and a forward and its backward
# graph 0.51.
_MIN_ALIKE = 0.6


@dataclass(frozen=True)
class ComponentGroup:
    name: str
    explanation: str
    components: tuple[Component, ...]


def read_lines(text: str) -> list[str]:
    """Read a key's components as whole lines. This takes 0.2 ms for 600 of them, against 3 ms for
    parsing.
    """
    try:
        payload = orjson.loads(text)
    except ValueError:
        return []
    lines = payload.get("components") or payload.get("lines") if isinstance(payload, dict) else None
    if isinstance(lines, str):
        return lines.splitlines()
    return lines if isinstance(lines, list) else []


def _count_shared(sought: frozenset[str], lines: list[str]) -> int:
    try:
        return len(sought.intersection(lines))
    except TypeError:  # damaged: a list item that is not a string is unhashable
        return len(sought.intersection(line for line in lines if isinstance(line, str)))


def _find_graph(components: Sequence[Component]) -> Component | None:
    return next((component for component in components if component.name == _GRAPH), None)


def _count_calls(code: str) -> Counter[str]:
    return Counter(
        name if name.startswith("torch.") else name.rpartition(".")[2]
        for name in _CALL.findall(code)
    )


def measure_likeness(first_graph: str, second_graph: str) -> float:
    """Return the share of the larger graph's calls that both have; 1 if neither calls anything."""
    first, second = _count_calls(first_graph), _count_calls(second_graph)
    whole = max(first.total(), second.total())
    return (first & second).total() / whole if whole else 1.0


def _is_comparable(components: Sequence[Component], other: Sequence[Component]) -> bool:
    graph, other_graph = _find_graph(components), _find_graph(other)
    if graph is None or other_graph is None or graph.value == other_graph.value:
        return True
    return measure_likeness(graph.value, other_graph.value) >= _MIN_ALIKE


def find_nearest(
    components: Sequence[Component], text: str, earlier: Iterable[tuple[Entry, str]]
) -> tuple[Entry, KeyDiff] | None:
    """Return the earlier key with the fewest differing components, and its difference. The latest
    wins a tie.

    Keys are ranked by the lines they share with the missed one; the best few are then compared by
    component.
    """
    sought = frozenset(line for line in read_lines(text) if isinstance(line, str))
    if not sought or not components:
        return None
    best: list[tuple[int, int, Entry, str]] = []
    for number, (entry, key_text) in enumerate(earlier):
        lines = read_lines(key_text)
        if not lines:
            continue
        differing = len(sought) + len(lines) - 2 * _count_shared(sought, lines)
        item = (-differing, number, entry, key_text)
        (heapq.heappush if len(best) < _CANDIDATES else heapq.heappushpop)(best, item)
    best.sort(key=lambda candidate: candidate[1])
    parsed = [(entry, parse_components(text) or []) for _differing, _number, entry, text in best]
    keys = [(entry, key) for entry, key in parsed if _is_comparable(components, key)]
    nearest = find_nearest_earlier(components, (key for _entry, key in keys))
    return (
        None if nearest is None else (keys[nearest][0], compare_keys(components, keys[nearest][1]))
    )


def group_components(components: Iterable[Component]) -> list[ComponentGroup]:
    groups: dict[str, list[Component]] = {}
    for component in sorted(components, key=lambda component: order_component(component.name)):
        groups.setdefault(component.name.partition("[")[0], []).append(component)
    return [
        ComponentGroup(name, explain_component(name), tuple(items))
        for name, items in groups.items()
    ]


def summarize_diff(diff: KeyDiff, max_count: int = 3) -> str:
    changes = [
        change.summary for change in (*diff.changed, *diff.only_in_miss, *diff.only_in_earlier)
    ]
    left_out = f", and {len(changes) - max_count} more" if len(changes) > max_count else ""
    return (
        "; ".join(changes[:max_count]) + left_out
        if changes
        else "nothing: the same key was queried before"
    )


MAX_EXPLAINED = 20  # misses per page; each is compared with hundreds of keys


@dataclass(frozen=True)
class CachesScreen:
    results: Sequence[CacheResult]
    page: Page[CacheLookup]
    differences: Mapping[int, str]


def build_caches(
    reader: sqlite3.Connection,
    run_id: str,
    cursor: str | None = None,
    limit: int = 50,
    *,
    explain_count: int = 0,
) -> CachesScreen:
    page = failures.list_cache_lookups(reader, run_id, cursor, limit)
    misses = [row for row in page.rows if row.result == "miss"][:explain_count]
    differences = {
        row.id: text for row in misses if (text := explain_miss(reader, run_id, row.id)) is not None
    }
    return CachesScreen(
        results=failures.count_cache_results(reader, run_id),
        page=page,
        differences=differences,
    )


def explain_miss(reader: sqlite3.Connection, run_id: str, lookup_id: int) -> str | None:
    screen = build_lookup(reader, run_id, lookup_id)
    return screen.difference if screen is not None else None


@dataclass(frozen=True)
class CacheLookupScreen:
    """One lookup with its key and, for a miss, the difference from the nearest earlier key.

    `looked_at_count` earlier lookups in `run_count` runs were candidates, of at most `most_runs`
    runs.
    """

    lookup: Lookup
    detail: dict[str, Any]
    components: tuple[Component, ...] = field(repr=False)
    nearest: NearestLookup | None = None
    diff: KeyDiff | None = None
    looked_at_count: int = 0
    run_count: int = 1
    most_runs: int = RUNS_BACK

    @property
    def difference(self) -> str | None:
        return None if self.diff is None else summarize_diff(self.diff)

    @cached_property
    def changes(self) -> tuple[ComponentChange, ...]:
        diff = self.diff
        return () if diff is None else (*diff.changed, *diff.only_in_miss, *diff.only_in_earlier)

    @cached_property
    def groups(self) -> list[ComponentGroup]:
        return group_components(self.components)

    @property
    def traceback(self) -> str | None:
        value = self.detail.get("cache_bypass_traceback")
        lines = value if isinstance(value, list) else [value] if isinstance(value, str) else []
        return "\n".join(str(line).rstrip("\n") for line in lines).strip() or None

    @property
    def key_remark(self) -> str | None:
        if self.components:
            return None
        if self.lookup.result == "bypass":
            return "No key was made: the graph cannot be cached."
        if self.detail.get("component_count"):
            return (
                "Key components not recorded. Import the log without --no-payloads, or record "
                "with --level full."
            )
        return "Not recorded by this torch: its record of this lookup lists no components."


def build_lookup(
    reader: sqlite3.Connection, run_id: str, lookup_id: int, across: Store | None = None
) -> CacheLookupScreen | None:
    """Read a lookup's key, and compare a miss with earlier keys of its run; None if it does not
    exist.

    With a store as `across`, compare with keys of earlier runs of the same name instead.
    """
    lookup = get_lookup(reader, run_id, lookup_id)
    if lookup is None:
        return None
    components = tuple((parse_components(lookup.text) if lookup.text is not None else None) or ())
    detail = get_detail(reader, lookup)
    if lookup.result != "miss" or lookup.text is None or not components:
        return CacheLookupScreen(lookup, detail, components)
    run_ids = list_runs_before(across.board, lookup.run_id) if across else [lookup.run_id]
    open_run = partial(open_run_or_board, across) if across else lambda _run_id: reader
    earlier = list_earlier(open_run, lookup, run_ids)
    nearest, diff = find_nearest(components, lookup.text, read_texts(open_run, earlier)) or (
        None,
        None,
    )
    return CacheLookupScreen(lookup, detail, components, nearest, diff, len(earlier), len(run_ids))
