"""Serve with gunicorn in this process; the socket is bound before anything else starts."""

from __future__ import annotations

import errno
import gc
import os
import resource
import shutil
import socket
import tempfile
from collections.abc import Mapping
from contextlib import closing, suppress
from importlib.util import find_spec
from typing import Any

from flask import Flask

from compileboard.app import create_app
from compileboard.app.clickhouse.tables import make_folder
from compileboard.app.core.access import (
    LOOPBACK_NAMES,
    describe_protection,
    is_loopback,
    read_proxy_secret,
    read_roles,
)
from compileboard.app.core.address import StoreAddress, parse_address, read_password
from compileboard.app.core.db import start_indexing
from compileboard.app.core.format import format_plural
from compileboard.app.core.log_lines import log
from compileboard.app.core.settings import Settings
from compileboard.app.imports.queue import ImportQueue
from compileboard.app.server.assets import compress_assets
from compileboard.app.server.follow import Follower, FollowerThread
from compileboard.app.server.request_log import WORKERS_FOLDER, describe_logging
from compileboard.app.server.security import list_allowed_hosts
from compileboard.collectors.store.connection import StoreError, open_reader, open_writer
from compileboard.collectors.store.leases import SERVE, Lease, try_acquire_lease
from compileboard.collectors.store.migrations import make_missing
from compileboard.collectors.store.trash import prune_trash

CONNECTIONS = 1000  # per worker
FILES_OF_ITS_OWN = 128  # listener, poller, locks; two files per upload
FILES_OF_A_THREAD = 4  # a database, its write-ahead log, its index, a file


class ServeError(Exception):
    """The server cannot start."""


def hold_database(path: str, *, shared: bool = True) -> Lease:
    """Lock the database against replacement while it is served and, unless `shared`, against a
    second server.

    Raises ServeError if it is being replaced, or its folder is not writable.
    """
    try:
        lease = try_acquire_lease(path, SERVE, shared=shared)
    except OSError as error:
        raise ServeError(
            f"{error.filename} cannot be made ({error.strerror}): the database's folder is not "
            "there or not writable"
        ) from error
    if lease is None and not shared:
        raise ServeError(
            f"{path} is served already: one process alone can open ClickHouse's files in its folder"
        )
    if lease is None:
        raise ServeError(
            f"{path} is being replaced by `compileboard restore`; start again when that is done"
        )
    return lease


def check_engine(address: StoreAddress, settings: Settings) -> None:
    """Raises ServeError if this ClickHouse cannot be served, AddressError if the password file
    cannot be read.
    """
    if address.clickhouse is None:
        return
    read_password(os.environ)
    for name in ("clickhouse_connect", "chdb")[: 2 if _is_in_process(address) else 1]:
        if find_spec(name) is None:
            extra = "chdb" if _is_in_process(address) else "clickhouse"
            raise ServeError(
                f"--db {address.clickhouse.label} needs {name}: pip install 'compileboard[{extra}]'"
            )
    if _is_in_process(address) and settings.workers > 1:
        raise ServeError(
            f"--workers {settings.workers}: one process alone can open ClickHouse's files in a "
            "folder. Leave --workers "
            "out, or use a ClickHouse server: --db clickhouse://HOST/DATABASE?folder=/DIR"
        )


def prepare_database(path: str, environ: Mapping[str, str]) -> None:
    """Create a missing or empty database, record leftover spools, start indexing, and prune deleted
    runs.

    Raises StoreError if the database is newer, older, locked, or not a database.
    """
    made = make_missing(path)
    if made is not None:
        log(made)
    open_reader(path).close()
    _recover_spool(environ)
    pending_count = start_indexing(path)
    if pending_count:
        log(f"indexing {format_plural(pending_count, 'run')} for search in the background")
    _prune(path)


def _prune(path: str) -> None:
    with suppress(StoreError), closing(open_writer(path)) as writer:
        pruned = prune_trash(writer)
        if pruned:
            log(
                f"deleted for good what was deleted a week ago: {format_plural(len(pruned), 'run')}"
            )


def _recover_spool(environ: Mapping[str, str]) -> None:
    # Imported here: it imports sqlite-utils and pandas, which no page needs.
    from compileboard.collectors.record.recover_spools import recover_spools

    picked = recover_spools(environ)
    if picked.run_ids:
        runs = format_plural(len(picked.run_ids), "run")
        log(
            f"recorded {format_plural(picked.event_count, 'event')} of {runs} that no recorder "
            "had finished"
        )
    for problem in picked.problems:
        log(f"not picked up: {problem}")
    for problem in picked.set_aside:
        log(f"set aside, because it cannot be recorded: {problem}")


