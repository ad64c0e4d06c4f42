"""`list` and `show`: a table of the newest runs, and one run's summary."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterable
from datetime import datetime

import click

from compileboard.collectors.cli.common import db_option, print_message, recover_earlier_runs
from compileboard.collectors.contract.values import clean
from compileboard.collectors.record.spool import list_unrecorded
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.terminal.run_summary import (
    NOT_RECORDED,
    SHOWN_STATE,
    duration_text,
    printable,
    read_alive_since_us,
    summarize,
)
from compileboard.collectors.terminal.values import collector_command, read_count, read_key
from compileboard.command_line import Command, Value
from compileboard.exit_codes import DONE

HEADER = (
    "run",
    "started",
    "name",
    "suite",
    "state",
    "compiles",
    "breaks",
    "recomp.",
    "compiling",
    "took",
)
COMPILES, COMPILING = 5, 8  # columns: the first number, and those that a narrow terminal omits
SHORT_ID, SHORT_NAME, SHORT_SUITE = (
    14,
    14,
    8,
)  # in a narrow terminal; `show` accepts a short id
GAP = "  "


@click.command("list", cls=Command)
@db_option
@click.option(
    "--limit",
    type=Value(read_count),
    default=20,
    metavar="N",
    help="Most runs to list. Default: 20.",
)
@click.option("--suite", metavar="NAME", help="Only runs of this suite.")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    type=Value(read_key),
    metavar="KEY[=VALUE]",
    help="Only runs with this tag; repeatable, all must match.",
)
def list_runs(
    db: str, limit: int, suite: str | None, tags: tuple[tuple[str, str | None], ...]
) -> None:
    """List the newest runs of a database."""
    earlier = list_unrecorded(os.environ)
    recover_earlier_runs()
    for spool in list_unrecorded(os.environ):
        if spool in earlier:  # the others were reported just now
            retry = collector_command("retry", spool.name)
            print_message(f"{spool.state}: {spool.name}: {spool.reason}; `{retry}` tries again")
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(list_text(db, limit, suite=suite, tags=tags, columns=columns))


@click.command(cls=Command)
@click.argument(
    "run", metavar="RUN", help="Run's ID, as much of its start as is unique, or latest."
)
@db_option
def show(run: str, db: str) -> int:
    """Print one run's summary."""
    recover_earlier_runs()
    summary = summarize(db, run)
    if summary is None:
        raise ValueError(
            f"there is no run {run!r} in {db}; `{collector_command('list', database=db)}` "
            "names them"
        )
    print(summary.text())
    return DONE


def list_text(
    database: str,
    limit: int,
    *,
    suite: str | None = None,
    tags: Iterable[tuple[str, str | None]] = (),
    columns: int | None = None,
) -> str:
    suite, wanted_tags = clean(suite), clean(list(tags))
    connection = open_reader(database)
    try:
        rows = connection.execute(
            f"""
            select id, started_us, coalesce(title, name) || iif(source = 'trial', ' (trial)',
              '') as name, suite,
              {SHOWN_STATE} as state,
              compile_count, graph_break_count, recompile_count, compile_us, torch_version, ended_us
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
                    and run_tags.value = coalesce(json_extract(wanted.value, '$[1]'),
                      run_tags.value)
                )
              )
            order by started_us desc, id desc
            limit :limit
            """,  # noqa: S608  own text
            {
                "alive_since_us": read_alive_since_us(),
                "limit": limit,
                "suite": suite,
                "tags": json.dumps(wanted_tags),
            },
        ).fetchall()
    finally:
        connection.close()
    if not rows and (suite is not None or wanted_tags):
        return f"{database} has no runs of that suite and tags."
    if not rows:
        example = collector_command("run", database=database, then="-- python train.py")
        return f"{database} has no runs yet. Record one: {example}"
    return _format_table([_format_cells(row) for row in rows], columns)


def _format_cells(row: sqlite3.Row) -> list[str]:
    seen = row["torch_version"] is not None or row["compile_count"] > 0
    took_us = (row["ended_us"] or row["started_us"]) - row["started_us"]  # 0: a single moment
    counts = (row["compile_count"], row["graph_break_count"], row["recompile_count"])
    return [
        row["id"],
        f"{datetime.fromtimestamp(row['started_us'] / 1e6):%Y-%m-%d %H:%M}"
        if row["started_us"]
        else NOT_RECORDED,
        printable(row["name"])[:30],
        printable(row["suite"] or "–")[:20],
        row["state"],
        *(str(count) if seen or count else "–" for count in counts),
        duration_text(row["compile_us"]) if row["compile_us"] else "–",
        duration_text(took_us) if row["started_us"] and took_us else "–",
    ]


def _format_table(table: list[list[str]], columns: int | None) -> str:
    lines = [list(HEADER), *table]
    shortest = next(
        n for n in range(SHORT_ID, 65) if len({row[0][:n] for row in table}) == len(table)
    )
    for column, width in (
        (0, shortest),
        (1, 0),
        (2, SHORT_NAME),
        (3, SHORT_SUITE),
        (COMPILES, 0),
        (COMPILING, 0),
    ):
        if (
            columns is None
            or sum(_column_widths(lines)) + len(GAP) * (len(lines[0]) - 1) <= columns
        ):
            break
        if column == COMPILES:
            lines[0][column] = "comp."
        for line in lines:
            if column == COMPILING:  # `show` has it
                del line[column]
            elif line is not lines[0] and column < COMPILES:
                # The order implies the year; a truncated name is marked.
                line[column] = (
                    line[column][5:]
                    if column == 1
                    else _truncate(line[column], width, mark=column > 1)
                )
    widths = _column_widths(lines)
    return "\n".join(
        GAP.join(
            cell.rjust(width) if column_number >= COMPILES else cell.ljust(width)
            for column_number, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )


def _column_widths(lines: list[list[str]]) -> list[int]:
    return [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]


def _truncate(text: str, width: int, *, mark: bool) -> str:
    if len(text) <= width:
        return text
    return text[: width - 1] + "…" if mark else text[:width]
