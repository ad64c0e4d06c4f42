"""Time the pages that explore one large run: `python -m benchmarks.serve.run_pages [LOG…]`.

Real logs are replicated (benchmarks/imports/replicas.py) to two ranks of one run, imported with
payloads and the search index, and served by the real server, asked over loopback by one client.
With Chromium and playwright it also tells when the timeline is first drawn, and how long its frames
take while it is zoomed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sqlite3
import statistics
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import (
    ROOT,
    Row,
    clean_environment,
    percentile,
    print_table,
    run_python,
    scratch_folder,
)
from benchmarks.imports.replicas import make_replica
from benchmarks.serve.pages import fill, time_address
from benchmarks.serve.server import ask, serving

DATA = ROOT / "tests" / "data" / "explored"
RANKS = (0, 1)
REACH = "p95 ≤ 150 ms"
# Pages of a run; {…} are filled from the database, in turn.
ADDRESSES: tuple[tuple[str, str], ...] = (
    ("summary", "/runs/{run}"),
    ("timeline", "/runs/{run}/timeline"),
    ("timeline, a tenth", "/runs/{run}/timeline?from={tenth}&to={tenth_end}"),
    ("window, all", "/api/v1/runs/{run}/timeline/window"),
    ("window, idle time hidden", "/api/v1/runs/{run}/timeline/window?idle=1"),
    ("window, a tenth", "/api/v1/runs/{run}/timeline/window?from_us={tenth}&to_us={tenth_end}"),
    (
        "window, a hundredth",
        "/api/v1/runs/{run}/timeline/window?from_us={hundredth}&to_us={hundredth_end}",
    ),
    ("window, a compile", "/api/v1/runs/{run}/timeline/window?from_us={span}&to_us={span_end}"),
    ("stacks", "/runs/{run}/stacks"),
    ("stacks, library shown", "/runs/{run}/stacks?library=shown"),
    ("directory", "/runs/{run}/directory"),
    ("directory, by outcome", "/runs/{run}/directory?outcome=ok"),
    ("one compile", "/runs/{run}/compiles/{compile}"),
    ("what changed", "/runs/{run}/compiles/{recompile}/changes"),
    ("guards", "/runs/{run}/guards"),
    ("guards of a compile", "/runs/{run}/guards/{guards}"),
    ("symbolic shapes", "/runs/{run}/shapes"),
    ("caches", "/runs/{run}?tab=caches"),
    ("one look-up", "/runs/{run}/caches/{lookup}"),
    ("AOT", "/runs/{run}/aot"),
    ("ranks", "/runs/{run}/ranks"),
    ("one artifact", "/runs/{run}/artifacts/{artifact}"),
    ("two artifacts", "/runs/{run}/artifacts/diff?a={graph}&b={graph_after}"),
    ("search", "/runs/{run}/search?q={word}"),
)
_LARGEST = "select run_id from run_totals order by compile_count desc limit 1"
_OF_RUN = f"where run_id = ({_LARGEST})"
_SPREAD = "order by substr(id * 7919, -4), id limit 40"
_GRAPHS = (
    f"select id as value from artifacts {_OF_RUN} and name = 'dynamo_output_graph' order by id "
    "limit 40"
)
_LANES = (
    "select min(first_us) as first_us, max(last_us) as last_us from lanes where run_id = "
    f"({_LARGEST})"
)
_PARTS = f"""
with recursive part (n) as (select 0 union all select n + 1 from part where n < 9),
whole as ({_LANES})
select cast(first_us + (last_us - first_us) * (n * 0.097 + {{end}}) as integer) as value from part,
whole order by n
"""
_OUTERMOST = f"""
from spans
where lane_id in (select id from lanes where run_id = ({_LARGEST})) and depth = 0
  and duration_us > 0
{_SPREAD}
"""
VALUES = {
    "run": _LARGEST,
    "tenth": _PARTS.format(end=0.0),
    "tenth_end": _PARTS.format(end=0.1),
    "hundredth": _PARTS.format(end=0.0),
    "hundredth_end": _PARTS.format(end=0.01),
    "span": f"select begin_us {_OUTERMOST}",
    "span_end": f"select begin_us + duration_us {_OUTERMOST}",
    "compile": f"select id from compiles {_OF_RUN} {_SPREAD}",
    "recompile": f"select compile_key from recompiles {_OF_RUN} and compile_key > 0 {_SPREAD}",
    "guards": f"select artifact_id from guard_sets {_OF_RUN} {_SPREAD}",
    "lookup": f"select id from cache_lookups {_OF_RUN} {_SPREAD}",
    "artifact": f"select id from artifacts {_OF_RUN} and payload_id is not null {_SPREAD}",
    "graph": _GRAPHS,
    "graph_after": f"{_GRAPHS} offset 1",
    "word": "values ('torch'), ('size+mismatch'), ('addmm'), ('triton_poi_fused'), ('forward')",
}
# Notes when the timeline is on the screen: its canvas says what it drew, and two frames have been
# drawn since.
WATCH = """
  new MutationObserver((_, watch) => {
    if (!document.querySelector("canvas[data-drawn]")) return;
    watch.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => {
      globalThis.timelineDrawn = performance.now();
    }));
  }).observe(document, {
    childList: true, subtree: true, attributes: true, attributeFilter: ["data-drawn"],
  });
