"""Backends' labels in words: every part that bench writes is a part of its own."""

from __future__ import annotations

import dataclasses

import pytest

from compileboard.app.benchmarks.labels import describe_backend, describe_part, split_backend
from compileboard.collectors.bench.plan.settings import DDP_MODES, SETTINGS, BenchSettings

_VALUES = {
    "inductor_config": ("max_autotune=True",),
    "environment": ("TORCHINDUCTOR_COMPILE_THREADS=4",),
    "amp_dtype": "bfloat16",
    "quantization": "int8dynamic",
    "part": "encoder",
    "per_process_memory_fraction": 0.5,
}
_SETTINGS = [name for name, (declared, _default) in SETTINGS.items() if declared.label]


@pytest.mark.parametrize("name", _SETTINGS)
def test_every_part_of_a_label_is_split_off(name: str) -> None:
    default = SETTINGS[name][1]
    value = _VALUES.get(name, not default if isinstance(default, bool) else 7)
    settings = dataclasses.replace(BenchSettings(), device="cuda", **{"quick": True, name: value})
    first, second, *rest = split_backend(settings.label())
    assert (first, second) == ("inductor", "with_cudagraphs")
    assert len(rest) == (1 if name == "quick" else 2) and "quick" in rest


@pytest.mark.parametrize("mode", DDP_MODES)
def test_a_label_as_recorded_reads_as_words(mode: str) -> None:
    label = (
        "inductor_with_cudagraphs_compiled_autograd_quick_"
        f"TORCHINDUCTOR_COMPILE_THREADS=4_ddp={mode}"
    )
    words = [
        "inductor",
        "CUDA graphs",
        "compiled autograd",
        "quick",
        "TORCHINDUCTOR_COMPILE_THREADS=4",
        f"DDP {mode}",
    ]
    assert list(map(describe_part, split_backend(label))) == words
    assert (
        describe_backend("eager_threads=1_iterations_per_run=10")
        == "eager · threads 1 · calls per repeat 10"
    )
    assert split_backend("aot_eager") == ("aot_eager",) and split_backend("") == ()
