"""Import large modules without looking for garbage among them."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Load modules without looking for garbage among them, which saves a fifth of importing torch.

    Later collections do not search what was loaded either, until `search_imports`.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def search_imports() -> None:
    """Let collections search what was loaded without them, as in a process that did not."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()  # else the next few allocations begin a collection of everything
