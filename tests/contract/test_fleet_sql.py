"""Statements across runs are in the SQL that SQLite and ClickHouse share: what only SQLite takes is a macro's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

from compileboard.app.queries import fleet, newest, run_rows, sides
from compileboard.app.queries.fleet import runs
from compileboard.app.queries.fleet.reasons import ReasonSubject
from compileboard.collectors.store.rollups import results

MODULES = [import_module(f"{fleet.__name__}.{module.name}") for module in iter_modules(fleet.__path__)]
STATEMENT = re.compile(r"\b(?:select|from|where|and|join)\s")
ONLY_SQLITE = {
    "a join that keeps its order": r"\bcross join\b",
    "JSON": r"\bjson_\w+\(",
    "total()": r"\btotal\(",
    "`is` between values": r"(?<!\$)\bis (?!null\b|not null\b)",
    "the number of a row": r"\browid\b",
    "escape": r"\bescape '",
    "a text in double quotes": r'"',
    "a unary plus": r"[(\s]\+\w",
    "a division that may be one of integers": r" / (?!1e\d)",
    "a function of SQLite": r"\b(?:ifnull|iif|group_concat|printf|strftime|unixepoch|likelihood|unlikely)\(",
    "a hint for the planner": r"\b(?:indexed by|not indexed|glob|pragma)\b",
}
# What a second engine writes in its own words. So it will `models.LATEST_SQL`, whose join has a select of its own.
OWN_TEXTS = (
    "json_extract(r.facts, '$.gpus[0].driver_version')",  # a column of the run, in tables across runs
)


def list_texts(module: ModuleType) -> Iterator[str]:
    """Yield a module's parts of statements, and the whole ones that it writes."""
    for name, value in vars(module).items():
        texts = value.values() if isinstance(value, dict) and not name.startswith("__") else (value,)
        yield from (text for text in texts if isinstance(text, str) and name != "__doc__" and STATEMENT.search(text))
        if isinstance(value, ReasonSubject):
            yield from (value.list_sql(order, False, after) for order in value.orders for after in (False, True))
            yield from (value.cells_sql, value.kinds_sql, value.scope_sql, value.get_sql, value.runs_sql)
    if module is runs:
        yield from (runs.runs_sql(order, False, after) for order in runs.ORDERS for after in (False, True))


TEXTS = [text for module in (*MODULES, newest, run_rows, sides, results) for text in list_texts(module)]


@pytest.mark.parametrize("feature", ONLY_SQLITE)
def test_a_statement_across_runs_has_nothing_that_only_sqlite_takes(feature: str) -> None:
    pattern = re.compile(ONLY_SQLITE[feature])
    assert [text for text in TEXTS if pattern.search(text) and not any(own in text for own in OWN_TEXTS)] == []


def test_a_group_selects_its_keys_and_sums() -> None:
    grouped = [(text, *group) for text in TEXTS for group in list_groups(text)]
    assert len(grouped) > 5
    for text, selected, keys in grouped:
        for column in selected:
            assert column in keys or "SUM" in column, f"{column} is neither a key nor a sum in {text}"


def list_groups(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield what each grouped select has, without the columns' names, and its keys; what sums is SUM there."""
    call = re.compile(r"(\w*)\(([^()]*)\)")
    while inner := call.search(text):
        yield from _read_group(inner[2])
        sums = inner[1] in ("sum", "count", "min", "max") or ("SUM" in inner[2] and "select" not in inner[2])
        text = text[: inner.start()] + ("SUM" if sums else "VALUE") + text[inner.end() :]
    yield from _read_group(text)


def _read_group(text: str) -> Iterator[tuple[list[str], list[str]]]:
    for select in re.finditer(r"\bselect\b((?:(?!\bselect\b).)*?)\bfrom\b((?:(?!\bselect\b).)*)", text, re.DOTALL):
        keys = re.search(r"\bgroup by\s(.*?)(?:\border by\b|\blimit\b|\bhaving\b|$)", select[2], re.DOTALL)
        if keys:
            columns = [re.sub(r"\sas\s\w+\s*$", "", column).strip() for column in select[1].split(",")]
            yield columns, [key.strip() for key in keys[1].split(",")]
