"""Roll-ups per run, function, distinct break and cause.

A batch's increments are summed and written once, so that trend pages scale with the number of runs.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

# What only hooks and torch's logs count.
COMPILER_COUNTS = (
    "compile_count",
    "record_count",
    "graph_break_count",
    "recompile_count",
    "recompile_limit_count",
    "failure_count",
    "skipped_frame_count",
    "restart_count",
    "cache_hit_count",
    "cache_miss_count",
    "cache_bypass_count",
    "cudagraph_skip_count",
)
RUN_COUNTS = (
    *COMPILER_COUNTS,
    "process_count",
    "loss_count",
    "result_count",
    "failed_result_count",
)
RUN_COLUMNS = (*RUN_COUNTS, "compile_us", "recompile_us")


@dataclass(frozen=True)
class Rollup:
    table: str
    key: str
    columns: tuple[str, ...]


FUNCTIONS = Rollup(
    "run_functions",
    "function_id",
    (
        "compile_count",
        "graph_break_count",
        "recompile_count",
        "recompile_limit_count",
        "compile_us",
    ),
)
BREAKS = Rollup("run_breaks", "distinct_id", ("break_count", "compile_us"))
CAUSES = Rollup("run_causes", "cause_id", ("guard_failure_count", "recompile_count", "compile_us"))


class BatchTotals:
    def __init__(self, connection: sqlite3.Connection, run_id: str) -> None:
        self.connection = connection
        self.run_id = run_id
        self.abandoned_causes: set[int] = set()  # those that a recompile was moved away from
        self._run: Counter[str] = Counter()
        self._rollups: dict[Rollup, dict[int, Counter[str]]] = {
            rollup: defaultdict(Counter) for rollup in (FUNCTIONS, BREAKS, CAUSES)
        }

    def add(self, **increments: int) -> None:
        _add_up(self._run, increments)

    def add_to(self, rollup: Rollup, key: int | None, **increments: int) -> None:
        if key is not None:
            _add_up(self._rollups[rollup][key], increments)

    def flush(self) -> None:
        if self._run:
            assignments = ", ".join(f"{column} = {column} + :{column}" for column in RUN_COLUMNS)
            self.connection.execute(
                f"update run_totals set {assignments} where run_id = :run_id",  # noqa: S608 - our own column names
                {"run_id": self.run_id, **{column: self._run[column] for column in RUN_COLUMNS}},
            )
        for rollup, rows in self._rollups.items():
            self._flush_rollup(rollup, rows)
        for cause_id in self.abandoned_causes:
            self._drop_cause(cause_id)

    def _drop_cause(self, cause_id: int) -> None:
        key = {"run_id": self.run_id, "cause_id": cause_id}
        self.connection.execute(
            (
                "delete from run_causes where run_id = :run_id and cause_id = :cause_id and "
                "guard_failure_count = 0"
            ),
            key,
        )
        self.connection.execute(
            """
            delete from recompile_causes
            where id = :cause_id and not exists (select 1 from run_causes
              where cause_id = :cause_id)
            """,
            key,
        )

    def _flush_rollup(self, rollup: Rollup, rows: dict[int, Counter[str]]) -> None:
        names = ", ".join(rollup.columns)
        values = ", ".join(f":{column}" for column in rollup.columns)
        updates = ", ".join(f"{column} = {column} + excluded.{column}" for column in rollup.columns)
        self.connection.executemany(
            f"""
            insert into {rollup.table} (run_id, {rollup.key}, {names})
            values (:run_id, :key, {values})
            on conflict (run_id, {rollup.key}) do update set {updates}
            """,  # noqa: S608 - our own table and column names
            [
                {
                    "run_id": self.run_id,
                    "key": key,
                    **{column: counts[column] for column in rollup.columns},
                }
                for key, counts in rows.items()
            ],
        )


def _add_up(counts: Counter[str], increments: Mapping[str, int]) -> None:
    for (
        name,
        count,
    ) in increments.items():  # Counter.update first asks what it was given: half of its time
        counts[name] += count
