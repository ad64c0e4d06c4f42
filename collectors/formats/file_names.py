"""Read the benchmark configuration from a result file's name: the runner and CI put it only there.

The order of the words does not matter: one configuration is one series.
`{backend}_{suite}_{dtype}_{mode}_{device}_{performance|accuracy}.csv` (runner.py, CI; HUD adds
the GPU architecture after the device), `{mode}_{suite}.csv` (one job),
`[dynamic_]{backend}_{suite}_{mode}.csv` (ci_expected_accuracy).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "amp",
    "quant",
    "notset",
    "int8",
    "fp32",
    "fp16",
    "bf16",
)
DEVICES = ("cpu", "cuda", "xpu", "mps", "rocm", "hpu", "xla", "npu", "mtia")
SUITES = ("torchbench", "huggingface", "timm_models", "timm", "huggingface_llm")
# The plain names that are words of others stand last, and `nothing`, which is a backend too.
UPSTREAM_EXPERIMENTS = (
    *("performance", "accuracy", "coverage", "tolerance", "overhead", "overheads", "xla"),
    *("speedup_torchao", "dynamo_onnx", "speedup", "nothing"),
)
MODES = ("inference", "training")
# The plain names stand last: cudagraphs is a backend of its own and something that inductor does.
BACKENDS = (
    "aot_inductor",
    "aot_eager",
    "dynamo_eager",
    "inductor",
    "export",
    "nothing",
    "onnx",
    "eager",
    "cudagraphs",
)
# What a backend's label has behind its name, in this order.
FLAGS = (
    *(
        "no_cudagraphs",
        "with_cudagraphs",
        "cudagraphs_low_precision",
        "cudagraphs",
        "low_precision",
    ),
    *("cpp_wrapper", "max_autotune", "freezing"),
)
_ANY = "|".join
# Of a suite that is not upstream's the place tells, and so it does of the GPU.
_FULL = re.compile(rf".+?_(?P<suite>[^_]+)_(?:{_ANY(DTYPES)})_(?:{_ANY(MODES)})(?:_.*)?")
_HARDWARE = re.compile(
    rf".*_(?:{_ANY(DEVICES)})_(?P<hardware>[^_]+)(?:_(?:{_ANY(UPSTREAM_EXPERIMENTS)}))?"
)
_SHARD = re.compile(rf"(?<![^_])({_ANY(sorted(SUITES, key=len, reverse=True))})\d+(?![^_])")
_SAME = {
    "overheads": "overhead",
    "speedup": "performance",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
}
FILE_WORDS = {
    "quantization": "speedup_torchao",
    "onnx": "dynamo_onnx",
}  # of an experiment, where its name is another
_SAME |= {words: experiment for experiment, words in FILE_WORDS.items()}
_SAME["timm"] = "timm_models"  # CI's name of the suite that everything else calls so
_SUFFIX = re.compile(r"\.(?:csv|json|jsonl|npy)$", re.IGNORECASE)
_PACKED = re.compile(r"\.(?:gz|zst|xz|bz2)$", re.IGNORECASE)
_RAW_TIMINGS = re.compile(r"^(?P<stem>.*)-raw_timings-(?P<model>.+)-(?P<device>[a-z]+)$", re.DOTALL)


@dataclass(frozen=True)
class FileNameInfo:
    suite: str | None = None
    dtype: str | None = None
    mode: str | None = None
    device: str | None = None
    hardware: str | None = None
    backend: str | None = None
    experiment: str | None = None
    dynamic: bool = False


def stem_of(name: str) -> str:
    return _SUFFIX.sub("", _PACKED.sub("", re.split(r"[/\\]", name)[-1]))


def read_name(name: str) -> FileNameInfo:
    stem = stem_of(name)
    for ending in (
        "_compilation_metrics",
        "_graph_breaks",
        "_graph_break_deduped",
        "_graph_breaks_deduped",
    ):
        stem = stem.removesuffix(ending)
    words = _NameParts(_SHARD.sub(r"\1", stem).split("_"))
    parts: dict[str, str | None] = {"suite": words.take(sorted(SUITES, key=len, reverse=True))}
    full = _FULL.fullmatch(stem)
    if (
        parts["suite"] is None
        and full
        and full["suite"] not in (*BACKENDS, *DEVICES, "freezing", "autotune", "eager")
    ):
        parts["suite"] = words.take([full["suite"]])
    end = words.taken_at if parts["suite"] else 0
    kinds = {"dtype": DTYPES, "mode": MODES, "device": DEVICES, "experiment": UPSTREAM_EXPERIMENTS}
    parts |= {kind: words.take(names) for kind, names in kinds.items()}
    is_dynamic = words.take(["dynamic"]) is not None
    own = _SAME.get(
        parts["experiment"] or "", parts["experiment"]
    )  # an experiment may name its backend
    parts["backend"] = words.label(end, bool(full)) or (own if own in BACKENDS else None)
    hardware = _HARDWARE.fullmatch(stem)
    if hardware and hardware["hardware"] in words.left:
        parts["hardware"] = hardware["hardware"]
    known = {kind: _SAME.get(word, word) for kind, word in parts.items() if word}
    return FileNameInfo(**known, dynamic=is_dynamic)


class _NameParts:
    def __init__(self, words: list[str]) -> None:
        self._words: list[str | None] = [*words]
        self.taken_at = 0

    @property
    def left(self) -> list[str]:
        return [word for word in self._words if word is not None]

    def take(self, names: Iterable[str]) -> str | None:
        for name in names:
            parts = name.split("_")
            for at in range(len(self._words) - len(parts) + 1):
                if self._words[at : at + len(parts)] == parts:
                    self._words[at : at + len(parts)] = [None] * len(parts)
                    self.taken_at = at
                    return name
        return None

    def label(self, end: int, is_full: bool) -> str | None:
        several = [flag for flag in FLAGS if "_" in flag]
        flags = {flag for flag in several if self.take([flag])}
        backend = self.take(BACKENDS)
        start = 0 if is_full else self.taken_at
        flags |= {flag for flag in FLAGS if self.take([flag])}
        others = [word for word in self._words[start:end] if word] if backend or is_full else []
        parts = [backend or "", *(flag for flag in FLAGS if flag in flags), *others]
        if not backend:
            parts = [*others, *(flag for flag in FLAGS if flag in flags)] if others else []
        return "_".join(part for part in parts if part) or None


def damaged(stem: str) -> str:
    """Return a stem as PyTorch's `rstrip(".csv")` leaves it in the names of graph-break files."""
    return f"{stem}.csv".rstrip(".csv")


def read_timings_name(stem: str) -> tuple[str, str, str] | None:
    match = _RAW_TIMINGS.match(stem)
    return (match["stem"], match["model"], match["device"]) if match else None
