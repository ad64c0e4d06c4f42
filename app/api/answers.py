"""What every view of the API gives back, and how it reads its address."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn, TypeVar

from flask import Response, abort, request

from compileboard.app.api.schema import Schema
from compileboard.app.db import get_reader
from compileboard.app.queries.fleet.activity import describe_absence
from compileboard.app.queries.page import FilterError, Page, check_limit
from compileboard.app.queries.run import run
from compileboard.app.queries.run.run import RunDetail

DEFAULT_LIMIT = 100
MOST = 1000

Found = TypeVar("Found")


class Answer(NamedTuple):
    """Hold what was asked for, and the cursor of the next page."""

    data: Any
    next: str | None = None


def build_page_answer(page: Page[Found], make: Callable[[Found], dict[str, Any]]) -> Answer:
    """Turn a page of a query's rows into an answer."""
    return Answer([make(row) for row in page.rows], page.next)


def read_limit() -> int:
    """Read how many rows are wanted.

    Raises: FilterError if it is not a whole number from 1 to MOST.
    """
    return check_limit(request.args.get("limit"), DEFAULT_LIMIT, MOST)


def read_cursor() -> str | None:
    """Read where the page begins."""
    return request.args.get("cursor")


def read_word(name: str, most: int = 200) -> str | None:
    """Read a filter's value, None where it is empty.

    Raises: FilterError if it is too long.
    """
    value = request.args.get(name, "").strip()
    if len(value) > most:
        raise FilterError(f"{name}: at most {most} characters, this has {len(value)}")
    return value or None


def check_query(known: Iterable[str]) -> None:
    """Refuse a parameter that this address does not have: a mistyped filter would answer with everything.

    Raises: FilterError if there is one.
    """
    names = tuple(known)
    for key in request.args:
        if key not in names:
            said = f"known are {', '.join(names)}" if names else "this address has none"
            raise FilterError(f"{key[:40]}: there is no such parameter; {said}")


def read_number(text: str) -> int | None:
    """Read a number of an address; None where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def find_run(run_id: str) -> RunDetail:
    """Return a run, or answer that there is none."""
    detail = run.get_run(get_reader(), run_id)
    return detail if detail is not None else refuse(describe_absence(get_reader(), run_id))


def refuse(sentence: str) -> NoReturn:
    """Answer that what the address names is not there."""
    abort(404, sentence)


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
