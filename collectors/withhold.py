"""Take the user's source lines out of recorded text: the one way, for what records and for what reads."""

from __future__ import annotations

from compileboard.collectors.decode.redact import withhold_source

__all__ = ["withhold_source"]
