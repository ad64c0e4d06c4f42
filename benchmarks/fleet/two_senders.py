"""Forge and replay what another token sends, by every route.

    python -m benchmarks.fleet.two_senders --seeds 50

Two tokens of the scope `ingest` at one server. At the end each run of the first is compared with
the same run on a server that only the first sent to.
"""

from __future__ import annotations

import argparse
from collections import Counter

from benchmarks.common import Row, describe_machine, print_table, scratch_folder
from tests.tools.push.two_senders import count_changes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument(
        "--forged", type=int, default=10, help="forged requests after each honest one"
    )
    given = parser.parse_args()
    changes: list[str] = []
    statuses: Counter[int] = Counter()
    import_count = 0
    for seed in range(given.seeds):
        with scratch_folder() as folder:
            senders, changed = count_changes(folder, seed, given.forged)
        changes += changed
        statuses.update(senders.statuses)
        import_count += senders.refused_imports
    by_status = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
    rows = [
        Row("changes in another's run", ", ".join(changes) or "0", reach="0"),
        Row("forged requests, by status", by_status),
        Row("forged imports that were refused", f"{import_count:,}"),
    ]
    print_table("two senders", rows, describe_machine())


if __name__ == "__main__":
    main()
