"""Record what torch.compile does in this process, or under `python -m collectors run -- COMMAND`.

import collectors
with collectors.observe(name="my model") as run:
    ...
run            # a notebook shows the run's summary
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["Run", "install", "observe", "uninstall"]


def __getattr__(name: str) -> Any:
    # Lazy: `import collectors` costs nothing, and the observed process loads only what it needs.
    if name in __all__:
        from collectors import api

        return getattr(api, name)
    raise AttributeError(f"module 'collectors' has no attribute {name!r}; it has {', '.join(__all__)}")
