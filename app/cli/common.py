"""What several commands of the dashboard take."""

from __future__ import annotations

import os

import click

from compileboard.app.queries.newest import RecorderClock, read_clock
from compileboard.app.settings import load_settings


def _find_database(ctx: click.Context, param: click.Parameter, given: str | None) -> str:
    return load_settings(os.environ, {"db": given}).db


db_option = click.option(
    "--db",
    type=click.Path(readable=False),
    metavar="FILE",
    callback=_find_database,
    help="Database file. Default: compileboard.db.",
)


def read_command_clock() -> RecorderClock:
    """Return this moment, with the silence after which a run no longer counts as running."""
    return read_clock(load_settings(os.environ, {}).stale_after_s)
