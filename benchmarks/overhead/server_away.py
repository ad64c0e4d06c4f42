"""Compare a program pushed to a server that hangs or refuses with one recorded into a database.

    python -m benchmarks.overhead.server_away [--pairs 8] [--records 4000]

The program writes records as the hooks do, with work between them, and measures itself; no torch.
Each pair runs both in an order drawn for it.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from benchmarks.common import Row, bootstrap, interleave, medians, print_table, ratios
from tests.tools.observed import Workplace, processes_of

PROGRAM = """
import os, sys, time
from compileboard.collectors.observe.spool_writer import Spool
run_id = os.environ["COMPILEBOARD_RUN_ID"]
describe = lambda: {"run_id": run_id, "pid": os.getpid()}
spool = Spool(os.environ["COMPILEBOARD_SPOOL"], run_id, "", describe)
frame = {"line": 1, "name": "f", "filename": "/a/b.py", "loc": "x"}
began_s = time.perf_counter()
for number in range(int(sys.argv[1])):
    spool.write("dynamo_start", {"stack": [frame] * 20}, None, [None, number, 0, 0, None])
    sum(range(10_000))
print(time.perf_counter() - began_s)
"""


def measure(folder: Path, record_count: int, *destination: str) -> float:
    """Return the seconds that the program took, by its own clock."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        workplace = Workplace(Path(own))
        path = workplace.write(PROGRAM)
        options = destination or ("--db", str(workplace.database))
        done = workplace.collect(
            "run", "--quiet", *options, "--", sys.executable, path, record_count
        )
        assert done.returncode == 0, done.stderr
        for pid in processes_of(workplace.home):  # its sender
            os.kill(pid, signal.SIGKILL)
        return float(done.stdout)


def main() -> int:
    """Measure and print a table; 1 if the interval lies above the reach."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--records", type=int, default=4000)
    arguments = parser.parse_args()
    rows, is_slower = [], False
    with tempfile.TemporaryDirectory() as name, closing(socket.socket()) as hanging:
        folder = Path(name)
        hanging.bind(("127.0.0.1", 0))
        hanging.listen()
        addresses = {"hangs": hanging.getsockname()[1], "refuses": 9}
        for how, port in addresses.items():
            pairs = interleave(
                arguments.pairs,
                lambda port=port: measure(
                    folder, arguments.records, "--server", f"http://127.0.0.1:{port}"
                ),
                lambda: measure(folder, arguments.records),
            )
            interval, (ours, reference) = bootstrap(ratios(pairs)), medians(pairs)
            is_slower |= interval.low > 1.02
            rows.append(
                Row(
                    f"server {how}",
                    f"{ours:.3f} s",
                    f"{reference:.3f} s",
                    str(interval),
                    "1.00 within noise",
                )
            )
    print_table("A program with its server away, against a database", rows)
    return 1 if is_slower else 0


if __name__ == "__main__":
    sys.exit(main())
