"""What a result file's name tells: upstream's runner and CI put the configuration there and nowhere else.

`{backend}_{suite}_{dtype}_{mode}_{device}_{performance|accuracy}.csv` (runner.py, CI; HUD adds the GPU's architecture
after the device), `{mode}_{suite}.csv` (a job's own), `[dynamic_]{backend}_{suite}_{mode}.csv` (ci_expected_accuracy).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DTYPES = ("float32", "float16", "bfloat16", "amp", "quant", "notset", "int8", "fp32", "fp16", "bf16")
DEVICES = ("cpu", "cuda", "xpu", "mps", "rocm", "hpu", "xla", "npu", "mtia")
SUITES = ("torchbench", "huggingface", "timm_models", "timm", "huggingface_llm")
EXPERIMENTS = ("performance", "accuracy", "coverage", "tolerance", "overhead", "overheads", "xla", "speedup")
BACKENDS = ("inductor", "aot_eager", "eager", "cudagraphs", "dynamo_eager", "aot_inductor", "export", "nothing")
_ANY = "|".join
_FULL = re.compile(
    rf"(?P<backend>.+?)_(?P<suite>{_ANY(SUITES)}|[^_]+)_(?P<dtype>{_ANY(DTYPES)})_(?P<mode>inference|training)"
    rf"(?:_(?P<device>{_ANY(DEVICES)})(?:_(?P<hardware>[^_]+))??)?(?:_(?P<experiment>{_ANY(EXPERIMENTS)}))?"
)
_PARTS = {
    "suite": re.compile(rf"(?:^|_)({_ANY(sorted(SUITES, key=len, reverse=True))})(?=_|$)"),
    "dtype": re.compile(rf"(?:^|_)({_ANY(DTYPES)})(?=_|$)"),
    "mode": re.compile(r"(?:^|_)(inference|training)(?=_|$)"),
    "device": re.compile(rf"(?:^|_)({_ANY(DEVICES)})(?=_|$)"),
    "experiment": re.compile(rf"(?:^|_)({_ANY(EXPERIMENTS)})(?=_|$)"),
    "backend": re.compile(rf"(?:^|_)({_ANY(sorted(BACKENDS, key=len, reverse=True))})(?=_|$)"),
}
_SAME = {"overheads": "overhead", "speedup": "performance", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_SUFFIX = re.compile(r"\.(?:csv|json|jsonl|npy)$", re.IGNORECASE)
_PACKED = re.compile(r"\.(?:gz|zst|xz|bz2)$", re.IGNORECASE)
_RAW_TIMINGS = re.compile(r"^(?P<stem>.*)-raw_timings-(?P<model>.+)-(?P<device>[a-z]+)$", re.DOTALL)


@dataclass(frozen=True)
class Named:
    """Hold what a file's name tells; none is what it does not."""

    suite: str | None = None
    dtype: str | None = None
    mode: str | None = None
    device: str | None = None
    hardware: str | None = None
    backend: str | None = None
    experiment: str | None = None
    dynamic: bool = False


def stem_of(name: str) -> str:
    """Return a file's name without its folder and suffix: what the files of one table have in common."""
    return _SUFFIX.sub("", _PACKED.sub("", re.split(r"[/\\]", name)[-1]))


def read_name(name: str) -> Named:
    """Read the configuration out of a file's name."""
    stem = stem_of(name)
    for ending in ("_compilation_metrics", "_graph_breaks", "_graph_break_deduped", "_graph_breaks_deduped"):
        stem = stem.removesuffix(ending)
    found = _FULL.fullmatch(stem)
    parts = found.groupdict() if found else _scan(stem)
    parts = {key: _SAME.get(value, value) for key, value in parts.items() if value}
    return Named(**parts, dynamic="dynamic" in stem.split("_"))


def _scan(stem: str) -> dict[str, str | None]:
    parts = {key: found[1] if (found := pattern.search(stem)) else None for key, pattern in _PARTS.items()}
    place = parts["suite"]
    # What stands before the suite is the backend with its label: inductor_no_cudagraphs_torchbench.
    before = stem.split(f"_{place}")[0] if place and f"_{place}" in stem else ""
    words = [
        word for word in before.split("_") if word not in ("dynamic", *DEVICES, *EXPERIMENTS, "training", "inference")
    ]
    if parts["backend"] and words and words[0] == parts["backend"].split("_")[0]:
        parts["backend"] = "_".join(words)
    return parts


def damaged(stem: str) -> str:
    """Return a stem as upstream's `rstrip(".csv")` leaves it in the names of graph-break files."""
    return f"{stem}.csv".rstrip(".csv")


def read_timings_name(stem: str) -> tuple[str, str, str] | None:
    """Return the table's stem, the model and the device of a raw-timings file."""
    found = _RAW_TIMINGS.match(stem)
    return (found["stem"], found["model"], found["device"]) if found else None
