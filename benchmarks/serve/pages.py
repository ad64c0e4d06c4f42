"""Time every page and API address over a full database: `python -m benchmarks.serve.pages DB`.

`python -m benchmarks.store.replay DB` makes such a database, `python -m
benchmarks.store.result_history DB` adds years
of results. The server is the real one (`compileboard serve`), asked over loopback by one client.
With Chromium and playwright it also tells how long after its answer a page is painted and its first
chart drawn, each time in a fresh profile.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import statistics
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.common import Row, percentile, print_table
from benchmarks.serve.server import Answer, ask, serving

# What a page is called, its address, and whether it has a chart; {…} are filled from the database,
# in turn.
ADDRESSES: tuple[tuple[str, str, bool], ...] = (
    ("overview", "/", True),
    ("overview, one series", "/?suite={suite}&name={name}", True),
    ("overview, all runs", "/?last=all", True),
    ("trends, another definition and axis", "/trends?definition=runner&axis=torch", True),
    ("trends of the suite", "/trends", True),
    ("trends of the suite, all runs", "/trends?last=all", True),
    ("trends of the suite by commit, all runs", "/trends?last=all&axis=commit", True),
    ("trends of a model, all runs", "/trends?model={model}&last=all", True),
    ("trends of a break and guards", "/trends?break={distinct_break}&category=tensor_size", True),
    ("incidents", "/incidents", False),
    ("models", "/models", False),
    ("compare, the newest two", "/compare", True),
    ("compare, two runs, all graphs", "/compare?base={benched}&metric=graphs", True),
    ("compare, a version with a branch", "/compare?base=torch:{torch}&new={benched}", True),
    ("API compare", "/api/v1/compare?base={benched}", False),
    ("API summary", "/api/v1/summary", False),
    ("API trend, all runs", "/api/v1/trend?metric=speedup&model={model}&last=all", False),
    ("runs", "/runs", False),
    ("runs, filtered", "/runs?suite={suite}&sort=recompiles", False),
    ("runs, by text", "/runs?q={word}", False),
    ("runs, by a text that none has", "/runs?q=none+has+this", False),
    ("runs, by tag", "/runs?tag={tag}&state=finished", False),
    ("run", "/runs/{run}", True),
    ("run, the largest", "/runs/{large}", True),
    ("compile", "/runs/{run_compile}", False),
    ("graph breaks", "/graph_breaks", True),
    ("graph breaks, one suite", "/graph_breaks?suite={suite}", True),
    ("one graph break", "/graph_breaks/{distinct_break}", True),
    ("recompiles", "/recompiles", True),
    ("recompiles, one suite", "/recompiles?suite={suite}", True),
    ("one recompile cause", "/recompiles/{cause}", True),
    ("health", "/healthz", False),
    ("API runs", "/api/v1/runs", False),
    ("API runs, filtered", "/api/v1/runs?suite={suite}&limit=200", False),
    ("API run", "/api/v1/runs/{run}", False),
    ("API run's compilations", "/api/v1/runs/{run}/compilations", False),
    ("API run's compilations, the largest", "/api/v1/runs/{large}/compilations", False),
    ("API run's graph breaks", "/api/v1/runs/{run}/graph_breaks", False),
    ("API run's recompiles", "/api/v1/runs/{run}/recompiles", False),
    ("API graph breaks", "/api/v1/graph_breaks", False),
    ("API recompiles", "/api/v1/recompiles", False),
    ("report as HTML", "/runs/{run}/report.html", False),
)
VALUES = {
    "suite": "select distinct suite as value from runs where suite is not null order by 1",
    "name": (
        "select max(name) as value from runs where suite is not null group by suite order by suite"
    ),
    "word": "select distinct substr(name, 1, 4) as value from runs order by 1",
    "tag": "select distinct key || '=' || value as value from run_tags order by 1",
    "run": "select id as value from runs order by substr(id, -6)",
    "large": "select run_id as value from run_totals order by compile_count desc limit 5",
    "run_compile": (
        "select run_id || '/compiles/' || max(id) as value from compiles group by run_id"
    ),
    "distinct_break": (
        "select printf('%016x', distinct_id) from run_breaks group by 1 order by "
        "sum(break_count) desc"
    ),
    "benched": (
        "select run_id as value from run_totals where result_count > 0 order by run_id limit 40"
    ),
    "torch": (
        "select distinct torch_version as value from runs where torch_version is not null "
        "order by 1"
    ),
    "model": "select model as value from series order by substr(model, -2), model limit 50",
    "cause": (
        "select printf('%016x', cause_id) from run_causes group by 1 order by "
        "sum(recompile_count) desc"
    ),
}
# Notes when the first chart is on the screen: its element is there, and two frames have been drawn
# since.
WATCH = """
  new MutationObserver((_, watch) => {
    if (!document.querySelector(".main-svg, .spark")) return;
    watch.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => {
      globalThis.chartDrawn = performance.now();
    }));
  }).observe(document, { childList: true, subtree: true });
"""
SINCE_ANSWER = """
  (() => {
    const answered = performance.getEntriesByType("navigation")[0].responseEnd;
    const painted = performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN;
    return [globalThis.chartDrawn - answered, painted - answered];
  })()
