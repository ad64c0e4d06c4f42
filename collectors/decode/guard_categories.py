"""The kinds of guard failure; their home is collectors.categories, where readers of the store find them too."""

from __future__ import annotations

from compileboard.collectors.categories import BY_NAME, CATEGORIES, Category

__all__ = ["BY_NAME", "CATEGORIES", "Category"]
