"""How a benchmark is run: every choice in one frozen value that a child process gets as JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

DTYPES = ("float32", "float16", "bfloat16", "amp")
# What a setting adds to a series' label where it is not at its default; an old label reads as the default of a new
# part. The order is that of the label and stays: new ones go to the end.
LABELS = {
    "freezing": "freezing",
    "compiled_autograd": "compiled_autograd",
    "channels_last": "channels_last",
    "nopython": "nopython",
    "use_eval_mode": "use_eval_mode",
    "randomize_input": "randomize_input",
    "dynamic_batch_only": "dynamic_batch",
    "threads": "threads={}",
    "inductor_config": "{}",
    "batch_size": "batch={}",  # a suite's line has no batch size of its own
    "iterations_per_run": "iterations_per_run={}",
    "use_warm_peak_memory": "warm_peak_memory",
    "per_process_memory_fraction": "memory_fraction={}",
    "warm_start_latency": "warm_start",
    "snapshot_memory": "snapshot_memory",
    "quick": "quick",
    "no_stack_room": "no_stack_room",
    "iterations": "iterations={}",
    "cosine": "cosine",
    "skip_fp64_check": "skip_fp64_check",
    "skip_accuracy_check": "skip_accuracy_check",
    "environment": "{}",
}
# Why the others are in no label: those of the first row are columns of a series, or begin the label.
UNLABELLED = {
    **dict.fromkeys(("mode", "dtype", "device", "backend", "compile_mode", "disable_cudagraphs"), "named before"),
    "dynamic_shapes": "a column of a series",
    **dict.fromkeys(("repeat", "compile_repeats"), "more samples of the same value"),
    **dict.fromkeys(("profile_dynamo_cache_lookup", "export_profiler_trace", "timing"), "after the timing"),
    **dict.fromkeys(("output_directory", "timeout_s"), "no number depends on it"),
}
ACCURACY_SETTINGS = ("iterations", "cosine", "skip_fp64_check", "skip_accuracy_check")
CHECKING_EXPERIMENTS = ("accuracy", "tolerance")  # that heed them
_VARIABLE = re.compile(r"TORCHINDUCTOR_\w+|TORCH_COMPILE\w*")
_PLACE = re.compile(r"_(DIR|DIRECTORY|PATH)$")
DIGEST = "sha256:"
_PLAIN = re.compile(r"[\w.+-]{1,24}")


@dataclass(frozen=True)
class BenchSettings:
    """Say how to measure. Names are upstream's where they mean the same.

    Units: timeout_s seconds.
    """

    mode: str = "inference"  # inference | training
    dtype: str = "float32"
    device: str = "cpu"
    backend: str = "inductor"
    compile_mode: str | None = None  # torch.compile's mode
    nopython: bool = False
    dynamic_shapes: bool = False
    dynamic_batch_only: bool = False
    compiled_autograd: bool = False
    freezing: bool = False
    channels_last: bool = False
    disable_cudagraphs: bool = False
    inductor_config: tuple[str, ...] = ()
    threads: int | None = None
    batch_size: int | None = None
    repeat: int = 30
    iterations: int = 2  # of an accuracy check
    iterations_per_run: int = 1
    randomize_input: bool = False
    use_eval_mode: bool = False
    use_warm_peak_memory: bool = False
    skip_accuracy_check: bool = False
    skip_fp64_check: bool = False
    cosine: bool = False
    profile_dynamo_cache_lookup: bool = False
    warm_start_latency: bool = False
    export_profiler_trace: bool = False
    snapshot_memory: bool = False
    timing: bool = False
    per_process_memory_fraction: float | None = None
    output_directory: str | None = None
    timeout_s: float = 1800.0
    quick: bool = False  # for looking at the harness: 3 repeats, compiled once
    compile_repeats: int = 3
    no_stack_room: bool = False
    environment: tuple[str, ...] = ()  # NAME=VALUE of what torch reads of it

    def dump(self) -> str:
        """Write the settings as JSON."""
        return json.dumps(asdict(self))

    @property
    def is_training(self) -> bool:
        return self.mode == "training"

    @property
    def dynamic(self) -> bool:
        return self.dynamic_shapes or self.dynamic_batch_only

    @property
    def is_inductor(self) -> bool:
        return self.backend.startswith("inductor")

    @property
    def all_dynamic(self) -> bool:
        """Whether every dimension is dynamic: beside `dynamic_batch_only`, as upstream's CI has both, it is not."""
        return self.dynamic_shapes and not self.dynamic_batch_only

    def label(self) -> str:
        """Name the backend with all that changes what it measures: a series of its own for each."""
        parts = [self.backend]
        if self.device == "cuda" and self.is_inductor and self.compile_mode is None:
            parts.append("no_cudagraphs" if self.disable_cudagraphs else "with_cudagraphs")
        if self.compile_mode:
            parts.append(self.compile_mode)
        different = changed(self)
        for name, words in LABELS.items():
            value = different.get(name)
            if value is not None and value is not False:
                parts += [words.format(it) for it in (sorted(value) if isinstance(value, tuple) else [value])]
        return "_".join(parts)


def _digest(value: str) -> str:
    return f"{DIGEST}{hashlib.sha256(value.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def list_torch_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """List what of an environment changes how torch compiles; a long value is named by its digest.

    Source: the rows of upstream's dashboard, which TORCHINDUCTOR_MAX_AUTOTUNE and its like make.
    """
    return tuple(
        f"{name}={value if _PLAIN.fullmatch(value) else _digest(value)}"
        for name, value in sorted(environment.items())
        if value and _VARIABLE.fullmatch(name) and not _PLACE.search(name)
    )


def for_experiments(settings: BenchSettings, experiments: Iterable[str]) -> BenchSettings:
    """Return the settings without those of a check that is not made: they would make another series of like numbers."""
    if set(experiments) & set(CHECKING_EXPERIMENTS):
        return settings
    default = BenchSettings()
    return replace(settings, **{name: getattr(default, name) for name in ACCURACY_SETTINGS})


def load_settings(text: str) -> BenchSettings:
    """Read settings back.

    Raises: TypeError if a field is unknown.
    """
    values: dict[str, Any] = json.loads(text)
    for name in ("inductor_config", "environment"):
        values[name] = tuple(values.get(name, ()))
    return BenchSettings(**values)


def changed(settings: BenchSettings) -> dict[str, Any]:
    """Return what is not as it is by default."""
    default = BenchSettings()
    return {
        one.name: getattr(settings, one.name)
        for one in fields(BenchSettings)
        if getattr(settings, one.name) != getattr(default, one.name)
    }


def with_changes(settings: BenchSettings, **values: Any) -> BenchSettings:
    """Return the settings with some replaced."""
    return replace(settings, **values)
