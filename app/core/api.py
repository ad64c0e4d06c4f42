"""Endpoints of the API. A view declares its path; its signature declares the parameters and the
response, and its docstring is the summary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from flask import Response, abort, request

from compileboard.app.activity.queries import describe_absence
from compileboard.app.core.db import get_reader
from compileboard.app.core.page import FilterError, Page
from compileboard.app.core.parameters import Parameter, ParameterField, list_parameters, read_filter
from compileboard.app.core.schema import Keywords, list_names, read_docstring
from compileboard.app.runs import run_queries as run
from compileboard.app.runs.run_queries import RunDetail

View = TypeVar("View", bound=Callable[..., Any])
Body = TypeVar("Body")


@dataclasses.dataclass(frozen=True)
class Cursor:
    cursor: Annotated[
        str | None,
        Parameter(most=0),
        "Where the page begins: `next` of the page before. Keep the other parameters as they were.",
    ] = None


@dataclasses.dataclass(frozen=True)
class Limit:
    limit: Annotated[int, Keywords(minimum=1, maximum=1000), "Rows of one page."] = 100


@dataclasses.dataclass(frozen=True)
class PageQuery(Cursor, Limit):
    """Selects one page of a list."""


class NoBody:
    """The body of a POST that has none."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """One endpoint. `body` is the type of a POST's JSON: NoBody for none, None for an upload."""

    path: str
    view: Callable[..., Any]
    method: str
    status: int
    body: type | None
    unread: type | None

    @cached_property
    def hints(self) -> dict[str, Any]:
        return get_type_hints(self.view, include_extras=True)

    @property
    def filters(self) -> dict[str, type]:
        return {
            name: hint
            for name, hint in self.hints.items()
            if isinstance(hint, type)
            and dataclasses.is_dataclass(hint)
            and name not in ("detail", "return")
        }

    @cached_property
    def parameters(self) -> tuple[ParameterField, ...]:
        models = (*self.filters.values(), *([self.unread] if self.unread else []))
        return tuple(
            part for model in models for part in list_parameters(model) if part.description
        )

    @property
    def is_list(self) -> bool:
        return get_origin(self.hints["return"]) is Page

    @property
    def model(self) -> Any:
        hint = self.hints["return"]
        if get_origin(hint) is Annotated and get_args(hint)[0] is Response:
            return get_args(hint)[1]  # streamed
        return get_args(hint)[0] if self.is_list else hint

    @property
    def name(self) -> str:
        return f"{self.view.__module__.split('.')[-2]}_{self.view.__name__}"

    @property
    def summary(self) -> str:
        return read_docstring(self.view)

    def answer(self, **path: str) -> Any:
        """Call the view. Raises FilterError for an unknown parameter or an unusable value."""
        check_query(tuple(part.name for part in self.parameters))
        given: dict[str, Any] = dict(path)
        if "detail" in self.hints:
            given["detail"] = find_run(given.pop("run_id"))
        for part in self.parameters:
            if part.how.is_required and not request.args.get(part.name, "").strip():
                raise FilterError(f"{part.name}: is missing; expected {part.how.expected}")
        given |= {name: read_filter(model, request.args) for name, model in self.filters.items()}
        return self.view(**given)


OPERATIONS: list[Operation] = []


def operation(
    path: str,
    method: str = "GET",
    status: int = 200,
    body: type | None = None,
    parameters: type | None = None,
) -> Callable[[View], View]:
    def declare(view: View) -> View:
        OPERATIONS.append(Operation(path, view, method, status, body, parameters))
        return view

    return declare


def check_query(known: tuple[str, ...]) -> None:
    """Raises FilterError for an unknown parameter: a mistyped filter would return everything."""
    for key in request.args:
        if key not in known:
            expected = f"known are {', '.join(known)}" if known else "this address has none"
            raise FilterError(f"{key[:40]}: there is no such parameter; {expected}")


def read_body(model: type[Body], example: str) -> Body:
    """Read the request's JSON object into a dataclass of strings.

    Raises FilterError for another body, an unknown or missing field, or a value of another type.
    """
    body: Any = request.get_json(force=True, silent=True)
    if not isinstance(body, dict):
        raise FilterError(f"body: expected a JSON object, {example}")
    hints, names = get_type_hints(model), list_names(model)  # type: ignore[arg-type]
    for key, value in body.items():
        if key not in names:
            raise FilterError(
                f"{str(key)[:40]}: there is no such field; known are {', '.join(names)}"
            )
        if not isinstance(value, str) and not (value is None and hints[key] == str | None):
            raise FilterError(f"{key}: expected a string, got {type(value).__name__}")
    for field in dataclasses.fields(model):  # type: ignore[arg-type]
        if field.name not in body and not field.metadata.get("optional"):
            raise FilterError(f"{field.name}: is missing; expected {example}")
    return model(**body)


def find_run(run_id: str) -> RunDetail:
    """Return a run, or abort with 404."""
    detail = run.get_run(get_reader(), run_id)
    return detail if detail is not None else refuse(describe_absence(get_reader(), run_id))


def refuse(sentence: str) -> NoReturn:
    """Abort with 404 and this sentence."""
    abort(404, sentence)
