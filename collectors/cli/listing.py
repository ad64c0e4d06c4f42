"""A database's newest runs, as a table for the terminal."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from datetime import datetime

from compileboard.collectors.decode.values import clean
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.terminal import command_hints
from compileboard.collectors.terminal.run_summary import NOT_RECORDED, duration_text, printable

HEADER = ("run", "started", "name", "suite", "state", "compiles", "breaks", "recomp.", "compiling", "took")
COMPILES, COMPILING = 5, 8  # columns: the first number, and what a narrow terminal goes without
SHORT_ID, SHORT_NAME, SHORT_SUITE = 14, 14, 8  # what a narrow terminal gets; `show` takes a short id
GAP = "  "


def list_text(
    database: str,
    limit: int,
    *,
    suite: str | None = None,
    tags: Iterable[tuple[str, str | None]] = (),
    columns: int | None = None,
) -> str:
    """Lay the newest runs out as a table, cut to a terminal's columns where it has one; a tag without a value is any.

    Raises: StoreError if the database cannot be read.
    """
    suite, wanted = clean(suite), clean(list(tags))
    connection = open_reader(database)
    try:
        rows = connection.execute(
            """
            select id, started_us, coalesce(title, name) as name, suite, state, compile_count, graph_break_count,
              recompile_count, compile_us, torch_version, ended_us
            from runs
            join run_totals on run_totals.run_id = runs.id
            left join run_annotations on run_annotations.run_id = runs.id
            where (:suite is null or suite = :suite)
              and not exists (
                select 1
                from json_each(:tags) as wanted
                where not exists (
                  select 1
                  from run_tags
                  where run_tags.run_id = runs.id
                    and key = json_extract(wanted.value, '$[0]')
                    and run_tags.value = coalesce(json_extract(wanted.value, '$[1]'), run_tags.value)
                )
              )
            order by started_us desc, id desc
            limit :limit
            """,
            {"limit": limit, "suite": suite, "tags": json.dumps(wanted)},
        ).fetchall()
    finally:
        connection.close()
    if not rows and (suite is not None or wanted):
        return f"{database} has no runs of that suite and tags."
    if not rows:
        example = command_hints.collector_command("run", database=database, then="-- python train.py")
        return f"{database} has no runs yet. Record one: {example}"
    return _laid_out([_cells(row) for row in rows], columns)


def _cells(row: sqlite3.Row) -> list[str]:
    seen = row["torch_version"] is not None or row["compile_count"] > 0
    took_us = (row["ended_us"] or row["started_us"]) - row["started_us"]  # 0: of one moment alone
    counts = (row["compile_count"], row["graph_break_count"], row["recompile_count"])
    return [
        row["id"],
        f"{datetime.fromtimestamp(row['started_us'] / 1e6):%Y-%m-%d %H:%M}" if row["started_us"] else NOT_RECORDED,
        printable(row["name"])[:30],
        printable(row["suite"] or "–")[:20],
        row["state"],
        *(str(count) if seen or count else "–" for count in counts),
        duration_text(row["compile_us"]) if row["compile_us"] else "–",
        duration_text(took_us) if row["started_us"] and took_us else "–",
    ]


def _laid_out(table: list[list[str]], columns: int | None) -> str:
    """Align the cells; on a terminal that is too narrow, shorten what can be told from its beginning."""
    lines = [list(HEADER), *table]
    shortest = next(n for n in range(SHORT_ID, 65) if len({row[0][:n] for row in table}) == len(table))
    for column, width in ((0, shortest), (1, 0), (2, SHORT_NAME), (3, SHORT_SUITE), (COMPILES, 0), (COMPILING, 0)):
        if columns is None or sum(_widths(lines)) + len(GAP) * (len(lines[0]) - 1) <= columns:
            break
        if column == COMPILES:
            lines[0][column] = "comp."
        for line in lines:
            if column == COMPILING:  # `show` has it
                del line[column]
            elif line is not lines[0] and column < COMPILES:
                # The year can be told from the order; a name that was cut is marked.
                line[column] = line[column][5:] if column == 1 else _cut(line[column], width, mark=column > 1)
    widths = _widths(lines)
    return "\n".join(
        GAP.join(
            cell.rjust(width) if place >= COMPILES else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )


def _widths(lines: list[list[str]]) -> list[int]:
    return [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]


def _cut(text: str, width: int, *, mark: bool) -> str:
    if len(text) <= width:
        return text
    return text[: width - 1] + "…" if mark else text[:width]
