"""Ask a file which of its functions are marked with `@compileboard.bench.model`, in a child: importing it runs it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import traceback
from dataclasses import asdict, dataclass
from typing import Any

from compileboard.start import shared_command

LIST_TIMEOUT_S = 120.0
TAIL_LINES = 12  # of what the child wrote when it died


class OnlyError(ValueError):
    """Say in words why `--only` names no model."""


@dataclass(frozen=True)
class Marked:
    """Say what a file says of a marked function."""

    name: str
    batch_size: int
    trains: bool


def list_marked(path: str, timeout_s: float = LIST_TIMEOUT_S) -> list[Marked]:
    """Import a file in a child and return its marked functions in their order.

    Raises: OnlyError with the traceback's words when the file cannot be imported, or not within `timeout_s` seconds.
    """
    code, out, err = _ask(path, timeout_s)
    try:
        answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        tail = "\n".join(err.strip().splitlines()[-TAIL_LINES:])
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise OnlyError(f"{path} cannot be imported: the process {how} while it was\n{tail}".rstrip()) from None
    if "error" in answer:
        raise OnlyError(f"{path} cannot be imported: {answer['error']}\n{answer['traceback']}".rstrip())
    return [Marked(**it) for it in answer["marked"]]


def _ask(path: str, timeout_s: float) -> tuple[int, str, str]:
    process = subprocess.Popen(
        shared_command(f"{__name__}:main", path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # what the file starts goes with it
    )
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise OnlyError(
                f"{path} was not imported within {timeout_s:g} s; does it compute something as it is imported? "
                'Put that under `if __name__ == "__main__":`'
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def _answer(path: str) -> dict[str, Any]:
    from compileboard.collectors.bench.suites.user_file import import_file, marked_functions

    try:
        functions = marked_functions(import_file(path))
    except (Exception, SystemExit) as error:
        said = traceback.format_exception(error)
        first = next((number for number, line in enumerate(said) if path in line), len(said))  # before it is ours
        return {"error": traceback.format_exception_only(error)[-1].strip(), "traceback": "".join(said[first:])}
    return {"marked": [asdict(Marked(name, words["batch_size"], words["trains"])) for name, _, words in functions]}


def main(path: str) -> None:
    """Answer, in that child, on the real standard output; what the file prints goes to standard error."""
    channel = os.dup(1)
    os.dup2(2, 1)
    line = json.dumps(_answer(path)) + "\n"
    with open(channel, "w", encoding="utf-8") as out:
        out.write(line)
