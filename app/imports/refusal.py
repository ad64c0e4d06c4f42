"""Why an upload is not taken."""

from __future__ import annotations


class Refused(Exception):
    """Say with which status and sentence, and when to try again."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s
