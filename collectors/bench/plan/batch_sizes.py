"""Batch sizes of single models, as upstream's files have them: a line NAME,SIZE each; -1 is a size that is not set."""

from __future__ import annotations

from pathlib import Path

UNSET = -1


def read_batch_sizes(path: str | None) -> dict[str, int]:
    """Return the batch size of each model of a file; nothing of no file.

    Raises: ValueError in words for a file that cannot be read or has another line.
    """
    if path is None:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or error
        raise ValueError(f"--batch-size-file {path}: {problem}; expected lines NAME,SIZE") from None
    sizes: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, size = (part.strip() for part in line.rpartition(","))
        if not name or not (size == str(UNSET) or (size.isascii() and size.isdigit() and int(size))):
            raise ValueError(f"--batch-size-file {path}, line {number}: expected NAME,SIZE, got {line.strip()!r}")
        sizes[name] = int(size)
    return sizes