"""


def read_values(database: Path) -> dict[str, list[str]]:
    """Read what the addresses are filled with."""
    with closing(
        sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    ) as connection:
        return {
            name: [str(row[0]) for row in connection.execute(sql)] for name, sql in VALUES.items()
        }


def fill(template: str, values: dict[str, list[str]], number: int) -> str:
    """Fill an address with the database's values number `number`."""
    return template.format(
        **{
            name: quote(choices[number % len(choices)])
            for name, choices in values.items()
            if choices
        }
    )


def list_addresses(values: dict[str, list[str]], chosen: str) -> list[tuple[str, str, bool]]:
    """List the addresses that, or whose names, contain `chosen` and that the database has something
    for.
    """
    empty = [f"{{{name}}}" for name, choices in values.items() if not choices]
    return [
        address
        for address in ADDRESSES
        if chosen in f"{address[0]} {address[1]}" and not any(mark in address[1] for mark in empty)
    ]


def time_address(
    url: str, template: str, values: dict[str, list[str]], requests: int
) -> list[Answer]:
    """Ask for an address, each time with other values, after five to warm up."""
    return [ask(url, fill(template, values, number)) for number in range(-5, requests)][5:]


def make_row(what: str, template: str, answers: list[Answer]) -> Row:
    """Make a table's row of an address's answers."""
    wrong = sorted({answer.status for answer in answers} - {200})
    if wrong:
        return Row(
            f"{what} `{template}`", f"status {', '.join(map(str, wrong))}", "", "", "p95 ≤ 100 ms"
        )
    times = [answer.seconds * 1000 for answer in answers]
    size = statistics.median(answer.size for answer in answers)
    return Row(
        f"{what} `{template}`",
        f"{percentile(times, 0.95):.0f} ms",
        f"{statistics.median(times):.0f} ms",
        f"{size / 1000:.0f} KB",
        "p95 ≤ 100 ms",
    )


def time_charts(url: str, values: dict[str, list[str]], profiles: int, chosen: str) -> list[Row]:
    """Measure each page's first chart in fresh browsers; no rows where there is no browser to do it
    with.
    """
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print(
            "Charts are not measured: they need playwright (extra `dev`) and Debian's chromium.",
            file=sys.stderr,
        )
        return []
    rows = []
    with sync_playwright() as playwright:
        for what, template, has_chart in list_addresses(values, chosen):
            if not has_chart:
                continue
            times = []
            for number in range(profiles):
                browser = playwright.chromium.launch(
                    executable_path=chromium, args=["--no-sandbox"]
                )
                times.append(_time_chart(browser, url + fill(template, values, number)))
                browser.close()
            rows.append(_chart_row(what, template, [time for time in times if time is not None]))
    return rows


def _time_chart(browser: Any, address: str) -> tuple[float, float] | None:
    """Return the milliseconds from the answer to the first chart and to the first paint; None where
    no chart comes.
    """
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(WATCH)
    page.goto(address)
    try:
        page.wait_for_function(
            "() => globalThis.chartDrawn !== undefined", timeout=10_000
        )  # text is not evaluated
    except Exception as error:
        if "Timeout" not in type(error).__name__:
            raise
        return None
    chart, paint = page.evaluate(SINCE_ANSWER)
    return float(chart), float(paint)


def _chart_row(what: str, template: str, times: list[tuple[float, float]]) -> Row:
    if not times:
        return Row(f"{what} `{template}`", "no chart", "", "", "≤ 600 ms")
    charts, paints = ([pair[side] for pair in times] for side in (0, 1))
    middles = [f"{statistics.median(values):.0f} ms" for values in (charts, paints)]
    return Row(
        f"{what} `{template}`", *middles, f"[{min(charts):.0f}, {max(charts):.0f}]", "≤ 600 ms"
    )


def main(argv: list[str] | None = None) -> int:
    """Serve the database, time everything and print two tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve.pages", description=__doc__)
    parser.add_argument("database", type=Path, metavar="DB")
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument(
        "--profiles", type=int, default=5, help="fresh browsers for each chart; 0 leaves charts out"
    )
    parser.add_argument(
        "--only", default="", help="only addresses that, or whose names, contain this"
    )
    arguments = parser.parse_args(argv)
    if not arguments.database.exists():
        parser.error(
            f"there is no {arguments.database}; python -m benchmarks.store.replay "
            f"{arguments.database} makes it"
        )
    values = read_values(arguments.database)
    size_mb = arguments.database.stat().st_size / 1e6
    with serving(arguments.database) as url:
        rows = [
            make_row(what, template, time_address(url, template, values, arguments.requests))
            for what, template, _ in list_addresses(values, arguments.only)
        ]
        charts = (
            time_charts(url, values, arguments.profiles, arguments.only)
            if arguments.profiles
            else []
        )
    print_table(
        f"Server time of {arguments.requests} requests each, database of {size_mb:.0f} MB",
        rows,
        "The size is the median of the answers' bodies as sent.",
        headings=("address", "p95", "p50", "size", "reach"),
    )
    if charts:
        print_table(
            "From the answer to the first chart in Chromium",
            charts,
            f"{arguments.profiles} fresh profiles each.",
            headings=("address", "first chart", "first paint", "range of charts", "reach"),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
