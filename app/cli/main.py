"""`compileboard` = `python -m app`: serve the dashboard, migrate a database, export or check a run, keep baselines."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from collections.abc import Sequence

from compileboard.app.cli.activity import add_parser as add_activity
from compileboard.app.cli.alerts import add_parser as add_alerts
from compileboard.app.cli.baseline import add_parser as add_baseline
from compileboard.app.cli.check import add_parser as add_check
from compileboard.app.cli.export import add_site_parser as add_export
from compileboard.app.cli.incidents import add_parser as add_findings
from compileboard.app.cli.report import add_parser as add_report
from compileboard.app.follow import add_parser as add_follow
from compileboard.app.resources import __version__
from compileboard.app.settings import SETTINGS, SettingError, load_settings, variable_name
from compileboard.collectors.store.errors import StoreError, explain

SERVE_SETTINGS = ("db", "host", "port", "workers", "threads", "allow_host", "allow_writes", "alerts", "follow")
# What the extra [server] brings; an environment that only collects is without them.
SERVER_MODULES = ("flask", "gunicorn", "jinja2", "numpy", "orjson", "pandas", "plotly", "sqlite_utils", "werkzeug")
EPILOG = """\
examples:
  %(prog)s serve                              the dashboard over compileboard.db at http://127.0.0.1:8000
  %(prog)s serve --db /data/team.db --port 9000
  %(prog)s migrate --db /data/team.db         bring an older database up to date, or make an empty one
  %(prog)s export --run ID --format html --output report.html
  %(prog)s report --folder reports            every suite's last week as files, for cron
  %(prog)s check --run latest --baseline previous     exit 1 where it got worse
  %(prog)s findings list                      what got worse and nobody has taken up
  %(prog)s baseline save main --run ID        keep a run's results to compare with
  %(prog)s trash restore ID                   put back a run that was deleted within a week
  %(prog)s audit                              who changed what
  %(prog)s alerts send --rules alerts.toml    tell people of findings

Record runs with: compileboard-collect run -- python train.py
"""


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="compileboard",
        description="Look at what torch.compile did: the dashboard and its tools.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"compileboard {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="serve the dashboard",
        description="Serve the dashboard until interrupted. Every option can also be set in the environment.",
        epilog="Also from the environment: "
        + ", ".join(variable_name(s) for s in SETTINGS if s.name not in SERVE_SETTINGS)
        + ".",
    )
    for setting in SETTINGS:
        if setting.name in SERVE_SETTINGS:
            text = f"{setting.help} Default: {setting.default or 'none'}. Environment: {variable_name(setting)}."
            option = f"--{setting.name.replace('_', '-')}"
            if setting.name == "allow_writes":
                serve.add_argument(option, nargs="?", const="yes", metavar="YES", help=text)
            else:
                serve.add_argument(option, metavar=_metavar(setting.name), help=text)
    serve.set_defaults(function=_serve)
    migrate = commands.add_parser(
        "migrate",
        help="bring a database up to date",
        description="Bring an older database up to date, or make an empty one. Safe to run twice, or by two at once.",
    )
    migrate.add_argument("--db", metavar="FILE", help="The database file. Default: compileboard.db.")
    migrate.set_defaults(function=_migrate)
    add_export(commands)
    add_report(commands)
    add_check(commands)
    add_baseline(commands)
    add_alerts(commands)
    add_findings(commands)
    add_follow(commands)
    add_activity(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        code = int(arguments.function(arguments) or 0)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has what it wanted. Python flushes stdout once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (SettingError, StoreError) as error:
        return fail(str(error))
    except sqlite3.Error as error:
        return fail(str(explain(error, getattr(arguments, "db", None) or "the database")))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SERVER_MODULES:
            raise
        return fail(f"the dashboard needs: pip install 'compileboard[server]' ({error.name} is not installed)")
    except KeyboardInterrupt:
        return 130


def fail(message: str) -> int:
    """Say one clear sentence on stderr and return exit code 1."""
    print(f"compileboard: {message}", file=sys.stderr)
    return 1


def _metavar(name: str) -> str:
    return {"db": "FILE", "host": "ADDRESS", "allow_host": "NAMES", "alerts": "FILE", "follow": "YES"}.get(name, "N")


def _serve(arguments: argparse.Namespace) -> int:
    from compileboard.app.server import ServeError, serve

    given = {name: getattr(arguments, name) for name in SERVE_SETTINGS}
    try:
        return serve(load_settings(os.environ, given), os.environ)
    except ServeError as error:
        return fail(str(error))


def _migrate(arguments: argparse.Namespace) -> int:
    from compileboard.collectors.store.migrations import migrate

    path = load_settings(os.environ, {"db": arguments.db}).db
    applied = migrate(path)
    print(f"{path}: applied {applied}" if applied else f"{path}: up to date")
    return 0
