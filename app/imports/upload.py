"""Receive an upload, store its files straight from the connection, and queue its import."""

from __future__ import annotations

import errno
import json
import logging
import re
import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge
from werkzeug.formparser import FormDataParser
from werkzeug.http import parse_options_header
from werkzeug.wsgi import get_content_length, get_input_stream

from compileboard.app.core.address import parse_address
from compileboard.app.core.settings import Settings
from compileboard.app.imports import import_process
from compileboard.app.imports.queue import (
    Import,
    ImportOptions,
    ImportQueue,
    QueueEntry,
    UploadRejected,
    parse_options,
)
from compileboard.collectors.store.connection import StoreError, open_reader, open_writer
from compileboard.collectors.store.runs import RunSender
from compileboard.collectors.store.tokens import ActionOrigin, record_action

MAX_FILES = 1000
FIELD_BYTES = 500_000  # also werkzeug's buffer, which must exceed its 64 KiB blocks
BLOCK_BYTES = 256 * 1024
DRAIN_S = 2.0
_MAX_NAME_LENGTH = 200
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # EFBIG: ulimit -f


@dataclass
class ReceivedUpload:
    folder: Path
    names: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    size_bytes: int = 0
    open_file: BinaryIO | None = None

    @property
    def label(self) -> str:
        tops = {name.partition("/")[0] if "/" in name else "" for name in self.names.values()}
        if len(tops) == 1 and tops != {""}:
            return tops.pop()
        first = next(iter(self.names.values()), "")
        return first if len(self.names) == 1 else f"{first} and {len(self.names) - 1} more"

    @property
    def target(self) -> str:
        return (
            f"{self.folder.name}/{next(iter(self.names))}"
            if len(self.names) == 1
            else self.folder.name
        )

    def write_names(self, path: Path) -> None:
        top = f"{self.label}/"
        names = {number: name.removeprefix(top) for number, name in self.names.items()}
        path.write_text(json.dumps({self.folder.name: self.label, **names}), encoding="utf-8")


def clean_path(name: str) -> str:
    text = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name
    )
    parts = [part for part in re.split(r"[/\\]+", text) if part not in ("", ".", "..")]
    return "/".join(parts)[-_MAX_NAME_LENGTH:].lstrip("/") or "log"


def receive(
    environ: dict[str, Any], folder: Path, limit_bytes: int, filename: str | None
) -> ReceivedUpload:
    """Store the files of a multipart form, or a raw body as one file, in a new folder.

    Raises UploadRejected if it is too large, truncated or not an upload; OSError.
    """
    folder.mkdir(mode=0o700)
    received = ReceivedUpload(folder)
    kind = parse_options_header(environ.get("CONTENT_TYPE", ""))[0]
    expected = get_content_length(environ)
    try:
        stream = _CountingStream(get_input_stream(environ, max_content_length=limit_bytes))
        if kind == "multipart/form-data":
            _receive_form(environ, stream, received)
        elif kind == "application/octet-stream":
            _receive_raw(stream, received, clean_path(filename or "log"))
        else:
            raise UploadRejected(
                415,
                (
                    "Send files as multipart/form-data or application/octet-stream, not "
                    f"{kind[:80]!r}."
                ),
            )
    except RequestEntityTooLarge:
        raise _make_size_error(limit_bytes, expected) from None
    except ClientDisconnected as error:  # werkzeug raises it for any connection error
        raise (
            _explain_os_error(error.__context__)
            if isinstance(error.__context__, TimeoutError)
            else _make_truncation_error()
        ) from None
    except OSError as error:
        raise _explain_os_error(error) from error
    finally:
        if received.open_file is not None:
            with suppress(OSError):
                received.open_file.close()
    if expected is not None and stream.count < expected:
        raise _make_truncation_error()
    if not received.names:
        raise UploadRejected(
            400,
            (
                "The upload contains no file. Choose trace logs, benchmark results, a folder or an "
                "archive."
            ),
        )
    return received


def check_size(environ: Mapping[str, Any], limit_bytes: int) -> UploadRejected | None:
    expected = get_content_length(cast("dict[str, Any]", environ))
    return (
        _make_size_error(limit_bytes, expected)
        if expected is not None and expected > limit_bytes
        else None
    )


