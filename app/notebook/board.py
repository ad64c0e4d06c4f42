"""A database as a Python object: `compileboard.open("team.db")`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from flask import Flask
from werkzeug.exceptions import NotFound

from compileboard.app.aot.model import AotGraphRow
from compileboard.app.aot.pages import get_aot
from compileboard.app.artifacts.pages import list_artifacts
from compileboard.app.benchmarks import recorded_charts
from compileboard.app.benchmarks.api import list_newest, list_results
from compileboard.app.benchmarks.model import build_model
from compileboard.app.benchmarks.series import FIELDS
from compileboard.app.benchmarks.trend_pages import (
    SetSummaryJson,
    TrendQuery,
    build_requested_trend,
    get_summary,
)
from compileboard.app.benchmarks.trend_queries import TrendFilter
from compileboard.app.benchmarks.trends import list_changes
from compileboard.app.comparison.api import SidesQuery, list_baselines
from compileboard.app.comparison.compare import build_default_comparison
from compileboard.app.compiles import pages as of_run
from compileboard.app.compiles.charts import chart_compiles, chart_phases
from compileboard.app.compiles.page_model import build_compile, build_compiles
from compileboard.app.core import db
from compileboard.app.core.api import find_run
from compileboard.app.core.charts import Chart, make_figure
from compileboard.app.core.db import get_clock, get_engine, get_settings, get_store
from compileboard.app.core.format import format_count, format_duration, format_time
from compileboard.app.core.page import read_id
from compileboard.app.core.parameters import check_keys
from compileboard.app.core.settings import load_settings
from compileboard.app.core.store import Store
from compileboard.app.cuda_graphs.pages import list_cudagraphs
from compileboard.app.guards.charts import chart_kinds as chart_guards
from compileboard.app.guards.model import build_guards
from compileboard.app.guards.pages import list_guard_sets
from compileboard.app.incidents.page_model import build_incident
from compileboard.app.incidents.pages import get_incident, list_incidents
from compileboard.app.notebook.data_frames import (
    MAX_ROWS,
    FrameMethod,
    find_run_id,
    read_filters,
    write_text,
)
from compileboard.app.notebook.drawings import (
    BoardComparison,
    BoardIncident,
    BoardModel,
    BoardReason,
    BoardTrend,
    draw,
)
from compileboard.app.ranks.charts import chart_ranks
from compileboard.app.ranks.model import build_ranks
from compileboard.app.reasons import api as reasons_api
from compileboard.app.reasons import charts as break_charts
from compileboard.app.reasons.graph_breaks import GRAPH_BREAKS
from compileboard.app.reasons.model import build_program_trends
from compileboard.app.reasons.queries import ReasonSubject, get_reason_trends
from compileboard.app.reasons.recompiles import RECOMPILES
from compileboard.app.repros.pages import list_repro_failures, list_run_repros
from compileboard.app.runs.api import RunDetailJson, get_run, list_causes, list_costs, list_runs
from compileboard.app.runs.overview_pages import OverviewScope
from compileboard.app.runs.overview_queries import list_trend
from compileboard.app.shapes.pages import list_shapes
from compileboard.app.stacks.pages import list_trie
from compileboard.app.steps.pages import list_step_windows
from compileboard.collectors.store.connection import explain


class Board:
    """A database, read only: its tables as pandas frames, its charts as plotly figures.

    It holds no connection between calls, so threads may share it and recorders can write.
    """

    runs = FrameMethod(list_runs)
    models = FrameMethod(list_newest, page_count=MAX_ROWS)
    results = FrameMethod(list_results, page_count=MAX_ROWS, counts=["result_count"])
    causes = FrameMethod(list_causes, counts=["graph_break_count", "recompile_count"])
    compiles = FrameMethod(of_run.list_compiles, counts=["compile_count"])
    compilations = FrameMethod(of_run.list_compilations, counts=["record_count"])
    graph_breaks = FrameMethod(reasons_api.list_graph_breaks)
    graph_break_events = FrameMethod(of_run.list_graph_breaks, counts=["graph_break_count"])
    recompiles = FrameMethod(reasons_api.list_recompiles)
    recompile_events = FrameMethod(of_run.list_recompiles, counts=["recompile_count"])
    cuda_graphs = FrameMethod(reasons_api.list_rerecordings)
    failure_issues = FrameMethod(reasons_api.list_failure_issues)
    failures = FrameMethod(of_run.list_failures, counts=["failure_count"])
    repros = FrameMethod(list_repro_failures)
    incidents = FrameMethod(list_incidents)
    summaries = FrameMethod(get_summary, part="summaries", row=SetSummaryJson)
    baselines = FrameMethod(list_baselines)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._app = Flask(__name__, static_folder=None)
        self._app.config["COMPILEBOARD"] = load_settings(os.environ, {"db": self.path})
        db.init_app(self._app)
        self._is_closed = False
        with self.reading():
            pass

    @contextmanager
    def reading(self) -> Iterator[Store]:
        """Read one state of the database within the block.

        Raises StoreError if the database cannot be used, LookupError for unknown items.
        """
        if self._is_closed:
            raise ValueError(
                f"this board is closed; compileboard.open({self.path!r}) opens it again"
            )
        try:
            with self._app.app_context():
                yield get_store()
        except NotFound as error:
            raise LookupError(error.description) from None
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise explain(error, self.path) from error

    def close(self) -> None:
        """Close the database. Reading from it then raises ValueError."""
        self._is_closed = True

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def read(self, read: Callable[[str | None], Any]) -> Any:
        with self.reading():
            return read(None)

    def run(self, run_id: str = "latest") -> BoardRun:
        """Return one run by its id or commit, or a prefix of them; the newest by default.

        Raises LookupError if no run matches, FilterError if several do.
        """
        with self.reading():
            return BoardRun(self, find_run(find_run_id(run_id)).run.id)

    def trend(self, metric: str = "speedup", **filters: Any) -> BoardTrend:
        """Return a metric over the newest runs; the keywords are the parameters of `/api/v1/trend`.

        Raises FilterError for an unusable keyword.
        """
        asked, selection = read_filters((TrendQuery, TrendFilter), {**filters, "metric": metric})
        with self.reading() as store:
            screen, changes = build_requested_trend(asked, selection), []
            for series in screen.series:
                configuration = {
                    name: value for name, value in series.fields.items() if name != "model"
                }
                if configuration["world_size"] is not None:  # it only applies to counts
                    models = [asked.model] if asked.model else []
                    changes += list_changes(
                        store.board, configuration, models, [screen.metric.name], selection.branch
                    )
            return BoardTrend(screen, changes)

    def compare(
        self, base: str | None = None, new: str | None = None, **options: Any
    ) -> BoardComparison:
        """Compare two sides; by default the newest benchmark with the one before it. Options:
        `suite`, `anyway`.

        Raises FilterError for an unknown name.
        """
        (sides,) = read_filters([SidesQuery], {**options, "base": base, "new": new})
        with self.reading() as store:
            screen = build_default_comparison(
                store, get_clock(), sides.base, sides.new, anyway=sides.anyway, suite=sides.suite
            )
            if screen is None:
                raise LookupError(
                    "There is nothing to compare with: name both sides, base and new."
                )
            return BoardComparison(screen)

    def model(self, name: str, **series: Any) -> BoardModel:
        """Return one model's history. `suite`, `mode`, … choose the series that is drawn, `run` the
        point.

        Raises LookupError if there is no such model, series or point.
        """
        check_keys(series, (*FIELDS, "run"))
        query = {key: write_text(value) for key, value in series.items() if value is not None}
        with self.reading() as store:
            return BoardModel(build_model(store, name, query, query.pop("run", None)))

    def incident(self, incident_id: str) -> BoardIncident:
        """Return one incident. Raises LookupError if there is none."""
        with self.reading() as store:
            detail = get_incident(write_text(incident_id))
            screen = build_incident(store, detail.id, get_clock())
            assert screen is not None
            return BoardIncident(screen, detail)

    def graph_break(self, distinct_id: str) -> BoardReason:
        """Return one distinct graph break by its `id`. Raises LookupError if there is none."""
        with self.reading():
            return BoardReason(reasons_api.get_graph_break(write_text(distinct_id)), "graph breaks")

    def recompile(self, cause_id: str) -> BoardReason:
        """Return one cause of recompiles by its `id`. Raises LookupError if there is none."""
        with self.reading():
            return BoardReason(reasons_api.get_recompile(write_text(cause_id)), "recompiles")

    def overview_figures(self, **scope: Any) -> dict[str, Any]:
        """Return the charts of recorded runs by title; `suite` and `name` choose runs."""
        (chosen,) = read_filters([OverviewScope], scope)
        with self.reading():
            newest, alive_since_us = get_settings().trend_runs, get_clock().alive_since_us
            points = list_trend(
                get_engine(),
                chosen.suite,
                chosen.name,
                run_count=newest,
                alive_since_us=alive_since_us,
            )
        if not points:
            return {}
        recorded = recorded_charts.chart_recorded(points)
        return {chart.title: make_figure(chart, recorded["shared"]) for chart in recorded["charts"]}

    def graph_breaks_figure(self, **filters: Any) -> Any:
        """Return the chart of kinds of graph breaks over runs of one program, by default the
        newest; the keywords are those of `graph_breaks`.
        """
        return self._draw_kinds(GRAPH_BREAKS, filters, break_charts.chart_kinds, "a graph break")

    def recompiles_figure(self, **filters: Any) -> Any:
        """Return the chart of recompile causes over runs of one program, by default the newest;
        the keywords are those of `recompiles`.
        """
        return self._draw_kinds(RECOMPILES, filters, break_charts.chart_categories, "a recompile")

    def _draw_kinds(
        self,
        subject: ReasonSubject,
        filters: dict[str, Any],
        chart: Callable[..., Chart],
        noun: str,
    ) -> Any:
        (chosen,) = read_filters([subject.filter], filters)
        with self.reading():
            every = get_reason_trends(get_engine(), subject, chosen)
            trends = build_program_trends(get_engine(), subject, chosen, every).trends
        kinds = trends.grid.kinds
        return draw(
            chart(kinds, trends.slots) if kinds else None, f"No run has {noun} with these filters."
        )

    def __repr__(self) -> str:
        return f"<Board {self.path!r}>" if not self._is_closed else f"<Board {self.path!r}, closed>"


class BoardRun:
    """One run: its tables as frames, its charts as figures."""

    compiles = FrameMethod(of_run.list_compiles)
    compilations = FrameMethod(of_run.list_compilations)
    graph_breaks = FrameMethod(of_run.list_graph_breaks)
    distinct_graph_breaks = FrameMethod(of_run.list_distinct_breaks)
    recompiles = FrameMethod(of_run.list_recompiles)
    causes = FrameMethod(list_causes)
    recompile_causes = FrameMethod(of_run.list_causes)
    recompile_chains = FrameMethod(of_run.list_chains)
    recompile_limits = FrameMethod(of_run.list_limit_hits)
    repros = FrameMethod(list_run_repros)
    failures = FrameMethod(of_run.list_failures)
    cache_lookups = FrameMethod(of_run.list_cache_lookups)
    cudagraphs = FrameMethod(list_cudagraphs)
    steps = FrameMethod(list_step_windows)
    costs = FrameMethod(list_costs)
    aot = FrameMethod(get_aot, part="graphs", row=AotGraphRow)
    cudagraph_skips = FrameMethod(of_run.list_cudagraph_skips)
    processes = FrameMethod(of_run.list_processes)
    notes = FrameMethod(of_run.list_notes)
    results = FrameMethod(list_results, page_count=MAX_ROWS)
    artifacts = FrameMethod(list_artifacts)
    guards = FrameMethod(list_guard_sets)
    shapes = FrameMethod(list_shapes)
    stacks = FrameMethod(list_trie, page_count=MAX_ROWS)

    def __init__(self, board: Board, run_id: str) -> None:
        self.board = board
        self.id = run_id

    def read(self, read: Callable[[str | None], Any]) -> Any:
        with self.board.reading():
            return read(self.id)

    @property
    def detail(self) -> RunDetailJson:
        with self.board.reading():
            return get_run(find_run(self.id))

    def compiles_figure(self) -> Any:
        """Return the chart of the run's longest compiles, by phase."""
        with self.board.reading() as store:
            screen = build_compiles(store.open_run(self.id), find_run(self.id).run, limit=1)
        chart = chart_compiles(screen.longest, self.id, screen.count) if screen.longest else None
        return draw(chart, "Nothing was compiled in this run.")

    def phases_figure(self, compile_key: int) -> Any:
        """Return the chart of one compile's phases; `compile_key` is its `id` among the run's
        compiles.
        """
        with self.board.reading() as store:
            screen = build_compile(
                store.open_run(self.id), find_run(self.id).run, read_id(str(compile_key))
            )
        if screen is None:
            raise LookupError(f"Run {self.id} has no compile number {compile_key}.")
        return draw(
            chart_phases(screen.records) if screen.records else None,
            "Nothing was recorded of this compile.",
        )

    def guards_figure(self) -> Any:
        """Return the chart of the run's guards by kind."""
        with self.board.reading() as store:
            sums = build_guards(store.open_run(self.id), self.id, limit=1).sums
        return draw(
            chart_guards(sums.kinds, sums.guard_count) if sums.kinds else None,
            "This run has no guards.",
        )

    def ranks_figure(self) -> Any:
        """Return the chart of compile time by rank."""
        with self.board.reading() as store:
            screen = build_ranks(store.open_run(self.id), self.id)
        return draw(
            chart_ranks(screen.comparison.ranks) if screen else None,
            "This run has fewer than two ranks.",
        )

    def __repr__(self) -> str:
        return f"<run {self.id} of {self.board.path!r}>"

    def _repr_html_(self) -> str:
        detail = self.detail
        cells = {
            "Run": detail.shown_name,
            "State": detail.shown_state,
            "Started": format_time(detail.started_us),
            "torch": detail.torch_version,
            "GPU": detail.gpu_name,
            "Commit": f"{(detail.git_commit or '')[:8]} {detail.git_subject or ''}".strip(),
            "Compiles": format_count(detail.compile_count),
            "Graph breaks": format_count(detail.graph_break_count),
            "Recompiles": format_count(detail.recompile_count),
            "Compile time": format_duration(detail.compile_us),
            "Results": format_count(detail.result_count),
        }
        rows = (
            f"<tr><th>{name}</th><td>{escape(text)}</td></tr>"
            for name, text in cells.items()
            if text
        )
        return f"<table>{''.join(rows)}</table>"
