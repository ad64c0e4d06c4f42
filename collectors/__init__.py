"""Record what torch.compile does in this process, or under `python -m collectors run -- COMMAND`.

import collectors
with collectors.observe(name="my model") as run:
    ...
run            # a notebook shows the run's summary
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

__version__ = "0.1.0"
__all__ = ["Run", "install", "observe", "uninstall"]


def __getattr__(name: str) -> Any:
    # Lazy: `import collectors` costs nothing, and the observed process loads only what it needs.
    if name in __all__:
        from collectors import api

        return getattr(api, name)
    raise AttributeError(f"module 'collectors' has no attribute {name!r}; it has {', '.join(__all__)}")


class _Package(ModuleType):
    """Keep the name `observe` for the function.

    A submodule binds itself to its package when it is first imported, and the room of the hooks has the name that users
    call. `from collectors.observe import hooks` finds the room all the same.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name == "observe" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
