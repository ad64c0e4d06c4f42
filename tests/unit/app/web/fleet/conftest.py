"""Pages that cross runs are over a file, and again over a folder with ClickHouse."""

from __future__ import annotations

from tests.unit.app.engines.published import both_engines as engine_name
from tests.unit.app.engines.published import open_same_engine as open_engine

__all__ = ["engine_name", "open_engine"]
