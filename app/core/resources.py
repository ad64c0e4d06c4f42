"""The package's version, templates and static files."""

from __future__ import annotations

from pathlib import Path

from compileboard.version import VERSION

__version__ = VERSION

HERE = Path(__file__).resolve().parents[1]


def resource_folder(name: str) -> Path:
    """Return the templates or static folder: inside the package if it is installed, next to it in a
    clone.
    """
    inside = HERE / name
    return inside if inside.is_dir() else HERE.parent / name
