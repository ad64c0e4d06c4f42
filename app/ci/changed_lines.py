"""Lines that a checkout changed since a commit, from git."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
_SIDE = "b/"
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_LETTERS = dict(zip("abtnvfr", "\a\b\t\n\v\f\r"))
_OPTIONS = (
    "--unified=0",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--find-renames",
    "--dst-prefix=b/",
)
TIMEOUT_S = 120


@dataclass(frozen=True)
class ChangedLines:
    root: Path
    ranges: dict[str, list[range]] = field(default_factory=dict)
    folder: str = "."

    def find(self, file: str | None, line: int | None) -> str | None:
        if file is None or line is None:
            return None
        names = (os.path.normpath(os.path.join(self.folder, file)), file)
        name = next(
            (name for name in names if (self.root / name).is_file() or name in self.ranges), file
        )
        return name if any(line in lines for lines in self.ranges.get(name, ())) else None


def list_changed_lines(folder: str, base: str) -> ChangedLines:
    """List the lines of HEAD that are not in `base`, or in the merge base where the clone has it.

    Raises ValueError with git's message if the clone lacks the commit.
    """
    root = _ask(folder, "rev-parse", "--show-toplevel").stdout.strip()
    for sides in (f"{base}...HEAD", f"{base}..HEAD"):
        answer = _ask(folder, "diff", *_OPTIONS, "--end-of-options", sides, "--")
        if answer.returncode == 0:
            top = Path(root).resolve()
            return ChangedLines(
                top, parse_diff(answer.stdout), os.path.relpath(Path(folder).resolve(), top)
            )
    raise ValueError(
        f"cannot tell what changed since {base[:80]}: git: {answer.stderr.strip()[:300]}"
    )


def parse_diff(text: str) -> dict[str, list[range]]:
    ranges: dict[str, list[range]] = {}
    file, left_count = None, 0
    for line in text.splitlines():
        if left_count > 0 and line[:1] in "+-\\":  # a line of code may look like a heading
            left_count -= line[:1] != "\\"
            continue
        left_count = 0
        if line.startswith("+++ "):
            name = _unquote(line.removeprefix("+++ ").rstrip("\t"))
            file = name.removeprefix(_SIDE) if name.startswith(_SIDE) else None
        elif (hunk := _HUNK.match(line)) and file:
            first, count = int(hunk[1]), int(hunk[2] or 1)
            old = line.split(" ", 2)[1].partition(",")[2]
            left_count = count + (int(old) if old else 1)
            if count:
                ranges.setdefault(file, []).append(range(first, first + count))
    return ranges


def _unquote(name: str) -> str:
    if not (name.startswith('"') and name.endswith('"') and len(name) > 1):
        return name
    return _ESCAPE.sub(
        lambda match: (
            chr(int(match[1], 8)) if len(match[1]) == 3 else _LETTERS.get(match[1], match[1])
        ),
        name[1:-1],
    )


def _ask(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-c", "core.quotePath=false", *words],
        cwd=folder,
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
