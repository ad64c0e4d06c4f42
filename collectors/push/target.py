"""The server to which runs are pushed: its address and token, checked before anything is sent."""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.contract.secrets import scrub_text

TOKEN_VARIABLE = "COMPILEBOARD_TOKEN"  # noqa: S105 - a variable's name
MAX_TOKEN_BYTES = 4096


class TargetError(ValueError):
    pass


@dataclass(frozen=True)
class Target:
    """A server's address and the source of its token, which is read when needed and never
    stored.
    """

    server: str
    token_file: str = ""
    insecure: bool = False

    @classmethod
    def of(cls, config: RunConfig) -> Target:
        return cls(check_server(config.server), config.token_file, config.insecure)

    @property
    def base(self) -> str:
        return urlsplit(self.server).path

    @property
    def host(self) -> str:
        return urlsplit(self.server).hostname or ""

    @property
    def is_tls(self) -> bool:
        return self.server.startswith("https://")

    def run_page(self, run_id: str) -> str:
        return f"{self.server}/runs/{run_id}"

    def read_token(self, environment: Mapping[str, str]) -> str | None:
        """Return the token or None.

        Raises TargetError if it is unreadable, malformed, or would be sent unencrypted.
        """
        token = (
            _read_token_file(self.token_file)
            if self.token_file
            else environment.get(TOKEN_VARIABLE, "").strip()
        )
        if not token:
            return None
        if not token.isascii() or not token.isprintable() or " " in token:
            where = self.token_file or TOKEN_VARIABLE
            raise TargetError(
                f"{where} has no token: expected one line of letters, digits and signs."
            )
        if not self.is_tls and not self.insecure and not is_loopback(self.host):
            raise TargetError(
                f"{self.server} is not encrypted, and a token sent to it could be read on the "
                "way. Use https://, or "
                "--insecure in a network that you trust."
            )
        return token


def check_server(address: str) -> str:
    wrong = f"--server {scrub_text(address)[:80]!r}: expected an address such as https://board.example.com"
    try:
        parts = urlsplit(address.strip())
        port = parts.port
    except ValueError:
        raise TargetError(wrong) from None
    if parts.username is not None or parts.password is not None:
        raise TargetError(
            "--server has a name or password in its address; give a token with --token-file "
            "instead."
        )
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or port == 0
        or parts.query
        or parts.fragment
    ):
        raise TargetError(wrong)
    if not address.isprintable() or any(sign in address.strip() for sign in " \"'<>\\"):
        raise TargetError(wrong)
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_token_file(path: str) -> str:
    """Read a token file. Errors contain the name of the file but never its content."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise TargetError(
                    f"--token-file {path}: expected a file, with the token on its first line."
                )
            text = os.read(descriptor, MAX_TOKEN_BYTES).decode("ascii", "replace")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise TargetError(
            f"--token-file {path} cannot be read: {error.strerror or error}."
        ) from None
    token = text.strip().partition("\n")[0].strip()
    if not token:
        raise TargetError(f"--token-file {path} is empty: expected the token on its first line.")
    return token
