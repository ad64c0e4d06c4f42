"""A run with many texts is pushed to a server far away: texts together beside one a request.

    python -m benchmarks.fleet.distance [--texts 400] [--delay 0.1] [--pairs 3]

Each text has 8 KiB. A proxy on loopback lets each request wait for the time that a packet takes
there and back.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

from benchmarks.common import Row, bootstrap, interleave, print_table
from benchmarks.fleet.away import TEXT_EVERY, make_batches
from compileboard.collectors.logs.source import EventBatch
from compileboard.collectors.push import delivery as texts
from compileboard.collectors.push.outbox import list_waiting
from compileboard.collectors.push.sender import Sender
from compileboard.collectors.push.target import Target
from compileboard.collectors.record import outbox_sink
from compileboard.collectors.record.outbox_sink import OutboxSink
from compileboard.collectors.record.spool import new_run_id
from compileboard.collectors.store.migrations import migrate
from tests.tools.push.proxy import FaultyProxy
from tests.tools.serving import serving


def push(address: str, text_count: int) -> float:
    """Push a new run with so many texts; return how long the sender took."""
    run_id = new_run_id()
    with tempfile.TemporaryDirectory() as folder, patch.object(outbox_sink, "spawn_sender"):
        root = Path(folder)
        with closing(OutboxSink(root, run_id, Target(address), 1 << 30)) as sink:
            for batch in make_batches(text_count * TEXT_EVERY, run_id, run_id):
                sink.ingest(EventBatch(batch))
            sink.finish()
        began_s = time.monotonic()
        with closing(Sender(root, {})) as sender:
            while waiting := list(list_waiting(root)):
                sender.step(waiting)
        return time.monotonic() - began_s


def push_one_by_one(address: str, text_count: int) -> float:
    """Push a new run with a request for each text."""
    with patch.object(texts, "TOGETHER_BYTES", 0):
        return push(address, text_count)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument(
        "--delay", type=float, default=0.1, help="seconds of each request beside the server's own"
    )
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "board.db"
        migrate(database)
        with serving(database) as server:
            proxy = FaultyProxy(
                int(server.address.rpartition(":")[2]), share=0.0, delay_s=args.delay
            )
            address = f"http://127.0.0.1:{proxy.port}"
            pairs = interleave(
                args.pairs,
                lambda: push(address, args.texts),
                lambda: push_one_by_one(address, args.texts),
            )
            proxy.close()
    ours, before = (bootstrap([pair[side] for pair in pairs]) for side in (0, 1))
    what = f"s to push {args.texts} texts of 8 KiB, {args.delay * 1000:.0f} ms a request"
    print_table(
        f"Pushing over a distance, {args.pairs} pairs in turns",
        [Row(what, str(ours), str(before), f"{ours.median / before.median:.3f}")],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
