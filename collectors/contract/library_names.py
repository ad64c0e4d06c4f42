"""Distinguish stored file names of packages and the standard library from those of the user."""

from __future__ import annotations

import sys

# Packages whose frames show how torch and related packages call each other, not the user's program.
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
        "site-packages",  # The folder of installed packages.
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
    """Return whether a stored file name is of a package or of the standard library."""
    head, slash, _rest = file.partition("/")
    if not slash:
        return head.removesuffix(".py") in sys.stdlib_module_names or file.startswith("<frozen")
    return head in _PACKAGES or head in sys.stdlib_module_names


def name_package_file(path: str) -> str:
    """Return the stored name of a file in site-packages: its path below that folder."""
    return path if is_library_name(path) else f"site-packages/{path}"


def is_harness_step(file: str | None) -> bool:
    """Return whether a file holds bench's own training step, in which upstream breaks too."""
    # Below compileboard/, or above it in older recordings.
    return file is not None and file.endswith("collectors/bench/steps.py")
