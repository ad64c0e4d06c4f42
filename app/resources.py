"""What every room may know of the package itself: its version and where its templates and static files lie."""

from __future__ import annotations

from pathlib import Path

from compileboard.version import VERSION

__version__ = VERSION

HERE = Path(__file__).resolve().parent


def resource_folder(name: str) -> Path:
    """Find templates or static: inside the package when installed, beside it in a clone."""
    inside = HERE / name
    return inside if inside.is_dir() else HERE.parent / name
