"""Write benchmark results: one row per run, series and experiment."""

from __future__ import annotations

import json
import math
from typing import Any

from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.contract.result_columns import STORED
from compileboard.collectors.store.codec import pack
from compileboard.collectors.store.ingest.batch import Batch
from compileboard.collectors.store.ingest.insert import InsertOnce, pick
from compileboard.collectors.store.rollups.results import COUNTS, NUMBERS

MOST_COUNT = 2**53  # beyond it a float names no number of things
_WORDS = ("mode", "dtype", "device", "hardware", "backend")
_LATER = ("task", "reason", "accuracy", "message", "started_us", "duration_us", "command", "origin")
SERIES = ("suite", "model", *_WORDS, "dynamic", "batch_size", "world_size")
_KEY = ("run_id", "series_id", "experiment")
_ADD_SERIES = InsertOnce("series", *SERIES)
_ROW = (
    *_KEY,
    "process_id",
    "sequence",
    "status",
    "time_us",
    *_LATER,
    *NUMBERS,
    "traceback",
    "facts",
)


def _named(names: tuple[str, ...], between: str = ", ", head: str = "{0} = :{0}") -> str:
    return between.join(head.format(name) for name in names)


# The statements name our own columns alone; every value is bound.
FIND_RESULT = f"select id from results where {_named(_KEY, ' and ')}"  # noqa: S608 - our own names
# An id that a sealed run's result had is another's, though it is not here.
ADD_RESULT = f"""
insert into results (id, {_named(_ROW, head="{0}")})
select
  max(coalesce((select max(id) from results), 0), (select last_result_id from publications)) + 1,
  {_named(_ROW, head=":{0}")}
returning id
"""  # noqa: S608 - our own names
COMPLETE_RESULT = f"""
update results set {_named((*NUMBERS, *_LATER, "traceback"), head="{0} = coalesce({0}, :{0})")}
where id = :id
"""  # noqa: S608 - our own names


def write_result(batch: Batch, event: BenchMeasured) -> None:
    numbers, others = _sort_values(event.values)
    if event.status == "failed" and event.reason != "fail_accuracy":
        # dynamo's counters start at 0: where a failure came first, a 0 counts nothing.
        numbers |= {name: None for name in COUNTS if not numbers[name]}
    row = {
        "run_id": batch.run_id,
        "series_id": _find_series(batch, event),
        **pick(event, "experiment", "process_id", "sequence", "status", "time_us", *_LATER),
        **numbers,
        "traceback": pack(event.traceback, primed=False) if event.traceback else None,
        "facts": json.dumps(event.facts, separators=(",", ":")),
    }
    known = batch.connection.execute(FIND_RESULT, {name: row[name] for name in _KEY}).fetchone()
    if known is None:
        (result_id,) = batch.connection.execute(ADD_RESULT, row).fetchone()
        batch.totals.add(result_count=1, failed_result_count=int(event.status == "failed"))
    else:
        result_id = known["id"]
        completed = {name: row[name] for name in (*NUMBERS, *_LATER, "traceback")}
        batch.connection.execute(COMPLETE_RESULT, {**completed, "id": result_id})
    _write_parts(batch, result_id, event, others)


def _sort_values(
    values: dict[str, float],
) -> tuple[dict[str, float | int | None], dict[str, float]]:
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    numbers: dict[str, float | int | None] = dict.fromkeys(NUMBERS)
    for name, column in STORED.items():
        value = finite.get(column.upstream)
        is_whole = value is not None and abs(value) < MOST_COUNT and value == int(value)
        if value is not None and (is_whole or not column.is_count):
            del finite[column.upstream]
            numbers[name] = int(value) if column.is_count else value
    return numbers, finite


def _find_series(batch: Batch, event: BenchMeasured) -> int:
    key: dict[str, Any] = {
        **pick(event, "suite", "model", "world_size"),
        **{name: getattr(event, name) or "" for name in _WORDS},
        "dynamic": int(event.dynamic),
        "batch_size": event.batch_size or 0,
    }
    return batch.find_id(_ADD_SERIES, ("series", *(key[name] for name in SERIES)), key)


def _write_parts(
    batch: Batch, result_id: int, event: BenchMeasured, others: dict[str, float]
) -> None:
    batch.connection.executemany(
        "insert or ignore into result_values (result_id, name, value) values (:id, :name, :value)",
        [{"id": result_id, "name": name, "value": value} for name, value in others.items()],
    )
    batch.connection.executemany(
        "insert or ignore into result_repeats (result_id, name, body) values (:id, :name, :body)",
        [
            {"id": result_id, "name": name, "body": pack(json.dumps(values), primed=False)}
            for name, values in event.repeats.items()
        ],
    )
