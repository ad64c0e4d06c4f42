"""Record what torch.compile does in this process, or under `python -m collectors run -- COMMAND`.

import collectors
with collectors.observe(name="my model") as run:
    ...
run            # a notebook shows the run's summary
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import Run, install, observe, uninstall
    from .stack_room import stack_room

__version__ = "0.1.0"
__all__ = ["Run", "install", "observe", "stack_room", "uninstall"]


def __getattr__(name: str) -> Any:
    # Relative: this package may have another name. Lazy: the observed process loads only what it needs.
    if name == "stack_room":
        return import_module(".stack_room", __name__).stack_room
    if name in __all__:
        from . import api

        return getattr(api, name)
    raise AttributeError(f"module 'collectors' has no attribute {name!r}; it has {', '.join(__all__)}")


class _Package(ModuleType):
    """Keep the names `observe` and `stack_room` for the functions.

    A submodule binds itself to its package when it is first imported, and these two have the names that users call.
    `from collectors.observe import hooks` and `from collectors.stack_room import call_with_room` find the modules all
    the same.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in ("observe", "stack_room") and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
