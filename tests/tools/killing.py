"""Kill an observed program, its recorder or both; compare what was written and stored."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tools.observed import Workplace, wait_for

WHOM = ("program", "recorder", "both")


@dataclass(frozen=True)
class Killed:
    """What was written before the kill, what is stored after the next command, and the database's
    state.
    """

    written: int
    stored: int
    integrity: str
    state: str
    output: str  # by the recorder, for whoever reads why a test failed


def kill_once(workplace: Workplace, whom: str, delay_s: float, *command: Any) -> Killed:
    """Kill once, at a moment after the program's first record.

    Units: delay_s is counted from the line with its process id that the program prints.
    """
    started = workplace.start(*command, start_new_session=True)
    assert started.stdout is not None
    program = int(started.stdout.readline())
    time.sleep(delay_s)
    if whom == "program":
        os.kill(
            started.pid, signal.SIGSTOP
        )  # so that nothing is read between the kill and the count
        os.kill(program, signal.SIGKILL)
        wait_for(lambda: not running(program))
        written = whole_records(workplace)
        os.kill(started.pid, signal.SIGCONT)
    elif whom == "recorder":
        os.kill(started.pid, signal.SIGKILL)
        time.sleep(0.2)  # the program goes on alone
        assert running(program)
        os.kill(program, signal.SIGKILL)
        wait_for(lambda: not running(program))
        written = whole_records(workplace)
    else:
        os.killpg(started.pid, signal.SIGKILL)
        wait_for(lambda: not running(program))
        written = whole_records(workplace)
    _out, output = started.communicate(timeout=60)
    assert workplace.collect("list", "--db", workplace.database).returncode == 0
    wait_for(lambda: not workplace.spools)
    stored = {
        (row["process_id"], row["sequence"])
        for row in workplace.rows("select process_id, sequence from events")
    }
    integrity, state = workplace.value("pragma integrity_check"), workplace.only_run()["state"]
    return Killed(
        len(written), len(written & stored), integrity, state, f"{started.returncode}: {output}"
    )


def running(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def whole_records(workplace: Workplace) -> set[tuple[str, int]]:
    """Read the identities of the whole lines in the spools; configurations are kept by content, not
    as events.
    """
    identities = set()
    for path in (workplace.home / "spool").glob("*/*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            record = json.loads(line)
            if record["n"] != "config":
                identities.add((path.name.partition(".")[0], record["s"]))
    return identities
