"""What happened in each compile, in the order of its log: artifacts, graph breaks, recompiles, caches, records."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

MOST_STEPS = 5_000  # of one page of compiles

_KEYS = "in (select value from json_each(:keys))"
_DESCRIPTIONS = "('describe_source', 'describe_storage', 'describe_tensor')"
STEPS_SQL = f"""
select
  a.compile_key, a.process_id, a.sequence, 'artifact' as kind, a.id as ref_id, a.attempt, a.name, a.title as detail,
  a.state, a.size_bytes as number
from artifacts as a
where a.compile_key {_KEYS}
  and a.name not in {_DESCRIPTIONS}
union all
select
  a.compile_key, a.process_id, min(a.sequence), 'descriptions', min(a.id), a.attempt, 'describe_tensor', null, null,
  count(*)
from artifacts as a
where a.compile_key {_KEYS}
  and a.name in {_DESCRIPTIONS}
group by a.compile_key, a.process_id, a.attempt
union all
select
  b.compile_key, b.process_id, b.sequence, 'graph_break', b.id, null, coalesce(d.gb_type, d.reason), d.gb_id, b.outcome,
  b.line
from graph_breaks as b
join distinct_breaks as d on d.id = b.distinct_id
where b.compile_key {_KEYS}
union all
select r.compile_key, r.process_id, r.sequence, 'recompile', r.id, null, 'recompile', r.recompiled_from, null, null
from recompiles as r
where r.compile_key {_KEYS}
union all
select
  f.compile_key, f.process_id, f.sequence, 'failure', f.id, null, coalesce(f.error_type, 'exception'), null, null, null
from failures as f
where f.compile_key {_KEYS}
union all
select l.compile_key, l.process_id, l.sequence, 'lookup', l.id, null, l.cache, l.reason, l.result, l.time_saved_us
from cache_lookups as l
where l.compile_key {_KEYS}
union all
select s.compile_key, s.process_id, s.sequence, 'skip', s.id, null, 'cudagraph skipped', s.reason, null, null
from cudagraph_skips as s
where s.compile_key {_KEYS}
union all
select k.compile_key, k.process_id, k.sequence, 'record', k.id, null, k.kind, null, k.outcome, k.duration_us
from compilations as k
where k.compile_key {_KEYS}
union all
select y.compile_key, y.process_id, min(y.sequence), 'symbols', min(y.id), null, 'symbolic shapes', null, null, count(*)
from symbols as y
where y.compile_key {_KEYS}
group by y.compile_key, y.process_id
order by 1, 2, 3, 4
limit :limit
"""  # noqa: S608  own texts only


STRETCH_SQL = """
select min(begin_us) as from_us, max(begin_us + coalesce(duration_us, 0)) as to_us from spans where compile_key = :key
"""


@dataclass(frozen=True)
class Step:
    """Hold one thing that a compile's log says.

    `kind` is artifact, descriptions, graph_break, recompile, failure, lookup, skip, record or symbols; `ref_id` is its
    row there. `number` is an artifact's bytes, a break's line, a look-up's saved time, a record's duration, or how many
    rows descriptions and symbols stand for.
    """

    compile_key: int
    process_id: str
    sequence: int
    kind: str
    ref_id: int
    attempt: int | None
    name: str
    detail: str | None
    state: str | None
    number: int | None


def list_steps(connection: sqlite3.Connection, keys: Sequence[int], limit: int = MOST_STEPS) -> list[Step]:
    """List what happened in some compiles, each in the order of its log."""
    if not keys:
        return []
    found = connection.execute(STEPS_SQL, {"keys": json.dumps(list(keys)), "limit": limit})
    return [Step(**dict(row)) for row in found]


def get_stretch(reader: sqlite3.Connection, key: int) -> tuple[int, int] | None:
    """Return when the first timed phase of a compile began and its last one ended; None where none was timed.

    Units: µs since 1970.
    """
    row = reader.execute(STRETCH_SQL, {"key": key}).fetchone()
    return None if row["from_us"] is None else (row["from_us"], row["to_us"])
