"""The `compileboard` command (`python -m app`): its subcommands are imported when they are
called.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import click

from compileboard.app.core.page import FilterError
from compileboard.app.core.resources import __version__
from compileboard.app.core.settings import SettingError
from compileboard.app.reports.output import fail
from compileboard.collectors.store.connection import StoreError, explain
from compileboard.command_line import SETTINGS, CommandEntry, Group, run_group

# Dependencies of the extra [server]; an environment that only collects lacks them.
SERVER_MODULES = (
    "flask",
    "gunicorn",
    "jinja2",
    "numpy",
    "orjson",
    "pandas",
    "plotly",
    "sqlite_utils",
    "werkzeug",
)
COMMANDS = {
    "serve": CommandEntry("serve:serve", "Serve the dashboard."),
    "migrate": CommandEntry("serve:migrate", "Bring a database up to date."),
    "export": CommandEntry(
        "export:export",
        (
            "Write a run's report, a comparison or a suite over a period as HTML, JSON, CSV, "
            "Parquet or Markdown."
        ),
    ),
    "report": CommandEntry("report:report", "Write every suite's last days to a folder, for cron."),
    "check": CommandEntry("check:check", "Compare a run with a baseline, for CI."),
    "baseline": CommandEntry("baseline:baseline", "Save a run's results to compare with."),
    "alerts": CommandEntry("alerts:alerts", "Send incidents as alerts, by rules."),
    "incidents": CommandEntry(
        "incidents:incidents", "Find what got slower, fails or breaks more, and triage it."
    ),
    "follow": CommandEntry("serve:follow", "Update incidents as runs arrive, and send alerts."),
    "trash": CommandEntry(
        "activity:trash", "Delete runs, restore deleted ones, or delete those for good."
    ),
    "token": CommandEntry("tokens:token", "Make, list and revoke tokens for people and machines."),
    "audit": CommandEntry("activity:audit", "List who changed what."),
    "backup": CommandEntry("maintenance:backup", "Back up a database while it is served."),
    "restore": CommandEntry("maintenance:restore", "Put a backup in place of a database."),
    "copy": CommandEntry(
        "maintenance:copy", "Copy a database into ClickHouse or back, and verify the copy."
    ),
    "prune": CommandEntry("maintenance:prune", "Delete the detail of old runs."),
    "verify": CommandEntry("maintenance:verify", "Check a database or a backup."),
}
EPILOG = """\
Examples:
  %(prog)s serve                              the dashboard over compileboard.db at http://127.0.0.1:8000
  %(prog)s serve --db /data/team.db --port 9000
  %(prog)s migrate --db /data/team.db         bring an older database up to date, \
or make an empty one
  %(prog)s export --run ID --format html --output report.html
  %(prog)s report --folder reports            every suite's last week as files, for cron
  %(prog)s check --run latest --baseline previous     exit 1 where it got worse
  %(prog)s incidents list                     what is worse, since when and why
  %(prog)s baseline save main --run ID        keep a run's results to compare with
  %(prog)s trash restore ID                   restore a run deleted within a week
  %(prog)s token create ann --scope write --expires 90d
  %(prog)s audit                              who changed what
  %(prog)s backup /backups/2026-11-23         a live database into a folder; \
verify and restore take it
  %(prog)s copy team.db clickhouse:///srv/board   a file into a folder beside ClickHouse, or back
  %(prog)s alerts send --rules alerts.toml    send alerts

Record runs with: compileboard-collect run -- python train.py
"""


def main(argv: Sequence[str] | None = None) -> int:
    return run_group(dashboard, argv, "compileboard")


def explain_error(error: Exception, database: str | None) -> bool:
    if isinstance(error, (SettingError, StoreError, FilterError)):
        fail(str(error))
    elif isinstance(error, sqlite3.Error):
        fail(str(explain(error, database or "the database")))
    elif (
        isinstance(error, ModuleNotFoundError)
        and (error.name or "").partition(".")[0] in SERVER_MODULES
    ):
        fail(
            f"the dashboard needs: pip install 'compileboard[server]' ({error.name} is not "
            "installed)"
        )
    else:
        return False
    return True


@click.group(
    "compileboard",
    cls=Group,
    entries={
        name: CommandEntry(f"{__package__}.{entry.target}", entry.help)
        for name, entry in COMMANDS.items()
    },
    explain=explain_error,
    context_settings=SETTINGS,
    epilog=EPILOG,
)
@click.version_option(__version__, message=f"compileboard {__version__}", help="Show the version.")
def dashboard() -> None:
    """Show what torch.compile did: the dashboard and its tools."""
