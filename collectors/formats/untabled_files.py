"""Upstream's files without a table: found batch sizes, recompile reports, minimal programs.

Source: benchmarks/dynamo/common.py of PyTorch: batch_size_finder, recompile_profiler_experiment,
minify_model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.formats.result_file import write_csv

BATCH_SIZES, RECOMPILES = (
    "batch_sizes",
    "recompile_profiler_log",
)  # upstream calls the first coverage.csv
_UNSAFE = re.compile(r"[^A-Za-z0-9.=+-]+")


def safe_name(text: str) -> str:
    """Return a text as a part of a file's name."""
    return _UNSAFE.sub("_", text).strip("._") or "_"


def render_untabled(results: Sequence[BenchMeasured], stem: str | None = None) -> dict[str, bytes]:
    """Make the files, each by its name; `stem` is the name of the CSV, in place of its own."""
    sizes = [
        (result.model, int(result.values["batch_size_found"]))
        for result in results
        if result.experiment == "batch_size" and "batch_size_found" in result.values
    ]
    reports = [
        (result.model, format_recompiles(result.facts))
        for result in results
        if result.experiment == "recompile_profile" and result.status == "measured"
    ]
    files: dict[str, bytes] = {}
    if sizes:  # as --batch-size-file reads them
        files[f"{stem or BATCH_SIZES}.csv"] = write_csv(sizes)
    if reports:
        files[f"{stem or RECOMPILES}.csv"] = write_csv([("model", "profiler report"), *reports])
    for result in results:
        programs = [
            minimal["program"]
            for minimal in result.facts.get("minimal_programs", ())
            if minimal["program"]
        ]
        for number, program in enumerate(programs, start=1):
            suffix = "" if number == 1 else f"_{number}"
            files[f"{safe_name(result.model)}_repro{suffix}.py"] = program.encode(
                "utf-8", "replace"
            )
    return files


def format_recompiles(facts: Mapping[str, Any]) -> str:
    """Write the facts of a recompile profile in the form of torch's CompileProfiler, which torch
    dropped in 2.5.
    """
    breaks: Mapping[str, int] = facts.get("graph_break_reasons", {})
    changes = [change for change in facts["changes"] if change["recompiles"] or "error" in change]
    lines = [
        "Torchdynamo Profiler Report",
        "===========================",
        "",
        "Graph Breaks",
        "------------",
    ]
    lines += [f"{count} × {reason}" for reason, count in breaks.items()] or [
        "No graph breaks detected."
    ]
    lines += ["", "Recompilation", "-------------"]
    for change in changes:
        lines.append(f"{change['change']}: recompiles {change['recompiles']}")
        lines += [f"  {line}" for line in _list_reasons(change)]
    return "\n".join(lines if changes else [*lines, "No recompilation detected."]) + "\n"


def _list_reasons(change: Mapping[str, Any]) -> Iterable[str]:
    for text in (*change["reasons"], *filter(None, [change.get("error")])):
        yield from text.splitlines()
