"""Check the values of events, so that the store accepts them: JSON's surrogates, integers and
nesting are bounded, and fields get their types.

A whole number of a declared field is at most 2^53, or 2^43 if it is a duration, a size or a count;
another number is at most 10^150. Sums in SQL, squares and scripts then stay in range. NaN and
Infinity, which only Python reads as JSON, become strings.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from operator import is_
from typing import Any, TypeVar

from .events import Compiled
from .metric_fields import FIELDS

_DEEPEST = 60
_TOO_DEEP = "<nested too deeply>"
_LARGEST = 2**63 - 1
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")  # Python's form of a byte that is not UTF-8


def clean(value: Any, depth: int = 0) -> Any:
    """Return a JSON value in which every string can be encoded as UTF-8, every number is finite and
    in 64 bits, and the depth is bounded.

    A value that is clean already is returned itself, not a copy.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # nan, inf, -inf
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST else hex(value)
    if depth >= _DEEPEST:
        return _TOO_DEEP
    if isinstance(value, dict):
        return _clean_dict(value, depth)
    if isinstance(value, list):
        if all(map(_is_plain, value)):
            return value
        copy = [clean(entry, depth + 1) for entry in value]
        return value if all(map(is_, copy, value)) else copy
    if isinstance(value, tuple):
        return [clean(entry, depth + 1) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted((clean(entry, depth + 1) for entry in value), key=repr)
    return clean_text(repr(value))


def _clean_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    for key, entry in value.items():  # one plain loop, because most of a log's data passes here
        if not (type(key) is str and key.isascii()):
            break
        if type(entry) is str and entry.isascii():
            continue
        if not _is_plain(entry) and clean(entry, depth + 1) is not entry:
            break
    else:
        return value
    return {
        key if _is_name(key) else clean_text(str(key)): entry
        if _is_plain(entry)
        else clean(entry, depth + 1)
        for key, entry in value.items()
    }


def _is_plain(value: Any) -> bool:
    """Return whether a value is certainly clean, as most are."""
    kind = type(value)
    if kind is str:
        return str.isascii(value)
    if kind is int:
        return bool(-_LARGEST <= value <= _LARGEST)
    return value is None or kind is bool or (kind is float and value - value == 0)


def _is_name(key: Any) -> bool:
    return type(key) is str and key.isascii()


def clean_text(text: str) -> str:
    """Write lone surrogates as escapes: \\xe9 for a byte that is not UTF-8, else \\ud800."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        bytes_shown = _ESCAPED_BYTE.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", text)
        return bytes_shown.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


MAX_EXACT_INTEGER = 2**53
MAX_SUMMED_INTEGER = 2**43  # 101 days in microseconds: a million of them fit 64 bits
_SUMMED_NAMES = re.compile(
    r"(?!(time|start|end|started|ended|last|at|compiled)_us$).*_(us|bytes|count)|losses"
)
MAX_NUMBER = 1e150
_SHOWN = 60  # characters of a value in a note
ODD_VALUES = "odd_values"  # where a metrics record keeps values that did not fit

Notes = list[str]
Fit = Callable[[Any, Notes], Any]
Kind = TypeVar("Kind")


class InvalidValueError(ValueError):
    """A value does not have the expected type or range."""


def fit_event(event: Kind, cleaned: Collection[str] = ()) -> tuple[Kind | None, Notes]:
    """Return an event whose fields all fit, and a note on each that did not. The event is None if a
    required field does not fit.

    `cleaned` names fields of free JSON that are known to be clean, because a compile's metrics have
    a hundred entries.
    """
    notes: Notes = []
    values: dict[str, Any] = vars(event)
    changes: dict[str, Any] = {}
    for name, kind, optional, most, fit, default in _list_fields(typing.cast("type", type(event))):
        value = values[name]
        if value is None:
            if optional:
                continue
        elif type(value) is kind:  # nearly always, so check it first
            if (
                value.isascii()
                if kind is str
                else -most <= value <= most
                if kind is int
                else not value or kind is bool
            ):
                continue
            if name in cleaned:
                continue
        before = len(notes)
        try:
            fitted = fit(value, notes)
        except InvalidValueError as error:
            notes.append(f"{name} is {show_value(value)}, expected {error}")
            if default is MISSING:
                return None, notes
            fitted = default()
        else:
            notes[before:] = [f"{name}: {note}" for note in notes[before:]]
        if fitted is not value:
            changes[name] = fitted
    return (replace(event, **changes) if changes else event), notes  # type: ignore[type-var]


def fit_metrics(value: Any, notes: Notes) -> dict[str, Any]:
    """Return a CompilationMetrics record whose known fields have their types. Values of other types
    are moved to `odd_values`.
    """
    metrics = _fit_dict(value, notes)
    changes: dict[str, Any] = {}
    odd: dict[str, Any] = {}
    for name, value in metrics.items():
        if value is None or (known := FIELDS.get(name)) is None:
            continue
        try:
            fitted = _UNITS[known.unit](value, notes)
        except InvalidValueError as error:
            notes.append(f"{name} is {show_value(value)}, expected {error}")
            odd[name], fitted = value, None
        if fitted is not value:
            changes[name] = fitted
    if odd:
        changes[ODD_VALUES] = odd
    return {**metrics, **changes} if changes else metrics


def show_value(value: Any) -> str:
    """Format the beginning of a value for a note."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # an int of more than 4,300 digits
        text = type(value).__name__
    return clean_text(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


@cache
def _list_fields(cls: type) -> tuple[tuple[str, Any, bool, int, Fit, Any], ...]:
    """List a class's fields: name, plain type, whether it may be None, its largest whole number,
    and functions for fitting a value and for the default.

    The default is MISSING if there is none.
    """
    hints = typing.get_type_hints(cls)
    return tuple(
        (
            field.name,
            *_plain_type(hints[field.name]),
            MAX_SUMMED_INTEGER
            if (is_summed := _SUMMED_NAMES.fullmatch(field.name))
            else MAX_EXACT_INTEGER,
            fit_metrics
            if (cls, field.name) == (Compiled, "metrics")
            else _fit_of(hints[field.name], _fit_summed if is_summed else None),
            _find_default(field),
        )
        for field in fields(cls)
    )


def _plain_type(hint: Any) -> tuple[type | None, bool]:
    optional = typing.get_origin(hint) in (types.UnionType, typing.Union)
    if optional:
        (hint,) = (argument for argument in typing.get_args(hint) if argument is not type(None))
    kind = typing.get_origin(hint) or hint
    return (kind if kind in (str, int, bool, list, dict) else None), optional


def _find_default(field: Any) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory
    return MISSING if field.default is MISSING else lambda: field.default


def _fit_of(hint: Any, whole: Fit | None = None) -> Fit:
    if hint is int and whole:
        return whole
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (
            _fit_of(argument, whole) for argument in arguments if argument is not type(None)
        )
        return inner
    if origin is list:
        return _list_of(_fit_of(arguments[0]))
    if origin is tuple and arguments[-1] is ...:
        entries = _list_of(_fit_of(arguments[0]))
        return lambda value, notes: tuple(entries(value, notes))
    if origin is tuple:
        return _row_of(
            [_fit_of(argument) for argument in arguments],
            [_plain_type(hint)[1] for hint in arguments],
        )
    if origin is dict:
        return _fit_dict if arguments[1] is Any else _dict_of(_fit_of(arguments[1], whole))
    if is_dataclass(hint):
        return _record_of(typing.cast("type", hint))
    if typing.is_typeddict(hint):
        return _shape_of(hint)
    raise TypeError(f"an event's field is declared as {hint}, which nothing here checks")


def _fit_whole(value: Any, notes: Notes) -> int:
    if type(value) is int and -MAX_EXACT_INTEGER <= value <= MAX_EXACT_INTEGER:
        return value
    if type(value) is float and value.is_integer() and abs(value) <= MAX_EXACT_INTEGER:
        return int(value)
    raise InvalidValueError("a whole number of at most 2^53")


def _fit_summed(value: Any, notes: Notes) -> int:
    if abs(whole := _fit_whole(value, notes)) <= MAX_SUMMED_INTEGER:
        return whole
    raise InvalidValueError("a whole number of at most 2^43")


def _fit_number(value: Any, notes: Notes) -> float:
    if type(value) in (int, float) and -MAX_NUMBER <= value <= MAX_NUMBER:
        return typing.cast("float", value if abs(value) <= MAX_EXACT_INTEGER else float(value))
    raise InvalidValueError("a number of at most 10^150")


def _fit_rounded(value: Any, notes: Notes) -> int:
    return _fit_whole(round(_fit_number(value, notes)), notes)


def _fit_flag(value: Any, notes: Notes) -> bool:
    if type(value) is bool:
        return value
    raise InvalidValueError("true or false")


def _fit_text(value: Any, notes: Notes) -> str:
    if not isinstance(value, str):
        raise InvalidValueError("a string")
    if value.isascii():
        return value
    fitted = clean_text(value)
    if fitted is not value:
        notes.append("half a surrogate pair is replaced")
    return fitted


def _text_or_whole(value: Any, notes: Notes) -> str | int:
    return _fit_text(value, notes) if isinstance(value, str) else _fit_whole(value, notes)


def _fit_json_value(value: Any, notes: Notes) -> Any:
    fitted = clean(value)
    if fitted is not value:
        notes.append("what no database holds is replaced")
    return fitted


def _fit_dict(value: Any, notes: Notes) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidValueError("an object")
    return typing.cast("dict[str, Any]", _fit_json_value(value, notes)) if value else value


def _list_of(fit: Fit) -> Fit:
    def fit_list(value: Any, notes: Notes) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise InvalidValueError("a list")
        fitted, same = [], isinstance(value, list)
        for entry in value:
            try:
                fitted.append(fit(entry, notes))
                same = same and fitted[-1] is entry
            except InvalidValueError as error:
                notes.append(f"{show_value(entry)} is left out, expected {error}")
                same = False
        return typing.cast("list[Any]", value) if same else fitted

    return fit_list


def _dict_of(fit: Fit) -> Fit:
    def fit_dict(value: Any, notes: Notes) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InvalidValueError("an object")
        fitted, same = {}, True
        for key, entry in value.items():
            name = _fit_text(key if isinstance(key, str) else str(key), notes)
            try:
                fitted[name] = fit(entry, notes)
                same = same and name is key and fitted[name] is entry
            except InvalidValueError as error:
                notes.append(
                    f"{show_value(name)} is {show_value(entry)} and left out, expected {error}"
                )
                same = False
        return value if same else fitted

    return fit_dict


def _row_of(fits: list[Fit], optional: list[bool]) -> Fit:
    def fit_row(value: Any, notes: Notes) -> list[Any] | tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != len(fits):
            raise InvalidValueError(f"a list of {len(fits)}")
        entries = zip(value, fits, optional, strict=True)
        fitted = [
            None if entry is None and may_lack else fit(entry, notes)
            for entry, fit, may_lack in entries
        ]
        return value if all(map(is_, fitted, value)) else fitted

    return fit_row


def _shape_of(shape: Any) -> Fit:
    """Return a function that fits a TypedDict; invalid values of optional keys become None or are
    dropped.
    """
    keys = {
        name: (
            _fit_of(hint, _fit_summed if _SUMMED_NAMES.fullmatch(name) else None),
            _plain_type(hint)[1],
            name in shape.__required_keys__,
        )
        for name, hint in typing.get_type_hints(shape).items()
    }

    def fit_shape(value: Any, notes: Notes) -> dict[str, Any]:
        changed = dict(_fit_dict(value, notes))
        for name, (fit, optional, required) in keys.items():
            entry = changed.get(name)
            if entry is None and (optional or not required):
                if required:
                    changed[name] = None
                elif not optional:
                    changed.pop(name, None)
                continue
            before = len(notes)
            try:
                changed[name] = fit(entry, notes)
                notes[before:] = [f"{name}: {note}" for note in notes[before:]]
            except InvalidValueError as error:
                if required and not optional:
                    raise InvalidValueError(f"{name} to be {error}") from None
                notes.append(f"{name} is {show_value(entry)}, expected {error}")
                del changed[name]
                if required:
                    changed[name] = None
        return value if value == changed else changed

    return fit_shape


def fit_json(shape: Any, value: Any) -> Any:
    """Return JSON as its declared type, None if it has another type.

    Rows of a bundle are not checked when they are imported, so readers of a JSON column call this.
    """
    try:
        return _fit_json_of(shape)(value, [])
    except InvalidValueError:
        return None


_fit_json_of = cache(lambda shape: _fit_of(shape))


def _record_of(cls: type) -> Fit:
    def fit_record(value: Any, notes: Notes) -> Any:
        if type(value) is not cls:
            raise InvalidValueError("an object")
        fitted, own = fit_event(value)
        notes += own
        if fitted is None:
            raise InvalidValueError("all of its fields")
        return fitted

    return fit_record


_PLAIN: dict[Any, Fit] = {
    int: _fit_whole,
    float: _fit_number,
    bool: _fit_flag,
    str: _fit_text,
    Any: _fit_json_value,
}
_UNITS: dict[str, Fit] = {
    **dict.fromkeys(("count", "bytes"), _fit_summed),
    "us": lambda value, notes: _fit_summed(_fit_rounded(value, notes), notes),
    "time_us": _fit_rounded,
    **dict.fromkeys(("ms", "s", "time_s"), _fit_number),
    **dict.fromkeys(("id", "version"), _text_or_whole),
    "bool": _fit_flag,
    "text": _fit_text,
    "list": _list_of(_fit_text),
    "json": _fit_json_value,
}
