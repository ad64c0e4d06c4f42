"""`compileboard incidents`: scan for regressions, list and triage them."""

from __future__ import annotations

import sys
from contextlib import closing

import click

from compileboard.app.cli.common import board_option, db_option
from compileboard.app.core.format import format_plural, format_time
from compileboard.app.incidents.model import STATES, STATUSES
from compileboard.app.incidents.queries import ACTIVE, NOT_IGNORED, IncidentFilter
from compileboard.app.reports.check_report import one_line
from compileboard.app.reports.output import fail
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.incident_triage import ACTIONS, save_comment
from compileboard.collectors.store.tokens import command_origin, record_action
from compileboard.command_line import Choice, Group

EPILOG = """\
Examples:
  %(prog)s update                       scan new runs; \
the dashboard does so by itself while it serves
  %(prog)s list                         open incidents
  %(prog)s list --all --suite nightly
  %(prog)s show gx3k2m7yqz4ab6tn
  %(prog)s acknowledge gx3k2m7yqz4ab6tn --author Ada --text "fix in #812"
  %(prog)s ignore gx3k2m7yqz4ab6tn --author Ada --text "the machine was moved"

Exit codes: 0 done, 2 not done: there is no such incident, a text is missing, \
or the database cannot be used.
"""
_ACTION_HELP = {
    "acknowledge": "Acknowledge an incident: you take care of it.",
    "ignore": "Ignore an incident, with a reason; this mutes its alerts.",
    "comment": "Comment on an incident.",
    "reopen": "Reopen an incident that was acknowledged or ignored.",
}


@click.group(cls=Group, epilog=EPILOG)
def incidents() -> None:
    """Detect changes in every series, group them into incidents, and triage the incidents."""


id_argument = click.argument(
    "incident_id", metavar="ID", help="Incident's ID, or that of one of its changes."
)


@incidents.command()
@db_option
@click.option("--everything", is_flag=True, help="Scan all series again, not only new runs.")
def update(db: str, everything: bool) -> None:
    """Update the incidents from the recorded runs."""
    from compileboard.app.incidents.update import update_incidents

    done = update_incidents(db, everything=everything)
    _print_line(
        f"{format_plural(done.run_count, 'run')}, "
        f"{format_plural(done.series_count, 'series', 'series')} scanned: "
        f"{format_plural(len(done.new_ids), 'new incident')}, {done.changed_count} changed"
    )


@incidents.command("list")
@board_option
@click.option("--suite", metavar="NAME", help="Only this suite.")
@click.option("--model", metavar="NAME", help="Only this model.")
@click.option("--state", type=Choice(STATES), help="Only this state.")
@click.option("--status", type=Choice(STATUSES), help="Only this status.")
@click.option(
    "--all", "everything", is_flag=True, help="List improvements, ignored and withdrawn ones too."
)
@click.option(
    "--limit", type=int, default=50, metavar="N", help="Most incidents to list. Default: 50."
)
def list_command(
    db: str,
    suite: str | None,
    model: str | None,
    state: str | None,
    status: str | None,
    everything: bool,
    limit: int,
) -> int:
    """List incidents, the one with the newest run first."""
    from compileboard.app.incidents.queries import list_incidents

    if not 1 <= limit <= 10_000:
        return fail(f"--limit is {limit}; expected 1 to 10000")
    is_plain = not (everything or state or status)
    selection = IncidentFilter(
        suite=suite,
        model=model,
        state=state or (ACTIVE if is_plain else None),
        status=status or (NOT_IGNORED if is_plain else None),
        direction="worse" if is_plain else None,
    )
    with closing(open_reader(db)) as reader:
        page = list_incidents(reader, selection, None, limit)
    for incident in page.rows:
        since = incident.first_bad.short_commit or format_time(incident.first_us)[:10]
        owner = f" {incident.status} by {incident.owner}" if incident.owner else ""
        _print_line(f"{incident.id}  {since:<10} {incident.state:<11} {incident.title}{owner}")
        for metric in incident.headlines:
            _print_line(
                f"{metric.label} {metric.values}{f' ({metric.size})' if metric.size else ''}",
                indent=18,
            )
    if not page.rows:
        _print_line("no open incidents; --all lists all" if is_plain else "no incidents match")
    elif page.next:
        _print_line(f"these are the newest {limit}; --limit lists more")
    return 0


@incidents.command()
@id_argument
@board_option
def show(incident_id: str, db: str) -> int:
    """Show one incident with its likely cause and its changes."""
    from compileboard.app.incidents.model import ACTION_LABELS, list_checks
    from compileboard.app.incidents.page_model import build_detail
    from compileboard.app.incidents.queries import find_incident_of

    with closing(open_reader(db)) as reader:
        incident = build_detail(reader, incident_id) or build_detail(
            reader, find_incident_of(reader, incident_id) or ""
        )
    if incident is None:
        return _fail_no_incident(incident_id)
    _print_line(incident.title)
    _print_line(incident.measured_as)
    owner = f", {incident.status} by {incident.owner}" if incident.owner else ""
    reason = f": {incident.reason}" if incident.reason else ""
    _print_line(f"{incident.state}{owner}{reason}")
    for label, run in (
        ("first bad", incident.first_bad),
        ("last good", incident.last_good),
        ("recovered", incident.recovered),
    ):
        if run is not None:
            _print_line(
                f"{label}: {run.label}  {format_time(run.started_us)[:16]}  "
                f"{run.subject or ''}  run {run.run_id}"
            )
    for part in incident.environment:
        _print_line(f"environment: {part['word']} {part['before']} → {part['now']}")
    for commit in (incident.commits or {}).get("listed") or ():
        _print_line(f"commit: {commit['hash'][:7]} {commit['author']}: {commit['subject']}")
    for cause in incident.causes:
        _print_line(f"likely cause: {cause.text}{f' ({cause.reason})' if cause.reason else ''}")
        for check in list_checks(cause):
            _print_line(f"{'✓' if check.passed else '–'} {check.text}", indent=2)
    if not incident.causes:
        _print_line("no cause found; compare the runs before and after")
    for change in incident.changes:
        _print_line(f"change {change.id}: {change.sentence}; {change.state}, {change.confidence}")
    for comment in incident.comments:
        text = f": {comment.text}" if comment.text else ""
        _print_line(
            f"{format_time(comment.time_us)[:16]} {comment.author} "
            f"{ACTION_LABELS[comment.action]}{text}"
        )
    return 0


def _add_action(action: str, text: str) -> None:
    @incidents.command(action, help=text)
    @id_argument
    @board_option
    @click.option("--author", required=True, metavar="NAME", help="Author's name.")
    @click.option("--text", metavar="TEXT", help="Comment or reason; ignore and comment need one.")
    def add_comment(incident_id: str, db: str, author: str, text: str | None) -> int:
        with closing(open_writer(db)) as writer:
            try:
                saved = save_comment(writer, incident_id, action, author=author, text=text)
                if saved:
                    record_action(
                        writer,
                        f"incident.{action}",
                        incident_id,
                        command_origin(),
                        detail=f"by {author}",
                    )
            except ValueError as error:
                return fail(f"--{error}")
        return 0 if saved else _fail_no_incident(incident_id)


for _action in ACTIONS:
    _add_action(_action, _ACTION_HELP[_action])


def _fail_no_incident(incident_id: str) -> int:
    return fail(
        f"there is no incident {incident_id[:80]!r}; `compileboard incidents list --all` lists them"
    )


def _print_line(text: str, indent: int = 0) -> None:
    sys.stdout.write(" " * indent + one_line(text) + "\n")
