"""Run one import as a child process under limits, and describe how it ended.

The upload limit is a setting. Data beyond the other limits can be imported with
`compileboard-collect import` on the server's machine, which has no limits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from compileboard.app.core.address import parse_address
from compileboard.app.core.settings import Settings
from compileboard.app.imports.queue import Import, ImportLane, ImportOptions, QueueEntry
from compileboard.collectors.store.connection import StoreError, open_writer
from compileboard.start import own_command

SANDBOX = Path(__file__).with_name("sandbox.py")
MIB = 1 << 20
# A log of 104 MB with all its texts can be imported with 128 MiB of address space, in 7 s; but a
# single record may have 64 MiB.
MEMORY_BYTES = 1 << 30
TIMEOUT_S = 900
SLICE_S = 20.0  # after which it lets waiting imports run
MAX_UNPACKED = 8  # times the upload limit
MAX_RATIO = 1000  # unpacked / packed; real logs reach 180
MAX_ENTRIES = 20_000  # The entries of all archives together.
MAX_RECORDS = 1_000_000
MAX_ROWS = 2_000_000
ON_THE_SERVER = (
    "Import it on the server's machine, where no limit holds: compileboard-collect import PATH"
)
SLACK_BYTES = 1 << 30  # growth of a database beyond the log: indexes and write-ahead log
ASK_EVERY_S = 0.5
PAUSE_SIGNAL = signal.SIGUSR1  # handled by collectors.logs.import_progress
INTERRUPTED = -1  # sequence of the end written for an import that could not write its own
_PASSED_VARIABLES = ("PATH", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT")
_LINE_KEYS = ("read_bytes", "total_bytes", "log_count", "record_count", "rejects", "run_id")


def build_command(settings: Settings, options: ImportOptions, target: str) -> list[str]:
    database = os.path.abspath(parse_address(settings.db).board)
    unpacked_bytes = settings.upload_mib * MIB * MAX_UNPACKED
    bounds = [MEMORY_BYTES, TIMEOUT_S, _file_size(database) + unpacked_bytes + SLACK_BYTES]
    limits = [
        *(
            "--limit-bytes",
            unpacked_bytes,
            "--limit-ratio",
            MAX_RATIO,
            "--limit-entries",
            MAX_ENTRIES,
        ),
        *("--limit-records", MAX_RECORDS, "--limit-rows", MAX_ROWS),
    ]
    return [
        *(sys.executable, "-I", "-S", str(SANDBOX), *map(str, bounds)),
        *own_command("compileboard.collectors", "import", f"--db={database}", "--progress-lines"),
        *(*map(str, limits), "--names", "names.json", *options.options(), "--", target),
    ]


def build_environ(folder: Path) -> dict[str, str]:
    environment = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    return environment | {
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(folder),
        "OPENBLAS_NUM_THREADS": "1",  # otherwise its buffers take memory for every core
    }


def run(
    slot: QueueEntry, command: list[str], settings: Settings, lane: ImportLane | None = None
) -> bool:
    """Import the logs. Returns True if the import was stopped to let others run; then run it again
    in the second lane.
    """
    errors = slot.folder / "errors"
    begun = slot.upload  # read by an earlier part of it
    slot.save(state="running")
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=slot.folder,
            env=build_environ(slot.folder),
            start_new_session=True,
        )
        late = threading.Event()
        timer = threading.Timer(TIMEOUT_S, _end_process, (process, late))
        timer.daemon = True
        timer.start()
        ended = threading.Event()
        threading.Thread(
            target=_yield_lane, args=(process, lane, ended), name="slice", daemon=True
        ).start()
        try:
            last = _follow_process(process, slot, begun)
            process.wait()
        finally:
            timer.cancel()
            ended.set()
            _kill_process(process)
    if last.get("state") == "paused":
        return True
    _finish_import(slot, last, process.returncode, late.is_set(), errors, settings)
    return False


def _yield_lane(
    process: subprocess.Popen[bytes], lane: ImportLane | None, has_ended: threading.Event
) -> None:
    """Let the next import begin. This one continues in the second lane, or stops until that is
    free.
    """
    wait_s = SLICE_S
    while lane is not None and not has_ended.wait(wait_s) and not lane.try_second():
        with suppress(ProcessLookupError):
            process.send_signal(PAUSE_SIGNAL)
        wait_s = ASK_EVERY_S


def _follow_process(
    process: subprocess.Popen[bytes], slot: QueueEntry, begun: Import
) -> dict[str, Any]:
    last: dict[str, Any] = {}
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            with suppress(ValueError):
                last = json.loads(line)
                if "rejects" in last:
                    last["record_count"] += begun.record_count
                    counts = Counter(begun.rejects)
                    counts.update(last["rejects"])
                    last["rejects"] = dict(sorted(counts.items()))
                if last.get("state") in ("reading", "paused"):
                    slot.save(**{key: last[key] for key in _LINE_KEYS})
    return last


def _end_process(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    _kill_process(process)


def _kill_process(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _finish_import(
    slot: QueueEntry,
    last_line: dict[str, Any],
    code: int,
    late: bool,
    errors: Path,
    settings: Settings,
) -> None:
    if last_line.get("state") == "done" and not last_line["deleted"]:
        slot.save(
            state="done",
            message=_describe_outcome(last_line, code),
            **{key: last_line[key] for key in _LINE_KEYS},
        )
        return
    if last_line.get("state") == "done" and last_line.get("deleted"):
        message = (
            "This log's run was deleted or pruned here, so it was left out. To have it again, "
            "delete it if it was "
            "pruned, and send it with “import it even if its run was deleted”."
        )
        slot.save(state="failed", run_id=None, message=message)
        return
    _close_run(slot, settings)
    slot.save(
        state="failed",
        message=_explain_failure(last_line, code, late, _read_tail(errors))
        + _describe_stored(slot),
    )


def _describe_outcome(last_line: dict[str, Any], code: int) -> str:
    if code:  # only the search index follows the last line
        sentences = ["All of it is read, but not all of its texts can be searched yet."]
    elif last_line["known_run"] and not last_line["record_count"]:
        sentences = ["Nothing new: it had been imported before."]
    else:
        sentences = []
    # Ignored options, or logs that are in another run: otherwise only the terminal would show them.
    return " ".join([*sentences, *(f"Note: {remark}." for remark in last_line["remarks"])])


def _explain_failure(last_line: dict[str, Any], code: int, late: bool, output: str) -> str:
    if last_line.get("state") == "failed":
        return (
            f"{last_line['message']} {ON_THE_SERVER}."
            if last_line.get("limit")
            else str(last_line["message"])
        )
    if late or code == -signal.SIGXCPU:
        return (
            f"It was ended after {TIMEOUT_S} seconds, the most that a server gives an import. "
            f"{ON_THE_SERVER}."
        )
    if "MemoryError" in output or "emory allocation" in output:
        return (
            f"It needed more than {MEMORY_BYTES // MIB:,} MiB of memory, the most of an "
            f"import. {ON_THE_SERVER}."
        )
    if code == -signal.SIGKILL:
        return "It was killed: by a person, or because the server's machine had no memory left."
    return f"It ended unexpectedly with code {code}: {output or 'no message'}"


def _describe_stored(slot: QueueEntry) -> str:
    if slot.upload.run_id and slot.upload.record_count:
        return " What was read until then is kept; sending the log again reads the rest."
    return ""


def _close_run(slot: QueueEntry, settings: Settings) -> None:
    if slot.upload.run_id is None:
        return
    # Imported here because a server that only reads does not need it.
    from compileboard.collectors.contract.events import RunEnded
    from compileboard.collectors.store.ingest.ingestor import Ingestor

    run_id, path = slot.upload.run_id, parse_address(settings.db).board
    with suppress(StoreError), closing(open_writer(path)) as connection:
        state = connection.execute(
            "select state, started_us from runs where id = :id", {"id": run_id}
        ).fetchone()
        if state is not None and state["state"] == "running":
            end = RunEnded(run_id, INTERRUPTED, state["started_us"], run_id, "interrupted")
            Ingestor(connection, path).ingest(run_id, [end])


def _read_tail(errors: Path) -> str:
    with errors.open("rb") as file:
        file.seek(max(0, errors.stat().st_size - 2000))
        lines = [
            line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()
        ]
    return (
        "".join(character if character.isprintable() else " " for character in lines[-1][:300])
        if lines
        else ""
    )


def _file_size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
