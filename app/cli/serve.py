"""`serve`, `follow` and `migrate`: the processes of the dashboard, and its database."""

from __future__ import annotations

import os
from typing import Any

import click

from compileboard.app.cli.common import db_option
from compileboard.app.core.address import parse_address, read_password
from compileboard.app.core.format import format_plural
from compileboard.app.core.log_lines import log, set_log_format
from compileboard.app.core.settings import SETTINGS, load_settings, variable_name
from compileboard.collectors.store.connection import StoreError, open_reader
from compileboard.command_line import Command, Option
from compileboard.exit_codes import REFUSED

SERVE_SETTINGS = {  # the settings that are options, by their type
    "db": "FILE",
    "host": "ADDRESS",
    "port": "N",
    "workers": "N",
    "threads": "N",
    "allow_host": "NAMES",
    "reading": "WHO",
    "trusted_proxies": "N",
    "identity_header": "NAME",
    "identity_scopes": "MAP",
    "identity_secret_file": "FILE",
    "alerts": "FILE",
    "forges": "HOSTS",
    "follow": "YES",
    "read_only": "[YES]",
    "log_format": "FORMAT",
}
FOLLOW_NOTES = """\
`serve` starts this by itself (--follow no leaves it out). Where nothing serves, \
run it beside the collectors, or
from cron: `compileboard incidents update` and `compileboard alerts send`.
Exit codes: 0 stopped, 2 the database cannot be used.
"""


def _list_options() -> list[click.Parameter]:
    options: list[click.Parameter] = []
    for setting in SETTINGS:
        if setting.name in SERVE_SETTINGS:
            text = (
                f"{setting.help} Default: {setting.default or 'none'}. Environment: "
                f"{variable_name(setting)}."
            )
            flag = f"--{setting.name.replace('_', '-')}"
            bare: dict[str, Any] = (
                {"is_flag": False, "flag_value": "yes"} if setting.name == "read_only" else {}
            )
            options.append(Option([flag], metavar=SERVE_SETTINGS[setting.name], help=text, **bare))
    return options


@click.command(
    cls=Command,
    params=_list_options(),
    epilog="Also from the environment:\n"
    + "".join(
        f"  {variable_name(setting)}\n"
        for setting in SETTINGS
        if setting.name not in SERVE_SETTINGS
    ),
)
def serve(**options: str | None) -> int:
    """Serve the dashboard until interrupted. Every option can also be set in the environment."""
    from compileboard.app.server.gunicorn_server import ServeError
    from compileboard.app.server.gunicorn_server import serve as serve_dashboard

    settings = load_settings(os.environ, options)
    set_log_format(settings.log_format)
    try:
        return serve_dashboard(settings, os.environ)
    except (ServeError, StoreError) as error:
        log(str(error), "error")
        return REFUSED


@click.command(cls=Command)
@db_option
def migrate(db: str) -> None:
    """Upgrade an older database, or create an empty one. Safe to run twice, or by two processes at
    once.
    """
    from compileboard.app.clickhouse.tables import prepare_store

    applied = prepare_store(parse_address(db), read_password(os.environ))
    print(
        f"{db}: {format_plural(applied, 'migration')} applied" if applied else f"{db}: up to date"
    )


@click.command(cls=Command, epilog=FOLLOW_NOTES)
@db_option
@click.option(
    "--alerts", metavar="FILE", help="File of alert rules. Default: none, nothing is sent."
)
@click.option("--while-stdin", is_flag=True, help="Stop when stdin is closed, as under `serve`.")
def follow(db: str, alerts: str | None, while_stdin: bool) -> int:
    """Update incidents as runs arrive, and send due alerts, until interrupted."""
    from compileboard.app.server import follow as follower

    settings = load_settings(os.environ, {"alerts": alerts})
    set_log_format(settings.log_format)
    try:
        open_reader(parse_address(db).board).close()
    except StoreError as error:
        log(str(error), "error")
        return REFUSED
    wait = follower.wait_for_stdin if while_stdin else follower.sleep
    more = {"prune_after_days": settings.prune_after_days, "seal_after_s": settings.seal_after_s}
    return follower.follow(db, settings.alerts, os.environ, wait, **more)
