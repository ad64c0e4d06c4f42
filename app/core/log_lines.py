"""Lines on stderr, plain or in the format of --log-format."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from contextlib import suppress
from typing import Any

_SECRET = re.compile(r"cb_[0-9A-Za-z_]+")
_format = "none"


def set_log_format(log_format: str) -> None:
    global _format
    _format = log_format


def log(message: str, level: str = "info") -> None:
    if _format != "none":
        write_line(_format, {"level": level, "message": message})
        return
    sys.stderr.write(f"{message}\n" if level == "info" else f"compileboard: {message}\n")
    sys.stderr.flush()


def write_line(log_format: str, values: dict[str, Any]) -> None:
    now_s = time.time()
    stamp = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s * 1000) % 1000:03d}Z"
    )
    if log_format == "json":
        line = json.dumps({"time": stamp, **values})
    else:
        line = " ".join(
            [
                stamp,
                *(
                    f"{name}={_quote_value(value)}"
                    for name, value in values.items()
                    if value is not None
                ),
            ]
        )
    line = _SECRET.sub("cb_…", line)  # A token may be in a path, an id or a message.
    with suppress(OSError, ValueError):  # stderr is closed
        os.write(sys.stderr.fileno(), f"{line}\n".encode("utf-8", "replace"))


def _quote_value(value: Any) -> str:
    text = str(value)
    return text if re.fullmatch(r"[!#-<>-~]+", text) else json.dumps(text)
