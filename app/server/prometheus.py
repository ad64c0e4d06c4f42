"""/metrics for Prometheus: server and database figures, and the newest value of each series.

Requests are counted over all workers of this server; database figures are the same on every server.
The number of series is bounded by the newest MAX_MODELS models and MAX_NAMES run names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from flask import Blueprint, Response, current_app
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from compileboard.app.benchmarks.queries import ModelFilter, list_models
from compileboard.app.clickhouse.client import EngineUnavailable
from compileboard.app.clickhouse.run_files import count_lost_files
from compileboard.app.core.address import parse_address
from compileboard.app.core.db import (
    PublicationState,
    get_board_path,
    get_clock,
    get_engine,
    get_publication_state,
    get_reader,
    get_settings,
)
from compileboard.app.core.engine import Engine
from compileboard.app.core.resources import __version__
from compileboard.app.imports.queue import ENDED, ImportQueue
from compileboard.app.incidents.queries import count_incidents, get_publications
from compileboard.app.server.health import get_figures
from compileboard.collectors.store.leases import FOLLOW, is_lease_held, read_renewed
from compileboard.collectors.store.results import ResultRow
from compileboard.collectors.store.trash import trash_path

NEWEST_OF_NAMES_SQL = """
select
  r.suite, r.name, r.started_us, $t.compile_count, $t.graph_break_count, $t.recompile_count,
  $t.cudagraph_rerecording_count, $t.failure_count, $t.compile_us
from (
  select suite, name, max(started_us) as started_us
  from runs
  where state <> 'running'
    and source <> 'trial'
  group by suite, name
) as newest
join runs as r on r.name = newest.name and r.started_us = newest.started_us
  and r.suite $is newest.suite
