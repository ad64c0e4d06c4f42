"""Every field of CompilationMetrics; its home is collectors.fields, where readers of the store find it too."""

from __future__ import annotations

from compileboard.collectors.fields import FIELDS, Field

__all__ = ["FIELDS", "Field"]
