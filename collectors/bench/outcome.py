"""What an experiment found out, as a child process hands it to the bench command: JSON, no torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from compileboard.collectors.decode.clean import clean


@dataclass
class Outcome:
    """Say what was measured, or what went wrong; the words are BenchMeasured's."""

    status: str = "measured"
    reason: str | None = None
    accuracy: str | None = None
    values: dict[str, float] = field(default_factory=dict)
    repeats: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    message: str | None = None
    traceback: str | None = None
    batch_size: int | None = None
    hardware: str | None = None

    def dump(self) -> str:
        """Write the outcome as JSON."""
        return json.dumps(asdict(self))


def load_outcome(text: str) -> Outcome:
    """Read an outcome back, its texts such as a database takes: an exception's may have bytes that are no characters.

    Raises: ValueError or TypeError if it is none.
    """
    return Outcome(**clean(json.loads(text)))
