"""Facts about single models (tolerances, skips, flaky results), read from model_facts.json."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".json")
HALF_RANGE = ("float16", "amp")


@dataclass(frozen=True)
class Fact:
    fact: str
    reason: str
    value: float | str | None = None
    when: Mapping[str, Any] = field(default_factory=dict)

    def applies_to(self, run: Mapping[str, Any]) -> bool:
        conditions = ((run.get(name), value) for name, value in self.when.items())
        return all(
            actual in value if isinstance(value, list) else actual == value
            for actual, value in conditions
        )


@dataclass(frozen=True)
class ModelFacts:
    facts: tuple[Fact, ...] = ()

    def find(self, fact: str, **run: Any) -> Fact | None:
        known = {"machine": platform.machine(), "freezing": False, **run}
        return next(
            (
                candidate
                for candidate in self.facts
                if candidate.fact == fact and candidate.applies_to(known)
            ),
            None,
        )

    def reason(self, name: str, **run: Any) -> str | None:
        fact = self.find(name, **run)
        return fact.reason if fact else None

    def dtype_for(self, dtype: str) -> str:
        override = self.find("dtype", dtype=dtype)
        return str(override.value) if override else dtype

    @property
    def loss_divisor(self) -> float:
        fact = self.find("loss_divisor")
        return float(fact.value or 1) if fact else 1.0


def facts_for(suite: str, model: str) -> ModelFacts:
    return _read().get(suite, {}).get(model, ModelFacts())


def tolerance_for(
    facts: ModelFacts, *, suite: str, mode: str, dtype: str, device: str, freezing: bool = False
) -> tuple[float, bool]:
    """Return the tolerance of an accuracy check, and whether cosine similarity is used instead.

    Source: get_tolerance_and_cosine_flag of upstream's timm_models.py, huggingface.py and
    torchbench.py. Models of other suites are treated like those of timm and transformers.
    """
    run = {"mode": mode, "dtype": dtype, "device": device, "freezing": freezing}
    cosine = facts.find("cosine", **run) is not None
    fact = facts.find("tolerance", **run)
    if fact is not None:
        return float(fact.value or 0), cosine
    if suite != "torchvision":
        return (1e-2 if mode == "training" else 1e-3), cosine
    on_gpu_training = mode == "training" and device in ("cuda", "xpu")
    return (1e-3 if dtype in HALF_RANGE or on_gpu_training else 1e-4), cosine


@cache
def _read() -> dict[str, dict[str, ModelFacts]]:
    suites: dict[str, dict[str, list[dict[str, Any]]]] = json.loads(
        FILE.read_text(encoding="utf-8")
    )["models"]
    return {
        suite: {
            name: ModelFacts(tuple(Fact(**fact) for fact in facts))
            for name, facts in models.items()
        }
        for suite, models in suites.items()
    }
