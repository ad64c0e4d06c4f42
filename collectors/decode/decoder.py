"""Decode torch's records to events, for live hooks and for trace logs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from compileboard.collectors.contract import events, record_names
from compileboard.collectors.contract.repros import MAX_PROGRAM_CHARS, load_manifest
from compileboard.collectors.contract.values import Notes, clean, clean_text, fit_event, fit_metrics
from compileboard.collectors.decode import (
    caches,
    compilation_metrics,
    cudagraphs,
    recompile_reasons,
    records,
    steps,
)
from compileboard.collectors.decode import trace_records as failures
from compileboard.collectors.decode.break_texts import parse_break
from compileboard.collectors.decode.records import (
    PathNamer,
    Qualify,
    TorchRecord,
    is_event,
    named_stack,
    parse_frames,
    qualified_name,
    split_resume_name,
)
from compileboard.collectors.decode.spans import make_plain_span
from compileboard.collectors.decode.trace_records import decode_logged, make_artifact

_CLEANED = frozenset(("metrics",))  # with the whole record


Report = Callable[[str], None]


class Decoder:
    """Decodes captured records into events, without state between records. It never raises."""

    def __init__(self, namer: PathNamer | None = None, qualify: Qualify | None = None) -> None:
        self._namer = namer or PathNamer()
        self._qualify = qualify
        self._handlers: dict[str, Callable[[TorchRecord], list[events.Event]]] = {
            record_names.COMPILE_START: self._decode_start,
            record_names.GRAPH_BREAK: self._decode_break,
            record_names.RECOMPILE: self._decode_recompile,
            record_names.COMPILE_ERROR: self._decode_error,
            record_names.RUNTIME_FAILED: self._decode_raised,
            record_names.CUDAGRAPH_SKIP: self._decode_cudagraph_skip,
            record_names.CUDAGRAPH: self._decode_cudagraph,
            record_names.STEPS: self._decode_steps,
            record_names.REPRO: self._decode_repro,
            record_names.REPRO_VALUES: self._decode_repro_values,
            **dict.fromkeys(record_names.METRICS, self._decode_metrics),
            **dict.fromkeys(record_names.CACHES, self._decode_cache),
            **dict.fromkeys(records.HOOK_EVENTS, self._decode_live_event),
        }

    def decode(
        self, captured: TorchRecord, report: Report = lambda what: None
    ) -> list[events.Event]:
        """Decode one record: usually one event, more if a record carries configs or a stored text.

        Parts with an unexpected form are reported once through `report`; the rest is kept
        (contract/values.py).
        """
        if (
            captured.name == record_names.SPAN
            and captured.logged is not None
            and (span := make_plain_span(captured))
        ):
            return [span]  # most of a log's records: short, and always well-formed
        notes: Notes = []
        made = self._fit_events(self._make_events(captured, notes), notes)
        if made is None:
            made = (
                self._fit_events([self._make_unknown_record(_clean_record(captured, []))], notes)
                or []
            )
        if notes:
            report(f"{clean_text(captured.name)}: {'; '.join(notes)}")
        return made

    def _make_events(self, captured: TorchRecord, notes: Notes) -> list[events.Event]:
        try:
            if captured.logged is not None and not is_event(captured.name):
                return decode_logged(
                    captured, captured.logged, self._make_context(captured), self._namer
                )
            captured = _clean_record(captured, notes)
            handler = self._handlers.get(captured.name)
            if handler is None:
                return [self._make_unknown_record(captured)]
            if captured.name in record_names.METRICS and isinstance(captured.metadata, dict):
                captured = replace(captured, metadata=fit_metrics(captured.metadata, notes))
            made = handler(captured)
        except Exception as error:
            # A record with an unexpected form is kept whole, under its own name.
            notes.append(f"kept as it came, it cannot be read ({type(error).__name__})")
            return [self._make_unknown_record(_clean_record(captured, []))]
        if made and type(made[0]) is events.UnknownRecordSeen:
            notes.append("kept as it came, it has not the form that torch writes")
        return made

    @staticmethod
    def _fit_events(made: list[events.Event], notes: Notes) -> list[events.Event] | None:
        fitted = []
        for event in made:
            fit, own = fit_event(event, _CLEANED)
            notes += own
            if fit is None:
                return None
            fitted.append(fit)
        return fitted

    def _decode_start(self, captured: TorchRecord) -> list[events.Event]:
        frames = parse_frames(_as_dict(captured.metadata).get("stack"))
        if not isinstance(_as_dict(captured.metadata).get("stack"), list):
            return [self._make_unknown_record(captured)]
        # The frame being compiled is the stack's last.
        frame = frames[-1] if frames else None
        name, resumed_at = split_resume_name(frame.name if frame else None)
        qualname = captured.extra.get("qualname")
        if isinstance(qualname, str) and qualname:
            name, from_name = split_resume_name(qualname)
            resumed_at = resumed_at if resumed_at is not None else from_name
        elif frame:
            name = qualified_name(self._qualify, frame.path, frame.line, name)
        started = events.CompileStarted(
            **self._make_context(captured),
            function=name,
            file=self._namer.name(frame.path) if frame else None,
            line=frame.line if frame else None,
            resumed_at=resumed_at,
            stack=named_stack(frames, self._namer),
        )
        return [started]

    def _decode_metrics(self, captured: TorchRecord) -> list[events.Event]:
        if not isinstance(captured.metadata, dict):
            return [self._make_unknown_record(captured)]
        kind = record_names.METRICS[captured.name]
        fields, configs = compilation_metrics.parse_metrics(
            captured.metadata, kind, self._namer, self._qualify, captured.extra
        )
        context = self._make_context(captured)
        if context["compile_id"] is None:
            context.update(compilation_metrics.context_of(captured.metadata))
        made: list[events.Event] = [events.Compiled(**context, **fields)]
        for number, (config_kind, digest, body) in enumerate(configs, start=1):
            made.append(
                events.ConfigSeen(
                    captured.process_id,
                    captured.sequence + number,
                    captured.time_us,
                    digest,
                    config_kind,
                    body,
                )
            )
        return made

    def _decode_break(self, captured: TorchRecord) -> list[events.Event]:
        if not isinstance(captured.payload, str):
            return [self._make_unknown_record(captured)]
        qualname = captured.extra.get("qualname")
        fields = parse_break(
            captured.payload,
            self._namer,
            self._qualify,
            qualname if isinstance(qualname, str) else None,
        )
        return [events.GraphBroke(**self._make_context(captured), **fields)]

    def _decode_recompile(self, captured: TorchRecord) -> list[events.Event]:
        guards = recompile_reasons.parse_reasons(captured.payload, self._namer)
        if not guards and captured.payload not in ("[\n\n]", "[]", [], [""], ""):
            return [self._make_unknown_record(captured)]
        # A log has the list as JSON, a live hook as a list: convert both to one text.
        text = "\n".join(recompile_reasons.reason_texts(captured.payload))
        failed, unread = recompile_reasons.parse_failed(captured.extra.get("failed"), guards)
        return [
            events.Recompiled(
                **self._make_context(captured),
                recompiled_from=guards[0].cache_entry if guards else None,
                guards=guards,
                failed=failed,
                unread=unread,
                has_gradients=captured.extra.get("grad"),
                text=text,
            )
        ]

    def _decode_error(self, captured: TorchRecord) -> list[events.Event]:
        if not isinstance(captured.payload, str):
            return [self._make_unknown_record(captured)]
        error_type, message = failures.parse_error(captured.payload)
        failed = events.CompileFailed(
            **self._make_context(captured),
            error_type=error_type,
            message=message,
            text=captured.payload,
        )
        return [failed]

    def _decode_raised(self, captured: TorchRecord) -> list[events.Event]:
        metadata, text = _as_dict(captured.metadata), captured.payload or ""
        if not isinstance(metadata.get("position"), int) or not isinstance(text, str):
            return [self._make_unknown_record(captured)]
        fields = failures.parse_raised(metadata, text, self._namer, self._qualify)
        return [events.RuntimeFailed(**self._make_context(captured), **fields)]

    def _decode_repro(self, captured: TorchRecord) -> list[events.Event]:
        metadata, payload = _as_dict(captured.metadata), _as_dict(captured.payload)
        manifest = _as_dict(metadata.get("manifest"))
        file = load_manifest(manifest).file
        if file and os.path.isabs(file):
            manifest = {**manifest, "file": self._namer.name(file)}
        programs = {
            name: payload[name]
            for name in ("program", "dynamo_program")
            if payload.get(name) is not None
        }
        for name, text in programs.items():
            if not isinstance(text, str) or len(text) > MAX_PROGRAM_CHARS:
                raise ValueError(
                    f"{name} must be a string of at most {MAX_PROGRAM_CHARS:,} characters"
                )
        stored = {
            name: metadata[name] for name in ("position", "failure_position") if name in metadata
        }
        return [
            events.ReproCaptured(
                **self._make_context(captured), **stored, **programs, manifest=manifest
            )
        ]

    def _decode_repro_values(self, captured: TorchRecord) -> list[events.Event]:
        metadata, body = _as_dict(captured.metadata), captured.payload
        if not isinstance(metadata.get("digest"), str) or not isinstance(body, str):
            return [self._make_unknown_record(captured)]
        stored = {name: metadata[name] for name in ("position", "digest") if name in metadata}
        return [
            events.ReproValues(
                captured.process_id, captured.sequence, captured.time_us, **stored, body=body
            )
        ]

    def _decode_cache(self, captured: TorchRecord) -> list[events.Event]:
        fields = caches.parse_lookup(
            captured.name.removeprefix(record_names.ARTIFACT), captured.payload
        )
        if fields is None:
            return [self._make_unknown_record(captured)]
        made: list[events.Event] = [events.CacheLookedUp(**self._make_context(captured), **fields)]
        if captured.logged is not None:  # a log has the components of the key
            made.append(make_artifact(captured, captured.logged, self._make_context(captured)))
        return made

    def _decode_cudagraph_skip(self, captured: TorchRecord) -> list[events.Event]:
        fields = cudagraphs.parse_skip(_as_dict(captured.metadata), self._namer)
        if fields is None:
            return [self._make_unknown_record(captured)]
        return [events.CudagraphSkipped(**self._make_context(captured), **fields)]

    def _decode_cudagraph(self, captured: TorchRecord) -> list[events.Event]:
        fields = cudagraphs.parse_recording(_as_dict(captured.metadata), self._namer)
        if fields is None:
            return [self._make_unknown_record(captured)]
        return [events.CudagraphMade(**self._make_context(captured), **fields)]

    def _decode_steps(self, captured: TorchRecord) -> list[events.Event]:
        metadata, text = _as_dict(captured.metadata), captured.payload
        trace = steps.read_trace(text) if isinstance(text, str) else None
        own = ("wanted_count", "earlier_count", "device", "peak_bytes_per_s", "steps")
        timed = events.StepsTimed(
            captured.process_id,
            captured.sequence,
            captured.time_us,
            **{name: metadata[name] for name in own},
            graphs=steps.parse_graphs(metadata),
            traced=steps.parse_trace(trace, metadata) if trace is not None else None,
        )
        if trace is None:
            return [timed]
        return [timed, steps.make_artifact(trace, self._make_context(captured))]

    def _decode_live_event(self, captured: TorchRecord) -> list[events.Event]:
        made = records.make_event(captured)
        return [made if made is not None else self._make_unknown_record(captured)]

    def _make_unknown_record(self, captured: TorchRecord) -> events.UnknownRecordSeen:
        body = {"metadata": captured.metadata, "payload": captured.payload}
        return events.UnknownRecordSeen(
            **self._make_context(captured), name=captured.name, body=body
        )

    def _make_context(self, captured: TorchRecord) -> dict[str, Any]:
        return {
            "process_id": captured.process_id,
            "sequence": captured.sequence,
            "time_us": captured.time_us,
            "compile_id": captured.compile_id,
            "frame_id": captured.frame_id,
            "frame_compile_id": captured.frame_compile_id,
            "attempt": captured.attempt,
            "rank": captured.rank,
            "envelope": self._make_envelope(captured.envelope) if captured.envelope else {},
        }

    def _make_envelope(self, envelope: dict[str, Any]) -> dict[str, Any]:
        frames = parse_frames(envelope.get("stack"))
        return {**envelope, "stack": named_stack(frames, self._namer)} if frames else envelope


def _clean_record(captured: TorchRecord, notes: Notes) -> TorchRecord:
    name, metadata, payload = (
        clean_text(captured.name),
        clean(captured.metadata),
        clean(captured.payload),
    )
    if name is captured.name and metadata is captured.metadata and payload is captured.payload:
        return captured
    notes.append("what no database holds is replaced")
    return replace(captured, name=name, metadata=metadata, payload=payload)


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
