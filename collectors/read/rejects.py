"""Count what of a log could not be read: by kind, with the first line it happened at."""

from __future__ import annotations

from dataclasses import dataclass, field

EXAMPLE_CHARACTERS = 200


@dataclass
class Reject:
    """Count one kind."""

    count: int = 0
    first_line: int | None = None
    example: str | None = None
    file_label: str | None = None  # which file the first is in, where several are counted together


@dataclass
class Rejects:
    """Hold the counts of one log."""

    by_kind: dict[str, Reject] = field(default_factory=dict)

    def add(self, kind: str, line: int | None = None, example: bytes | str | None = None, count: int = 1) -> None:
        """Count what was met at a line."""
        reject = self.by_kind.setdefault(kind, Reject(0, line))
        if not reject.count and example is not None:
            text = example.decode("utf-8", "replace") if isinstance(example, bytes) else example
            reject.example = text[:EXAMPLE_CHARACTERS].strip().encode("utf-8", "replace").decode()
        reject.count += count

    def count(self, kind: str) -> int:
        """Say how many of a kind were met."""
        found = self.by_kind.get(kind)
        return found.count if found else 0

    def add_file(self, label: str, others: Rejects) -> None:
        """Count what was met in a file among others."""
        for kind, met in others.by_kind.items():
            self.add(kind, met.first_line, met.example, met.count)
            self.by_kind[kind].file_label = self.by_kind[kind].file_label or label

    @property
    def total(self) -> int:
        """Sum all kinds."""
        return sum(reject.count for reject in self.by_kind.values())
