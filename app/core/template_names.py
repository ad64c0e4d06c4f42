"""Functions and filters for the templates of pages and reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from compileboard.app.artifacts.artifact_labels import describe_name
from compileboard.app.benchmarks.exports import choose_model
from compileboard.app.benchmarks.labels import (
    describe_accuracy,
    describe_backend,
    describe_missing,
    describe_page_faults,
    describe_speedup,
    describe_status,
    describe_verdict,
    list_minimal_programs,
)
from compileboard.app.compiles.model import list_present_phases
from compileboard.app.core import format, labels
from compileboard.app.core.fields import gb_url
from compileboard.app.guards.model import describe_kind
from compileboard.app.ranks.model import describe_caches
from compileboard.app.ranks.rank_differences import ASPECTS
from compileboard.app.repros.model import describe_message, describe_repro_kind, describe_result
from compileboard.app.shapes.model import describe_guard, describe_range
from compileboard.app.stacks.model import list_shares
from compileboard.app.timeline.model import LEGEND, find_phase
from compileboard.collectors.contract.categories import label_category
from compileboard.collectors.contract.library_names import is_harness_step, is_library_name
from compileboard.collectors.contract.rejects import KINDS
from compileboard.collectors.fixes.statement import mark_part
from compileboard.collectors.fixes.titles import name_stack_values

TEMPLATE_NAMES = {
    "words": labels,
    "aspects": ASPECTS,
    "choose_model": choose_model,
    "is_harness_step": is_harness_step,
    "describe_accuracy": describe_accuracy,
    "describe_caches": describe_caches,
    "describe_guard": describe_guard,
    "describe_kind": describe_kind,
    "describe_missing": describe_missing,
    "describe_name": describe_name,
    "describe_page_faults": describe_page_faults,
    "describe_range": describe_range,
    "describe_message": describe_message,
    "describe_repro_kind": describe_repro_kind,
    "describe_result": describe_result,
    "describe_speedup": describe_speedup,
    "describe_status": describe_status,
    "describe_verdict": describe_verdict,
    "find_phase": find_phase,
    "gb_url": gb_url,
    "is_library_name": is_library_name,
    "label_category": label_category,
    "list_minimal_programs": list_minimal_programs,
    "list_present_phases": list_present_phases,
    "list_outcome_shares": list_shares,
    "phase_legend": LEGEND,
    "reject_kinds": KINDS,
}
_MISSING = Markup('<span class="missing">{}</span>').format(format.NOT_RECORDED)


def _mark_missing(write: Callable[..., str]) -> Callable[[Any], str]:
    return lambda value: _MISSING if value is None else write(value)


TEMPLATE_FILTERS: dict[str, Callable[..., Any]] = {
    "duration": _mark_missing(format.format_duration),
    "filesize": _mark_missing(format.format_bytes),
    "count": _mark_missing(format.format_count),
    "number": _mark_missing(format.format_number),
    "ratio": _mark_missing(format.format_ratio),
    "percent": _mark_missing(format.format_percent),
    "time": _mark_missing(format.format_time),
    "recorded": lambda value: _MISSING if value is None or value == "" else value,
    "iso_time": format.format_iso_time,
    "plural": format.format_plural,
    "backend": describe_backend,
    "stack_values": name_stack_values,
    "part": mark_part,
}
