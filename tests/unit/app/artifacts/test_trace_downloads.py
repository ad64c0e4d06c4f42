"""torch's own trace logs come back as they went in."""

import pytest

from compileboard.app import create_app
from compileboard.app.core.settings import Settings
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.source_files import save_trace_file
from tests.tools.make_db import main as make_db


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    make_db([str(folder / "runs.db")])
    log = folder / "dedicated_log_torch_trace_x.log"
    log.write_bytes(b"V1121 a line <b>\n\tpayload\n" * 100_000)
    connection = open_writer(folder / "runs.db")
    run_id = connection.execute("select id from runs order by id limit 1").fetchone()["id"]
    for _ in range(2):
        save_trace_file(connection, run_id, log)
    connection.close()
    return create_app(Settings(db=str(folder / "runs.db"))).test_client(), run_id, log


def test_a_trace_log_comes_back_byte_for_byte(stored):
    client, run_id, log = stored
    answer = client.get(f"/runs/{run_id}/traces/{log.name}")
    assert answer.data == log.read_bytes()
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", ["other.log", "..%2f..%2fetc%2fpasswd", "%00"])
def test_a_name_that_is_not_kept_is_not_found(stored, name):
    client, run_id, _ = stored
    assert client.get(f"/runs/{run_id}/traces/{name}").status_code == 404
