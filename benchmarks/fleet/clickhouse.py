"""Time pages across runs over ClickHouse.

    python -m benchmarks.fleet.clickhouse FOLDER [SMALLER] --requests 20

`python -m benchmarks.fleet.many_runs FOLDER --compilations N` makes such a folder. Requests go
through the application
in a process of each folder, without a server; CPU time is of all its threads, ClickHouse's too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from benchmarks.common import Row, clean_environment, last_json, percentile, print_table, run_python

_FREQUENT = "select {key} from {table}_rows group by {key} order by count() desc limit 50"
REACH_MS = 500
RATIO = 2
# What a page is called and its address; {…} are filled from the tables, request by request.
ADDRESSES = (
    ("overview", "/"),
    ("overview, a benchmark suite", "/?suite={bench_suite}"),
    ("overview, one program", "/?suite={suite}&name={name}"),
    ("trends", "/trends"),
    ("trends, all runs", "/trends?last=all"),
    ("trends of a model, all runs", "/trends?model={model}&last=all"),
    ("trends of a break and guards", "/trends?break={thing}&category=tensor_size"),
    ("compare, the newest two", "/compare"),
    ("compare, two runs", "/compare?base={older}&new={newer}"),
    ("graph breaks", "/graph_breaks"),
    ("graph breaks, one suite", "/graph_breaks?suite={suite}"),
    ("graph breaks, one suite, 90 days", "/graph_breaks?suite={suite}&since={since}"),
    ("graph breaks, by text", "/graph_breaks?q=call+of+{digit}"),
    ("graph breaks, one machine", "/graph_breaks?host=gpu-0{digit}"),
    ("one graph break", "/graph_breaks/{thing}"),
    ("recompiles", "/recompiles"),
    ("recompiles, one suite", "/recompiles?suite={suite}"),
    ("recompiles, one suite, 90 days", "/recompiles?suite={suite}&since={since}"),
    ("one recompile cause", "/recompiles/{cause}"),
    ("runs", "/runs"),
    ("runs, filtered", "/runs?suite={suite}&sort=recompiles"),
    ("runs, by text", "/runs?q=model_{digit}"),
    ("models", "/models"),
    ("API summary", "/api/v1/summary"),
    ("API graph breaks", "/api/v1/graph_breaks"),
)


def measure(
    folder: Path, requests: int, chosen: str
) -> Iterator[tuple[str, list[float], list[float]]]:
    """Yield each page's wall times and CPU times, milliseconds, after two requests to warm up.

    Raises: SystemExit if a page is not answered with 200.
    """
    from compileboard.app import create_app
    from compileboard.app.core.settings import Settings
    from compileboard.app.core.store import open_store

    address = f"clickhouse://{folder.absolute()}"
    store = open_store(address)
    benched = [
        row[0] for row in store.board.execute("select id from runs order by started_us desc")
    ]
    (since,) = store.engine.rows(
        "select toDate(fromUnixTimestamp64Micro(max(started_us))) - 90 as day from runs"
    )[0]
    frequent = {
        table: [row[0] for row in store.engine.rows(_FREQUENT.format(table=table, key=key))]
        for table, key in (("run_breaks", "distinct_id"), ("run_causes", "cause_id"))
    }
    client = create_app(Settings(db=address)).test_client()
    for what, template in ADDRESSES:
        if chosen not in f"{what} {template}":
            continue
        walls, cpus = [], []
        for number in range(requests + 2):
            values = {
                "suite": f"project_{number % 10}",
                "name": f"model_{number % 10}_{number % 3}",
                "bench_suite": f"suite_{number % 3}",
                "model": f"model_{number % 200:03}",
                "thing": f"{frequent['run_breaks'][number % 50]:016x}",
                "cause": f"{frequent['run_causes'][number % 50]:016x}",
                "digit": str(number % 10),
                "since": str(since),
                "newer": benched[number % 5],
                "older": benched[number % 5 + 10],
            }
            path = template.format(**{name: quote(value) for name, value in values.items()})
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            answer = client.get(path)
            body = answer.get_data(as_text=True)
            walls.append((time.perf_counter() - wall_s) * 1000)
            cpus.append((time.process_time() - cpu_s) * 1000)
            if answer.status_code != 200:
                raise SystemExit(f"{path} is answered with {answer.status_code}: {body[-2000:]}")
        yield what, walls[2:], cpus[2:]


def make_row(what: str, large: dict[str, list[float]], small: dict[str, list[float]] | None) -> Row:
    """Make a table's row of a page's times over the large folder and over the smaller one."""
    wall, cpu = percentile(large["wall"], 0.95), statistics.median(large["cpu"])
    middle = statistics.median(large["wall"])
    if small is None:
        return Row(what, f"{wall:.0f} / {middle:.0f} ms", f"{cpu:.0f} ms", "", f"{REACH_MS} ms")
    of_small = percentile(small["wall"], 0.95), statistics.median(small["cpu"])
    return Row(
        what,
        f"{wall:.0f} / {middle:.0f} ms, CPU {cpu:.0f} ms",
        f"{of_small[0]:.0f} / {statistics.median(small['wall']):.0f} ms, CPU {of_small[1]:.0f} ms",
        f"{wall / of_small[0]:.1f} ×, CPU {cpu / of_small[1]:.1f} ×",
        f"{REACH_MS} ms, {RATIO} ×",
    )


def main(argv: list[str] | None = None) -> int:
    """Time every page over one folder or two and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet.clickhouse", description=__doc__
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument(
        "smaller", type=Path, metavar="SMALLER", nargs="?", help="a folder to compare with"
    )
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument(
        "--only", default="", help="only pages whose names or addresses contain this"
    )
    parser.add_argument("--times", action="store_true", help="print the times of FOLDER as JSON")
    arguments = parser.parse_args(argv)
    if arguments.times:
        pages = measure(arguments.folder, arguments.requests, arguments.only)
        print(json.dumps({what: {"wall": walls, "cpu": cpus} for what, walls, cpus in pages}))
        return 0
    times = []
    for folder in filter(None, (arguments.folder, arguments.smaller)):
        of_folder = [
            "--times",
            str(folder),
            "--requests",
            str(arguments.requests),
            "--only",
            arguments.only,
        ]
        times.append(
            last_json(
                run_python(["-m", "benchmarks.fleet.clickhouse", *of_folder], clean_environment())
            )
        )
    large, small = (*times, None)[:2]
    assert isinstance(large, dict)
    of_small = small if isinstance(small, dict) else {}
    rows = [make_row(what, of_page, of_small.get(what)) for what, of_page in large.items()]
    smaller = "CPU" if small is None else str(arguments.smaller)
    print_table(
        f"Pages across runs over ClickHouse, p95 / p50 of {arguments.requests} requests each",
        rows,
        headings=("page", str(arguments.folder), smaller, "ratio", "reach"),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
