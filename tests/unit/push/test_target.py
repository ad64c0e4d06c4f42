"""Addresses and tokens: bad ones are refused in words, no token is sent in the clear."""

from __future__ import annotations

import socket
import socketserver
import ssl
import subprocess
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar

import pytest

from compileboard.collectors.cli.main import main
from compileboard.collectors.push.client import Client
from compileboard.collectors.push.target import Target, TargetError, check_server
from compileboard.collectors.wire.http import ServerUnavailable
from tests.unit.push.push_server import push_server


class Tunnel(socketserver.StreamRequestHandler):
    """A proxy that takes CONNECT."""

    heads: ClassVar[list[str]] = []

    def handle(self) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.rfile.readline()
        self.heads.append(head.decode())
        host, _, port = self.heads[-1].split()[1].partition(":")
        with socket.create_connection((host, int(port))) as server:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=pipe, args=(server, self.connection), daemon=True)
            back.start()
            pipe(self.connection, server)
            back.join()


def pipe(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while block := source.recv(65536):
            target.sendall(block)
        target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    ("address", "checked"),
    [
        ("https://board.example.com/", "https://board.example.com"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://example.com/boards/team/", "https://example.com/boards/team"),
    ],
)
def test_a_server_is_an_address_without_its_last_slash(address: str, checked: str) -> None:
    assert check_server(address) == checked


@pytest.mark.parametrize(
    "address",
    ["board", "ftp://board", "https://", "https://a:secret@board", "https://board/?token=secret",
     "https://b oard", "https://board:99999", "https://board:0", "http://[",
     "https://board/#secret"],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_its_secrets(address: str) -> None:
    with pytest.raises(TargetError) as refusal:
        check_server(address)
    assert "--server" in str(refusal.value)
    assert "secret" not in str(refusal.value) or "#secret" in address


def test_a_token_is_sent_in_the_clear_to_this_machine_alone(tmp_path: Path) -> None:
    environment = {"COMPILEBOARD_TOKEN": "cb_of_the_environment"}
    for server in (
        "http://127.0.0.1:1",
        "http://localhost:1",
        "http://[::1]:1",
        "https://board.example.com",
    ):
        assert Target(server).read_token(environment) == "cb_of_the_environment"
    with pytest.raises(
        TargetError, match=r"could be read on the way\. Use https://, or --insecure"
    ):
        Target("http://board.example.com").read_token(environment)
    assert Target("http://board.example.com").read_token({}) is None, "nothing secret is sent"
    path = tmp_path / "token"
    path.write_text("cb_of_the_file\n\nnotes\n")
    target = Target("http://board.example.com", str(path), insecure=True)
    assert target.read_token(environment) == "cb_of_the_file"


@pytest.mark.parametrize("content", [None, "", "two words", "\x00\x01", "gr\xfc\xdfe"])
def test_a_file_without_a_token_is_named_and_its_content_is_not(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content, encoding="latin-1")
    with pytest.raises(TargetError) as refusal:
        Target("https://board", str(path)).read_token({})
    assert str(path) in str(refusal.value)
    assert not content or content not in str(refusal.value)


def test_two_places_for_one_run_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--server", "http://127.0.0.1:9", "--db", "t.db", "--", "true"]) == 2
    assert "--server and --db cannot be combined" in capsys.readouterr().err


def test_a_token_without_a_server_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--token-file", "token", "--", "true"]) == 2
    assert "--token-file needs --server" in capsys.readouterr().err


def test_a_certificate_is_verified_and_its_authority_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "2",
    ]
    command += [
        "-addext",
        "subjectAltName=DNS:localhost",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with push_server(tls=context) as server:
        target = Target(f"https://localhost:{server.server_port}")
        with (
            closing(Client(target, {})) as client,
            pytest.raises(ServerUnavailable, match="no certificate that this machine"),
        ):
            client.ask_page("healthz")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with closing(Client(target, {})) as client:
            assert client.ask_page("healthz").status == 200
        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as proxy:
            threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
            environ = {
                "COMPILEBOARD_TOKEN": "cb_1",
                "HTTPS_PROXY": f"someone:word@127.0.0.1:{proxy.server_address[1]}",
            }
            for no_proxy in ("", "example.com, localhost"):
                with closing(Client(target, environ | {"no_proxy": no_proxy})) as client:
                    assert client.ask_page("healthz").status == 200
            proxy.shutdown()
        assert Tunnel.heads[0].startswith(f"CONNECT localhost:{server.server_port} ")
        assert "Proxy-Authorization: Basic c29tZW9uZTp3b3Jk" in Tunnel.heads[0]
        assert "cb_1" not in Tunnel.heads[0] and len(Tunnel.heads) == 1


def test_a_redirect_is_not_followed_with_a_token() -> None:
    with push_server() as server:
        server.fault = lambda method, path: 302
        with closing(Client(Target(server.address), {"COMPILEBOARD_TOKEN": "cb_1"})) as client:
            assert client.ask("HEAD", "runs/R/streams/S").status == 302
        assert server.requests.total() == 1


class Refusing(socketserver.StreamRequestHandler):
    """A proxy that answers before it reads a body, and hangs up."""

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(
            b"HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 0\r\nConnection: "
            b"close\r\n\r\n"
        )


def test_an_answer_before_the_whole_body_is_heard() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refusing) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
        with closing(Client(Target(f"http://127.0.0.1:{proxy.server_address[1]}"), {})) as client:
            for _ in range(3):
                assert client.ask("PUT", "texts/x", bytes(32 << 20)).status == 413
        proxy.shutdown()
