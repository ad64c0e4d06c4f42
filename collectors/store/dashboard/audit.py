"""The audit log: who changed what, and from where."""

from __future__ import annotations

import getpass
import socket
import sqlite3
import time
from dataclasses import asdict, dataclass

from compileboard.collectors.store.connection import write_transaction

USER_AGENT_LIMIT = 300


@dataclass(frozen=True)
class ActionOrigin:
    channel: str
    actor: str | None = None
    address: str | None = None
    user_agent: str | None = None


def command_origin() -> ActionOrigin:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        user = "unknown"
    return ActionOrigin("command", f"{user}@{socket.gethostname()}")


def record_action(
    connection: sqlite3.Connection,
    action: str,
    subject: str,
    origin: ActionOrigin,
    *,
    detail: str | None = None,
    now_us: int | None = None,
) -> None:
    with write_transaction(connection):
        connection.execute(
            """
            insert into audit (time_us, action, subject, detail, channel, actor, address, user_agent)
            values (:time_us, :action, :subject, :detail, :channel, :actor, :address, :user_agent)
            """,
            {
                **asdict(origin),
                "user_agent": origin.user_agent and origin.user_agent[:USER_AGENT_LIMIT],
                "time_us": time.time_ns() // 1000 if now_us is None else now_us,
                "action": action,
                "subject": subject,
                "detail": detail,
            },
        )
