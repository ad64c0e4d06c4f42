"""Pages that cross runs are over a file, and again over a folder with ClickHouse."""

from __future__ import annotations

from tests.unit.app.engines.published import both_engines as engine_name

__all__ = ["engine_name"]
