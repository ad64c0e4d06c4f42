"""Two tokens of the scope `ingest`: one sends runs, the other forges and replays them by every
route, in between.
"""

from __future__ import annotations

import lzma
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from compileboard.app import create_app
from compileboard.app.clickhouse.copying import digest_board
from compileboard.app.core.settings import Settings
from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.contract.events import (
    ArtifactSeen,
    ConfigSeen,
    Event,
    GraphBroke,
    ProcessStarted,
    ReproAnswered,
    ReproCaptured,
    RunEnded,
    RunStarted,
    SpanSeen,
    load_event,
)
from compileboard.collectors.logs.log_loader import LoadOptions
from compileboard.collectors.store.bundles import write_bundle
from compileboard.collectors.store.connection import StoreError, open_reader, open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.runs import RunSender
from compileboard.collectors.store.tokens import create_token
from compileboard.collectors.wire.marks import LogRead, StreamEnd, dump_mark
from tests.tools.observed import ROOT
from tests.tools.push.box import STREAM_PATH, StreamBytes, headers_of

DATA = ROOT / "tests" / "data"
LOG = DATA / "trace" / "torch2.13-breaks.log.xz"
RESULTS = b"name,abs_latency,dev,batch_size,speedup\nmlp,1.0,cpu,8,{}\n"
RESULTS_NAME = "inductor_x_inference_cpu_performance.csv"
RUNS = ("01PUSHED000000000000000001", "01LOCAL0000000000000000001", "01OTHER0000000000000000001")


def read_events(run_id: str, suffix: str) -> list[Event]:
    """Read a recorded run as another one, with processes of its own."""
    lines = (
        lzma.decompress((DATA / "events" / "torch2.11-cuda-on_cuda.jsonl.xz").read_bytes())
        .decode()
        .splitlines()
    )
    events = [
        replace(event, process_id=event.process_id + suffix) for event in map(load_event, lines)
    ]
    return [
        replace(event, run_id=run_id)
        if isinstance(event, (RunStarted, RunEnded, ProcessStarted))
        else event
        for event in events
    ]


