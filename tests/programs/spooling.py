"""Write records as the hooks do, without torch: `spooling.py COUNT [PAUSE_S]`; 0 is endless."""

import itertools
import os
import sys
import time

from compileboard.collectors.observe.spool_writer import Spool

COUNT = int(sys.argv[1])
PAUSE_S = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
ENVIRONMENT = os.environ


def describe():
    return {"run_id": ENVIRONMENT["COMPILEBOARD_RUN_ID"], "pid": os.getpid()}


def main():
    spool = Spool(
        ENVIRONMENT["COMPILEBOARD_SPOOL"],
        ENVIRONMENT["COMPILEBOARD_RUN_ID"],
        ENVIRONMENT["COMPILEBOARD_DB"],
        describe,
    )
    frame = {"line": 1, "name": "f", "filename": "/a/b.py", "loc": "x"}
    for number in range(COUNT) if COUNT else itertools.count():
        spool.write(
            "dynamo_start", {"stack": [frame] * (number % 40)}, None, [None, number, 0, 0, None]
        )
        if number == 0:
            print(os.getpid(), flush=True)
        time.sleep(PAUSE_S)
    spool.write("snapshot", {"final": True, "losses": dict(spool.losses)})
    print("done", sum(spool.losses.values()), flush=True)


if __name__ == "__main__":
    main()
