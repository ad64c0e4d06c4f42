"""Deliveries of alerts (sent, waiting, failed), and incidents that a rule has not processed."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from compileboard.app.core.page import Page, decode_cursor, make_page
from compileboard.collectors.store.dashboard import OPENED, RECOVERED, AlertKey

STATES = ("waiting", "sending", "sent", "failed", "unknown", "dropped")
MAX_WAITING = 10_000

_COLUMNS = """
  d.rule, d.channel, d.incident_id, d.event, d.state, d.message_id, d.attempt_count, d.error,
  d.due_us, d.queued_us, d.changed_us,
  iif(d.event = 'opened', coalesce(i.noticed_us, d.queued_us), d.queued_us) as noticed_us
"""
LIST_SQL = f"""
select {_COLUMNS}
from incident_deliveries as d
left join incidents as i on i.id = d.incident_id
where (:changed_us is null
    or d.changed_us < :changed_us
    or (d.changed_us = :changed_us
      and (d.rule, d.channel, d.incident_id, d.event) > (:after_rule, :after_channel, :after_id,
        :after_event)))
  and (:state is null or d.state = :state)
  and (:rule is null or d.rule = :rule)
order by d.changed_us desc, d.rule, d.channel, d.incident_id, d.event
limit :limit
"""  # noqa: S608  own texts only
WAITING_SQL = f"""
select {_COLUMNS}
from incident_deliveries as d
left join incidents as i on i.id = d.incident_id
where d.rule = :rule
  and d.channel = :channel
  and d.state = 'waiting'
order by d.queued_us, d.incident_id, d.event
limit :limit
"""  # noqa: S608 - our own names
COUNT_SQL = """
select rule, channel, state, count(*) as delivery_count
from incident_deliveries
group by rule, channel, state
order by rule, channel, state
"""
# Confirmed, not acknowledged, and never queued for this channel of this rule.
OPENED_SQL = """
select i.id
from incidents as i
where i.state in ('open', 'closed')
  and i.status = 'open'
  and i.confirmed_us >= :since_us
  and i.noticed_us >= :noticed_us
  and not exists (
    select 1
    from incident_deliveries as d
    where (d.rule, d.channel, d.incident_id, d.event) = (:rule, :channel, i.id, 'opened')
  )
order by i.confirmed_us, i.id
limit :limit
"""
# A recovery is sent to channels that got the opening.
RECOVERED_SQL = """
select i.id
from incident_deliveries as o
join incidents as i on i.id = o.incident_id
where o.rule = :rule
  and o.channel = :channel
  and o.event = 'opened'
  and o.state in ('sent', 'unknown')
  and i.state = 'recovered'
  and i.status <> 'ignored'
  and i.changed_us >= o.changed_us
  and not exists (
    select 1
    from incident_deliveries as d
    where (d.rule, d.channel, d.incident_id, d.event) = (:rule, :channel, i.id, 'recovered')
  )
order by i.recovered_us, i.id
limit :limit
"""
RULES_SQL = """
select rule
from alert_rules
union
select rule
from incident_deliveries
order by rule
limit 10000
"""
START_SQL = "select rule, first_us, since_us, seen_us from alert_rules where rule = :rule"


@dataclass(frozen=True)
class Delivery:
    """The delivery of an incident's event to one channel. Incidents of one message share its id and
    attempts.
    """

    rule: str
    channel: str
    incident_id: str
    event: str
    state: str
    message_id: str | None
    attempt_count: int
    error: str | None
    due_us: int
    queued_us: int
    changed_us: int
    noticed_us: int

    @classmethod
    def fresh(
        cls, rule: str, channel: str, key: AlertKey, noticed_us: int, now_us: int
    ) -> Delivery:
        return cls(
            rule, channel, *key, "waiting", None, 0, None, now_us, now_us, now_us, noticed_us
        )

    @property
    def key(self) -> AlertKey:
        return AlertKey(self.incident_id, self.event)


@dataclass(frozen=True)
class RuleStart:
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
    """List deliveries, last changed first. Raises FilterError for an invalid cursor."""
    changed_us, *after = decode_cursor(cursor, int, str, str, str, str) or (None, "", "", "", "")
    values = {"changed_us": changed_us, "state": state, "rule": rule, "limit": limit + 1}
    values |= dict(zip(("after_rule", "after_channel", "after_id", "after_event"), after))
    rows = [Delivery(**dict(row)) for row in connection.execute(LIST_SQL, values)]
    return make_page(
        rows,
        limit,
        lambda delivery: (delivery.changed_us, delivery.rule, delivery.channel, *delivery.key),
    )


def list_waiting(connection: sqlite3.Connection, rule: str, channel: str) -> list[Delivery]:
    values = {"rule": rule, "channel": channel, "limit": MAX_WAITING}
    rows = connection.execute(WAITING_SQL, values)
    return [Delivery(**dict(row)) for row in rows]


def count_deliveries(connection: sqlite3.Connection) -> dict[tuple[str, str, str], int]:
    return {
        (row["rule"], row["channel"], row["state"]): row["delivery_count"]
        for row in connection.execute(COUNT_SQL)
    }


def list_new_keys(
    connection: sqlite3.Connection,
    rule: str,
    channel: str,
    since_us: int,
    noticed_us: int,
) -> list[AlertKey]:
    values = {
        "rule": rule,
        "channel": channel,
        "since_us": since_us,
        "noticed_us": noticed_us,
        "limit": MAX_WAITING,
    }
    opened = [AlertKey(row["id"], OPENED) for row in connection.execute(OPENED_SQL, values)]
    return opened + [
        AlertKey(row["id"], RECOVERED) for row in connection.execute(RECOVERED_SQL, values)
    ]


def list_rule_names(connection: sqlite3.Connection) -> list[str]:
    return [row["rule"] for row in connection.execute(RULES_SQL)]


def get_rule_start(connection: sqlite3.Connection, rule: str) -> RuleStart | None:
    row = connection.execute(START_SQL, {"rule": rule}).fetchone()
    return RuleStart(**dict(row)) if row else None
