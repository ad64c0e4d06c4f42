"""Import large modules without garbage collection."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Disable garbage collection during imports, which makes importing torch a fifth faster.

    Loaded objects are excluded from later collections until `search_imports` is called.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def search_imports() -> None:
    """Make the modules loaded by `without_collections` visible to the garbage collector again."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()  # otherwise the next few allocations start a full collection
