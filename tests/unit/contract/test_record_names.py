"""Each name of a record has what reads it, and each event what writes it into the store."""

from __future__ import annotations

import ast
from pathlib import Path

from compileboard.collectors.contract import record_names
from compileboard.collectors.contract.events import KINDS, RunEnded, RunStarted, UnknownRecordSeen
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.observe.tap import TAPPED_ARTIFACTS
from compileboard.collectors.store.ingest.rows import WRITERS
from tests.tools.observed import ROOT

WITHOUT_ROWS = {
    RunStarted: "the ingestor's own",
    RunEnded: "the ingestor's own",
    UnknownRecordSeen: "kept among the events alone",
}

# What the hooks alone write.
HOOK_RECORDS = {
    record_names.PROCESS_STARTED,
    record_names.SNAPSHOT,
    record_names.CONFIG,
    record_names.RUNTIME_FAILED,
    record_names.CUDAGRAPH_SKIP,
    record_names.CUDAGRAPH,
    record_names.STEPS,
    record_names.REPRO,
    record_names.REPRO_VALUES,
    record_names.GRAPH_CHECKED,
}


def test_each_record_that_becomes_an_event_has_a_decoder_or_is_kept_whole() -> None:
    decoded = set(Decoder()._handlers)
    assert decoded == (record_names.EVENTS | HOOK_RECORDS) - record_names.KEPT_WHOLE


def test_each_event_has_a_writer_or_says_why_not() -> None:
    assert set(KINDS.values()) - set(WRITERS) == set(WITHOUT_ROWS)
    assert set(WRITERS) <= set(KINDS.values())


def test_the_tap_takes_every_artifact_that_becomes_an_event() -> None:
    artifacts = {name for name in record_names.EVENTS if name.startswith(record_names.ARTIFACT)}
    kept_whole = record_names.KEPT_WHOLE - HOOK_RECORDS
    assert {record_names.ARTIFACT + name for name in TAPPED_ARTIFACTS} == artifacts
    assert len(artifacts) == len(record_names.CACHES) + len(kept_whole) + 3


def test_no_module_has_a_records_name_of_its_own() -> None:
    """Neither the decoder nor a hook may know a name that the list does not have."""
    names = record_names.EVENTS | HOOK_RECORDS | record_names.SYMBOLS.keys() | record_names.GUARDS
    names -= {
        "config",
        "snapshot",
        "process_started",
        "cudagraph_skip",
        "repro",
    }  # words of other things too
    homes = {
        str(path.relative_to(ROOT))
        for folder in ("observe", "decode", "logs", "record")
        for path in (ROOT / "collectors" / folder).rglob("*.py")
        if names & literals(path)
    }
    assert homes == set()


def literals(path: Path) -> set[object]:
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
    }
