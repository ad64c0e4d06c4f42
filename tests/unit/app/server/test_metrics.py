"""/metrics as Prometheus reads it, /readyz, and the lines of the request log."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.parser import text_string_to_metric_families

from compileboard.app.core.log_lines import write_line
from compileboard.app.core.settings import SettingError, Settings, load_settings
from compileboard.app.server import health
from compileboard.app.server import prometheus as metrics
from compileboard.collectors.store.leases import FOLLOW, try_acquire_lease
from tests.unit.app.benched import bench_suite
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.recorded import record_run

Labels = tuple[tuple[str, str], ...]


def read_samples(text: str) -> dict[str, dict[Labels, float]]:
    samples: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


@on_both_engines
def test_prometheus_reads_every_metric(client: FlaskClient, store: sqlite3.Connection) -> None:
    record_run(store)
    bench_suite(store)
    assert client.get("/runs").status_code == 200
    assert client.get("/no/such/page").status_code == 404
    answer = client.get("/metrics")
    assert answer.content_type == CONTENT_TYPE_LATEST
    samples = read_samples(answer.text)
    assert len({name for name in samples if name.startswith("compileboard_")}) > 30
    assert samples["compileboard_runs"] == {(): 4}
    requests = samples["compileboard_http_requests_total"]
    assert requests[(("method", "GET"), ("route", "/runs"), ("status", "200"))] >= 1
    assert requests[(("method", "GET"), ("route", ""), ("status", "404"))] >= 1
    models = client.get("/api/v1/models?limit=100").get_json()["data"]
    newest = {row["model"]: row["speedup"] for row in models if row["speedup"] is not None}
    speedups = samples["compileboard_model_speedup_ratio"].items()
    assert {dict(labels)["model"]: value for labels, value in speedups} == newest


@pytest.mark.nightly
def test_promtool_accepts_them(client: FlaskClient, store: sqlite3.Connection) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    record_run(store)
    bench_suite(store)
    text = client.get("/metrics").text
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@on_both_engines
def test_models_with_metrics_are_bounded(
    client: FlaskClient, store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MAX_MODELS", 2)
    bench_suite(store)
    samples = read_samples(client.get("/metrics").text)
    assert len(samples["compileboard_model_failed"]) == 2
    assert samples["compileboard_models_omitted"][()] > 0


def test_a_server_is_ready_while_incidents_are_updated(client: FlaskClient, database: Path) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "no process updates incidents" in answer.get_json()["checks"]["follower"]
    lease = try_acquire_lease(database, FOLLOW)
    assert lease is not None
    with lease:
        lease.renew()
        assert client.get("/readyz").get_json() == {
            "ready": True,
            "checks": {"read": "ok", "write": "ok", "disk": "ok", "follower": "ok"},
        }


@pytest.mark.parametrize(
    ("version", "reason"), [(0, "older than this server"), (999, "newer than this server")]
)
def test_another_version_is_not_ready(
    client: FlaskClient, store: sqlite3.Connection, version: int, reason: str
) -> None:
    store.execute(f"pragma user_version = {version}")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert reason in answer.get_json()["checks"]["read"]


def test_a_missing_database_a_lock_and_a_full_disk_are_not_ready(
    client: FlaskClient, store: sqlite3.Connection, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "WRITE_TIMEOUT_MS", 10)
    monkeypatch.setattr(health, "MIN_FREE_BYTES", 2**62)
    store.execute("begin immediate")
    checks = client.get("/readyz").get_json()["checks"]
    assert checks["write"] == "locked by another program"
    assert "are free; expected" in checks["disk"]
    store.execute("rollback")
    database.unlink()
    checks = client.get("/readyz").get_json()["checks"]
    assert (checks["read"], checks["write"]) == ("missing", "missing")
    assert str(database) not in client.get("/readyz").text


def log_lines(
    app: Flask, database: Path, capfd: pytest.CaptureFixture[str], log_format: str, path: str
) -> str:
    settings = Settings(db=str(database), log_format=log_format, trusted_proxies=1)
    app.config["COMPILEBOARD"] = settings
    headers = {"X-Request-Id": "abc-1", "Authorization": "Bearer cb_0123456789_secretsecret"}
    answer = app.test_client().get(path, headers=headers)
    app.config["COMPILEBOARD"] = replace(settings, log_format="none", trusted_proxies=0)
    assert answer.headers["X-Request-Id"] == "abc-1"
    return capfd.readouterr().err


def test_a_line_tells_a_request_and_no_secret(
    shared_app: Flask, database: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = log_lines(shared_app, database, capfd, "json", "/runs?q=query")
    values = json.loads(line)
    assert (values["route"], values["status"], values["request_id"]) == ("/runs", 401, "abc-1")
    line += log_lines(shared_app, database, capfd, "text", "/runs/a%0Ab?q=private")
    assert line.count("\n") == 2
    assert "secretsecret" not in line and "query" not in line and "private" not in line
    assert 'path="/runs/a\\nb"' in line


def test_a_token_stays_out_of_ids_and_messages(capfd: pytest.CaptureFixture[str]) -> None:
    write_line(
        "json",
        {
            "request_id": "cb_0123456789_secret",
            "message": "Invalid request line: 'GET /?t=cb_01_secret'",
        },
    )
    line = capfd.readouterr().err
    assert "secret" not in line
    assert json.loads(line)["request_id"] == "cb_…"


def test_a_failure_is_one_line_of_json(capfd: pytest.CaptureFixture[str], database: Path) -> None:
    from compileboard.app import create_app

    app = create_app(Settings(db=str(database), log_format="json"))
    app.add_url_rule("/broken", view_func=lambda: 1 // 0)
    app.config["PROPAGATE_EXCEPTIONS"] = False
    assert app.test_client().get("/broken").status_code == 500
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["level"] for line in lines] == ["error", "info"]
    assert "ZeroDivisionError" in lines[0]["exception"]
    assert lines[0]["request_id"] == lines[1]["request_id"]


def test_another_format_is_refused() -> None:
    with pytest.raises(SettingError, match="expected none, text or json"):
        load_settings({"COMPILEBOARD_LOG_FORMAT": "xml"})