def bind(host: str, port: int) -> socket.socket:
    """Open the listening socket. Raises ServeError if the address is unavailable."""
    bare = host.strip("[]")
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(
            bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ServeError(
            f"--host {host} is not an address of this machine ({error.strerror})"
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ServeError(_explain_bind(error, host, port)) from None
    return listener


def _explain_bind(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use by another program; stop it or give another "
            "--port (0 picks a free one)"
        )
    if isinstance(error, PermissionError):
        return f"port {port} may not be used by this user; give a --port above 1023"
    return f"cannot listen on {host} port {port}: {error.strerror}; give another --host or --port"


def check_exposure(settings: Settings) -> None:
    """Refuse an address that others can reach without allowed host names, and an unidentified
    proxy.

    Raises ServeError, SettingError.
    """
    read_proxy_secret(settings)
    read_roles(settings.identity_scopes)
    if not is_loopback(settings.host) and not settings.allow_host.strip(" ,"):
        raise ServeError(
            f"--host {settings.host} can be reached from other machines, and any web page that "
            "is open there could "
            "then read this database by a name of its own. Say by which names people open the "
            "dashboard: --allow-host "
            "NAME (of this machine, or its address)"
        )


def describe_exposure(settings: Settings) -> str:
    names = ", ".join(sorted(list_allowed_hosts(settings) - LOOPBACK_NAMES) or ["localhost"])
    return f"{describe_protection(settings)} (open as {names})"


def serve(settings: Settings, environ: Mapping[str, str]) -> int:
    """Serve until interrupted and return the exit code.

    Raises ServeError if the address is unavailable, StoreError if the database cannot be used.
    """
    listener = bind(settings.host, settings.port)
    with listener:
        check_exposure(settings)
        address = parse_address(settings.db)
        check_engine(address, settings)
        if settings.read_only == "yes":
            open_reader(address.board).close()  # reports what is wrong with it
        else:
            if address.folder is not None:
                make_folder(address.folder)
            _lease = hold_database(address.board, shared=not _is_in_process(address))
            prepare_database(address.board, environ)
            ImportQueue(address.board).clear()
        if settings.workers > 1:
            os.environ[WORKERS_FOLDER] = tempfile.mkdtemp(prefix="compileboard-")
        app = create_app(settings)
        compress_assets(app)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        log(describe_exposure(settings))
        log(f"CompileBoard serves {settings.db} at http://{shown}:{port} (Ctrl+C stops it)")
        run_gunicorn(app, listener.detach(), settings, _make_follower(settings, environ))
    return 0


def _make_follower(
    settings: Settings, environ: Mapping[str, str]
) -> Follower | FollowerThread | None:
    if settings.follow == "no" or settings.read_only == "yes":
        return None
    return (
        FollowerThread(settings, environ)
        if _is_in_process(parse_address(settings.db))
        else Follower(settings, environ)
    )


def _is_in_process(address: StoreAddress) -> bool:
    return address.clickhouse is not None and address.clickhouse.host is None


def _freeze_garbage(_worker: Any) -> None:
    """Exclude a worker's initial objects from garbage collection. Traversing 60,000 of them takes
    40 ms of a request.
    """
    gc.collect()
    gc.freeze()


def raise_file_limit(threads: int) -> int:
    """Raise the limit on open files if possible, and return how many connections fit below it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CONNECTIONS + FILES_OF_ITS_OWN + FILES_OF_A_THREAD * threads
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = CONNECTIONS if soft == resource.RLIM_INFINITY else soft - (needed - CONNECTIONS)
    return max(threads + 1, min(CONNECTIONS, room))


def run_gunicorn(
    app: Flask,
    listener: int,
    settings: Settings,
    follower: Follower | FollowerThread | None = None,
    worker_class: str = "compileboard.app.server.worker.Worker",
) -> None:
    """Serve an application from a listening socket until stopped; start its follower last."""
    from gunicorn.app.base import BaseApplication
    from gunicorn.arbiter import Arbiter

    options: dict[str, Any] = {
        "bind": f"fd://{listener}",  # gunicorn closes it
        "worker_class": worker_class,
        "workers": settings.workers,
        "threads": settings.threads,
        "worker_connections": raise_file_limit(settings.threads),
        "timeout": 60,
        "graceful_timeout": settings.stop_s,
        "keepalive": 5,
        "sendfile": False,  # it would wait for a slow client without the worker's limits
        "loglevel": "warning",
        "worker_tmp_dir": "/dev/shm" if os.access("/dev/shm", os.W_OK) else None,  # noqa: S108  heartbeats never wait for a disk
        "control_socket_disable": True,
        "preload_app": True,
        "post_worker_init": _freeze_garbage,
        "on_exit": lambda _server: shutil.rmtree(
            os.environ.get(WORKERS_FOLDER, ""), ignore_errors=True
        ),
    }
    if isinstance(follower, FollowerThread):  # it runs inside the only worker

        def begin(worker: Any) -> None:
            _freeze_garbage(worker)
            follower.begin()

        options |= {
            "post_worker_init": begin,
            "worker_exit": lambda _server, _worker: follower.end(),
        }

    if settings.log_format != "none":
        options["logconfig_dict"] = describe_logging(settings.log_format)

    class Server(BaseApplication):  # type: ignore[misc]  # gunicorn ships no types
        def load_config(self) -> None:
            for name, value in options.items():
                if name in self.cfg.settings:  # control_socket_disable came with gunicorn 24
                    self.cfg.set(name, value)

        def load(self) -> Flask:
            return app

        def run(self) -> None:
            Master(self).run()

    class Master(Arbiter):  # type: ignore[misc]
        def manage_workers(self) -> None:  # once a second
            super().manage_workers()
            if isinstance(follower, Follower):
                follower.restart()

    try:
        Server().run()
    except SystemExit as stop:
        if stop.code:
            raise
