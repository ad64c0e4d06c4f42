"""Read from an address which results a trend is of, the same for the pages and the API."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from compileboard.app.queries.page import FilterError
from compileboard.app.queries.trends import MOST_RUNS, ModelSet, TrendFilter, list_sets, list_sets_of

WORDS = ("suite", "mode", "dtype", "device", "hardware", "backend", "branch")
FILTERS = (*WORDS, "dynamic", "world_size")
DEFAULT_LAST = "90"
UNSAID = "unknown"  # in an address: what was measured without saying it
_LONGEST = 200


def check_keys(query: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a key that means nothing.

    Raises: FilterError if there is one.
    """
    names = tuple(known)
    for key in query:
        if key not in names:
            raise FilterError(f"{key[:40]}: there is no such filter; known are {', '.join(names)}")


def read_trend_filter(query: Mapping[str, str]) -> TrendFilter:
    """Turn an address's query into a filter; what is empty is no limit, `unknown` is what was not said.

    Raises: FilterError if a value cannot be used.
    """
    given = {key: read_text(query, key) for key in FILTERS}
    words: dict[str, Any] = {key: "" if given[key] == UNSAID else given[key] for key in WORDS}
    return TrendFilter(
        **words,
        dynamic=None if given["dynamic"] is None else _read_choice("dynamic", given["dynamic"], ("no", "yes")) == "yes",
        world_size=None if given["world_size"] is None else _read_whole("world_size", given["world_size"], 1_000_000),
    )


def read_text(query: Mapping[str, str], key: str) -> str | None:
    """Read one value, None where it is empty.

    Raises: FilterError if it is too long.
    """
    value = query.get(key, "").strip()
    if len(value) > _LONGEST:
        raise FilterError(f"{key}: at most {_LONGEST} characters, this has {len(value)}")
    return value or None


def read_choice(query: Mapping[str, str], key: str, choices: Iterable[str], default: str) -> str:
    """Read one of some words.

    Raises: FilterError if it is none of them.
    """
    return _read_choice(key, query.get(key, "").strip() or default, tuple(choices))


def read_last(query: Mapping[str, str]) -> tuple[str, int]:
    """Read how many of the newest runs are wanted, as it is written and as a number.

    Raises: FilterError if it is neither a number nor `all`.
    """
    text = query.get("last", "").strip() or DEFAULT_LAST
    return text, MOST_RUNS if text == "all" else _read_whole("last", text, MOST_RUNS)


def read_ids(key: str, values: Iterable[str]) -> list[int]:
    """Read ids, each once.

    Raises: FilterError if one is no id.
    """
    return list(dict.fromkeys(_read_whole(key, it, 2**62) for it in values if it.strip()))


def address_set(it: ModelSet) -> dict[str, str]:
    """Return the query of an address that means one set."""
    said = {name: UNSAID if value is None else str(value) for name, value in it.fields.items()}
    return said | {"dynamic": "yes" if it.dynamic else "no"}


def choose_set(
    reader: sqlite3.Connection, sets: Sequence[ModelSet], wanted: TrendFilter, model: str | None = None
) -> ModelSet | None:
    """Return the first set that is wanted: on its branch, and having a model, where these are named."""
    own = list_sets(reader, wanted.branch) if wanted.branch else sets
    fitting = [it for it in own if wanted.takes(it)]
    if model and fitting:
        having = list_sets_of(reader, model)
        fitting = [it for it in fitting if it.key in having] or fitting
    return next((it for it in sets if fitting and it.key == fitting[0].key), None)


def _read_choice(key: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise FilterError(f"{key}: {text[:40]!r} is not one of {', '.join(choices)}")
    return text


def _read_whole(key: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and 1 <= int(text) <= most):
        also = " or all" if key == "last" else ""
        raise FilterError(f"{key}: {text[:40]!r} is not a number from 1 to {most}{also}")
    return int(text)
