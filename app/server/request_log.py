"""Request IDs, request counts and, with --log-format, one log line per request on stderr.

A line has the route, path, client, status and time to the response. It has no query, body or
header, so that searches and tokens stay out of logs.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Iterable
from typing import Any

from flask import Flask, Response, current_app, g, request
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Metric,
    disable_created_metrics,
    values,
)
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from compileboard.app.core.access import get_identity
from compileboard.app.core.db import get_settings
from compileboard.app.core.log_lines import write_line
from compileboard.app.core.settings import Settings

WORKERS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's own name
NO_ROUTE = ("GET", "")


class RequestCounts(Collector):
    """Counts of requests, shared by the workers of one server."""

    def __init__(self) -> None:
        if WORKERS_FOLDER in os.environ:
            values.ValueClass = values.MultiProcessValue()
        disable_created_metrics()
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "compileboard_http_requests",
            "Requests, by route and status.",
            ("method", "route", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "compileboard_http_request_duration_seconds",
            "Seconds until an answer began, by route.",
            ("method", "route"),
            registry=registry,
        )

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)

    def collect(self) -> Iterable[Metric]:
        return (
            MultiProcessCollector(None).collect()
            if WORKERS_FOLDER in os.environ
            else self._registry.collect()
        )


ID_HEADER = "X-Request-Id"
_OF_PROXY = re.compile(r"[A-Za-z0-9._-]{1,64}")
MAX_PATH_LENGTH = 300


def begin() -> None:
    g.began_s = time.monotonic()
    given = request.headers.get(ID_HEADER, "") if get_settings().trusted_proxies else ""
    g.request_id = given if _OF_PROXY.fullmatch(given) else secrets.token_hex(8)


def finish(response: Response) -> Response:
    seconds = time.monotonic() - g.began_s
    method, route = describe_route()
    counts: RequestCounts = current_app.config["REQUEST_COUNTS"]
    counts.add(method, route, response.status_code, seconds)
    response.headers[ID_HEADER] = g.request_id
    log_format = get_settings().log_format
    if log_format != "none":
        write_line(
            log_format,
            {
                "level": "info",
                "message": "request",
                "request_id": g.request_id,
                "method": request.method[:16],
                "route": route,
                "path": request.path[:MAX_PATH_LENGTH],
                "status": response.status_code,
                "duration_ms": round(seconds * 1000, 1),
                "bytes": response.content_length,
                "identity": get_identity().name,
                "address": request.remote_addr,
            },
        )
    return response


def describe_route() -> tuple[str, str]:
    return (request.method, request.url_rule.rule) if request.url_rule is not None else NO_ROUTE


class LineHandler(logging.Handler):
    def __init__(self, log_format: str) -> None:
        super().__init__()
        self._log_format = log_format

    def emit(self, record: logging.LogRecord) -> None:
        values: dict[str, Any] = {"level": record.levelname.lower(), "message": record.getMessage()}
        if g:
            values["request_id"] = g.get("request_id")
        if record.exc_info:
            values["exception"] = logging.Formatter().formatException(record.exc_info)
        write_line(self._log_format, values)


def describe_logging(log_format: str) -> dict[str, Any]:
    handler = {"class": f"{__name__}.{LineHandler.__name__}", "log_format": log_format}
    logger = {"level": "WARNING", "handlers": ["line"], "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"line": handler},
        "root": {"level": "WARNING", "handlers": ["line"]},
        "loggers": {"gunicorn.error": logger, "gunicorn.access": logger},
    }


def init_app(app: Flask) -> None:
    """Register the hooks. Call this before other parts register theirs, so that every request is
    counted.
    """
    settings: Settings = app.config["COMPILEBOARD"]
    app.config["REQUEST_COUNTS"] = RequestCounts()
    app.before_request(begin)
    app.after_request(finish)
    if settings.log_format != "none":
        app.logger.handlers = [LineHandler(settings.log_format)]
