"""The texts of a run's artifacts, once each by their content, as a report with graphs and code holds them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.collectors.store.codec import unpack

MOST_TEXTS = 100_000


@dataclass(frozen=True)
class KeptText:
    """Hold one text without its words: the first artifact that has it, and how many have.

    Units: size_bytes is the text's, unpacked.
    """

    payload_id: int
    artifact_count: int
    name: str
    title: str | None
    compile_id: str | None
    rank: int | None
    size_bytes: int


TEXTS_SQL = """
with firsts as (
  select payload_id, min(id) as artifact_id, count(*) as artifact_count
  from artifacts
  where run_id = :run_id
    and payload_id is not null
  group by payload_id
)
select f.payload_id, f.artifact_count, a.name, a.title, a.compile_id, coalesce(c.rank, p.rank) as rank, t.size_bytes
from firsts as f
join artifacts as a on a.id = f.artifact_id
join payloads as t on t.id = f.payload_id
left join compiles as c on c.id = a.compile_key
left join processes as p on p.id = a.process_id
order by f.artifact_id
limit :limit
"""
# By id: the wanted ids come as a JSON list.
PAYLOADS_SQL = """
select a.id, a.payload_id
from json_each(:ids) as wanted
cross join artifacts as a on a.id = wanted.value
where a.payload_id is not null
limit :limit
"""
BODY_SQL = """
select body
from payloads
where id = :payload_id
limit 1
"""


def list_kept_texts(connection: sqlite3.Connection, run_id: str, limit: int = MOST_TEXTS) -> list[KeptText]:
    """List the texts of a run in the order in which its logs have them first."""
    return [KeptText(**dict(row)) for row in connection.execute(TEXTS_SQL, {"run_id": run_id, "limit": limit})]


def find_payloads(connection: sqlite3.Connection, artifact_ids: Sequence[int]) -> dict[int, int]:
    """Return the text of each artifact that has one, by the artifact's number."""
    values = {"ids": json.dumps(list(artifact_ids)), "limit": len(artifact_ids)}
    return {row["id"]: row["payload_id"] for row in connection.execute(PAYLOADS_SQL, values)}


def read_text(connection: sqlite3.Connection, payload_id: int) -> str | None:
    """Read one text; None where it is gone, or cannot be read back."""
    row = connection.execute(BODY_SQL, {"payload_id": payload_id}).fetchone()
    try:
        return None if row is None else unpack(row["body"])
    except ValueError:
        return None
