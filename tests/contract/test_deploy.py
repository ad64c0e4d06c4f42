"""The files in deploy/: each read by its own tool where installed, with our settings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from compileboard.app.cli.main import dashboard
from compileboard.app.core.settings import SETTINGS, Settings, variable_name

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FILES = {path.name: path.read_text(encoding="utf-8") for path in sorted(DEPLOY.iterdir())}
COLLECTORS_OWN = {"COMPILEBOARD_HOME"}


def find_tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run_tool(*command: str, **environ: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=os.environ | environ
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def read_yaml(name: str) -> list[Any]:
    return list(yaml.safe_load_all(FILES[name]))


def test_nginx_takes_its_file(tmp_path: Path) -> None:
    nginx, openssl = find_tool("nginx"), find_tool("openssl")
    key, certificate = tmp_path / "board.key", tmp_path / "board.pem"
    request = (
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=board.example.com",
    )
    run_tool(*request, "-days", "1", "-keyout", str(key), "-out", str(certificate))
    text = FILES["nginx.conf"].replace("/etc/ssl/certs/board.pem", str(certificate))
    text = text.replace("/etc/ssl/private/board.key", str(key))
    text = re.sub(
        r"listen \d+", lambda match: match[0].replace(" ", " 127.0.0.1:4"), text
    )  # as anyone may
    (tmp_path / "board.conf").write_text(text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in kinds)
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{paths}include "
        f"{tmp_path}/board.conf;\n}}\n"
    )
    reported = run_tool(
        nginx, "-t", "-q", "-e", "stderr", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")
    )
    assert "warn" not in reported


def test_caddy_takes_its_file(tmp_path: Path) -> None:
    caddy = find_tool("caddy")
    command = (caddy, "validate", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile"))
    assert "Valid configuration" in run_tool(
        *command, HOME=str(tmp_path), XDG_DATA_HOME=str(tmp_path)
    )


def test_systemd_takes_its_units(tmp_path: Path) -> None:
    analyze = find_tool("systemd-analyze")
    units = [name for name in FILES if name.startswith("compileboard")]
    for name in units:
        text = FILES[name].replace(
            "/opt/compileboard/venv/bin/compileboard", shutil.which("true") or "/bin/true"
        )
        (tmp_path / name).write_text(text)
    assert run_tool(analyze, "verify", *(str(tmp_path / name) for name in units)).strip() == ""


def test_docker_compose_takes_its_file() -> None:
    docker = find_tool("docker")
    if (
        subprocess.run([docker, "compose", "version"], capture_output=True, timeout=60).returncode
        != 0
    ):
        pytest.skip("docker compose is not installed")
    run_tool(
        docker,
        "compose",
        "-f",
        str(DEPLOY / "compose.yaml"),
        "config",
        "-q",
        BOARD_HOST="board.example.com",
    )


@pytest.mark.nightly
def test_compose_has_what_its_specification_knows() -> None:
    specification = pytest.importorskip("compose_spec", reason="compose-spec is not installed")
    specification.PyCompose.from_yaml(FILES["compose.yaml"])


@pytest.mark.nightly
def test_kubernetes_knows_every_field() -> None:
    checker = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    for document in read_yaml("kubernetes.yaml"):
        checker.validate(document, checker.latest_version(), strict=True)


def test_every_variable_is_a_setting() -> None:
    names = {name for text in FILES.values() for name in re.findall(r"COMPILEBOARD_[A-Z_]+", text)}
    assert names - {variable_name(setting) for setting in SETTINGS} - COLLECTORS_OWN == set()
    assert len(names) > 5


def test_commands_are_ours_and_stops_are_long_enough() -> None:
    (compose,), manifests = read_yaml("compose.yaml"), read_yaml("kubernetes.yaml")
    pod = next(document for document in manifests if document["kind"] == "Deployment")["spec"][
        "template"
    ]["spec"]
    for words in (compose["services"]["board"]["command"], pod["containers"][0]["args"]):
        context = click.Context(dashboard, info_name="compileboard")
        name, command, arguments = dashboard.resolve_command(context, list(words))
        assert name == "serve" and command is not None
        assert command.make_context("serve", arguments).params["host"] == "0.0.0.0"
    assert int(compose["services"]["board"]["stop_grace_period"].rstrip("s")) > Settings.stop_s
    assert pod["terminationGracePeriodSeconds"] > Settings.stop_s
    assert (
        int(re.findall(r"TimeoutStopSec=(\d+)", FILES["compileboard.service"])[0]) > Settings.stop_s
    )


def test_proxies_send_what_the_dashboard_needs() -> None:
    for name in ("nginx.conf", "Caddyfile"):
        assert {"X-Forwarded-For", "X-Forwarded-Proto"} <= set(re.findall(r"X-[\w-]+", FILES[name]))
        assert f"{Settings.upload_mib}m" in FILES[name].lower()


def test_compose_builds_a_target_of_the_dockerfile() -> None:
    (compose,) = read_yaml("compose.yaml")
    targets = re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert compose["services"]["board"]["build"]["target"] in targets


def test_every_file_is_documented() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    assert [name for name in FILES if name not in text] == []
