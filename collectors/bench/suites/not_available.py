"""What a builder raises when its model cannot exist here: the harness says `skipped` with the reason, not `failed`."""

from __future__ import annotations


class NotAvailable(Exception):
    """Say why a model of a catalogue does not exist in what is installed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
