"""Make a database of recorded runs: `python -m tests.tools.make_db OUT.db [TRACE_LOG …]`.

Without logs it reads the recorded ones in tests/data, and the events recorded on a GPU machine.
Each is one run.
"""

from __future__ import annotations

import hashlib
import lzma
import shutil
import sys
import tempfile
from pathlib import Path

from compileboard.collectors.contract.events import (
    Compiled,
    Event,
    ProcessStarted,
    RunEnded,
    RunStarted,
    load_event,
)
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from tests.tools.trace_logs import read_trace_log

DATA = Path(__file__).resolve().parent.parent / "data"


def record_log(ingestor: Ingestor, log: Path, name: str, suite: str | None = None) -> str:
    """Record one trace log as one run; return the run's id."""
    run_id = hashlib.sha256(name.encode()).hexdigest()[:26].upper()
    process_id = hashlib.sha256(log.name.encode()).hexdigest()[:32]
    decoder = Decoder()
    events: list[Event] = [
        event for captured in read_trace_log(log, process_id) for event in decoder.decode(captured)
    ]
    times = [event.time_us for event in events] or [0]
    metrics = next((event.metrics for event in events if isinstance(event, Compiled)), {})
    opened: list[Event] = [
        RunStarted(
            process_id=f"run-{run_id}",
            sequence=0,
            time_us=min(times),
            run_id=run_id,
            name=name,
            suite=suite,
            source="import",
            argv=["python", f"{name}.py"],
            host={"name": "gpu-box"},
            gpus=[
                {"name": "NVIDIA H200", "memory_bytes": 150754820096, "compute_capability": "9.0"}
            ],
        ),
        ProcessStarted(
            process_id=process_id,
            sequence=-1,
            time_us=min(times),
            run_id=run_id,
            pid=1,
            torch_version=metrics.get("pytorch_version"),
            cuda_version=metrics.get("cuda_version"),
            python_version=(metrics.get("python_version") or "").partition(" ")[0] or None,
        ),
    ]
    closed = RunEnded(
        process_id=f"run-{run_id}",
        sequence=1,
        time_us=max(times),
        run_id=run_id,
        state="finished",
        exit_code=0,
    )
    ingestor.ingest(run_id, [*opened, *events, closed])
    return run_id


def read_events(path: Path) -> list[Event]:
    """Read a file of events, as tests.tools.export_events writes it."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [load_event(line) for line in file]


def record_events(ingestor: Ingestor, path: Path) -> str:
    """Record a file of events; return the run's id."""
    events = read_events(path)
    run_id = next(event.run_id for event in events if isinstance(event, RunStarted))
    ingestor.ingest(run_id, events)
    return run_id


def plain_log(log: Path, folder: Path) -> Path:
    """Return a log as torch wrote it, unpacked into `folder` where it is packed."""
    if log.suffix != ".xz":
        return log
    unpacked = folder / log.stem
    with lzma.open(log) as packed, unpacked.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return unpacked


def main(argv: list[str]) -> int:
    """Record the given logs, or those of tests/data, into a new database."""
    database = Path(argv[0])
    logs = [Path(argument) for argument in argv[1:]] or sorted(
        log for log in DATA.rglob("*.log*") if log.parent.name != "provenance"
    )
    connection = open_writer(database)
    migrate_connection(connection)
    ingestor = Ingestor(connection, str(database))
    with tempfile.TemporaryDirectory() as folder:
        for log in logs:
            in_folder = log.parent.name == "trace" and log.suffix == ".log"
            name = (
                log.parent.parent.name
                if in_folder
                else log.name.removesuffix(".xz").removesuffix(".log")
            )
            print(record_log(ingestor, plain_log(log, Path(folder)), name, "captures"), name)
    for path in [] if argv[1:] else sorted((DATA / "events").glob("*-on_cuda.jsonl.xz")):
        print(record_events(ingestor, path), path.name.removesuffix(".jsonl.xz"))
    connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
