"""Options that several commands of the dashboard share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from compileboard.app.core.address import parse_address
from compileboard.app.core.newest import RecorderClock, read_clock
from compileboard.app.core.settings import load_settings

Decorator = Callable[[Any], Any]


def _find_database(ctx: click.Context, param: click.Parameter, path: str | None) -> str:
    return load_settings(os.environ, {"db": path}).db


def _find_board(ctx: click.Context, param: click.Parameter, path: str | None) -> str:
    return parse_address(_find_database(ctx, param, path)).board


def _make_option(find: Callable[[click.Context, click.Parameter, str | None], str]) -> Decorator:
    return click.option(
        "--db",
        type=click.Path(readable=False),
        metavar="FILE",
        callback=find,
        help="Database file, or clickhouse:// address. Default: compileboard.db.",
    )


db_option = _make_option(_find_database)
board_option = _make_option(_find_board)  # For commands that do not query all runs.


def read_command_clock() -> RecorderClock:
    return read_clock(load_settings(os.environ, {}).stale_after_s)
