"""`token`: create, list and revoke tokens."""

from __future__ import annotations

import sys
import time
from contextlib import closing

import click

from compileboard.app.cli.common import board_option
from compileboard.app.core.format import format_time
from compileboard.app.reports.check_report import one_line
from compileboard.app.reports.output import fail
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.migrations import make_missing
from compileboard.collectors.store.tokens import (
    TokenError,
    command_origin,
    create_token,
    read_scopes,
    record_action,
    revoke_token,
)
from compileboard.command_line import Command, Group

UNITS_S = {"d": 86_400, "h": 3_600}
NOTES = """\
Scopes: ingest sends runs; read sees pages and API; write may read, send, comment, \
delete and restore; admin may all.
A server that runs notices both at its next request.
Exit codes: 0 done, 2 not done.
"""


@click.group(cls=Group, epilog=NOTES)
def token() -> None:
    """Create, list and revoke tokens, with which people log in and machines send runs."""


@token.command(cls=Command)
@click.argument("name", metavar="NAME", help="The person or machine that gets it.")
@click.option(
    "--scope",
    required=True,
    metavar="SCOPES",
    help="What it may: ingest, read, write, admin; with commas.",
)
@click.option(
    "--expires",
    default="never",
    metavar="TIME",
    help="When it ends: 90d, 12h, never. Default: never.",
)
@board_option
def create(name: str, scope: str, expires: str, db: str) -> int:
    """Create a token, and print its secret. The secret is not shown again."""
    now_us = time.time_ns() // 1000
    try:
        scopes, life_us = read_scopes(scope), parse_lifetime_us(expires)
    except TokenError as error:
        return fail(str(error))
    expires_us, origin = life_us and now_us + life_us, command_origin()
    made = make_missing(db)
    if made is not None:
        sys.stderr.write(f"compileboard: {one_line(made)}\n")
    open_reader(db).close()  # reports what is wrong with it
    with closing(open_writer(db, create=False)) as writer:
        try:
            secret = create_token(
                writer,
                name,
                scopes,
                created_by=origin.actor or "",
                expires_us=expires_us,
                now_us=now_us,
            )
        except TokenError as error:
            return fail(str(error))
        until = f"until {format_time(expires_us)}" if expires_us else "without end"
        detail = f"{', '.join(scopes)}, {until}"
        record_action(writer, "token.create", secret.split("_")[1], origin, detail=detail)
    print(secret)
    sys.stderr.write(one_line(f"{name}: {detail}. Keep the secret: nothing shows it again.") + "\n")
    return 0


@token.command("list", cls=Command)
@board_option
def list_all(db: str) -> None:
    """List tokens, newest first."""
    from compileboard.app.core.logins import list_tokens

    with closing(open_reader(db)) as reader:
        for row in list_tokens(reader).rows:
            used = (
                f"used {format_time(row.last_used_us)} from {row.last_address}"
                if row.last_used_us
                else "never used"
            )
            until = f"until {format_time(row.expires_us)}" if row.expires_us else "no end"
            parts = (row.id, row.state, row.scopes, row.name, f"({until}, {used})")
            print(one_line("  ".join(parts)))


@token.command(cls=Command)
@click.argument("name", metavar="NAME|ID", help="The token's name or ID.")
@board_option
def revoke(name: str, db: str) -> int:
    """Revoke a token and end its logins."""
    open_reader(db).close()  # reports what is wrong with it
    with closing(open_writer(db, create=False)) as writer:
        token_id = revoke_token(writer, name)
        if token_id is None:
            return fail(
                f"no token in force is called {name[:80]!r}; `compileboard token list` lists all"
            )
        record_action(writer, "token.revoke", token_id, command_origin())
    print(f"revoked {token_id}")
    return 0


def parse_lifetime_us(text: str) -> int | None:
    """Parse `90d` or `12h`, None for never. Raises TokenError."""
    if text == "never":
        return None
    number, unit = text[:-1], text[-1:]
    if (
        unit not in UNITS_S
        or not number.isascii()
        or not number.isdigit()
        or not 0 < int(number) <= 36_500
    ):
        raise TokenError(
            f"--expires is {text[:40]!r}; expected a number of days or hours, as 90d or 12h, "
            "or never"
        )
    return int(number) * UNITS_S[unit] * 1_000_000
