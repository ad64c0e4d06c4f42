"""The OpenAPI 3.1 document."""

from __future__ import annotations

from typing import Any

PREFIX = "/api/v1"


def get_document() -> dict[str, Any]:
    """Return the document."""
    return {}
