"""What series are called that findings can be of, without their points."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

NAMES_SQL = """
select 'model' as subject, suite, model, hardware
from series
union
select 'suite', suite, '', hardware
from series
union
select 'runs', coalesce(suite, ''), name, coalesce(gpu_name, '')
from runs
order by subject, suite, model, hardware
limit 1000000
"""


class SeriesName(NamedTuple):
    """Hold what findings of a series say of it: '' is what was not said, or the model of a suite."""

    subject: str
    suite: str
    model: str
    hardware: str


def list_series_names(connection: sqlite3.Connection) -> list[SeriesName]:
    """List what models, suites and runs were measured as, each once."""
    return [SeriesName(*row) for row in connection.execute(NAMES_SQL)]
