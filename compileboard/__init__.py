"""Record what torch.compile does in this process.

import compileboard
with compileboard.observe(name="my model") as run:
    ...
run            # a notebook shows the run's summary
"""

# In a clone, `app` and `collectors` lie beside this folder, which has a link to each.

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compileboard.collectors import bench
    from compileboard.collectors.api import Run, install, observe, uninstall
    from compileboard.collectors.stack_room import stack_room

__version__ = "0.1.0"
__all__ = ["Run", "bench", "install", "observe", "stack_room", "uninstall"]
_HOMES = {"bench": "bench", "stack_room": "stack_room"}


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})


def __getattr__(name: str) -> Any:
    # Lazy: an observed process loads only what it needs.
    if name not in __all__:
        raise AttributeError(f"module 'compileboard' has no attribute {name!r}; it has {', '.join(__all__)}")
    module = import_module(f"compileboard.collectors.{_HOMES.get(name, 'api')}")
    return module if name == "bench" else getattr(module, name)
