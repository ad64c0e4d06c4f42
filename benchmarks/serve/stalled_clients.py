"""How long `/healthz` takes while clients stall: ours beside gunicorn's gthread, and gevent's
worker where it is there.

    python -m benchmarks.serve.stalled_clients [--clients 200] [--asks 20]

Each kind has a server of its own on 127.0.0.1. `header` sends half a header, `body` a form's header
and no body, `idle` asks once and stays, `silent` connects and says nothing, `reader` asks for a
large answer and takes none of it. Beside them `work`: four clients ask for a page that takes 0.5 s
of SQLite, one after the other.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec

from benchmarks.common import ROOT, Row, print_table

HOST = "Host: 127.0.0.1\r\n"
FORM = "Content-Type: application/x-www-form-urlencoded\r\n"
KINDS = {
    "silent": "",
    "header": f"GET /healthz HTTP/1.1\r\n{HOST}X-Slow: ",
    "body": f"POST /form HTTP/1.1\r\n{HOST}{FORM}Content-Length: 900\r\n\r\n",
    "idle": f"GET /healthz HTTP/1.1\r\n{HOST}\r\n",
    "reader": f"GET /large HTTP/1.1\r\n{HOST}\r\n",
    "work": f"GET /work HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n",
}
WORKERS = ("compileboard.app.server.worker.Worker", "gthread", "gevent")
GIVEN_UP_S = 10.0
# Eight threads, as `serve` has; the page of `work` is one query that SQLite does not interrupt.
PROGRAM = """
import socket, sqlite3, sys
from flask import Flask, request
from compileboard.app.server.gunicorn_server import run_gunicorn
from compileboard.app.core.settings import Settings
app = Flask("stalled")
app.get("/healthz")(lambda: "well")
app.post("/form", endpoint="form")(lambda: str(len(request.form)))
LARGE = b"x" * (16 << 20)
app.get("/large", endpoint="large")(lambda: LARGE)
QUERY = (
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000000) "
    "select sum(i) from n"
)
@app.get("/work")
def work():
    return str(sqlite3.connect(":memory:").execute(QUERY).fetchone())
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
run_gunicorn(app, listener.detach(), Settings(), worker_class=sys.argv[1])
"""


@contextmanager
def serving(worker: str, max_files: int | None = None) -> Iterator[int]:
    """Serve a small application with one kind of worker, which may open so many files; yield the
    port.
    """
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    }
    command = [sys.executable, "-c", PROGRAM, worker]
    if max_files is not None:
        command = ["sh", "-c", f'ulimit -n {max_files}; exec "$@"', "sh", *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            ask(port, 30)
            yield port
        finally:
            process.terminate()


def ask(port: int, limit_s: float = GIVEN_UP_S) -> float:
    """Return how many seconds /healthz took, or the limit where no answer came within it."""
    began_s = time.monotonic()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=limit_s) as answer:
            answer.read()
    except OSError:  # a refusal is quick, and no answer
        return limit_s
    return min(limit_s, time.monotonic() - began_s)


def stall(port: int, kind: str, count: int, clients: ExitStack) -> None:
    """Connect a number of clients that stall."""
    for _ in range(count):
        client = clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        if kind == "reader":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(KINDS[kind].encode())


def work(port: int, ended: threading.Event) -> None:
    """Ask for the slow page again and again."""
    while not ended.is_set():
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=GIVEN_UP_S) as client,
        ):
            client.sendall(KINDS["work"].encode())
            while client.recv(4096):
                pass


def measure(worker: str, kind: str, clients: int, asks: int) -> list[float]:
    """Return how long each ask took while clients of one kind stalled."""
    with serving(worker) as port, ExitStack() as stalled:
        ended = threading.Event()
        stalled.callback(ended.set)
        if kind == "work":
            for _ in range(4):
                threading.Thread(target=work, args=(port, ended), daemon=True).start()
        else:
            stall(port, kind, clients, stalled)
        time.sleep(0.5)
        times_s: list[float] = []
        while len(times_s) < asks and times_s.count(GIVEN_UP_S) < 2:
            times_s.append(ask(port))
        return times_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=200, choices=range(1, 501), metavar="N")
    parser.add_argument("--asks", type=int, default=20, choices=range(1, 101), metavar="N")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    workers = [worker for worker in WORKERS if worker != "gevent" or find_spec("gevent")]
    rows = []
    for kind in options.kinds:
        cells = []
        for worker in workers:
            times_s = measure(worker, kind, options.clients, options.asks)
            cells.append(f"{statistics.median(times_s) * 1000:,.0f} / {max(times_s) * 1000:,.0f}")
        rows.append(Row(kind, *cells, *[""] * (3 - len(cells)), reach="≤ 1,000"))
    print_table(
        f"/healthz while {options.clients} clients stall, ms (median / worst of {options.asks})",
        rows,
        f"{GIVEN_UP_S * 1000:,.0f}: no answer within that time.",
        headings=("kind", *WORKERS, "reach"),
    )


if __name__ == "__main__":
    main()
