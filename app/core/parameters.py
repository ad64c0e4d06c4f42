"""Filters from URLs: a dataclass defines its parameters, types, choices and limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from compileboard.app.core.page import FilterError, check_whole
from compileboard.app.core.schema import Keywords, Schema

Filter = TypeVar("Filter")
MAX_CHARACTERS = 200
OTHER_KEYS = ("sort", "cursor", "limit")  # Parameters of a list in addition to its filter.


@dataclasses.dataclass(frozen=True)
class Parameter:
    name: str = ""
    choices: tuple[str, ...] = ()
    expected: str = ""
    read: Callable[[str, str], Any] | None = None  # called with name and text
    most: int = MAX_CHARACTERS
    # What a missing parameter means in an address, if not the field's default.
    default: str = ""
    is_required: bool = False  # by the API; a page without it offers a choice


class ParameterField(NamedTuple):
    attribute: str
    name: str
    description: str
    schema: Schema
    kind: type
    how: Parameter


def list_names(model: type) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.name for part in list_parameters(model)))


def check_keys(
    query: Iterable[str], known: Iterable[str], others: Iterable[str] = (), noun: str = "filter"
) -> None:
    """Raises FilterError for a key that is neither known nor in `others`."""
    names = tuple(known)
    for key in query:
        if key not in names and key not in others:
            raise FilterError(f"{key[:40]}: there is no such {noun}; known are {', '.join(names)}")


def order_by(orders: Iterable[str]) -> Parameter:
    names = tuple(orders)
    choices = tuple(f"{name}{end}" for name in names for end in ("", ".asc", ".desc"))
    return Parameter(choices=choices, expected=f"one of {', '.join(names)}, each also with .asc")


@cache
def list_parameters(model: Any) -> tuple[ParameterField, ...]:
    own: list[ParameterField] = []
    nested: list[ParameterField] = []
    hints = get_type_hints(model, include_extras=True)
    for field in dataclasses.fields(model):
        hint = hints[field.name]
        hint, *metadata = get_args(hint) if get_origin(hint) is Annotated else [hint]
        if dataclasses.is_dataclass(hint):
            nested += list_parameters(hint)  # type: ignore[arg-type]
            continue
        how = next((part for part in metadata if isinstance(part, Parameter)), Parameter())
        limits = next((part.values for part in metadata if isinstance(part, Keywords)), {})
        description = next((part for part in metadata if isinstance(part, str)), "")
        if not metadata:
            continue  # not written in addresses
        kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
        default = None if field.default is dataclasses.MISSING else field.default
        schema = _describe_parameter(kinds[0], how, limits, default)
        own.append(
            ParameterField(field.name, how.name or field.name, description, schema, kinds[0], how)
        )
    names = {part.name for part in own}
    return (*own, *(part for part in nested if part.name not in names))


def _describe_parameter(kind: type, how: Parameter, limits: Schema, default: Any) -> Schema:
    if "pattern" in limits:
        return {"type": "string", **limits}
    if kind is bool or how.choices:
        return {"type": "string", "enum": [*(how.choices or ("yes", "no"))]}
    if kind is int and not how.read:
        if limits:
            return {
                "type": "integer",
                **limits,
                **({} if default is None else {"default": default}),
            }
        return {"type": "string", "pattern": "^[0-9]*$"}
    return {"type": "string", **({"maxLength": how.most} if how.most else {}), **limits}


@cache
def _list_nested(model: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (name, hint)
        for name, hint in get_type_hints(model).items()
        if dataclasses.is_dataclass(hint)
    )


def read_filter(
    model: type[Filter], query: Mapping[str, str], whole_model: type | None = None
) -> Filter:
    """Read a filter from a query. A missing or empty parameter is the field's default.

    `whole_model` is the filter that this one is a part of. Raises FilterError for an unusable
    value; where another parameter takes it, the message names that one.
    """
    given: dict[str, Any] = {}
    taken = set()
    for part in list_parameters(model):  # type: ignore[arg-type]
        if part.attribute in model.__dataclass_fields__:  # type: ignore[attr-defined]
            taken.add(part.name)
            text = query.get(part.name, "").strip() or part.how.default
            if text:
                known = list_parameters(whole_model or model)
                given[part.attribute] = _read_value(part, text, known)
    for name, nested in _list_nested(model):  # type: ignore[arg-type]
        given[name] = read_filter(
            nested,
            {key: text for key, text in query.items() if key not in taken},
            whole_model or model,
        )
    filled = model(**given)
    if hasattr(filled, "check"):
        filled.check(query)
    return filled


def read_query(
    model: type[Filter], query: Mapping[str, str], others: Iterable[str] = OTHER_KEYS
) -> Filter:
    """Read a filter from a query without other keys. Raises FilterError for an unknown key or
    unusable value.
    """
    check_keys(query, list_names(model), others)
    return read_filter(model, query)


def _read_value(part: ParameterField, text: str, known: Iterable[ParameterField]) -> Any:
    name, how = part.name, part.how
    if how.most and len(text) > how.most:
        raise FilterError(f"{name}: must be at most {how.most} characters, got {len(text)}")
    choices = how.choices or part.schema.get("enum")
    if choices is not None and text not in choices:
        if part.kind is bool and not how.choices:
            raise FilterError(f"{name}: {text[:40]!r} is neither yes nor no")
        expected = how.expected or (
            f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
        )
        meant = [
            other.name
            for other in known
            if other.kind is not bool and text in other.schema.get("enum", ())
        ]
        hint = f"; did you mean {meant[0]}={text}?" if meant else ""
        raise FilterError(f"{name}: {text[:40]!r} is not {expected}{hint}")
    if how.read is not None:
        return how.read(name, text)
    if part.kind is int:
        low, high = part.schema.get("minimum", 0), part.schema.get("maximum", 1 << 60)
        return check_whole(name, text, 0, low, high, how.expected)
    return text != "no" if part.kind is bool else text


def read_date(key: str, text: str | None) -> tuple[int | None, int | None]:
    """Return the start of a day (or a time) and of the next one, in microseconds since the epoch.

    Raises FilterError for an invalid date.
    """
    if text is None:
        return None, None
    try:
        moment = datetime.fromisoformat(text)
        start = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(
            timezone.utc
        )
        step = timedelta(days=1) if len(text) <= len("2026-11-21") else timedelta(microseconds=1)
        return _to_microseconds(start), _to_microseconds(start + step)
    except (ValueError, OverflowError):
        raise FilterError(
            f"{key}: {text!r} is not a date; write it as 2026-11-21 (days are UTC)"
        ) from None


def _to_microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


def check_days(query: Mapping[str, str], since_us: int | None, before_us: int | None) -> None:
    """Raises FilterError if the last day is before the first."""
    if since_us and before_us and since_us >= before_us:
        raise FilterError(
            f"since: {query['since']} is after until: {query['until']}, so nothing can match"
        )


SuiteName = Annotated[str | None, "A suite of models, whole: `builtin`."]
ModeName = Annotated[str | None, "`inference` or `training`."]
DtypeName = Annotated[str | None, "`float32`, `float16`, `bfloat16` or `amp`."]
DeviceName = Annotated[str | None, "`cpu` or `cuda`."]
HardwareName = Annotated[str | None, "The GPU's model, or the processor's, whole."]
BackendName = Annotated[str | None, "A backend with its config label, whole: `inductor`."]
BranchName = Annotated[str | None, "An exact branch name."]
SINCE = Parameter("since", read=lambda name, text: read_date(name, text)[0])
UNTIL = Parameter("until", read=lambda name, text: read_date(name, text)[1])
SINCE_HELP = "The first day or time (UTC) that runs started at: `2026-11-21`."
UNTIL_HELP = "The last day or time (UTC) that runs started at: `2026-11-21`."
