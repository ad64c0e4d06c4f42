"""Backend labels in words. bench joins the backend and every option that changes the measurement
with `_`.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Source: `label` of the declarations in collectors/bench/plan/settings.py.
_FLAGS = (
    *(
        "with_cudagraphs",
        "no_cudagraphs",
        "reduce-overhead",
        "max-autotune",
        "max-autotune-no-cudagraphs",
    ),
    *(
        "freezing",
        "compiled_autograd",
        "channels_last",
        "nopython",
        "use_eval_mode",
        "randomize_input",
    ),
    *(
        "dynamic_batch",
        "warm_peak_memory",
        "warm_start",
        "snapshot_memory",
        "quick",
        "no_stack_room",
        "cosine",
    ),
    *(
        "skip_fp64_check",
        "skip_accuracy_check",
        "specialize_int",
        "propagate_real_tensors",
        "suppress_errors",
    ),
    *(
        "checkpoint",
        "collect_outputs",
        "deterministic",
        "ci",
        "no_translation_validation",
        "verbose",
        "fsdp2",
    ),
)
_VALUES = (
    *(
        "threads",
        "batch",
        "iterations_per_run",
        "memory_fraction",
        "iterations",
        "amp_dtype",
        "part",
    ),
    *("quantization", "ddp", r"TORCH[A-Z0-9_]*"),
)
_FLAG = "|".join(sorted(_FLAGS, key=len, reverse=True))
_BETWEEN = re.compile(rf"_(?=(?:{_FLAG})(?:_|$)|(?:{'|'.join(_VALUES)})=)")
_FLAG_FIRST = re.compile(rf"({_FLAG})_(.+)")
_WORDS = {
    "with_cudagraphs": "CUDA graphs",
    "no_cudagraphs": "no CUDA graphs",
    "dynamic_batch": "dynamic batch",
    "checkpoint": "activation checkpointing",
    "fsdp2": "FSDP2",
}
_NAMES = {
    "iterations_per_run": "calls per repeat",
    "iterations": "checked calls",
    "memory_fraction": "memory fraction",
    "amp_dtype": "AMP",
    "ddp": "DDP",
}


@lru_cache(maxsize=4096)
def split_backend(label: str) -> tuple[str, ...]:
    """Split a backend's label into its parts: `inductor_quick_ddp=ddp_optimizer` has three."""
    parts: list[str] = []
    for piece in _BETWEEN.split(label):
        flag = (
            _FLAG_FIRST.fullmatch(piece) if parts else None
        )  # a flag, then a setting of inductor's
        parts += flag.groups() if flag else [piece]
    return tuple(part for part in parts if part)


def describe_part(part: str) -> str:
    name, equals, value = part.partition("=")
    if equals and name in _VALUES:
        return f"{_NAMES.get(name, name)} {value}"
    return _WORDS.get(part) or (part.replace("_", " ") if part in _FLAGS else part)


def describe_backend(label: str) -> str:
    return " · ".join(map(describe_part, split_backend(label)))
