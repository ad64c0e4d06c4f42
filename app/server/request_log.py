"""Request IDs, request counts and, with --log-format, one log line per request on stderr.

A line has the route, path, client, status and time to the response. It has no query, body or
header, so that searches and tokens stay out of logs.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import re
import secrets
import struct
import threading
import time
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flask import Flask, Response, current_app, g, request

from compileboard.app.core.access import get_identity
from compileboard.app.core.db import get_settings
from compileboard.app.core.log_lines import write_line
from compileboard.app.core.settings import Settings

STATUSES = (
    *(
        200,
        201,
        202,
        204,
        206,
        301,
        302,
        303,
        304,
        400,
        401,
        403,
        404,
        405,
        408,
        409,
        410,
        411,
        413,
        415,
        422,
        426,
    ),
    *(429, 460, 500, 503, 507, 0),  # 0: any other
)
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
NO_ROUTE = ("GET", "")
_BYTES = 8
_AFTER_STATUSES = len(STATUSES)
_AFTER_BUCKETS = _AFTER_STATUSES + len(BUCKETS_S) + 1
_NUMBERS_A_ROUTE = _AFTER_BUCKETS + 1  # and the seconds


@dataclass(frozen=True)
class RouteCounts:
    """Counts of one route; `bucket_counts` is not cumulative and has one more element than
    BUCKETS_S.
    """

    method: str
    route: str
    status_counts: dict[int, int]
    bucket_counts: Sequence[int]
    total_s: float


class RequestCounts:
    """Request counts of one server. Create it before the workers are forked."""

    def __init__(self, routes: Iterable[tuple[str, str]], workers: int) -> None:
        names = [NO_ROUTE, *sorted(set(routes) - {NO_ROUTE})]
        self._offsets = {name: number * _NUMBERS_A_ROUTE for number, name in enumerate(names)}
        self._part_bytes = len(names) * _NUMBERS_A_ROUTE * _BYTES
        self._part_count = 2 * workers + 2  # old workers and new ones, while a server is reloaded
        self._file = os.memfd_create("compileboard-requests", os.MFD_CLOEXEC)
        os.ftruncate(self._file, self._part_bytes * self._part_count)
        self._memory = mmap.mmap(self._file, self._part_bytes * self._part_count)
        self._lock = threading.Lock()
        self._pid = 0
        self._start = 0
        weakref.finalize(self, os.close, self._file)

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        offset = self._offsets.get((method, route), 0)
        status_number = STATUSES.index(status) if status in STATUSES else _AFTER_STATUSES - 1
        with self._lock:
            if self._pid != os.getpid():
                self._take_part()
            start = self._start + offset * _BYTES
            self._increase("q", start + status_number * _BYTES, 1)
            self._increase(
                "q", start + (_AFTER_STATUSES + bisect_left(BUCKETS_S, seconds)) * _BYTES, 1
            )
            self._increase("d", start + _AFTER_BUCKETS * _BYTES, seconds)

    def _increase(self, kind: str, offset: int, amount: float) -> None:
        (value,) = struct.unpack_from(kind, self._memory, offset)
        struct.pack_into(kind, self._memory, offset, value + amount)

    def _take_part(self) -> None:
        self._pid = os.getpid()
        for number in range(self._part_count):
            self._start = number * self._part_bytes
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._start)
                return
            except OSError:
                continue

    def read(self) -> Iterator[RouteCounts]:
        layout = struct.Struct(f"{_AFTER_BUCKETS}qd")
        for (method, route), offset in self._offsets.items():
            parts = [
                layout.unpack_from(self._memory, number * self._part_bytes + offset * _BYTES)
                for number in range(self._part_count)
            ]
            sums = [sum(numbers) for numbers in zip(*parts)]
            if any(sums):
                statuses = dict(zip(STATUSES, sums))
                yield RouteCounts(
                    method,
                    route,
                    {status: count for status, count in statuses.items() if count},
                    sums[_AFTER_STATUSES:_AFTER_BUCKETS],
                    sums[_AFTER_BUCKETS],
                )


ID_HEADER = "X-Request-Id"
_OF_PROXY = re.compile(r"[A-Za-z0-9._-]{1,64}")
MOST_PATH = 300


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
                "path": request.path[:MOST_PATH],
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
    settings: Settings = app.config["COMPILEBOARD"]
    app.before_request(begin)
    app.after_request(finish)
    if settings.log_format != "none":
        app.logger.handlers = [LineHandler(settings.log_format)]


def count_routes(app: Flask) -> None:
    settings: Settings = app.config["COMPILEBOARD"]
    routes = (
        (method, rule.rule) for rule in app.url_map.iter_rules() for method in rule.methods or ()
    )
    app.config["REQUEST_COUNTS"] = RequestCounts(routes, settings.workers)
