"""Schemas of imports, and of what an imported run has beside its events."""

from __future__ import annotations

from compileboard.app.api.schema import Schema, count, flag, mapping, maybe, record, text, time_us, whole, word
from compileboard.app.imports.shelf import STATES
from compileboard.collectors.rejects import KINDS

IMPORT = record(
    "One import of logs that were sent.",
    id=text("The import's id: a random token."),
    state=word("How it stands.", STATES),
    name=text("What was sent: a file, a folder, or the first of several files."),
    created_us=time_us("When sending began."),
    updated_us=time_us("When it last went on."),
    file_count=count("Files that were sent."),
    size_bytes=count("Their size as it was sent."),
    read_bytes=count("Bytes of logs read so far, unpacked."),
    total_bytes=maybe(count("Bytes of logs there are; null for compressed ones, which only reading tells.")),
    log_count=count("Logs that were read."),
    record_count=count("New records read so far."),
    rejects=mapping(count("Records."), "What could not be read, by kind; see `rejects` of a run for the words."),
    run_id=maybe(text("The run that the logs became.")),
    message=text("What went wrong and what to do, or what else to know of it; empty where there is nothing."),
    status_url=text("Where to ask again how it stands."),
)
REJECT = record(
    "What of a run's logs could not be read, for one reason.",
    kind=word("Reason.", KINDS),
    count=count("How often."),
    first_line=maybe(whole("The line it happened at first, in the first of the logs that have it.")),
)
LOG = record(
    "One trace log that was imported.",
    name=text("Its name, with the archive it came from."),
    size_bytes=maybe(count("Its size as far as it was read, unpacked.")),
    line_count=count("Lines."),
    payloads=word("Whether its texts were kept.", ("kept", "left_out")),
    redacted=flag("Whether the user's code was left out."),
)

_FILES: Schema = {"type": "array", "items": {"type": "string", "format": "binary"}}
UPLOAD: Schema = {
    "required": True,
    "description": "One log, several (they become one run) or an archive, with the parameters as fields; or one file.",
    "content": {
        "multipart/form-data": {"schema": {"type": "object", "required": ["files"], "properties": {"files": _FILES}}},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    },
}

SCHEMAS: dict[str, Schema] = {"Import": IMPORT}
