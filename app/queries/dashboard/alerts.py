"""What alerts sent, what waits, and what failed; and the findings that a rule has not looked at."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from compileboard.app.queries.page import Page, decode_cursor, make_page

STATES = ("waiting", "sending", "sent", "failed", "unknown", "dropped")
MOST_WAITING = 10_000

_COLUMNS = """
  d.rule, d.channel, d.finding_id, d.state, d.message_id, d.attempt_count, d.error, d.due_us, d.queued_us, d.changed_us,
  coalesce(f.noticed_us, d.queued_us) as noticed_us
"""
LIST_SQL = f"""
select {_COLUMNS}
from alert_deliveries as d
left join findings as f on f.id = d.finding_id
where (:changed_us is null
    or d.changed_us < :changed_us
    or (d.changed_us = :changed_us and (d.rule, d.channel, d.finding_id) > (:after_rule, :after_channel, :after_id)))
  and (:state is null or d.state = :state)
  and (:rule is null or d.rule = :rule)
order by d.changed_us desc, d.rule, d.channel, d.finding_id
limit :limit
"""  # noqa: S608  own texts only
WAITING_SQL = f"""
select {_COLUMNS}
from alert_deliveries as d
left join findings as f on f.id = d.finding_id
where d.rule = :rule
  and d.channel = :channel
  and d.state = 'waiting'
order by d.queued_us, d.finding_id
limit :limit
"""  # noqa: S608
COUNT_SQL = """
select rule, channel, state, count(*) as delivery_count
from alert_deliveries
group by rule, channel, state
order by rule, channel, state
"""
# Confirmed, open, and never queued for this channel of this rule.
NEW_SQL = """
select f.id
from findings as f
where f.state = 'confirmed'
  and f.handling = 'open'
  and f.confirmed_us >= :since_us
  and f.noticed_us >= :noticed_us
  and not exists (
    select 1
    from alert_deliveries as d
    where d.rule = :rule
      and d.channel = :channel
      and d.finding_id = f.id
  )
order by f.confirmed_us, f.id
limit :limit
"""
RULES_SQL = """
select rule
from alert_rules
union
select rule
from alert_deliveries
order by rule
limit 10000
"""
START_SQL = "select rule, first_us, since_us, seen_us from alert_rules where rule = :rule"


@dataclass(frozen=True)
class Delivery:
    """The delivery of one finding, of one rule, to one channel; `noticed_us` is when it was seen to be confirmed.

    Findings of one message share its id, its attempts and when it is due again.
    """

    rule: str
    channel: str
    finding_id: str
    state: str
    message_id: str | None
    attempt_count: int
    error: str | None
    due_us: int
    queued_us: int
    changed_us: int
    noticed_us: int

    @classmethod
    def fresh(cls, rule: str, channel: str, finding_id: str, noticed_us: int, now_us: int) -> Delivery:
        """Make one as it is when it has just been queued."""
        return cls(rule, channel, finding_id, "waiting", None, 0, None, now_us, now_us, now_us, noticed_us)


@dataclass(frozen=True)
class RuleStart:
    """When a rule first ran, from when on it applies to findings, and when it ran last."""

    rule: str
    first_us: int
    since_us: int
    seen_us: int


def list_deliveries(
    connection: sqlite3.Connection,
    state: str | None = None,
    rule: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Delivery]:
    """List deliveries, those that changed last first.

    Raises: FilterError if the cursor cannot be used.
    """
    changed_us, *after = decode_cursor(cursor, int, str, str, str) or (None, "", "", "")
    values = {"changed_us": changed_us, "state": state, "rule": rule, "limit": limit + 1}
    values |= dict(zip(("after_rule", "after_channel", "after_id"), after))
    rows = [Delivery(**dict(row)) for row in connection.execute(LIST_SQL, values)]
    return make_page(
        rows, limit, lambda delivery: (delivery.changed_us, delivery.rule, delivery.channel, delivery.finding_id)
    )


def list_waiting(connection: sqlite3.Connection, rule: str, channel: str, limit: int = MOST_WAITING) -> list[Delivery]:
    """List what a rule has waiting for a channel, the oldest first."""
    rows = connection.execute(WAITING_SQL, {"rule": rule, "channel": channel, "limit": limit})
    return [Delivery(**dict(row)) for row in rows]


def count_deliveries(connection: sqlite3.Connection) -> dict[tuple[str, str, str], int]:
    """Count deliveries by rule, channel and state."""
    return {(row["rule"], row["channel"], row["state"]): row["delivery_count"] for row in connection.execute(COUNT_SQL)}


def list_new_finding_ids(
    connection: sqlite3.Connection,
    rule: str,
    channel: str,
    since_us: int,
    noticed_us: int,
    limit: int = MOST_WAITING,
) -> list[str]:
    """List findings that are confirmed and open and that a rule never queued for a channel, the oldest first.

    `since_us` is for the run that confirmed them, `noticed_us` for when that was found out.
    """
    values = {"rule": rule, "channel": channel, "since_us": since_us, "noticed_us": noticed_us, "limit": limit}
    return [row["id"] for row in connection.execute(NEW_SQL, values)]


def list_rule_names(connection: sqlite3.Connection) -> list[str]:
    """List the rules that ran."""
    return [row["rule"] for row in connection.execute(RULES_SQL)]


def get_rule_start(connection: sqlite3.Connection, rule: str) -> RuleStart | None:
    """Return when a rule first ran, or None if it never did."""
    row = connection.execute(START_SQL, {"rule": rule}).fetchone()
    return RuleStart(**dict(row)) if row else None
