"""Record what torch.compile does in this process, and read what was recorded.

import compileboard

with compileboard.observe(name="my model") as run:
    ...
run  # a notebook shows the run's summary
board = compileboard.open("compileboard.db")
board.runs()  # a pandas frame
"""

# In a clone, `app` and `collectors` lie beside this folder, which has a link to each.

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from compileboard.version import VERSION

if TYPE_CHECKING:
    import os

    from compileboard.app.notebook.board import Board
    from compileboard.collectors import bench
    from compileboard.collectors.api import Run, install, observe, profile, uninstall
    from compileboard.collectors.stack_room import stack_room

__version__ = VERSION
__all__ = ["Run", "bench", "install", "observe", "open", "profile", "stack_room", "uninstall"]
_HOMES = {"bench": "bench", "stack_room": "stack_room"}


def open(path: str | os.PathLike[str] = "compileboard.db") -> Board:
    """Open a database for reading: tables as pandas frames, charts as plotly figures.

    >>> import compileboard
    >>> with compileboard.open("compileboard.db") as board:
    ...     board.runs()[["name", "graph_break_count"]].values.tolist()
    [['torch2.13-breaks', 21]]

    Raises StoreError; ImportError without the extra `server`.
    """
    from importlib.util import find_spec

    missing = [
        name for name in ("pandas", "plotly", "flask", "numpy", "orjson") if find_spec(name) is None
    ]
    if missing:
        raise ImportError(
            f"{missing[0]} is not installed; pip install 'compileboard[server]', which reads "
            "databases"
        )
    from compileboard.app.notebook.board import Board

    return Board(path)


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})


def __getattr__(name: str) -> Any:
    # Lazy: an observed process loads only what it needs.
    if name not in __all__:
        raise AttributeError(
            f"module 'compileboard' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    module = import_module(f"compileboard.collectors.{_HOMES.get(name, 'api')}")
    return module if name == "bench" else getattr(module, name)
