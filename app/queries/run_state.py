"""What of a run changes whenever something more of it is recorded."""

from __future__ import annotations

import sqlite3

STATE_SQL = """
select
  r.heartbeat_us, r.ended_us, t.compile_count, t.record_count, t.graph_break_count, t.recompile_count,
  t.cache_hit_count, t.cache_miss_count, t.cache_bypass_count, t.process_count, t.compile_us, t.result_count,
  (select count(*) from result_files as f where f.run_id = r.id) as result_file_count,
  (select sum(g.end_offset_bytes) from logs as g where g.run_id = r.id) as read_bytes,
  (select max(g.read_us) from logs as g where g.run_id = r.id) as read_us,
  (select c.id from compiles as c where c.run_id = r.id order by c.started_us, c.id limit 1) as first_key
from runs as r
left join run_totals as t on t.run_id = r.id
where r.id = :run_id
limit 1
"""


def get_run_state(connection: sqlite3.Connection, run_id: str) -> tuple[object, ...]:
    """Return a run's state: equal states mean equal records.

    A live run's recorder beats as it writes, a log's offset and totals grow; the first compile and the time of reading
    tell a run that was deleted and imported anew.
    """
    row = connection.execute(STATE_SQL, {"run_id": run_id}).fetchone()
    return tuple(row) if row is not None else ()
