"""Results of every experiment of one suite, as events from the harness."""

from __future__ import annotations

from typing import Any

from compileboard.collectors.contract.events import BenchMeasured, load_event
from tests.tools.make_db import DATA
from tests.unit.app.benched import ACCURACY, HOSTILE, measure

MODELS = ("mlp", "conv", "plain", "branchy")
_BRANCH = {
    "stage": "export",
    "error": "GuardOnDataDependentSymNode",
    "message": "Could not guard on data-dependent expression Eq(u0, 1)",
    "operator": "aten._local_scalar_dense.default",
    "line": "branchy.py:12",
    "source": "if x.mean() > 0:",
    "draft": {
        "is_sound": False,
        "failures": [
            {
                "kind": "DATA_DEPENDENT_ERROR",
                "message": "u0 was taken as 1",
                "line": "branchy.py:12",
            }
        ],
        "seconds": 2.4,
    },
}
_BATCH = {
    "batch_size": 33,
    "checked": {
        "status": "refused",
        "message": "unmatched dim value at 0, expected: 32, but got: 33",
    },
    "unchecked": {"status": "wrong", "message": "largest relative error 1.7"},
}
_EXPORT_VALUES = {"export_latency": 0.52, "output_error": 0.0}
_PACKAGE_VALUES = {
    "speedup": 1.31,
    "speedup_low": 1.28,
    "speedup_high": 1.34,
    "abs_latency": 0.61,
    "eager_latency": 0.8,
    "compilation_latency": 14.2,
    "load_latency": 0.018,
    "package_bytes": 3_210_000.0,
    "export_latency": 0.55,
    "output_error": 3.1e-7,
}
_PRECOMPILED = {
    "compilation_latency": 28.4,
    "load_latency": 0.031,
    "package_bytes": 480_000.0,
    "output_error": 2e-7,
}
_ONNX_VALUES = {
    "export_latency": 2.9,
    "load_latency": 0.044,
    "package_bytes": 1_700_000.0,
    "output_error": 1e-7,
}
_MADE: dict[str, dict[str, Any]] = {
    "export": {"values": _EXPORT_VALUES, "facts": {"export": {"node_count": 27}}},
    "export_strict": {
        "values": {**_EXPORT_VALUES, "export_latency": 1.1},
        "facts": {"export": {"node_count": 25}},
    },
    "aot_inductor": {
        "values": _PACKAGE_VALUES,
        "facts": {"export": {"node_count": 27}, "batch_check": _BATCH},
    },
    "aot_precompile": {"values": _PRECOMPILED},
    "onnx": {"values": _ONNX_VALUES, "facts": {"export": {"node_count": 31}}},
}
_QUANTIZED = {
    "speedup": 1.12,
    "abs_latency": 0.5,
    "quantized_error": 0.016,
    "quantized_eager_error": 5e-6,
}


def list_exported(**changes: Any) -> list[BenchMeasured]:
    """Make the results of four models in every experiment; the last has a branch on its data."""
    results = []
    for model in MODELS:
        common = {"model": model, "task": None, **changes}
        results += [
            measure(**common),
            measure(**{**ACCURACY, **common}),
            measure(
                **common,
                experiment="caching_precompile",
                values={"second_process_latency": 5.1},
                repeats={},
            ),
            measure(
                **common,
                experiment="quantization",
                backend="inductor_quantization=int8dynamic",
                values=_QUANTIZED,
            ),
        ]
        for experiment, made in _MADE.items():
            alone = {**common, "experiment": experiment, "backend": experiment, "repeats": {}}
            results.append(
                measure(
                    **alone,
                    **_fail(experiment) if model == "branchy" else {"accuracy": "pass", **made},
                )
            )
    return results


def _fail(experiment: str) -> dict[str, Any]:
    failed = {"status": "failed", "reason": "fail_to_run", "accuracy": "fail_to_run", "values": {}}
    message = f"{_BRANCH['error']}: {_BRANCH['message']}"
    if experiment == "aot_precompile":
        return {**failed, "message": "Unsupported: Data-dependent branching"}
    strict = {"error": "Unsupported", "operator": None} if experiment == "export_strict" else {}
    return {**failed, "message": message, "facts": {"export": {**_BRANCH, **strict}}}


def list_distributed(suite: str = "builtin") -> list[BenchMeasured]:
    """List the recorded results of ranks: mlp of `builtin`, and what became of models of
    `local`.
    """
    events = map(
        load_event, (DATA / "bench" / "ranks.jsonl").read_text(encoding="utf-8").splitlines()
    )
    return [event for event in events if isinstance(event, BenchMeasured) and event.suite == suite]


def list_hostile() -> list[BenchMeasured]:
    """Make results whose facts are not what they should be, and texts that must stay texts."""
    odd: dict[str, Any] = {
        "export": {"stage": HOSTILE, "line": 12, "draft": [HOSTILE], "message": {"a": 1}},
        "batch_check": "no mapping",
        "distributed": {
            "kind": HOSTILE,
            "world_size": "many",
            "gradient_error": "nan",
            "eager_modules": 3,
        },
        "ranks": [{"rank": "x"}, 3, {"rank": 1, "latency_ms": None}],
    }
    failed = {
        "status": "failed",
        "reason": "fail_to_run",
        "message": HOSTILE,
        "values": {},
        "repeats": {},
    }
    return [
        measure(experiment="export", backend="export", facts=odd, **failed),
        measure(experiment="onnx", backend="onnx", facts=odd, values={}, repeats={}),
        measure(world_size=2, facts=odd, values={"scaling_efficiency": 0.9}, repeats={}),
    ]
