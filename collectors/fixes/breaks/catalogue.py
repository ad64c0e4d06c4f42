"""All fixes of graph breaks, by id."""

from __future__ import annotations

from compileboard.collectors.fixes.breaks import (
    branches,
    gradients,
    numpy_calls,
    printing,
    python_calls,
    regions,
    scalars,
    shapes,
    tensors,
)
from compileboard.collectors.fixes.fix import Fix

_SUBJECTS = (scalars, branches, shapes, printing, python_calls, numpy_calls, gradients, tensors, regions)
BREAK_FIXES: dict[str, Fix] = {fix.id: fix for subject in _SUBJECTS for fix in subject.FIXES}
