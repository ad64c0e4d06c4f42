"""Rejections of pushed requests, and what to do then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compileboard.app.imports.options import UploadRejected


class PushRefused(UploadRejected):
    """A pushed request is rejected: the status, the sentence, and the protocol's additions."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(status, message, retry_after_s=retry_after_s)
        self.headers = dict(headers or {})
        self.fields = dict(fields or {})
