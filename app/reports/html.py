"""The HTML report: one file that opens from disk, offline, and reads without JavaScript."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator
from typing import Any

from compileboard.app.analysis import result_words, words
from compileboard.app.analysis.artifact_words import describe_name
from compileboard.app.analysis.chains import label_category
from compileboard.app.analysis.phases import list_shares, sum_phases
from compileboard.app.analysis.run_states import describe_recorded_state
from compileboard.app.charts.base import Chart
from compileboard.app.charts.run import chart_compiles
from compileboard.app.reports import contents as limits
from compileboard.app.reports import directory
from compileboard.app.reports.contents import Contents
from compileboard.app.reports.page import (
    BENCH_STYLES,
    EXPLORED_STYLES,
    STYLES,
    list_scripts,
    make_environment,
    make_policy,
    read_static,
)
from compileboard.app.resources import __version__

CHARTED = 24
_CHUNK_CHARACTERS = 64 * 1024


def is_charted(contents: Contents) -> bool:
    """Say whether there is something to draw."""
    return any(sum_phases(it.phases) for it in contents.compiles[:CHARTED])


def policy_of(contents: Contents) -> str:
    """Return the Content-Security-Policy that this run's report needs."""
    return make_policy(is_charted(contents))


def write_html(connection: sqlite3.Connection, contents: Contents, payloads: bool = False) -> Iterator[bytes]:
    """Yield the report as one HTML file in pieces of some size; with `payloads` it has the run's graphs and code."""
    template = make_environment().get_template("reports/run.html")
    pieces: list[str] = []
    size = 0
    for piece in template.generate(**_list_values(contents), **_list_directory(connection, contents, payloads)):
        pieces.append(piece)
        size += len(piece)
        if size >= _CHUNK_CHARACTERS:
            yield "".join(pieces).encode("utf-8", "replace")
            pieces, size = [], 0
    yield "".join(pieces).encode("utf-8", "replace")


def _list_values(contents: Contents) -> dict[str, Any]:
    charted = is_charted(contents)
    highest = max((sum_phases(it.phases) or 0 for it in contents.compiles), default=0)
    return {
        "it": contents,
        "run": contents.run,
        "detail": contents.detail,
        "sections": contents.sections,
        "state": describe_recorded_state(contents.run),
        "scripts": list_scripts(charted),
        "policy": make_policy(charted),
        "chart": _chart(contents) if charted else None,
        "shares": list_shares(contents.phases),
        "phases_us": sum_phases(contents.phases),
        "compiles": [(row, list_shares(row.phases, highest)) for row in contents.compiles],
        "environment": sorted({pair for it in contents.processes for pair in it.environment.items()}),
        "ranked": contents.run.process_count > 1,
        "most_ranks": limits.MOST_PROCESSES,
        "first_steps": limits.MOST_STEPS // 4,
        "words": words,
        "describe_status": result_words.describe_status,
        "describe_verdict": result_words.describe_verdict,
        "describe_missing": result_words.describe_missing,
        "describe_speedup": result_words.describe_speedup,
        "label_category": label_category,
        "describe_name": describe_name,
        "version": __version__,
        "live": False,
    }


def _list_directory(connection: sqlite3.Connection, contents: Contents, payloads: bool) -> dict[str, Any]:
    """List what the directory and the texts are made of; they are read while they are written."""
    run = contents.run
    choice = directory.choose_texts(connection, run.id) if payloads else directory.TextChoice(())
    most = directory.MOST_ENTRIES_WITH_TEXTS if choice.texts else directory.MOST_ENTRIES
    listed = contents.explored.has_artifacts
    return {
        "styles": read_static(
            (
                *STYLES,
                *(EXPLORED_STYLES if listed or contents.sections else ()),
                *(BENCH_STYLES if contents.results else ()),
            )
        ),
        "listed": listed,
        "listed_count": min(most, run.compile_count),
        "entries": directory.iterate_entries(connection, run.id, choice, run.state == "running", most),
        "loose": directory.list_loose(connection, run.id, choice) if listed else [],
        "choice": choice,
        "texts": directory.iterate_texts(connection, choice),
    }


def _chart(contents: Contents) -> Chart:
    run = contents.run
    chart = chart_compiles(contents.compiles[:CHARTED], run.id, run.compile_count)
    # A point's address leads to the dashboard, which is not there beside a file.
    traces: list[dict[str, Any]] = [
        {key: value for key, value in trace.items() if key != "customdata"} for trace in chart.figure["data"]
    ]
    count = min(CHARTED, len(contents.compiles))
    note = "by phase" if count >= run.compile_count else f"the {count} longest of {run.compile_count}, by phase"
    return dataclasses.replace(chart, figure=chart.figure | {"data": traces}, note=note)
