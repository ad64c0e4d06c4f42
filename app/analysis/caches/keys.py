"""Components of a cache key, what each means, and how two keys differ."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.analysis.text.fields import FieldChange, compare_fields, read_fields
from compileboard.collectors.store.payloads import Component

# Source: FxGraphHashDetails in torch/_inductor/codecache.py and AOTAutogradCacheDetails of 2.11 and
# 2.13. What people change most often stands first; the order is that of a comparison's lines.
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
    "user_defined_triton_source": "The source of a Triton kernel that the graph calls: changed by editing it.",
    "triton_kernel_source_codes": "The source of the Triton kernels that the graph calls: changed by editing them.",
    "aot_config": "What AOTAutograd was told of the inputs: where each comes from, whether "
    "sizes are dynamic, whether "
    "it is an inference.",
    "autograd_config": (
        "The settings of torch._functorch.config, as one: changed by code or an environment "
        "variable."
    ),
    "grad_enabled": "Whether gradients were enabled: changed by torch.no_grad or torch.inference_mode.",
    "autocast_state": "Automatic mixed precision by device: changed by torch.autocast and its dtype.",
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
    "saved_tensors_hooks_fx_wrap_cache_hashes": "Hooks on saved tensors that are compiled in: changed by their code.",
    "sac_context_fn_hashes": "Functions that choose what activation checkpointing keeps: changed by their code.",
    "region_activation_memory_budget": "How much memory the graph may keep for the backward.",
    "custom_estimator_solver_uuids": "Custom estimators of the partitioner's run time and memory.",
    "cache_key_tag": "torch.compiler.config.cache_key_tag: a text that people set to keep caches apart.",
    "torch_version": "The build of torch, as a hash of its sources: changed by installing another one.",
    "system_info": "The machine: the GPU's model, and the versions of CUDA (or HIP) and Triton.",
    "provenance_tracking_level": "Whether inductor tracks which nodes a kernel comes from.",
    "precompile_enabled": "Whether the compile is for torch's precompilation.",
    "custom_backend_passes": "Graph passes of other device backends.",
    "_fuse_ddp_communication_passes": "Which passes fuse the collectives of DDP: changed by inductor's settings.",
    "_custom_partitioner_fn": "A custom function that splits forward and backward: changed by its uuid().",
}
_PASSES = "A custom graph pass: changed by setting one, or by its uuid()."
_POSITIONS = {name: position for position, name in enumerate(_WORDS)}


def explain_component(name: str) -> str:
    group = _group(name)
    return _WORDS.get(group) or (_PASSES if "_custom" in group and group.endswith("_pass") else "")


def order_component(name: str) -> tuple[int, str, int, str]:
    group, key = _group(name), name.partition("[")[2]
    number = key.rstrip("]")
    is_number = number.isascii() and number.isdigit() and len(number) < 9
    return _POSITIONS.get(group, len(_POSITIONS)), group, int(number) if is_number else -1, key


def _group(name: str) -> str:
    group = name.partition("[")[0]
    # torch._inductor.config_comms and its like are modules of settings too.
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
class KeyPrint:
    """A key as 16-byte hashes of its components, valid within one Python process."""

    names: array[int]
    pairs: array[int]


def print_key(components: Iterable[Component]) -> KeyPrint:
    identities = {component.name: component.identity for component in components}
    return KeyPrint(array("q", map(hash, identities)), array("q", map(hash, identities.items())))


def nearest_earlier(
    miss: Sequence[Component] | KeyPrint, earlier: Iterable[Sequence[Component] | KeyPrint]
) -> int | None:
    """Return the position of the earlier key with the fewest differences, the latest of equals;
    None without any.

    `earlier` is in order of time and is read once.
    """
    sought = miss if isinstance(miss, KeyPrint) else print_key(miss)
    names, pairs = set(sought.names), set(sought.pairs)
    best, fewest = None, 0
    for position, entry in enumerate(earlier):
        other = entry if isinstance(entry, KeyPrint) else print_key(entry)
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
    now, was = _by_name(miss), _by_name(earlier)
    both = [name for name in now if name in was]
    changed = [name for name in both if now[name].identity != was[name].identity]
    return KeyDiff(
        changed=tuple(_describe_change(was[name], now[name]) for name in _in_order(changed)),
        only_in_miss=tuple(
            _describe_single(now[name], True) for name in _in_order(now.keys() - was.keys())
        ),
        only_in_earlier=tuple(
            _describe_single(was[name], False) for name in _in_order(was.keys() - now.keys())
        ),
        same_count=len(both) - len(changed),
    )


def _by_name(components: Iterable[Component]) -> dict[str, Component]:
    # Damage may bring a name twice; which one counts must not hang on the order.
    return {
        component.name: component
        for component in sorted(
            components, key=lambda component: (component.name, component.digest, component.value)
        )
    }


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=order_component)


def _describe_change(was: Component, now: Component) -> ComponentChange:
    before, after = _readable(was.value), _readable(now.value)
    fields: tuple[FieldChange, ...] = ()
    if now.name == "gm":
        summary = "the graph differs"
    elif before is None or after is None:
        summary = f"{_label(now.name)} differs; torch records it as bytes"
    elif before == after:
        summary = f"{_label(now.name)} differs in its hash; torch's text for it is the same"
    else:
        old, new = read_fields(before), read_fields(after)
        fields = compare_fields(old, new) if old and new else ()
        changes = [f"{field.name} {_show(field.before)} → {_show(field.after)}" for field in fields]
        summary = (
            f"{_label(now.name)}: {', '.join(changes) or f'{_shorten(before)} → {_shorten(after)}'}"
        )
    return ComponentChange(now.name, summary, explain_component(now.name), before, after, fields)


def _describe_single(component: Component, is_miss: bool) -> ComponentChange:
    value = _readable(component.value)
    side = "the miss" if is_miss else "the earlier key"
    summary = f"{_label(component.name)}: only in {side}"
    before, after = (None, value) if is_miss else (value, None)
    return ComponentChange(
        component.name, summary, explain_component(component.name), before, after
    )


def _label(name: str) -> str:
    match = _NAMED.match(name)
    if match is None:
        return name
    group, key = match["group"], match["key"]
    if group.startswith("inductor_config"):
        module = group.removeprefix("inductor_config").removeprefix("_")
        return f"inductor setting {module}.{key}" if module else f"inductor setting {key}"
    return f"input {key}" if group == "example_inputs" else name


def _readable(value: str) -> str | None:
    return None if _UNREADABLE.search(value) else value


def _show(value: str | None) -> str:
    if value is None:
        return "not there"
    size = _SIZE.match(value)
    return _shorten(f"[{(size[1] or size[2] or '').rstrip(',')}]" if size else value)


def _shorten(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
