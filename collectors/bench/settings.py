"""How a benchmark is run: every choice in one frozen value that a child process gets as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

DTYPES = ("float32", "float16", "bfloat16", "amp")
CUDAGRAPH_BACKENDS = ("inductor",)


@dataclass(frozen=True)
class Settings:
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
    quick: bool = False  # for looking at the harness: 3 repeats, no warm compile

    def dump(self) -> str:
        """Write the settings as JSON."""
        return json.dumps(asdict(self))

    @property
    def is_training(self) -> bool:
        return self.mode == "training"

    @property
    def dynamic(self) -> bool:
        return self.dynamic_shapes or self.dynamic_batch_only

    def label(self) -> str:
        """Name the backend with all that changes what it measures: a series of its own for each."""
        parts = [self.backend]
        if self.device == "cuda" and self.backend in CUDAGRAPH_BACKENDS and self.compile_mode is None:
            parts.append("no_cudagraphs" if self.disable_cudagraphs else "with_cudagraphs")
        if self.compile_mode:
            parts.append(self.compile_mode)
        flags = ("freezing", "compiled_autograd", "channels_last", "nopython", "use_eval_mode", "randomize_input")
        parts += [name for name in flags if getattr(self, name)]
        if self.dynamic_batch_only:
            parts.append("dynamic_batch")
        if self.threads:
            parts.append(f"threads={self.threads}")
        parts += sorted(self.inductor_config)
        return "_".join(parts)


def load_settings(text: str) -> Settings:
    """Read settings back.

    Raises: TypeError if a field is unknown.
    """
    values: dict[str, Any] = json.loads(text)
    values["inductor_config"] = tuple(values.get("inductor_config", ()))
    return Settings(**values)


def changed(settings: Settings) -> dict[str, Any]:
    """Return what is not as it is by default."""
    default = Settings()
    return {
        one.name: getattr(settings, one.name)
        for one in fields(Settings)
        if getattr(settings, one.name) != getattr(default, one.name)
    }


def with_changes(settings: Settings, **values: Any) -> Settings:
    """Return the settings with some replaced."""
    return replace(settings, **values)
