"""Decode stored payloads, with only the standard library."""

from __future__ import annotations

from compileboard.collectors.decode.aot import DDP_SPLIT, WRAPPER_ARTIFACTS, add_wrappers
from compileboard.collectors.decode.caches import Component, parse_components
from compileboard.collectors.decode.guard_tree import (
    GuardNode,
    GuardTree,
    find_root,
    is_check,
    parse_guards,
    summarize_guards,
    walk,
)

__all__ = [
    "DDP_SPLIT",
    "WRAPPER_ARTIFACTS",
    "Component",
    "GuardNode",
    "GuardTree",
    "add_wrappers",
    "find_root",
    "is_check",
    "parse_components",
    "parse_guards",
    "summarize_guards",
    "walk",
]
