"""The suites and their catalogues, read without importing torch or model libraries."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass

from compileboard.collectors.bench.plan.models import ModelRef

# No builder downloads anything; these make the hub's client fail at once instead of trying.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
LOCAL = "local"  # the suite of the user's models


@dataclass(frozen=True)
class Suite:
    """A suite of models. `catalogue` is a module with `MODELS`; `libraries` are needed to build
    them.

    `accuracy_batch_size` is upstream's for accuracy checks; None means each model's own.
    """

    name: str
    help: str
    libraries: tuple[str, ...] = ("torch",)
    upstream: str | None = None  # upstream's name for the suite with these models
    accuracy_batch_size: int | None = None

    @property
    def catalogue(self) -> str:
        return f"compileboard.collectors.bench.suites.{self.name}"

    @property
    def install(self) -> str:
        return f"pip install {' '.join(self.libraries)}"


SUITES = (
    Suite("builtin", "small models of this project, torch alone"),
    Suite(
        "torchvision",
        "torchvision's classifiers, segmenters and video models",
        ("torch", "torchvision"),
        None,
        4,
    ),
    Suite("timm", "PyTorch Image Models", ("torch", "timm"), "timm_models", 8),
    Suite(
        "transformers",
        "language, vision and audio models",
        ("torch", "transformers"),
        "huggingface",
        1,
    ),
)


def find_suite(name: str) -> Suite:
    for suite in SUITES:
        if name in (suite.name, suite.upstream):
            return suite
    known = ", ".join(
        suite.name if suite.upstream is None else f"{suite.name} ({suite.upstream})"
        for suite in SUITES
    )
    hint = "; torchvision has its vision models" if name == "torchbench" else ""
    raise ValueError(f"no suite {name!r}; there are {known}{hint}")


def list_models(suites: Iterable[str]) -> list[ModelRef]:
    models: list[ModelRef] = []
    for suite in dict.fromkeys(find_suite(name) for name in suites):
        models += importlib.import_module(suite.catalogue).MODELS
    return models


def describe_missing_libraries(suite: str) -> str | None:
    """Return what must be installed to build models of a suite, None if nothing is missing."""
    known = next((other_suite for other_suite in SUITES if other_suite.name == suite), None)
    absent = [
        name for name in (known.libraries if known else ("torch",)) if not _is_installed(name)
    ]
    if not absent:
        return None
    are = "is" if len(absent) == 1 else "are"
    return (
        f"{' and '.join(absent)} {are} not installed: "
        f"{known.install if known else 'pip install torch'}"
    )


def environment(suite: str) -> dict[str, str]:
    return dict(OFFLINE) if suite in ("timm", "transformers") else {}


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a module without a spec was put there by hand
        return True
