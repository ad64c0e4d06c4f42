"""`compileboard baseline`: keep a run's results for later comparisons."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import wraps
from typing import Any

import click

from compileboard.app.checks.check_sides import load_run
from compileboard.app.checks.model import CannotCompare, Side
from compileboard.app.cli.common import db_option, read_command_clock
from compileboard.app.comparison.baselines import (
    Baseline,
    dump_baseline,
    get_baseline,
    list_baselines,
    list_changes,
    load_baseline,
    merge,
    shorten,
)
from compileboard.app.comparison.sides import format_baseline_names, need_run
from compileboard.app.core.address import parse_address
from compileboard.app.core.format import format_plural, format_time
from compileboard.app.core.page import FilterError
from compileboard.app.core.store import Store, open_store
from compileboard.app.reports.check_report import one_line, write_outputs
from compileboard.app.reports.output import describe_write_error, fail, write_file
from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.dashboard import delete_baseline, save_baseline
from compileboard.collectors.store.tokens import command_origin, record_action
from compileboard.command_line import Group

EPILOG = """\
Examples:
  %(prog)s save main --run latest --note "release 2.4"
  %(prog)s update main --run 01JD3W                  all of it, and print what changed
  %(prog)s update main --run latest --model resnet18 only that model
  %(prog)s show main
  %(prog)s export main --output inductor_torchbench_inference.csv

A baseline holds its rows itself: deleting the run takes nothing from it.
Compare with it: compileboard check --baseline NAME
Exit codes: 0 done, 2 not done: the name is taken or unknown, \
or the run or the database cannot be used.
"""
COLUMNS = ("name", "accuracy", "graph_breaks", "calls_captured", "fallbacks_to_eager")


@click.group(cls=Group, epilog=EPILOG)
def baseline() -> None:
    """Save a run's results, distinct graph breaks and causes of recompiles under a name."""


def baseline_action(function: Callable[..., Iterator[str]]) -> click.Command:
    @wraps(function)
    def run(db: str, **options: Any) -> int:
        try:
            with closing(open_store(db)) as store:
                write_outputs((), list(function(store, parse_address(db).board, **options)))
        except OSError as error:
            return fail(describe_write_error(error.filename or "to stdout", error))
        return 0

    return baseline.command(function.__name__.removesuffix("_all"))(db_option(run))


name_argument = click.argument("name", metavar="NAME", help="Baseline's name.")
run_option = click.option(
    "--run", metavar="ID", required=True, help="Run's ID or commit, its beginning, or latest."
)
note_option = click.option("--note", metavar="TEXT", help="Note on why it is the baseline.")


@baseline_action
@name_argument
@run_option
@note_option
def save(store: Store, path: str, name: str, run: str, note: str | None) -> Iterator[str]:
    """Save a run under a new name."""
    side, run_id = _load_run(store, run)
    try:
        with closing(open_writer(path)) as writer:
            is_new = save_baseline(writer, name, dump_baseline(side), run_id=run_id, note=note)
            if is_new:
                record_action(writer, "baseline.save", name, command_origin())
            checkpoint(writer)
    except ValueError as error:
        raise FilterError(str(error)) from None
    if not is_new:
        raise FilterError(
            f"there is a baseline {name!r} already; `baseline update {name} --run {run}` "
            "replaces it, or choose another name"
        )
    yield f"baseline {name}: {_count_contents(side)} of run {run_id}"


@baseline_action
@name_argument
@run_option
@note_option
@click.option(
    "--model", "models", multiple=True, metavar="NAME", help="Only this model; repeatable."
)
def update(
    store: Store, path: str, name: str, run: str, note: str | None, models: tuple[str, ...]
) -> Iterator[str]:
    """Replace the saved results by a run's, and print the changes."""
    stored = _get_baseline(store, name)
    side, run_id = _load_run(store, run)
    before = load_baseline(stored.body, f"baseline {stored.name}")
    after = merge(before, side, list(models))
    changes = list_changes(before, after)
    try:
        with closing(open_writer(path)) as writer:
            save_baseline(
                writer, stored.name, dump_baseline(after), run_id=run_id, note=note, replacing=True
            )
            record_action(writer, "baseline.update", stored.name, command_origin())
            checkpoint(writer)
    except ValueError as error:
        raise FilterError(str(error)) from None
    for change in changes:
        yield f"{change.word:8} {one_line(change.model)}" + (
            f": {one_line(change.detail)}" if change.detail else ""
        )
    yield f"baseline {stored.name}: {len(changes) or 'nothing'} changed, {_count_contents(after)}"


