"""`compileboard findings`: look for what changed, list it, and say what is done about it."""

from __future__ import annotations

import sys
from contextlib import closing

import click

from compileboard.app.cli.common import db_option
from compileboard.app.format import format_plural, format_time
from compileboard.app.queries.dashboard.incidents import (
    HANDLINGS,
    NOT_WITHDRAWN,
    STATES,
    IncidentFilter,
    SeriesChange,
)
from compileboard.app.reports.checks import one_line
from compileboard.app.reports.output import fail
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.dashboard.audit import command_origin, record_action
from compileboard.collectors.store.dashboard.series_changes import ACTIONS, save_comment
from compileboard.command_line import Choice, Group

EPILOG = """\
Examples:
  %(prog)s update                       look at what is new; the dashboard does so by itself while it serves
  %(prog)s list                         what got worse and nobody has taken up
  %(prog)s list --all --suite nightly
  %(prog)s show gx3k2m7yqz4ab6tn
  %(prog)s acknowledge gx3k2m7yqz4ab6tn --who Ada --text "fix in #812"
  %(prog)s ignore gx3k2m7yqz4ab6tn --who Ada --text "the machine was moved"

Exit codes: 0 done, 2 not done: there is no such finding, a word is missing, or the database cannot be used.
"""
_ACTION_HELP = {
    "acknowledge": "Acknowledge a finding: somebody works on it.",
    "ignore": "Ignore a finding, with a reason.",
    "note": "Add a comment to a finding.",
    "reopen": "Reopen a finding that was acknowledged or ignored.",
}


@click.group(cls=Group, epilog=EPILOG)
def findings() -> None:
    """Find lasting changes in every series: steps, slow drift, and series that stopped."""


id_argument = click.argument("finding_id", metavar="ID", help="Finding's ID.")


@findings.command()
@db_option
@click.option("--everything", is_flag=True, help="Scan all series again, not new runs alone.")
def update(db: str, everything: bool) -> None:
    """Bring the findings up to date with the runs."""
    from compileboard.app.incidents.update import update_findings

    done = update_findings(db, everything=everything)
    _print_line(
        f"{format_plural(done.run_count, 'run')} looked at, {format_plural(done.series_count, 'series', 'series')}: "
        f"{format_plural(len(done.new_ids), 'new finding')}, {done.changed_count} changed, {done.removed_count} gone"
    )


@findings.command("list")
@db_option
@click.option("--suite", metavar="NAME", help="Only this suite.")
@click.option("--model", metavar="NAME", help="Only this model.")
@click.option("--state", type=Choice(STATES), help="Only this state.")
@click.option("--handling", type=Choice(HANDLINGS), help="Only this status.")
@click.option("--all", "everything", is_flag=True, help="List improvements, acknowledged and withdrawn ones too.")
@click.option("--limit", type=int, default=50, metavar="N", help="Most findings to list. Default: 50.")
def list_changes(
    db: str,
    suite: str | None,
    model: str | None,
    state: str | None,
    handling: str | None,
    everything: bool,
    limit: int,
) -> int:
    """List findings, those of the newest runs first."""
    from compileboard.app.analysis.incidents.messages import describe_finding, describe_series
    from compileboard.app.screens.fleet.incidents import build_change_list

    if not 1 <= limit <= 10_000:
        return fail(f"--limit is {limit}; expected 1 to 10000")
    is_plain = not (everything or state or handling)
    selection = IncidentFilter(
        suite=suite,
        model=model,
        state=state or (None if everything else NOT_WITHDRAWN),
        handling=handling or (None if everything else "open"),
        direction="worse" if is_plain else None,
    )
    with closing(open_reader(db)) as reader:
        listed = build_change_list(reader, selection, None, limit)
    for change in listed.changes:
        day, state_name = format_time(change.first_us)[:10], _name_state(change)
        _print_line(f"{change.id}  {day}  {state_name:<10} {describe_finding(change)}")
        sys.stdout.write(f"{'':18}{one_line(describe_series(change))}\n")
    if not listed.changes:
        _print_line("nothing got worse that nobody has taken up; --all lists all" if is_plain else "nothing found")
    elif listed.next_cursor:
        _print_line(f"these are the newest {limit}; --limit lists more")
    return 0


def _name_state(change: SeriesChange) -> str:
    return "recovered" if change.recovered_run_id and change.state == "confirmed" else change.state


@findings.command()
@id_argument
@db_option
def show(finding_id: str, db: str) -> int:
    """Show one finding with what may have caused it."""
    from compileboard.app.analysis.incidents.messages import (
        describe_cause,
        describe_commit_range,
        describe_finding,
        describe_series,
        describe_state,
        format_confidence,
    )
    from compileboard.app.screens.fleet.incidents import build_incident_record

    with closing(open_reader(db)) as reader:
        record = build_incident_record(reader, finding_id)
    if record is None:
        return _no_such(finding_id)
    change, comments = record.change, record.comments
    for line in (
        describe_finding(change),
        describe_series(change),
        describe_commit_range(change),
        f"{change.state}: {describe_state(change)}; {change.handling}; {format_confidence(change)}",
        *(f"environment: {fact['word']} {fact['before']} → {fact['now']}" for fact in change.evidence["environment"]),
        *(
            f"commit: {commit['hash'][:10]} {commit['author']}: {commit['subject']}"
            for commit in change.evidence["commits"]["listed"]
        ),
        *(f"suspected cause: {describe_cause(cause)}" for cause in change.evidence["causes"]),
        *(
            f"{format_time(comment.time_us)[:16]} {comment.who}: "
            + ": ".join(filter(None, (comment.action, comment.text)))
            for comment in comments
        ),
    ):
        _print_line(line)
    return 0


def _add_action(action: str, text: str) -> None:
    @findings.command(action, help=text)
    @id_argument
    @db_option
    @click.option("--who", "author", required=True, metavar="NAME", help="Author's name.")
    @click.option("--text", metavar="TEXT", help="Comment; ignore and note need one.")
    @click.option("--range", "whole_range", is_flag=True, help="Apply to all findings of the same commit range.")
    def add_comment(finding_id: str, db: str, author: str, text: str | None, whole_range: bool) -> int:
        with closing(open_writer(db)) as writer:
            try:
                saved = save_comment(writer, finding_id, action, author=author, text=text, whole_range=whole_range)
                if saved:
                    record_action(writer, f"finding.{action}", finding_id, command_origin(), detail=f"by {author}")
            except ValueError as error:
                return fail(f"--{error}")
        return 0 if saved else _no_such(finding_id)


for _action in ACTIONS:
    _add_action(_action, _ACTION_HELP[_action])


def _no_such(finding_id: str) -> int:
    return fail(f"there is no finding {finding_id[:80]!r}; `compileboard findings list --all` lists them")


def _print_line(text: str) -> None:
    sys.stdout.write(one_line(text) + "\n")
