from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.events import ArtifactSeen, Event, ProcessStarted, SpanSeen
from compileboard.collectors.contract.record_names import (
    AOT_METADATA,
    ARTIFACT,
    GUARDS,
    SPAN,
    SYMBOLS,
)
from compileboard.collectors.contract.redaction import redact_source
from compileboard.collectors.contract.rejects import IngestResult, Rejects
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import TorchRecord, is_event
from compileboard.collectors.logs.log_head import LogHead, PeekedFile, collect_facts
from compileboard.collectors.logs.source import EventBatch, ImportedFile, LateFacts
from compileboard.collectors.logs.trace_log import LogClock
from compileboard.collectors.logs.trace_source import TraceSource
from compileboard.collectors.store.ingest.payload_writer import TextPacker
from compileboard.collectors.store.ingest.source_files import LEARNT_LATE, LogRow

# Texts of a fully known form, in which user data can be told from torch's. All others are dropped:
# data that cannot be redacted for certain is not stored.
KNOWN_TEXTS = frozenset(
    (
        *GUARDS,
        SPAN,
        "dynamo_output_graph",
        "aot_joint_graph",
        "aot_forward_graph",
        "aot_backward_graph",
        "aot_inference_graph",
        "inductor_pre_grad_graph",
        "inductor_post_grad_graph",
        "inductor_output_code",
        "compiled_autograd_graph",
        "optimize_ddp_split_graph",
        "optimize_ddp_split_child",
        "artifact:before_pre_grad_graph",
        "artifact:after_pre_grad_graph",
        "artifact:before_joint_graph",
        "artifact:after_joint_graph",
        "artifact:before_post_grad_graph",
        "artifact:after_post_grad_graph",
        "artifact:inductor_post_grad_graph",
        "artifact:dynamo_side_effects",
        "artifact:fx_graph_runnable",
        "artifact:triton_kernel_info",
        "artifact:torch._functorch.config",
        "artifact:torch._inductor.config",
        "artifact:torch._dynamo.config",
        "artifact:graph_execution",
        "artifact:inductor_collective_schedule",
        "artifact:inductor_runtime_and_tensor_meta",
        "artifact:autotuning_cache",
        "artifact:torch_version",
    )
)
# torch's own records, with only names and numbers as fields.
KNOWN_METADATA = frozenset(
    (
        *(
            "describe_tensor",
            "describe_storage",
            "describe_source",
            "dump_file",
            "link",
            "graph_dump",
            "export",
        ),
        *("exported_program", "missing_fake_kernel", "mismatched_fake_kernel"),
    )
)

_KNOWN_ENVELOPE = ("stack", "subgraph_name")
# A user's Triton kernel is included as source in a text of known form; this marks one.
_KERNELS = {"inductor_output_code": "user_autotune", "artifact:fx_graph_runnable": "@triton.jit"}


def redact_record(captured: TorchRecord) -> TorchRecord:
    captured = replace(captured, envelope=_redact_envelope(captured.envelope))
    known = is_event(captured.name) or captured.name in KNOWN_TEXTS or captured.name in SYMBOLS
    kernel = _KERNELS.get(captured.name)
    known = known and not (
        kernel and isinstance(captured.payload, str) and kernel in captured.payload
    )
    metadata = redact_source(captured.metadata)
    if (
        not known
        and not kernel
        and not captured.name.startswith(ARTIFACT)
        and captured.name not in KNOWN_METADATA
    ):
        metadata = None
    logged = captured.logged
    if logged is not None and logged.whole is not None:
        logged = replace(logged, whole=None)
    if known:
        return replace(
            captured, metadata=metadata, payload=redact_source(captured.payload), logged=logged
        )
    if logged is not None and logged.state != "none":
        logged = replace(logged, state="withheld")
    # Its summary is free of code; its text has the user's stack traces inside strings.
    payload = captured.payload if captured.name == AOT_METADATA else None
    return replace(captured, metadata=metadata, payload=payload, logged=logged)


def _redact_envelope(envelope: dict[str, Any] | None) -> dict[str, Any] | None:
    redacted = {
        key: redact_source(value)
        for key, value in (envelope or {}).items()
        if key in _KNOWN_ENVELOPE
    }
    return redacted or None


STARTED_WITH = ("python_version", "torch_version", "torch_git", "cuda_version", "triton_version")


@dataclass
class DecodedBatch:
    batch: EventBatch
    rejects: Rejects  # without those of the files beside it
    part: int  # Several processes read the parts of a log in turn.

    def add_before(self, earlier: DecodedBatch) -> None:
        (begin,), (end,) = earlier.batch.checkpoints, self.batch.checkpoints
        self.batch.checkpoints = [replace(end, begin_bytes=begin.begin_bytes)]
        self.batch.record_count += earlier.batch.record_count
        for mine, others in (
            (self.batch.rejects, earlier.batch.rejects),
            (self.rejects, earlier.rejects),
        ):
            own = mine.copy()
            mine.by_kind = others.copy().by_kind
            mine.add_all(own)