class _CountingStream:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.count += len(data)
        return data


class _NumberedFile:
    def __init__(self, path: Path, received: ReceivedUpload) -> None:
        self.name = None
        self._file: BinaryIO = path.open("xb")
        received.open_file = self._file
        self._received = received

    def write(self, data: bytes) -> int:
        self._received.size_bytes += len(data)
        return self._file.write(data)

    def seek(self, _offset: int) -> int:
        self._file.close()
        return 0

    def close(self) -> None:
        self._file.close()


def _open_next(received: ReceivedUpload, name: str) -> _NumberedFile:
    number = f"{len(received.names) + 1:04d}"
    received.names[number] = name
    return _NumberedFile(received.folder / number, received)


def _receive_form(
    environ: dict[str, Any], stream: _CountingStream, received: ReceivedUpload
) -> None:
    def factory(
        total_content_length: int | None,
        content_type: str | None,
        filename: str | None,
        content_length: int | None = None,
    ) -> IO[bytes]:
        return cast("IO[bytes]", _open_next(received, clean_path(filename or "")))

    parser = FormDataParser(
        stream_factory=factory,
        max_form_memory_size=FIELD_BYTES,
        max_form_parts=MAX_FILES + 50,
        silent=False,
    )
    mimetype, options = parse_options_header(environ["CONTENT_TYPE"])
    try:
        _stream, form, files = parser.parse(cast("IO[bytes]", stream), mimetype, None, options)
    except ValueError:
        raise UploadRejected(
            400,
            "The form cannot be read to its end: it was cut short, or is not multipart/form-data.",
        ) from None
    if not all((*form, *files)):
        raise UploadRejected(400, "A part of the form has no name; send files as `files`")
    received.fields = {key: value for key, value in form.items() if value}
    for key in files:
        if key != "files":
            raise UploadRejected(
                400, f"{key[:40]!r}: there is no such file field; send files as `files`"
            )
    # A browser sends an empty part without a name if no file was chosen.
    for number, file in zip(list(received.names), files.getlist("files")):
        if not file.filename and not (received.folder / number).stat().st_size:
            del received.names[number]
            (received.folder / number).unlink()


def _receive_raw(stream: _CountingStream, received: ReceivedUpload, name: str) -> None:
    file = _open_next(received, name)
    try:
        while data := stream.read(BLOCK_BYTES):
            file.write(data)
    finally:
        file.close()
    if not received.size_bytes:
        received.names.clear()


def drain(environ: dict[str, Any]) -> None:
    """Read and discard the rest of a body for a moment, because a client that only writes would
    never see the rejection.
    """
    connection = environ.get("gunicorn.socket")
    if connection is None:
        return
    until_s = time.monotonic() + DRAIN_S
    with suppress(OSError, ValueError):
        connection.settimeout(DRAIN_S)
        while time.monotonic() < until_s and environ["wsgi.input"].read(BLOCK_BYTES):
            pass


def _make_size_error(limit_bytes: int, expected: int | None) -> UploadRejected:
    came = (
        f"{expected / 2**20:,.1f} MiB were sent"
        if expected and expected > limit_bytes
        else "More was sent"
    )
    return UploadRejected(
        413,
        f"{came}; this server takes {limit_bytes / 2**20:,.0f} MiB at once and {MAX_FILES} "
        "files (setting "
        "COMPILEBOARD_UPLOAD_MIB). Compress the log, or import it on the server: "
        "compileboard-collect import PATH",
    )


def _make_truncation_error() -> UploadRejected:
    return UploadRejected(
        400, "The upload was cut short: fewer bytes came than were announced. Send it again."
    )


def _explain_os_error(error: OSError) -> UploadRejected:
    if error.errno in NO_ROOM:
        return UploadRejected(
            507,
            "The disk of this server is full, or its files may not grow (ulimit -f), so the "
            "log was not stored. Make "
            "room beside the database.",
        )
    if isinstance(error, TimeoutError):
        return UploadRejected(
            408,
            "The upload came too slowly and was given up. Send it again over a faster connection.",
        )
    return UploadRejected(
        400, f"The upload ended early ({error.strerror or type(error).__name__}). Send it again."
    )


