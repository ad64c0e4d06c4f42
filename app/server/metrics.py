"""/metrics for Prometheus: server and database figures, and the newest value of each series.

Requests are counted over all workers of this server; database figures are the same on every server.
The number of series is bounded by the newest MOST_MODELS models and MOST_NAMES run names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from flask import Blueprint, Response, current_app

from compileboard.app.benchmarks.queries import ModelFilter, list_models
from compileboard.app.clickhouse.client import EngineAway
from compileboard.app.clickhouse.run_files import count_lost_files
from compileboard.app.core.address import parse_address
from compileboard.app.core.db import get_board_path, get_clock, get_engine, get_reader, get_settings
from compileboard.app.core.engine import Engine
from compileboard.app.core.publications import PublicationState, get_publication_state
from compileboard.app.core.resources import __version__
from compileboard.app.imports.queue import ENDED, ImportQueue
from compileboard.app.incidents.queries import count_incidents, get_publications
from compileboard.app.server.health import get_figures
from compileboard.app.server.request_log import BUCKETS_S, RequestCounts
from compileboard.collectors.store.leases import FOLLOW, is_taken, read_renewed
from compileboard.collectors.store.results import ResultRow
from compileboard.collectors.store.trash import trash_path

NEWEST_OF_NAMES_SQL = """
select
  r.suite, r.name, r.started_us, $t.compile_count, $t.graph_break_count, $t.recompile_count,
  $t.failure_count,
  $t.compile_us
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
    failure_count: int
    compile_us: int


def list_newest_runs(engine: Engine, limit: int) -> list[NewestRun]:
    return [NewestRun(*row) for row in engine.rows(NEWEST_OF_NAMES_SQL, {"limit": limit})]


MOST_MODELS = 1000
MOST_NAMES = 200
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_GB = 1e9  # as upstream counts it
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

blueprint = Blueprint("metrics", __name__)


class Sample(NamedTuple):
    value: float
    labels: Mapping[str, object] = {}
    suffix: str = ""


class MetricFamily(NamedTuple):
    name: str
    kind: str  # counter | gauge | histogram
    help: str
    samples: Iterable[Sample]


@blueprint.get("/metrics")
def index() -> Response:
    families = [*list_request_metrics(current_app.config["REQUEST_COUNTS"]), *list_store_metrics()]
    has_engine = parse_address(get_settings().db).clickhouse is not None
    publication = get_publication_state(get_reader()) if has_engine else None
    try:
        families += _list_newest(publication)
        is_engine_up = 1
    except EngineAway:
        is_engine_up = 0
    if publication is not None:
        families += _list_publication(publication, is_engine_up, count_lost_files(get_reader()))
    return Response(format_metrics(families), content_type=CONTENT_TYPE)


def format_metrics(families: Iterable[MetricFamily]) -> str:
    lines: list[str] = []
    for family in families:
        name = f"compileboard_{family.name}"
        lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
        for sample in family.samples:
            labels = ",".join(
                f'{key}="{str(value).translate(_ESCAPES)}"' for key, value in sample.labels.items()
            )
            lines.append(
                f"{name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {sample.value!r}"
            )
    return "\n".join(lines).encode("utf-8", "replace").decode() + "\n"


def list_request_metrics(counts: RequestCounts) -> list[MetricFamily]:
    routes = list(counts.read())
    statuses = [
        Sample(count, {"method": route.method, "route": route.route, "status": status or "other"})
        for route in routes
        for status, count in route.status_counts.items()
    ]
    durations: list[Sample] = []
    for route in routes:
        labels = {"method": route.method, "route": route.route}
        for bound, count in zip((*BUCKETS_S, "+Inf"), accumulate(route.bucket_counts)):
            durations.append(Sample(count, {**labels, "le": bound}, "_bucket"))
        durations.append(Sample(sum(route.bucket_counts), labels, "_count"))
        durations.append(Sample(route.total_s, labels, "_sum"))
    return [
        MetricFamily("http_requests_total", "counter", "Requests, by route and status.", statuses),
        MetricFamily(
            "http_request_duration_seconds",
            "histogram",
            "Seconds until an answer began, by route.",
            durations,
        ),
    ]


