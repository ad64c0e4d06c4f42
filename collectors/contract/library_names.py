"""Which files, as the store names them, are a package's or Python's own and not the user's."""

from __future__ import annotations

import sys

# Packages whose frames say how torch and its neighbours call each other, not where the program is.
_PACKAGES = frozenset(
    [
        "accelerate",
        "deepspeed",
        "diffusers",
        "functorch",
        "ignite",
        "IPython",
        "ipykernel",
        "joblib",
        "lightning",
        "lightning_fabric",
        "numpy",
        "pluggy",
        "_pytest",
        "pytest",
        "pytorch_lightning",
        "ray",
        "timm",
        "torch",
        "torchao",
        "torchaudio",
        "torchgen",
        "torchtune",
        "torchvision",
        "transformers",
        "triton",
    ]
)


def is_library_name(file: str) -> bool:
    """Return whether a file, as the store names it, is a package's or Python's own and not the
    user's.
    """
    head, slash, _rest = file.partition("/")
    if not slash:
        return head.removesuffix(".py") in sys.stdlib_module_names or file.startswith("<frozen")
    return head in _PACKAGES or head in sys.stdlib_module_names


def is_harness_step(file: str | None) -> bool:
    """Return whether a file holds the step that `bench` measures: upstream's breaks there too."""
    # Below compileboard/, or above it in older recordings.
    return file is not None and file.endswith("collectors/bench/steps.py")
