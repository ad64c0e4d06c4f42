"""Kinds of texts that a search finds, in people's words."""

from __future__ import annotations

KIND_WORDS = {
    "graph_break": ("Graph breaks", "reason, explanation, hints and the line of code"),
    "recompile": ("Recompiles", "the failed guards with their sources and lines of code"),
    "failure": ("Failures", "exceptions and their messages"),
    "function": ("Functions", "compiled functions and their files"),
    "frame": ("Stack frames", "files and lines that compiles were started from"),
    "symbol": ("Symbolic shapes", "symbols, guards on them, sources and lines of code"),
    "cache_lookup": ("Cache reasons", "why a cache was bypassed"),
    "cudagraph_skip": ("CUDA graph skips", "why a CUDA graph was not used"),
    "artifact": ("Artifacts", "graphs, generated code, guards and whatever else torch wrote"),
}
