"""What an address of the API is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flask import Response

from compileboard.app.api.answer import Answer
from compileboard.app.api.schema import Schema


class Operation(NamedTuple):
    """Describe one address. `schema` names the schema of its data, or of one row where it is a list.

    `body` is what a POST takes as JSON: nothing where it is empty; without one it takes an upload.
    """

    path: str
    view: Callable[..., Answer | Response]
    schema: str
    is_list: bool
    summary: str
    parameters: tuple[str, ...] = ()
    method: str = "GET"
    status: int = 200
    body: Schema | None = None
