"""Output of a report to stdout, or to a file written atomically."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable

from compileboard.exit_codes import DONE, REFUSED

# The capacity of a pipe: some kernels count a longer write as done although its reader closed
# midway.
_PIECE_BYTES = 64 * 1024


def write_output(output: str, pieces: Iterable[bytes]) -> int:
    """Write to a file, or to stdout for "-", and return the exit code.

    Raises BrokenPipeError if stdout is closed.
    """
    try:
        if output == "-":
            _write_stdout(pieces)
        else:
            write_file(output, pieces)
    except BrokenPipeError:
        raise
    except OSError as error:
        return fail(describe_write_error(output, error))
    return DONE


def describe_write_error(target: str, error: OSError) -> str:
    hint = "; make its folder first" if isinstance(error, FileNotFoundError) else ""
    return f"cannot write {target}: {error.strerror or error}{hint}"


def _write_stdout(pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        for start in range(0, len(piece), _PIECE_BYTES):
            sys.stdout.buffer.write(piece[start : start + _PIECE_BYTES])
    sys.stdout.buffer.flush()


def write_file(path: str, pieces: Iterable[bytes]) -> None:
    """Write a file atomically; a device or pipe is written directly.

    Raises OSError if it cannot be written; no partial file is left.
    """
    target = os.path.realpath(path)  # a link stays, and its target is replaced
    if os.path.isdir(target):
        raise IsADirectoryError(0, "it is a folder; give a file's name")
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as device:
            device.writelines(pieces)
        return
    handle, temporary = tempfile.mkstemp(
        prefix=f".{os.path.basename(target)}.", dir=os.path.dirname(target)
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
        os.chmod(temporary, _mode_of(target))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode_of(target: str) -> int:
    if os.path.exists(target):
        return os.stat(target).st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def fail(message: str, code: int = REFUSED) -> int:
    sys.stderr.write(f"compileboard: {message}\n")
    return code
