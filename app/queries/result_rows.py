"""What was measured of a model: ingest keeps sums of the same rows, so their home is the store."""

from __future__ import annotations

from compileboard.collectors.store.result_rows import (
    LEADING,
    Key,
    Measured,
    ResultRow,
    Said,
    fill,
    merge_results,
    merge_with_parts,
)

__all__ = ["LEADING", "Key", "Measured", "ResultRow", "Said", "fill", "merge_results", "merge_with_parts"]
