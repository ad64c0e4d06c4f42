"""Boxes at once through a faulty proxy, the server killed.

    python -m benchmarks.fleet.faults --boxes 50 --kills 10

A tenth of the requests is dropped, delayed, cut, repeated, reordered or damaged, or its answer is
lost. At the end every row is compared with those of the same events stored without a network.
"""

from __future__ import annotations

import argparse

from benchmarks.common import Row, describe_machine, print_table, scratch_folder
from benchmarks.fleet.recorded import read_lines
from tests.tools.push.fleet import push_all


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boxes", type=int, default=50)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.1, help="of requests that have a fault")
    given = parser.parse_args()
    recorded = [line.decode() for line in read_lines()]
    with scratch_folder() as folder:
        result = push_all(folder, recorded, given.boxes, given.kills, share=given.share)
    faults = ", ".join(
        f"{count} {name}" for name, count in sorted(result.faults.items()) if name != "none"
    )
    rows = [
        Row("tables that differ", ", ".join(result.differing) or "0", reach="0"),
        Row("events", f"{result.event_count:,}"),
        Row("requests through the proxy", f"{sum(result.faults.values()):,}"),
        Row("faults", faults),
        Row("kills", f"{result.kill_count}"),
        Row("time", f"{result.seconds:.0f} s"),
    ]
    print_table(f"{given.boxes} boxes", rows, describe_machine())


if __name__ == "__main__":
    main()
