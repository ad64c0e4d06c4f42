"""Take an upload: let it in, receive it, hand it to a thread that waits for its turn, and answer at once."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from compileboard.app.imports import child
from compileboard.app.imports.receive import Received, clean_path, drain, receive, too_large
from compileboard.app.imports.refusal import Refused
from compileboard.app.imports.shelf import Import, Shelf, Slot
from compileboard.app.imports.wishes import Wishes, read_wishes
from compileboard.app.settings import Settings
from compileboard.collectors.store.audit import Origin, record_action
from compileboard.collectors.store.connect import open_reader, open_writer
from compileboard.collectors.store.errors import StoreError

MIB = child.MIB
AUDIT_PATIENCE_MS = 60_000
MOST_RECEIVING = 32  # they hold no permit of app.worker while they wait for bytes; the disk is what they fill
FORBIDDEN = (
    "This server takes no uploads (setting COMPILEBOARD_UPLOADS). Import on its machine: "
    "compileboard-collect import PATH"
)


def accept(environ: dict[str, Any], query: Mapping[str, str], settings: Settings, origin: Origin) -> Import:
    """Receive one upload and start its import.

    Raises: Refused; OSError; StoreError if the database is not there or cannot be written.
    """
    try:
        return _accept(environ, query, settings, origin)
    except Refused:
        drain(environ)
        raise


def _accept(environ: dict[str, Any], query: Mapping[str, str], settings: Settings, origin: Origin) -> Import:
    if settings.uploads != "yes":
        raise Refused(403, FORBIDDEN)
    open_reader(settings.db).close()  # it is there, and of this version
    open_writer(settings.db, create=False).close()  # and may be written
    limit_bytes = settings.upload_mib * MIB
    refused = too_large(environ, limit_bytes)
    if refused is not None:
        raise refused
    asked = dict(query)
    filename = asked.pop("filename", None)
    read_wishes(asked)  # before a long upload
    slot = Shelf(settings.db).admit(
        clean_path(filename or "log"),
        most_receiving=MOST_RECEIVING,
        most_waiting=settings.upload_queue,
    )
    try:
        received = receive(environ, slot.folder / "files", limit_bytes, filename)
        wishes = read_wishes(asked | received.fields)
        received.write_names(slot.folder / "names.json")
        slot.save(state="waiting", name=received.label, file_count=len(received.names), size_bytes=received.size_bytes)
        answer = slot.it
        threading.Thread(
            target=_work, args=(slot, received, wishes, settings, origin), name="import", daemon=True
        ).start()
    except BaseException:
        slot.discard()
        raise
    return answer


def _work(slot: Slot, received: Received, wishes: Wishes, settings: Settings, origin: Origin) -> None:
    # Beside the import: another one may write for long.
    accepted = threading.Thread(
        target=_audit, args=("import.upload", slot.it.id, received.label, settings, origin), name="audit", daemon=True
    )
    accepted.start()
    try:
        with Shelf(settings.db).lane() as lane:
            if child.run(slot, child.build_command(settings, wishes, received.target), settings, lane):
                slot.save(state="waiting")
                lane.enter_second()
                child.run(slot, child.build_command(settings, wishes, received.target), settings)
    except Exception:
        logging.getLogger("compileboard.app.imports").exception("import %s failed", slot.it.id)
        slot.save(state="failed", message="The server failed while it imported this. Its log has the details.")
    finally:
        accepted.join()
        action = "import.done" if slot.it.state == "done" else "import.failed"
        _audit(action, slot.it.run_id or slot.it.id, received.label, settings, origin)
        slot.close()


def _audit(action: str, subject: str, label: str, settings: Settings, origin: Origin) -> None:
    """Keep who sent it; a batch of another import may have to end first."""
    try:
        with closing(open_writer(settings.db, busy_timeout_ms=AUDIT_PATIENCE_MS, create=False)) as writer:
            record_action(writer, action, subject, origin, detail=label)
    except (StoreError, sqlite3.Error):
        logging.getLogger("compileboard.app.imports").exception("%s of %s is not kept", action, subject)