MIB = import_process.MIB
AUDIT_TIMEOUT_MS = 60_000
# They hold no permit of app.server.worker while waiting for bytes; only the disk limits them.
MAX_RECEIVING = 32
MAX_WAITING = 8
FORBIDDEN = (
    "This server takes no uploads (setting COMPILEBOARD_UPLOADS). Import on its machine: "
    "compileboard-collect import PATH"
)


def accept_upload(
    environ: dict[str, Any],
    query: Mapping[str, str],
    settings: Settings,
    origin: ActionOrigin,
    sender: RunSender,
) -> Import:
    """Receive one upload and start its import.

    Raises UploadRejected; OSError; StoreError if the database is missing or cannot be written.
    """
    try:
        return _queue_import(environ, query, settings, origin, sender)
    except UploadRejected:
        drain(environ)
        raise
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        drain(environ)
        raise _explain_os_error(error) from error


def _queue_import(
    environ: dict[str, Any],
    query: Mapping[str, str],
    settings: Settings,
    origin: ActionOrigin,
    sender: RunSender,
) -> Import:
    if settings.uploads != "yes":
        raise UploadRejected(403, FORBIDDEN)
    path = parse_address(settings.db).board
    open_reader(path).close()  # it exists, with this version
    open_writer(path, create=False).close()  # and is writable
    limit_bytes = settings.upload_mib * MIB
    refused = check_size(environ, limit_bytes)
    if refused is not None:
        raise refused
    asked = dict(query)
    filename = asked.pop("filename", None)
    parse_options(asked)  # checked before a long upload
    slot = ImportQueue(path).enqueue(
        clean_path(filename or "log"),
        max_receiving=MAX_RECEIVING,
        max_waiting=MAX_WAITING,
    )
    try:
        received = receive(environ, slot.folder / "files", limit_bytes, filename)
        options = replace(parse_options(asked | received.fields), sender=sender)
        received.write_names(slot.folder / "names.json")
        slot.save(
            state="waiting",
            name=received.label,
            file_count=len(received.names),
            size_bytes=received.size_bytes,
        )
        answer = slot.upload
        threading.Thread(
            target=_run_import,
            args=(slot, received, options, settings, origin),
            name="import",
            daemon=True,
        ).start()
    except BaseException:
        slot.discard()
        raise
    return answer


def _run_import(
    slot: QueueEntry,
    received: ReceivedUpload,
    options: ImportOptions,
    settings: Settings,
    origin: ActionOrigin,
) -> None:
    # Concurrently with the import: another one may write for long.
    accepted = threading.Thread(
        target=_audit_import,
        args=("import.upload", slot.upload.id, received.label, settings, origin),
        name="audit",
        daemon=True,
    )
    accepted.start()
    try:
        with ImportQueue(parse_address(settings.db).board).lane() as lane:
            if import_process.run(
                slot,
                import_process.build_command(settings, options, received.target),
                settings,
                lane,
            ):
                slot.save(state="waiting")
                lane.enter_second()
                import_process.run(
                    slot, import_process.build_command(settings, options, received.target), settings
                )
    except (
        Exception
    ):  # in a thread of its own: otherwise the error would be lost and the upload wait forever
        logging.getLogger("compileboard.app.imports").exception("import %s failed", slot.upload.id)
        slot.save(
            state="failed",
            message="The server failed while it imported this. Its log has the details.",
        )
    finally:
        accepted.join()
        action = "import.done" if slot.upload.state == "done" else "import.failed"
        _audit_import(
            action, slot.upload.run_id or slot.upload.id, received.label, settings, origin
        )
        slot.close()


def _audit_import(
    action: str, subject: str, label: str, settings: Settings, origin: ActionOrigin
) -> None:
    try:
        path = parse_address(settings.db).board
        with closing(open_writer(path, busy_timeout_ms=AUDIT_TIMEOUT_MS, create=False)) as writer:
            record_action(writer, action, subject, origin, detail=label)
    except (StoreError, sqlite3.Error):
        logging.getLogger("compileboard.app.imports").exception(
            "%s of %s is not kept", action, subject
        )
