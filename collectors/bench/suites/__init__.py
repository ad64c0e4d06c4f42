"""The suites there are, and their catalogues: read without importing torch or the libraries the models come from."""

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
LOCAL = "local"  # the suite of a person's own models


class UnknownSuite(ValueError):
    """No suite has this name."""


@dataclass(frozen=True)
class Suite:
    """A suite: `catalogue` is a module with `MODELS`, `libraries` what must be installed to build from it.

    `accuracy_batch_size` is the one that upstream checks accuracy at; none: each model's own.
    """

    name: str
    help: str
    libraries: tuple[str, ...] = ("torch",)
    upstream: str | None = None  # what upstream calls the suite that has these models
    accuracy_batch_size: int | None = None

    @property
    def catalogue(self) -> str:
        return f"compileboard.collectors.bench.suites.{self.name}"

    @property
    def install(self) -> str:
        return f"pip install {' '.join(self.libraries)}"


SUITES = (
    Suite("builtin", "small models of this project, torch alone"),
    Suite("torchvision", "torchvision's classifiers, segmenters and video models", ("torch", "torchvision"), None, 4),
    Suite("timm", "PyTorch Image Models", ("torch", "timm"), "timm_models", 8),
    Suite("transformers", "language, vision and audio models", ("torch", "transformers"), "huggingface", 1),
)


def find_suite(name: str) -> Suite:
    """Return the suite of this name, ours or upstream's.

    Raises: UnknownSuite with the names there are.
    """
    for suite in SUITES:
        if name in (suite.name, suite.upstream):
            return suite
    known = ", ".join(suite.name if suite.upstream is None else f"{suite.name} ({suite.upstream})" for suite in SUITES)
    hint = "; torchvision has its vision models" if name == "torchbench" else ""
    raise UnknownSuite(f"no suite {name!r}; there are {known}{hint}")


def list_models(suites: Iterable[str]) -> list[ModelRef]:
    """Return the models of some suites in their order, of suites whose library is missing too.

    Raises: UnknownSuite.
    """
    models: list[ModelRef] = []
    for suite in dict.fromkeys(find_suite(name) for name in suites):
        models += importlib.import_module(suite.catalogue).MODELS
    return models


def missing(suite: str) -> str | None:
    """Describe what must be installed before a model of this suite can be built, or return None.

    A suite that a person named for models of their own needs torch alone.
    """
    known = next((other_suite for other_suite in SUITES if other_suite.name == suite), None)
    absent = [name for name in (known.libraries if known else ("torch",)) if not _is_installed(name)]
    if not absent:
        return None
    are = "is" if len(absent) == 1 else "are"
    return f"{' and '.join(absent)} {are} not installed: {known.install if known else 'pip install torch'}"


def environment(suite: str) -> dict[str, str]:
    """Return what a child's environment gets, so that nothing of this suite asks the network."""
    return dict(OFFLINE) if suite in ("timm", "transformers") else {}


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a module without a spec was put there by hand
        return True
