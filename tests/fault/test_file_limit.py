"""Under `ulimit -f` nothing more can be stored: that is said like a full disk."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compileboard.app import create_app
from compileboard.app.core.settings import Settings
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.wire.lines import digest_of


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_server_whose_files_cannot_grow_answers_507_and_is_not_ready(tmp_path: Path) -> None:
    database = tmp_path / "board.db"
    migrate(database)
    client = create_app(Settings(db=str(database), follow="no")).test_client()
    assert client.get("/readyz").status_code == 200
    text, log = random.Random(0).randbytes(3_000_000), {"data": b"x" * 3_000_000}
    with largest_file(database.stat().st_size + 200_000):
        answers = [client.put(f"/api/v1/texts/{digest_of(text)}", data=text) for _ in range(2)]
        upload = client.post("/api/v1/imports", **log, content_type="application/octet-stream")
        assert [answer.status_code for answer in (*answers, upload)] == [507] * 3, upload.text
        assert client.get("/readyz").json["checks"]["disk"].endswith("; expected 256 MiB")
        assert client.get("/healthz").status_code == 200
    assert client.put(f"/api/v1/texts/{digest_of(text)}", data=text).status_code == 201
