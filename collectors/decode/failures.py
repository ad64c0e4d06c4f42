"""A dynamo_error's traceback, to the error's type and message."""

from __future__ import annotations

import re

_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_NOISE = re.compile(r"^(?:Set TORCHDYNAMO_VERBOSE|Set TORCH_LOGS|You can suppress this exception|from user code:)")


def parse_error(text: str) -> tuple[str | None, str | None]:
    """Find what was raised last, and all that it says before torch's own advice."""
    lines = text.split("\n")
    start = None
    in_traceback = False
    for place, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last):"):
            in_traceback = True
        elif in_traceback and line and not line.startswith((" ", "\t")):
            # The first line after a traceback's frames that is not indented names what was raised.
            in_traceback = False
            if _RAISED.match(line):
                start = place
    if start is None:
        start = next((i for i, line in enumerate(lines) if _RAISED.match(line) and ":" in line), None)
    if start is None:
        stripped = text.strip()
        return None, stripped or None
    found = _RAISED.match(lines[start])
    assert found is not None
    said = [found["message"] or ""]
    for line in lines[start + 1 :]:
        if _NOISE.match(line) or line.startswith("Traceback (most"):
            break
        said.append(line)
    return found["type"].rsplit(".", 1)[-1], "\n".join(said).strip() or None