@baseline_action
@name_argument
def show(store: Store, _path: str, name: str) -> Iterator[str]:
    """Show a baseline's content."""
    stored = _get_baseline(store, name)
    side = load_baseline(stored.body, stored.name)
    yield (
        f"baseline {stored.name}: {_count_contents(side)} of run {stored.run_id}, changed "
        f"{format_time(stored.changed_us)}"
    )
    if stored.note:
        yield one_line(stored.note)
    for name, value in side.environment.items():
        yield f"{name}: {one_line(value)}"
    for row in side.rows:
        cells = ", ".join(f"{name}={shorten(value)}" for name, value in row.cells.items())
        yield f"  {one_line(row.key)}: {one_line(cells)}"
    for what, items in (("graph break", side.breaks), ("recompile", side.causes)):
        for distinct in items or ():
            yield (
                f"  {what} in {one_line(distinct.model or 'the run')}: "
                f"{one_line(distinct.reason)} ({distinct.count})"
            )


@baseline_action
def list_all(store: Store, _path: str) -> Iterator[str]:
    """List the baselines."""
    baselines = list_baselines(store.board).rows
    for stored in baselines:
        yield f"{stored.name}  run {stored.run_id}  changed {format_time(stored.changed_us)}" + (
            f"  {one_line(stored.note)}" if stored.note else ""
        )
    if not baselines:
        yield "no baseline yet; compileboard baseline save NAME --run ID"


@baseline_action
@name_argument
def delete(_store: Store, path: str, name: str) -> Iterator[str]:
    """Delete a baseline permanently."""
    with closing(open_writer(path)) as writer:
        if not delete_baseline(writer, name):
            raise FilterError(f"there is no baseline {name!r}; `baseline list` lists them")
        record_action(writer, "baseline.delete", name, command_origin())
        checkpoint(writer)
    yield f"baseline {name}: deleted"


@baseline_action
@name_argument
@click.option(
    "--output", metavar="FILE", default="-", help="File to write; - is stdout. Default: -."
)
def export(store: Store, _path: str, name: str, output: str) -> Iterator[str]:
    """Write upstream's CSV of expected accuracies and counters."""
    side = load_baseline(_get_baseline(store, name).body, name)
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    columns = [
        column
        for column in COLUMNS
        if column in ("name", "accuracy", "graph_breaks") or side.has(column)
    ]
    writer.writerow(columns)
    for row in side.rows:
        if "accuracy" in row.cells:
            writer.writerows([[], [], []])
            writer.writerow([row.name, *(row.cells.get(column, "") for column in columns[1:])])
    if output == "-":
        yield out.getvalue().rstrip("\n")
    else:
        write_file(output, [out.getvalue().encode()])


def _load_run(store: Store, text: str) -> tuple[Side, str]:
    clock = read_command_clock()
    run = need_run(store, clock, text)
    side = load_run(store, clock, run)
    if not side.rows and side.breaks is None and side.causes is None:
        raise CannotCompare(
            f"run {run.id} has neither results nor observed processes; there is nothing to keep"
        )
    return side, run.id


def _get_baseline(store: Store, name: str) -> Baseline:
    stored = get_baseline(store.board, name)
    if stored is None:
        raise FilterError(
            f"there is no baseline {name[:80]!r}; known: {format_baseline_names(store.board)}"
        )
    return stored


def _count_contents(side: Side) -> str:
    return (
        f"{format_plural(len(side.rows), 'result')}, "
        f"{format_plural(len(side.breaks or ()), 'distinct graph break')}, "
        f"{format_plural(len(side.causes or ()), 'cause')} of recompiles"
    )