class ImportedTrace(TraceSource):
    def __init__(
        self,
        source_path: Path | None,
        head: LogHead,
        file: PeekedFile | None,
        imported: ImportedFile,
        row: LogRow | None,
        *,
        run_id: str,
        decoder: Decoder,
        decoded: Iterable[DecodedBatch] | None = None,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self.path = source_path
        self.learnt_bytes = 0  # The size of the start that was read.
        self._head = head
        self._file = file
        self._run_id = run_id
        self._decoded = decoded
        self._packer: TextPacker | None = None
        super().__init__(file or io.BytesIO(), imported, head.clock, decoder, row, share)
        self._started: set[str] = set()
        self._facts: dict[str, Any] = {
            name: getattr(head, name) for name in LEARNT_LATE if name != "rank"
        }
        self._missing = {name for name, fact in self._facts.items() if fact is None}
        self._learnt: dict[str, Any] = {}  # facts since the last batch that its start lacks

    def read(self) -> Iterator[EventBatch]:
        if self._decoded is None:
            yield from super().read()
            return
        before: DecodedBatch | None = None
        for decoded in self._decoded:
            if before is not None:
                decoded.add_before(before)
            batch, self._batch_rejects = decoded.batch, decoded.rejects
            if batch.last_us is not None:
                self.last_us = batch.last_us
            for late in batch.late.values():
                self._facts |= {
                    name: fact for name, fact in late.facts.items() if self._facts.get(name) is None
                }
            batch.events = [event for event in map(self._begin_once, batch.events) if event]
            before = None if self._started else decoded  # there is no process yet for the log
            if before is None:
                yield batch

    def _begin_once(self, event: Event) -> Event | None:
        if not isinstance(event, ProcessStarted):
            return event
        if event.process_id in self._started:
            return None
        self._started.add(event.process_id)
        unknown = [
            name for name in STARTED_WITH if getattr(event, name) is None and self._facts.get(name)
        ]
        return replace(event, **{name: self._facts[name] for name in unknown}) if unknown else event

    def decode_ahead(self, packer: TextPacker) -> Iterator[DecodedBatch]:
        self._packer = packer
        for batch in super().read():
            rejects = self._batch_rejects.copy()
            self.commit(batch, IngestResult())
            packer.finish()
            yield DecodedBatch(batch, rejects, self._log.part)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def set_clock(self, clock: LogClock) -> None:
        if clock.is_set and not self._head.clock.is_set:
            self._log.set_clock(clock)

    def is_replaced(self) -> bool:
        assert self._file is not None
        try:
            now, held = os.stat(self.path or ""), os.fstat(self._file.fileno())
        except (OSError, ValueError):
            return True
        return (now.st_dev, now.st_ino) != (
            held.st_dev,
            held.st_ino,
        ) or now.st_size < self.offset_bytes

    def decode(self, captured: TorchRecord) -> list[Event]:
        begun = [] if captured.process_id in self._started else [self._start(captured)]
        events = super().decode(redact_record(captured) if self.file.redacted else captured)
        if self._missing and type(events[0] if events else None) is not SpanSeen:
            self._learn_facts(events)
        if self._packer is not None:
            for event in events:
                _pack_text(event, self._packer)
        return [*begun, *events] if begun else events

    def closing_events(self) -> list[Event]:
        return [] if self._started else [self._start(None)]

    def late_facts(self) -> dict[str, LateFacts]:
        facts, self._learnt = self._learnt, {}
        return {process_id: LateFacts(facts) for process_id in self._started} if facts else {}

    def _learn_facts(self, events: list[Event]) -> None:
        for event in events:
            facts = collect_facts(event, self._missing)
            for name in [name for name in self._missing if facts.get(name)]:
                self._facts[name] = self._learnt[name] = facts[name]
                self._missing.remove(name)

    def _start(self, captured: TorchRecord | None) -> ProcessStarted:
        head = self._head
        process_id = captured.process_id if captured else self.file.process_id
        self._started.add(process_id)
        rank = captured.rank if captured and captured.rank is not None else head.rank
        return ProcessStarted(
            process_id=process_id,
            sequence=-1,
            time_us=captured.time_us if captured else head.first_us or 0,
            run_id=self._run_id,
            pid=self._log.pid or head.pid or 0,
            rank=rank,
            level="full" if self.file.payloads == "kept" else "light",
            **{name: self._facts[name] for name in STARTED_WITH},
            capabilities={"trace": "ok (read from its log)"},
        )


def _pack_text(event: Event, packer: TextPacker) -> None:
    if isinstance(event, ArtifactSeen | SpanSeen) and event.text is not None:
        vars(event)["text"] = packer.pack(
            event.text
        )  # not shared yet, and a copy costs as much as decoding