"""
SINCE_ANSWER = (
    'globalThis.timelineDrawn - performance.getEntriesByType("navigation")[0].responseEnd'
)
# Zooms in and out by the wheel, a step a frame, with rests in which the server's answer comes and
# is drawn.
ZOOM = """
  async (place) => {
    const canvas = document.querySelector("#flame canvas");
    const box = canvas.getBoundingClientRect();
    const frames = [];
    const tasks = [0];
    new PerformanceObserver((list) => {
      for (const it of list.getEntries()) tasks.push(it.duration);
    }).observe({ type: "longtask" });
    let last = await new Promise(requestAnimationFrame);
    const step = async (deltaY) => {
      if (deltaY) {
        const clientX = box.left + box.width * place;
        const at = { clientX, clientY: box.top + 60, deltaY, cancelable: true };
        canvas.dispatchEvent(new WheelEvent("wheel", at));
      }
      const now = await new Promise(requestAnimationFrame);
      frames.push(now - last);
      last = now;
    };
    for (const deltaY of [-60, 0, -60, 0, 60, 0, 60, 0]) {
      for (let n = 0; n < 40; n += 1) await step(deltaY);
    }
    return { frames, longest: Math.max(...tasks) };
  }
"""


@dataclass(frozen=True)
class Frames:
    """What a browser measured.

    Units: milliseconds.
    """

    first_ms: list[float]
    frame_ms: list[float]
    longest_ms: list[float]  # task of the page while it was zoomed; 0 where none took 50 ms


def make_database(sources: Sequence[Path], compiles: int, folder: Path) -> Path:
    """Replicate logs as two ranks until both together have as many compilation records, and import
    them.

    Raises: SystemExit if the import fails.
    """
    logs, database = folder / "logs", folder / "explored.db"
    logs.mkdir()
    round_of = make_replica(list(sources), 1, folder / "one.log", perturb=False)
    for copies in range(2, len(sources) + 1):
        round_of = make_replica(
            list(sources), round_of.size_bytes + 1, folder / "one.log", perturb=False
        )
        assert round_of.copies == copies
    share_bytes = int(compiles / len(RANKS) / round_of.metrics * round_of.size_bytes * 1.07)
    for rank in RANKS:  # the second stops a round earlier: ranks that part at the end
        size_bytes = share_bytes + (0 if rank else round_of.size_bytes)
        make_replica(list(sources), size_bytes, folder / "one.log", perturb=False)
        stamp_rank(folder / "one.log", logs / f"rank{rank}.log", rank)
    (folder / "one.log").unlink()
    run_python(
        ["-m", "compileboard.collectors", "import", "--db", str(database), str(logs)],
        clean_environment(),
    )
    shutil.rmtree(logs)
    return database


def stamp_rank(source: Path, out: Path, rank: int) -> None:
    """Copy a log as if a process of that rank had written it."""
    line = re.compile(rb"^[VDIWEC](\d{4} [\d:.]+) +(\d+)( [^\]]*\] \{.*)\}$")
    with source.open("rb") as reading, out.open("wb") as writing:
        for raw in reading:
            match = None if raw.startswith(b"\t") else line.match(raw.rstrip(b"\n"))
            if match is None:
                writing.write(raw)
            else:
                told = b"" if b'{"str": [' in raw else b', "rank": %d' % rank
                writing.write(b"V%s %d%s%s}\n" % (match[1], int(match[2]) + rank, match[3], told))


def read_values(database: Path) -> tuple[dict[str, list[str]], str]:
    """Read what the addresses are filled with, and how large the run is in words.

    Raises: SystemExit if the database lacks something.
    """
    with closing(
        sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    ) as connection:
        values = {
            name: [str(row[0]) for row in connection.execute(sql)] for name, sql in VALUES.items()
        }
        sql = f"""
        select
          (select compile_count from run_totals where run_id = r.id),
          (select sum(span_count) from lanes where run_id = r.id),
          (select count(*) from artifacts where run_id = r.id)
        from runs as r where r.id = ({_LARGEST})
        """
        sizes = connection.execute(sql).fetchone()
    if missing := sorted(name for name, choices in values.items() if not choices):
        raise SystemExit(
            f"{database} has nothing for {', '.join(missing)}; give logs that have it, or none"
        )
    compiles, spans, artifacts = (number or 0 for number in sizes)
    return values, f"{compiles:,} compiles, {spans:,} spans, {artifacts:,} artifacts"


def time_page(
    url: str, what: str, template: str, values: dict[str, list[str]], requests: int
) -> Row:
    """Ask for a page and make its row; the server keeps what is slow to work out, so the first
    answer stands apart.
    """
    first = ask(url, fill(template, values, 0))
    answers = time_address(url, template, values, requests)
    name = f"{what} `{re.sub(r'=?{(tenth|hundredth|span)(_end)?}', '', template)}`"
    wrong = sorted({answer.status for answer in (first, *answers)} - {200})
    if wrong:
        return Row(name, f"status {', '.join(map(str, wrong))}", "", "", REACH)
    times = [answer.seconds * 1000 for answer in answers]
    middle, slow = statistics.median(times), percentile(times, 0.95)
    return Row(name, f"{slow:.0f} ms", f"{middle:.0f} ms", f"{first.seconds * 1000:.0f} ms", REACH)


def watch_timeline(url: str, run_id: str, profiles: int) -> Frames | None:
    """Open and zoom the timeline in fresh browsers; None where there is none to do it with."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print(
            "Drawing is not measured: it needs playwright (extra `dev`) and Debian's chromium.",
            file=sys.stderr,
        )
        return None
    frames = Frames([], [], [])
    with sync_playwright() as playwright:
        for number in range(profiles):
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page: Any = browser.new_page(viewport={"width": 1280, "height": 900})
            page.add_init_script(WATCH)
            page.goto(f"{url}/runs/{run_id}/timeline")
            page.wait_for_function("globalThis.timelineDrawn !== undefined", timeout=20_000)
            frames.first_ms.append(float(page.evaluate(SINCE_ANSWER)))
            zoomed = page.evaluate(ZOOM, 0.1 + 0.8 * number / max(1, profiles - 1))
            frames.frame_ms.extend(zoomed["frames"])
            frames.longest_ms.append(zoomed["longest"])
            browser.close()
    return frames


