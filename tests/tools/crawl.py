"""Compare what two checkouts answer: `python -m tests.tools.crawl OLD [NEW]`.

The old checkout makes one database with some of everything. Each side gets a copy and is asked for
every page that links lead to, every GET operation of the API, reports, commands' help and the
static site. Exit code 1 if an address, status, header or text differs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sqlite3
import subprocess
import sys
import zlib
from contextlib import ExitStack, closing
from itertools import zip_longest
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.tools.crawl_side import ANSWERS
from tests.tools.observed import ROOT
from tests.tools.serving import server_environ

SIDE = Path(__file__).with_name("crawl_side.py")
CANNOT_OPEN = 3  # the exit code of a side
MAX_SHOWN, MAX_LINE_LENGTH = 40, 300


def start(checkout: Path, folder: Path, task: str, max_pages: int = 0) -> subprocess.Popen[str]:
    """Start a task of one side, with a person's own settings and spools out of its reach."""
    command = [sys.executable, str(SIDE), str(checkout), str(folder), task, str(max_pages)]
    environ = server_environ(
        folder / "home", PYTHONPATH=str(checkout), COLUMNS="100", PYTHONHASHSEED="0"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with folder.with_suffix(".log").open("a") as log:
        return subprocess.Popen(command, **pipes, stderr=log, text=True, env=environ)


def finish(side: subprocess.Popen[str], folder: Path) -> str:
    """Wait for the end of a side's task and return its output.

    Raises: SystemExit with the end of its error output if it failed.
    """
    output = side.communicate()[0]
    if side.returncode not in (0, CANNOT_OPEN):
        log = folder.with_suffix(".log").read_text(errors="replace")
        raise SystemExit(f"{side.args} ended with {side.returncode}:\n{log[-4000:]}")
    return output


def build(checkout: Path, folder: Path) -> None:
    """Make the database with a checkout's code."""
    folder.mkdir()
    finish(start(checkout, folder, "build"), folder)


def ask(checkouts: list[Path], folders: list[Path], max_pages: int) -> list[str]:
    """Ask both sides at once; return the new side's rules that no address belongs to."""
    sides = [start(*side, "ask", max_pages) for side in zip(checkouts, folders)]
    outputs = [finish(*side) for side in zip(sides, folders)]
    if sides[1].returncode == CANNOT_OPEN:
        print(f"{checkouts[1]} cannot open the old side's database: it makes one of the same data")
        shutil.rmtree(folders[1])
        build(checkouts[1], folders[1])
        outputs[1] = finish(start(checkouts[1], folders[1], "ask", max_pages), folders[1])
    return outputs[1].split()


def unpack(packed: bytes) -> list[str]:
    """Return the lines of a kept answer."""
    return zlib.decompress(packed).decode("utf-8", "surrogatepass").split("\n")


def first_difference(old: list[str], new: list[str]) -> tuple[str, str]:
    """Return the first line that differs, of each side, from shortly before where it does."""
    before, after = next(
        pair for pair in zip_longest(old, new, fillvalue="(end)") if pair[0] != pair[1]
    )
    same = next(
        (n for n, pair in enumerate(zip(before, after)) if pair[0] != pair[1]),
        min(len(before), len(after)),
    )
    start_at = max(0, same - MAX_LINE_LENGTH // 2)
    return before[start_at : start_at + MAX_LINE_LENGTH], after[
        start_at : start_at + MAX_LINE_LENGTH
    ]


def compare(folders: list[Path]) -> int:
    """Print the differences between the answers of two sides; return their number."""
    with closing(sqlite3.connect(folders[0] / ANSWERS)) as store:
        store.execute("attach ? as new", (str(folders[1] / ANSWERS),))
        counts = store.execute(
            "select kind, count(*) from answers group by kind order by kind"
        ).fetchall()
        print(
            f"asked: {sum(count for _, count in counts)}:",
            ", ".join(f"{count} {kind}" for kind, count in counts),
        )
        differing = 0
        for word, one, other in (("old", "main", "new"), ("new", "new", "main")):
            sql = (
                f"select address from {one}.answers "
                f"where address not in (select address from {other}.answers)"
            )
            addresses = [address for (address,) in store.execute(f"{sql} order by address")]
            differing += len(addresses)
            print(f"addresses of the {word} side alone: {len(addresses)}")
            print(
                *(f"  {address}" for address in addresses[:MAX_SHOWN]),
                sep="\n",
                end="\n" * bool(addresses),
            )
        both = "from main.answers as o join new.answers as n using (address)"
        statuses = store.execute(
            f"select address, o.status, n.status {both} where o.status <> n.status order by 1"
        )
        rows = statuses.fetchall()
        print(f"statuses that differ: {len(rows)}")
        for address, old, new in rows[:MAX_SHOWN]:
            print(f"  {address}: {old}, now {new}")
        differing += len(rows)
        for word, where in (("JSON", "o.kind = 'JSON'"), ("texts", "o.kind <> 'JSON'")):
            where += " and o.status = n.status and o.text <> n.text order by address"
            found: dict[tuple[str, str], list[str]] = {}
            for address, old, new in store.execute(
                f"select address, o.text, n.text {both} where {where}"
            ):
                found.setdefault(first_difference(unpack(old), unpack(new)), []).append(address)
            count = sum(map(len, found.values()))
            print(
                f"{word} that differ{'s' * (word == 'JSON')}: {count}, "
                f"with {len(found)} first differences"
            )
            for (before, after), addresses in sorted(found.items(), key=lambda one: -len(one[1]))[
                :MAX_SHOWN
            ]:
                print(
                    f"  {addresses[0]}"
                    + (f" and {len(addresses) - 1} more" if addresses[1:] else "")
                )
                print(f"    old: {before}\n    new: {after}")
            differing += count
    return differing


def list_timed(folder: Path) -> list[str]:
    """Return the slowest page of each kind: paths that differ in ids alone, and each tab."""
    slowest: dict[str, str] = {}
    with closing(sqlite3.connect(folder / ANSWERS)) as store:
        rows = store.execute(
            "select address from answers where kind = 'page' and status = 200 "
            "order by ms desc, address"
        )
        for (address,) in rows:
            path, _mark, query = address.partition("?")
            kind = re.sub(r"/[^/]*[^a-z_/.][^/]*", "/*", path) + (
                f"?{query}" if query.startswith("tab=") else ""
            )
            if not query or "&" not in query:
                slowest.setdefault(kind, address)
    return list(slowest.values())


def print_times(checkouts: list[Path], folders: list[Path], count: int) -> None:
    """Ask both sides in turns and print medians; the page with the highest ratio comes last."""
    with ExitStack() as stack:
        sides = [stack.enter_context(start(*side, "time")) for side in zip(checkouts, folders)]
        rows = []
        for address in list_timed(folders[0]):
            taken: list[list[float]] = [[], []]
            for turn in range(count + 1):  # in the first, templates are compiled
                for index in (0, 1) if turn % 2 else (1, 0):
                    stdin, stdout = sides[index].stdin, sides[index].stdout
                    assert stdin is not None and stdout is not None
                    stdin.write(f"{address}\n")
                    stdin.flush()
                    taken[index].append(float(stdout.readline()))
            old, new = (median(times[1:]) for times in taken)
            rows.append((new / old, old, new, address))
        for side in sides:
            side.communicate()
    print(f"{'old ms':>8} {'new ms':>8} {'ratio':>6}  page ({count} of each, CPU time)")
    for ratio, old, new, address in sorted(rows):
        print(f"{old:8.1f} {new:8.1f} {ratio:6.2f}  {address}")


def main(argv: list[str]) -> int:
    """Compare two checkouts; return 1 if they differ."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.crawl", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "old", type=Path, metavar="OLD", help="the checkout whose answers are right"
    )
    parser.add_argument(
        "new", type=Path, metavar="NEW", nargs="?", default=ROOT, help="default: this one"
    )
    parser.add_argument(
        "--times", type=int, default=0, metavar="N", help="also measure N requests of each page"
    )
    parser.add_argument(
        "--pages", type=int, default=100_000, metavar="N", help="pages and runs that are asked for"
    )
    options = parser.parse_args(argv)
    checkouts = [options.old.resolve(), options.new.resolve()]
    with TemporaryDirectory(prefix="compileboard-crawl-") as name:
        folders = [Path(name, "old"), Path(name, "new")]
        build(checkouts[0], folders[0])
        shutil.copytree(folders[0], folders[1])
        unasked = ask(checkouts, folders, options.pages)
        differing = compare(folders)
        print("never asked for:", ", ".join(unasked) or "nothing")
        if options.times:
            print_times(checkouts, folders, options.times)
    print("the same" if not differing else f"{differing} differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