class TwoSenders:
    """A server in this process with two tokens; `box-1` sends a run and imports, `box-2` is the
    forger.
    """

    def __init__(self, folder: Path, seed: int, *, has_forger: bool = True) -> None:
        self._random = random.Random(seed)
        self._folder = folder / ("forged" if has_forger else "alone")
        self._folder.mkdir()
        self._database = self._folder / "board.db"
        migrate(self._database)
        self._has_forger = has_forger
        self._numbers = count()
        self.pushed, self.local = read_events(RUNS[0], "-pushed"), read_events(RUNS[1], "-local")
        self.statuses: list[int] = []
        self.refused_imports = 0
        with closing(open_writer(self._database)) as writer:
            Ingestor(writer).ingest(RUNS[1], self.local)
            self._tokens = [
                create_token(writer, name, ("ingest",), created_by="me")
                for name in ("box-1", "box-2")
            ]
        values: dict[str, Any] = {"reading": "tokens", "host": "0.0.0.0", "allow_host": "localhost"}
        self._client = create_app(Settings(db=str(self._database), **values)).test_client()
        self._log = lzma.decompress(LOG.read_bytes())

    def run(self, forgery_count: int = 3) -> None:
        """Send everything, with so many forged requests after each honest one."""
        self._import(
            0, self._half, "a.log"
        )  # of what is the same for both, the first to send it is the owner
        self._import(0, RESULTS.replace(b"{}", b"1.5"), RESULTS_NAME)
        self._patch(0, RUNS[0], "first", StreamBytes.of(self.pushed[:2]).lines, 0)
        for send in self._list_honest():
            send()
            for _ in range(forgery_count if self._has_forger else 0):
                self._random.choice(self._list_forged())()

    def digest(self) -> dict[str, Any]:
        """Return the content of the honest runs, without what the clock gave them, and how many
        there are.
        """
        with closing(open_writer(self._database)) as writer:
            writer.execute("update runs set heartbeat_us = 0")
            writer.execute("update logs set read_us = 0")
            shared = (
                "configs",
                "functions",
                "recompile_causes",
                "commits",
                "series",
                "source_excerpts",
            )
            digests: dict[str, Any] = {
                run_id: digest
                for run_id, digest in digest_board(str(self._database)).runs.items()
                if self._owner(writer, run_id) != "token:box-2"
            }
            for table in shared:  # nothing of it is another's under the same id
                key = {"configs": "hash", "commits": "hash"}.get(table, "id")
                for row in writer.execute(f"select * from {table}"):
                    digests[f"{table} {row[key]}"] = tuple(row)
        return digests

    def _owner(self, writer: sqlite3.Connection, run_id: str) -> str | None:
        row = writer.execute("select owner from run_owners where run_id = ?", (run_id,)).fetchone()
        return row and str(row[0])

    def _list_honest(self) -> Iterator[Callable[[], object]]:
        stream = StreamBytes.of(self.pushed)
        for digest, text in stream.texts.items():
            yield lambda digest=digest, text=text: self._call(
                0, "PUT", f"/api/v1/texts/{digest}", text
            )  # type: ignore[misc]
        offset, step = 0, len(stream.lines) // 12
        while offset < len(stream.lines):
            lines = stream.cut(offset, step)
            yield lambda offset=offset, lines=lines: self._patch(
                0, RUNS[0], "honest", lines, offset
            )  # type: ignore[misc]
            offset += len(lines)
        yield lambda: self._import(0, self._log, "a.log")

    @property
    def _half(self) -> bytes:
        return self._log[: self._log.index(b"\nV", len(self._log) // 2) + 1]

    def _list_forged(self) -> list[Callable[[], object]]:
        run_id, events = self._random.choice([(RUNS[0], self.pushed), (RUNS[1], self.local)])
        return [
            lambda: self._push(run_id, f"evil{next(self._numbers)}", self._forge(events)),
            lambda: self._push(run_id, "honest", self._forge(events)),
            lambda: self._push(run_id, "replay", self._random.sample(events, 20)),
            lambda: self._push(RUNS[2], f"own{next(self._numbers)}", self._forge(events)),
            lambda: self._mark(run_id, events),
            lambda: self._mark(RUNS[2], events),
            lambda: self._drop_texts(run_id, events),
            lambda: self._call(1, "PUT", f"/api/v1/texts/{'0' * 32}", b"another text"),
            lambda: self._import(1, self._half + self._forge_tail(), "b.log"),
            lambda: self._import(1, self._log, "c.log"),
            lambda: self._import(1, self._log + self._forge_tail(), "d.log", again=True),
            lambda: self._import(1, RESULTS.replace(b"{}", b"0.1"), RESULTS_NAME),
            lambda: self._import_bundle(run_id, events),
        ]

    def _forge(self, events: list[Event]) -> list[Event]:
        """Make events under the processes and numbers of real ones, sent and unsent."""
        started = next(event for event in events if isinstance(event, RunStarted))
        with closing(
            open_reader(self._database)
        ) as reader:  # ids of processes to come cannot be guessed
            known = {row["id"] for row in reader.execute("select id from processes")}
        real = self._random.choice([event for event in events if event.process_id in known])
        at = {"process_id": real.process_id, "sequence": real.sequence, "time_us": real.time_us}
        forged: list[Event] = [
            RunStarted(
                started.process_id,
                started.sequence + 7,
                1,
                started.run_id,
                "forged",
                tags={"forged": "1"},
            ),
            RunEnded(
                started.process_id, started.sequence + 8, 2, started.run_id, "failed", exit_code=66
            ),
            GraphBroke(**at, reason="forged", fingerprint=f"forged{next(self._numbers)}"),
            ArtifactSeen(**at, name="forged", state="kept", text="forged"),
            SpanSeen(**at, name="forged", phase="i", at_us=real.time_us),
            ReproCaptured(**at, program="forged"),
            ReproAnswered(**at, repro="0" * 16, command="run", status="passed"),
            ConfigSeen(
                **at,
                config_hash=self._random.choice(self._config_hashes),
                config_kind="dynamo",
                body="forged",
            ),
            ProcessStarted(real.process_id, -1, 1, started.run_id, 66),
        ]
        return self._random.sample(forged, 4)

    @property
    def _config_hashes(self) -> list[str]:
        return [event.config_hash for event in self.pushed if isinstance(event, ConfigSeen)]

    def _forge_tail(self) -> bytes:
        return self._log[self._log.rindex(b"\nV") + 1 :].replace(b"1", b"7", 3) * 3

    def _push(self, run_id: str, stream_id: str, events: list[Event]) -> None:
        self._patch(1, run_id, stream_id, StreamBytes.of(events).lines, 0)

    def _mark(self, run_id: str, events: list[Event]) -> None:
        lines = dump_mark(LogRead(events[-1].process_id, "forged.log", 1 << 40, 9, 9)) + dump_mark(
            StreamEnd(1, 1, 99)
        )
        self._patch(1, run_id, f"marks{next(self._numbers)}", lines, 0)

    def _drop_texts(self, run_id: str, events: list[Event]) -> None:
        body = {"digests": [], "run": run_id, "dropped": list(StreamBytes.of(events).texts)}
        answer = self._client.post("/api/v1/texts/missing", json=body, headers=self._headers(1))
        self.statuses.append(answer.status_code)

    def _patch(self, sender: int, run_id: str, stream_id: str, lines: bytes, offset: int) -> None:
        self._call(
            sender,
            "PATCH",
            STREAM_PATH.format(run_id, stream_id),
            lines,
            **headers_of(offset, lines),
        )

    def _call(self, sender: int, method: str, path: str, body: bytes, **headers: str) -> None:
        answer = self._client.open(
            path, method=method, data=body, headers=self._headers(sender) | headers
        )
        assert sender == 1 or answer.status_code in (200, 201, 204), answer.text
        assert answer.status_code < 500, answer.text
        if sender == 1 and not path.startswith(f"/api/v1/runs/{RUNS[2]}/"):
            self.statuses.append(answer.status_code)

    def _headers(self, sender: int) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._tokens[sender]}"}

    def _import(self, sender: int, body: bytes, name: str, **options: bool) -> None:
        """Import as the server's child process does."""
        path = self._folder / name
        path.write_bytes(body)
        os.utime(path, (1_795_000_000, 1_795_000_000))  # the time of results without one
        named = LoadOptions(
            sender=RunSender(f"token:box-{sender + 1}", may_add_to_all=False), **options
        )  # type: ignore[arg-type]
        try:
            import_paths([str(path)], str(self._database), named, print_line=lambda _line: None)
        except StoreError:
            assert sender == 1
            self.refused_imports += 1

    def _import_bundle(self, run_id: str, events: list[Event]) -> None:
        """Send a bundle of a run with more, or of a run of one's own with a process of it."""
        forged, bundle = (
            self._folder / f"{next(self._numbers)}.db",
            self._folder / f"{next(self._numbers)}.db",
        )
        migrate(forged)
        own_id = self._random.choice([run_id, f"01BUNDLE{next(self._numbers):018d}"])
        with closing(open_writer(forged)) as writer:
            started = RunStarted(own_id, 0, 1, own_id, "forged")
            Ingestor(writer).ingest(own_id, [started, *self._forge(events)])
        with closing(open_reader(forged)) as reader:
            write_bundle(reader, [own_id], str(bundle))
        self._import(1, bundle.read_bytes(), "bundle.db")


def count_changes(folder: Path, seed: int, forgery_count: int = 3) -> tuple[TwoSenders, list[str]]:
    """Return the sender's runs and what they have in common that a forger changed."""
    alone, forged = TwoSenders(folder, seed, has_forger=False), TwoSenders(folder, seed)
    alone.run()
    forged.run(forgery_count)
    before, after = alone.digest(), forged.digest()
    return forged, sorted(name for name in before if before[name] != after.get(name))