def _describe_task(longest_ms: float) -> str:
    return f"{longest_ms:.0f} ms" if longest_ms else "below 50 ms"


def print_frames(frames: Frames, profiles: int) -> None:
    """Print when the timeline was drawn, and its frames."""
    first, each = sorted(frames.first_ms), frames.frame_ms
    late = sum(gap_ms > 50 for gap_ms in each)
    rows = [  # a frame is late when the machine is busy too; a long task is the page's own
        Row(
            "first drawn after the answer",
            f"{statistics.median(first):.0f} ms",
            "",
            f"{first[-1]:.0f} ms",
            "≤ 1 s",
        ),
        Row(
            "a frame while zooming",
            f"{statistics.median(each):.0f} ms",
            f"{percentile(each, 0.99):.0f} ms",
            f"{max(each):.0f} ms",
            "none above 50 ms",
        ),
        Row("frames above 50 ms", f"{late} of {len(each)}", "", "", "0"),
        Row(
            "longest task of the page",
            _describe_task(max(frames.longest_ms)),
            "",
            "",
            "below 50 ms",
        ),
    ]
    headings = ("timeline in Chromium", "median", "p99", "largest", "reach")
    print_table(
        "Drawing the timeline", rows, f"{profiles} fresh profiles, 1280 px wide.", headings=headings
    )


def main(argv: list[str] | None = None) -> int:
    """Make or take a database, serve it, time everything and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serve.run_pages", description=__doc__
    )
    parser.add_argument(
        "logs",
        type=Path,
        nargs="*",
        metavar="LOG",
        help="logs to replicate; else those of the tests",
    )
    parser.add_argument(
        "--db", type=Path, help="measure the largest run of this database and make none"
    )
    parser.add_argument("--keep", type=Path, metavar="DB", help="keep the database that was made")
    parser.add_argument(
        "--compiles", type=int, default=5000, help="compilation records, both ranks together"
    )
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument(
        "--profiles", type=int, default=5, help="fresh browsers; 0 leaves drawing out"
    )
    parser.add_argument("--only", default="", help="only addresses that contain this")
    arguments = parser.parse_args(argv)
    sources = arguments.logs or sorted(DATA.glob("*.xz"))
    with scratch_folder() as folder:
        database = arguments.db or make_database(sources, arguments.compiles, folder)
        if arguments.keep:
            shutil.copy(database, arguments.keep)
        values, size = read_values(database)
        with serving(database) as url:
            rows = [
                time_page(url, what, template, values, arguments.requests)
                for what, template in ADDRESSES
                if arguments.only in fill(template, values, 0)
            ]
            frames = (
                watch_timeline(url, values["run"][0], arguments.profiles)
                if arguments.profiles
                else None
            )
        size_mb = database.stat().st_size / 1e6
    title = f"Exploring a run of {size}: server time of {arguments.requests} requests each"
    print_table(
        title,
        rows,
        f"Database of {size_mb:.0f} MB.",
        headings=("page", "p95", "p50", "first", "reach"),
    )
    if frames:
        print_frames(frames, arguments.profiles)
    return 0


if __name__ == "__main__":
    sys.exit(main())
