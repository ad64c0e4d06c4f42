"""Choose fixes for CUDA graphs that are recorded again or not used."""

from __future__ import annotations

import re

from compileboard.collectors.contract.record_names import PATH_NOT_ENDED
from compileboard.collectors.fixes.fix import Fix, list_fixes_for

# Why a graph is recorded again: torch's words (CheckInvariantStatus) and ours.
REASONS = {
    PATH_NOT_ENDED: "output_alive",
    "StaticInputIdxMismatch": "static_input_moved",
    "CudagraphManagedIdxMismatch": "graph_output_moved",
    "ExpectedDeadIndicesBeforeGraphMismatch": "output_alive",
}
MANY_SIZES = "many_sizes"
_SKIPS = (
    (re.compile(r"due to mutated inputs"), "mutated_input"),
    (re.compile(r"due to (?:cpu|multiple) devices?"), "cpu_tensor"),
)
OVERWRITTEN = "accessing tensor output of CUDAGraphs that has been overwritten"
# A line that writes to a part of a tensor, as to a cache, rather than making it another.
_WRITES_TO_PART = re.compile(r"\]\s*[-+*/]?=[^=]|\.(?:index_|scatter_|masked_|copy_|put_)\w*\(")


def suggest_recorded_again(reason: str) -> tuple[Fix, ...]:
    """Return the fixes for the reason of a recording, or for `many_sizes`."""
    return list_fixes_for("cudagraph", REASONS.get(reason, reason))


def suggest_skipped(reason: str, line: str | None = None) -> tuple[Fix, ...]:
    """Return the fixes for a skip; `line` is the line in torch's message, which changes an
    input.
    """
    key = next((key for pattern, key in _SKIPS if pattern.search(reason)), None)
    fixes = list_fixes_for("cudagraph", key) if key else ()
    is_first = _WRITES_TO_PART.search(line or "") is None
    return tuple(sorted(fixes, key=lambda fix: (fix.changes is not None) == is_first, reverse=True))


def suggest_overwritten(message: str | None) -> tuple[Fix, ...]:
    return (
        list_fixes_for("cudagraph", "output_overwritten") if OVERWRITTEN in (message or "") else ()
    )
