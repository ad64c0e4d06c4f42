"""How a message that was tried ended. Only what surely did not arrive may be tried again."""

from __future__ import annotations


class NotSent(Exception):
    """Say why a message surely did not arrive; it may be tried again."""


class Unknown(Exception):
    """Say why nobody knows whether a message arrived; it must not be tried again."""