def list_store_metrics() -> list[MetricFamily]:
    path, clock = get_board_path(), get_clock()
    figures = get_figures(get_reader(), clock.alive_since_us)
    states = [
        upload.state for upload in ImportQueue(path).list_newest(1000) if upload.state not in ENDED
    ]
    trash = sum(map(_size_of, trash_path(path, "").parent.glob("*.db")))
    renewed_s = read_renewed(path, FOLLOW)
    info = Sample(1, {"version": __version__})
    imports = [
        Sample(states.count(state), {"state": state})
        for state in ("receiving", "waiting", "running")
    ]
    streams = [
        Sample(figures.open_stream_count, {"state": "open"}),
        Sample(figures.ended_stream_count, {"state": "ended"}),
    ]
    database = os.path.realpath(path)
    return [
        MetricFamily("info", "gauge", "Version of CompileBoard.", [info]),
        _gauge(
            "database_used_bytes", "Bytes of the database that hold something.", figures.used_bytes
        ),
        _gauge(
            "database_free_bytes",
            "Bytes of the database that new rows fill first.",
            figures.free_bytes,
        ),
        _gauge(
            "database_wal_bytes", "Bytes of the write-ahead log.", _size_of(Path(f"{database}-wal"))
        ),
        _gauge("database_trash_bytes", "Bytes of deleted runs.", trash),
        _gauge(
            "disk_free_bytes",
            "Free bytes of the database's disk.",
            shutil.disk_usage(os.path.dirname(database)).free,
        ),
        _gauge("runs", "Runs.", figures.run_count),
        _gauge("runs_running", "Runs whose recorder is alive.", figures.running_count),
        _gauge("runs_pruned", "Runs whose detail was pruned.", figures.pruned_count),
        _gauge(
            "incidents_open",
            "Open incidents that are not ignored.",
            count_incidents(get_reader()).open_count,
        ),
        _gauge("follower_up", "1 where a process updates incidents.", int(is_taken(path, FOLLOW))),
        _gauge(
            "follower_last_pass_timestamp_seconds",
            "When incidents were last looked at.",
            renewed_s or 0,
        ),
        _gauge(
            "follower_pending_commits",
            "Commits to runs that incidents do not know yet.",
            figures.pending_count,
        ),
        MetricFamily("imports", "gauge", "Uploads that are not imported yet.", imports),
        MetricFamily("streams", "gauge", "Streams that boxes push.", streams),
        _gauge("streams_stored_bytes", "Bytes received of these streams.", figures.stream_bytes),
        _gauge("streams_events", "Events received of these streams.", figures.stream_event_count),
        _gauge(
            "streams_lost_events", "Events that boxes had no room for.", figures.lost_event_count
        ),
    ]


def _gauge(name: str, help_text: str, value: float) -> MetricFamily:
    return MetricFamily(name, "gauge", help_text, [Sample(value)])


def _size_of(path: Path) -> int:
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
        "run_failures",
        "Failed compiles, and what compiled code raised.",
        lambda run: run.failure_count,
    ),
    ("run_compile_seconds", "Compile time.", lambda run: run.compile_us / 1e6),
    ("run_timestamp_seconds", "When it started.", lambda run: run.started_us / 1e6),
)


def _scale(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _list_publication(
    state: PublicationState, is_engine_up: int, lost_count: int
) -> list[MetricFamily]:
    passed_s = (state.passed_us or 0) / 1e6
    return [
        _gauge("clickhouse_up", "1 where ClickHouse answers.", is_engine_up),
        _gauge(
            "runs_unpublished", "Runs whose newest state ClickHouse has not.", state.waiting_count
        ),
        _gauge(
            "publication_failed",
            "1 where the newest pass left something out.",
            int(state.error is not None),
        ),
        _gauge(
            "run_files_lost",
            "Sealed runs whose file is missing, damaged or unreadable.",
            lost_count,
        ),
        _gauge(
            "publication_last_pass_timestamp_seconds",
            "When last nothing waited for ClickHouse.",
            passed_s,
        ),
    ]


def _list_newest(publication: PublicationState | None) -> list[MetricFamily]:
    pub = get_publications(get_reader()) if publication is None else publication.version
    key = (get_settings().db, pub)
    cached: tuple[object, list[MetricFamily]] | None = current_app.config.get("NEWEST_METRICS")
    if cached is None or cached[0] != key:
        cached = (key, [*_list_models(), *_list_runs()])
        current_app.config["NEWEST_METRICS"] = cached
    return cached[1]


def _list_models() -> Iterator[MetricFamily]:
    rows = list_models(get_engine(), ModelFilter())
    newest = sorted(rows, key=lambda row: (-row.time_us, row.id))[:MOST_MODELS]
    labelled = [(row, _label_model(row)) for row in newest]
    for name, help_text, take in _OF_MODEL:
        samples = [
            Sample(value, labels) for row, labels in labelled if (value := take(row)) is not None
        ]
        yield MetricFamily(name, "gauge", help_text, samples)
    yield _gauge(
        "models_omitted",
        "Models beyond the newest, which have no metrics.",
        len(rows) - len(newest),
    )


def _label_model(row: ResultRow) -> dict[str, object]:
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
    labels = {name: "" if (value := getattr(row, name)) is None else value for name in names}
    return {**labels, "dynamic": int(row.dynamic), "experiment": row.experiments[0]}


def _list_runs() -> Iterator[MetricFamily]:
    runs = [
        (run, {"suite": run.suite or "", "name": run.name})
        for run in list_newest_runs(get_engine(), MOST_NAMES)
    ]
    for name, help_text, take in _OF_RUN:
        yield MetricFamily(
            name, "gauge", help_text, [Sample(take(run), labels) for run, labels in runs]
        )
