"""Kill an observed program, its recorder, or both, at random; report written data that is lost.

    python -m benchmarks.faults.kill_test [--count 50] [--torch]

Each kill is a run of its own. `written` counts the whole records in the spool right after the kill,
`stored` those of them that the database has after the next command. With --torch the program
compiles small functions without end, by default it writes records like the hooks' as fast as it
can.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.tools.killing import WHOM, Killed, kill_once
from tests.tools.observed import PROGRAMS, Workplace

MOMENTS_S = 1.0


def main() -> int:
    """Kill, count, and print a table; 1 if anything was lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=50, help="kills of each kind (default 50)")
    parser.add_argument(
        "--torch",
        action="store_true",
        help="kill a program that compiles, not one that only writes",
    )
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    command = (
        [PROGRAMS / "scenarios.py", "endless"] if arguments.torch else [PROGRAMS / "spooling.py", 0]
    )
    print(
        f"{'killed':<10} {'kills':>5} {'written':>9} {'stored':>9} {'lost':>5} "
        f"{'damaged databases':>18}"
    )
    bad = 0
    for whom in WHOM:
        results: list[Killed] = []
        for _ in range(arguments.count):
            with tempfile.TemporaryDirectory() as folder:
                workplace = Workplace(Path(folder))
                results.append(kill_once(workplace, whom, dice.uniform(0, MOMENTS_S), *command))
        written, stored = sum(r.written for r in results), sum(r.stored for r in results)
        damaged = sum(r.integrity != "ok" for r in results)
        bad += written - stored + damaged
        print(
            (
                f"{whom:<10} {len(results):>5} {written:>9} {stored:>9} {written - stored:>5} "
                f"{damaged:>18}"
            ),
            flush=True,
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
