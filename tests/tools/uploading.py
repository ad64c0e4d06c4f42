"""Send files to a dashboard as a client would, and wait for what comes of them."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any

BOUNDARY = "----a-boundary"
ENDED = ("done", "failed")


def write_form(files: list[tuple[str, bytes]], **fields: str) -> bytes:
    """Write a multipart form as a browser does."""
    field = '--{}\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    parts = [field.format(BOUNDARY, key, value).encode() for key, value in fields.items()]
    for name, body in files:
        head = (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="files"; '
            f'filename="{name}"\r\n\r\n'
        )
        parts.append(head.encode() + body + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def call(
    address: str, body: bytes | None = None, kind: str = "", **headers: str
) -> tuple[int, Any]:
    """Ask an address of the API; return the status and what it said."""
    request = urllib.request.Request(
        address, data=body, headers=headers | ({"Content-Type": kind} if kind else {})
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()) | {
            "retry_after": error.headers.get("Retry-After")
        }


def send(base: str, files: list[tuple[str, bytes]], **fields: str) -> tuple[int, Any]:
    """Send files as a form."""
    return call(
        f"{base}/api/v1/imports",
        write_form(files, **fields),
        f"multipart/form-data; boundary={BOUNDARY}",
    )


def wait(base: str, import_id: str, *states: str) -> dict[str, Any]:
    """Ask how an import stands until it is in one of some states."""
    for _ in range(400):
        status, answer = call(f"{base}/api/v1/imports/{import_id}")
        assert status == 200, answer
        if answer["data"]["state"] in (states or ENDED):
            return dict(answer["data"])
        time.sleep(0.05)
    raise AssertionError(f"import {import_id} goes on and on: {answer}")


def send_and_wait(base: str, files: list[tuple[str, bytes]], **fields: str) -> dict[str, Any]:
    """Send files and return how their import ended."""
    status, answer = send(base, files, **fields)
    assert status == 202, answer
    return wait(base, answer["data"]["id"])