$totals
where $t.compile_count > 0
order by r.started_us desc, r.id desc
limit :limit
"""


class NewestRun(NamedTuple):
    suite: str | None
    name: str
    started_us: int
    compile_count: int
    graph_break_count: int
    recompile_count: int
    cudagraph_rerecording_count: int
    failure_count: int
    compile_us: int


def list_newest_runs(engine: Engine, limit: int) -> list[NewestRun]:
    return [NewestRun(*row) for row in engine.rows(NEWEST_OF_NAMES_SQL, {"limit": limit})]


MAX_MODELS = 1000
MAX_NAMES = 200
_GB = 1e9  # as upstream counts it

blueprint = Blueprint("metrics", __name__)


@blueprint.get("/metrics")
def index() -> Response:
    registry = CollectorRegistry()
    registry.register(current_app.config["REQUEST_COUNTS"])
    registry.register(StoreMetrics())
    return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class StoreMetrics(Collector):
    """Metrics of the database and the server's other processes, and the newest value of each
    series.
    """

    def collect(self) -> Iterable[Metric]:
        families = list_store_metrics()
        has_engine = parse_address(get_settings().db).clickhouse is not None
        publication = get_publication_state(get_reader()) if has_engine else None
        try:
            families += _list_newest(publication)
            is_engine_up = 1
        except EngineUnavailable:
            is_engine_up = 0
        if publication is not None:
            families += _list_publication(publication, is_engine_up, count_lost_files(get_reader()))
        return families


def list_store_metrics() -> list[Metric]:
    path, clock = get_board_path(), get_clock()
    figures = get_figures(get_reader(), clock.alive_since_us)
    states = [
        upload.state for upload in ImportQueue(path).list_newest(1000) if upload.state not in ENDED
    ]
    trash = sum(map(_file_size, trash_path(path, "").parent.glob("*.db")))
    renewed_s = read_renewed(path, FOLLOW)
    imports = [
        ({"state": state}, states.count(state)) for state in ("receiving", "waiting", "running")
    ]
    streams = [
        ({"state": "open"}, figures.open_stream_count),
        ({"state": "ended"}, figures.ended_stream_count),
    ]
    database = os.path.realpath(path)
    return [
        _make_gauges("info", "Version of CompileBoard.", [({"version": __version__}, 1)]),
        _make_gauge(
            "database_used_bytes", "Bytes of the database that hold something.", figures.used_bytes
        ),
        _make_gauge(
            "database_free_bytes",
            "Bytes of the database that new rows fill first.",
            figures.free_bytes,
        ),
        _make_gauge(
            "database_wal_bytes",
            "Bytes of the write-ahead log.",
            _file_size(Path(f"{database}-wal")),
        ),
        _make_gauge("database_trash_bytes", "Bytes of deleted runs.", trash),
        _make_gauge(
            "disk_free_bytes",
            "Free bytes of the database's disk.",
            shutil.disk_usage(os.path.dirname(database)).free,
        ),
        _make_gauge("runs", "Runs.", figures.run_count),
        _make_gauge("runs_running", "Runs whose recorder is alive.", figures.running_count),
        _make_gauge("runs_pruned", "Runs whose detail was pruned.", figures.pruned_count),
        _make_gauge(
            "incidents_open",
            "Open incidents that are not ignored.",
            count_incidents(get_reader()).open_count,
        ),
        _make_gauge(
            "follower_up", "1 where a process updates incidents.", int(is_lease_held(path, FOLLOW))
        ),
        _make_gauge(
            "follower_last_pass_timestamp_seconds",
            "When incidents were last looked at.",
            renewed_s or 0,
        ),
        _make_gauge(
            "follower_pending_commits",
            "Commits to runs that incidents do not know yet.",
            figures.pending_count,
        ),
        _make_gauges("imports", "Uploads that are not imported yet.", imports),
        _make_gauges("streams", "Streams that machines push.", streams),
        _make_gauge(
            "streams_stored_bytes", "Bytes received of these streams.", figures.stream_bytes
        ),
        _make_gauge(
            "streams_events", "Events received of these streams.", figures.stream_event_count
        ),
        _make_gauge(
            "streams_lost_events", "Events that machines had no room for.", figures.lost_event_count
        ),
    ]


def _make_gauge(name: str, help_text: str, value: float) -> Metric:
    return _make_gauges(name, help_text, [({}, value)])


def _make_gauges(
    name: str, help_text: str, samples: Iterable[tuple[Mapping[str, str], float]]
) -> Metric:
    family = Metric(f"compileboard_{name}", help_text, "gauge")
    for labels, value in samples:
        family.add_sample(family.name, dict(labels), value)
    return family


def _file_size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


# Of a model's newest result: name, help, and the value in base units.
_OF_MODEL: tuple[tuple[str, str, Callable[[ResultRow], float | None]], ...] = (
    ("model_speedup_ratio", "Eager latency ÷ compiled latency.", lambda row: row.speedup),
    ("model_compile_seconds", "First compile.", lambda row: row.compilation_latency_s),
    (
        "model_latency_seconds",
        "Compiled latency, median.",
        lambda row: _scale(row.abs_latency_ms, 1e-3),
    ),
    (
        "model_peak_memory_bytes",
        "Peak memory, compiled.",
        lambda row: _scale(row.dynamo_peak_mem_gb, _GB),
    ),
    ("model_graph_breaks", "Graph breaks.", lambda row: row.graph_breaks),
    ("model_recompiles", "Recompiles.", lambda row: row.recompiles),
    (
        "model_failed",
        "1 where the newest result is a failure.",
        lambda row: int(row.status == "failed"),
    ),
    ("model_timestamp_seconds", "When it was measured.", lambda row: row.time_us / 1e6),
)
_OF_RUN: tuple[tuple[str, str, Callable[[NewestRun], float]], ...] = (
    ("run_compiles", "Compiles.", lambda run: run.compile_count),
    ("run_graph_breaks", "Graph breaks.", lambda run: run.graph_break_count),
    ("run_recompiles", "Recompiles.", lambda run: run.recompile_count),
    (
        "run_cudagraph_rerecordings",
        "CUDA graphs recorded again, because no other fitted.",
        lambda run: run.cudagraph_rerecording_count,
    ),
    (
        "run_failures",
        "Failed compiles, and what compiled code raised.",
        lambda run: run.failure_count,
    ),
    ("run_compile_seconds", "Compile time.", lambda run: run.compile_us / 1e6),
    ("run_timestamp_seconds", "When it started.", lambda run: run.started_us / 1e6),
)


def _scale(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _list_publication(state: PublicationState, is_engine_up: int, lost_count: int) -> list[Metric]:
    passed_s = (state.passed_us or 0) / 1e6
    return [
        _make_gauge("clickhouse_up", "1 where ClickHouse answers.", is_engine_up),
        _make_gauge(
            "runs_unpublished", "Runs whose newest state ClickHouse has not.", state.waiting_count
        ),
        _make_gauge(
            "publication_failed",
            "1 where the newest pass left something out.",
            int(state.error is not None),
        ),
        _make_gauge(
            "run_files_lost",
            "Sealed runs whose file is missing, damaged or unreadable.",
            lost_count,
        ),
        _make_gauge(
            "publication_last_pass_timestamp_seconds",
            "When last nothing waited for ClickHouse.",
            passed_s,
        ),
    ]


def _list_newest(publication: PublicationState | None) -> list[Metric]:
    pub = get_publications(get_reader()) if publication is None else publication.version
    key = (get_settings().db, pub)
    cached: tuple[object, list[Metric]] | None = current_app.config.get("NEWEST_METRICS")
    if cached is None or cached[0] != key:
        cached = (key, [*_list_models(), *_list_runs()])
        current_app.config["NEWEST_METRICS"] = cached
    return cached[1]


def _list_models() -> Iterator[Metric]:
    rows = list_models(get_engine(), ModelFilter())
    newest = sorted(rows, key=lambda row: (-row.time_us, row.id))[:MAX_MODELS]
    labelled = [(row, _label_model(row)) for row in newest]
    for name, help_text, take in _OF_MODEL:
        samples = [(labels, value) for row, labels in labelled if (value := take(row)) is not None]
        yield _make_gauges(name, help_text, samples)
    yield _make_gauge(
        "models_omitted",
        "Models beyond the newest, which have no metrics.",
        len(rows) - len(newest),
    )


def _label_model(row: ResultRow) -> dict[str, str]:
    names = (
        "suite",
        "model",
        "mode",
        "dtype",
        "device",
        "hardware",
        "backend",
        "batch_size",
        "world_size",
    )
    labels = {name: "" if (value := getattr(row, name)) is None else str(value) for name in names}
    return {**labels, "dynamic": str(int(row.dynamic)), "experiment": row.experiments[0]}


def _list_runs() -> Iterator[Metric]:
    runs = [
        (run, {"suite": run.suite or "", "name": run.name})
        for run in list_newest_runs(get_engine(), MAX_NAMES)
    ]
    for name, help_text, take in _OF_RUN:
        yield _make_gauges(name, help_text, [(labels, take(run)) for run, labels in runs])
