"""Parquet: the CSV's numbers to the digit with types, nulls where nothing was recorded, and no
pyarrow in a page.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from compileboard.app.comparison.compare import build_comparison
from compileboard.app.core.newest import read_clock
from compileboard.app.core.store import FileStore
from compileboard.app.reports import SUITE_TABLES
from compileboard.app.reports import parquet as ours
from compileboard.app.reports.comparison_report import write_comparison
from compileboard.app.reports.csv_report import COLUMNS, format_cell
from compileboard.app.reports.formats import write_report
from compileboard.app.reports.parquet import REST, write_parquet
from compileboard.app.runs.run_queries import get_run
from tests.unit.app.benched import RUNS, bench_suite
from tests.unit.app.recorded import RUN, record_run
from tests.unit.app.reports.test_suite_report import read, write
from tests.unit.app.seed import START_US


def load(pieces: Iterable[bytes]) -> Any:
    return parquet.read_table(pyarrow.BufferReader(b"".join(pieces)))


def same(table: Any, written: str) -> None:
    """Compare a table with the CSV of the same rows, number by number and text by text."""
    rows = list(csv.DictReader(io.StringIO(written, newline="")))
    assert table.num_rows == len(rows)
    for field in table.schema:
        if field.name == REST:
            continue
        column = table[field.name]
        column = column.cast(pyarrow.int64()) if pyarrow.types.is_timestamp(field.type) else column
        for value, row in zip(column.to_pylist(), rows):
            cell = row[field.name]
            if value is None:
                assert not cell or pyarrow.types.is_floating(
                    field.type
                )  # an accuracy's words stand in the rest
            elif isinstance(value, list):
                assert value == json.loads(cell)
            elif isinstance(value, str):
                assert value == cell.removeprefix("'")
            else:
                assert value == (
                    {"true": True, "false": False}[cell] if isinstance(value, bool) else float(cell)
                )


@pytest.mark.parametrize("table", COLUMNS)
def test_a_run_has_the_csvs_values_with_types(
    explored_reader: sqlite3.Connection, table: str
) -> None:
    run_id = explored_reader.execute(
        "select id from runs where name = 'zoo_recompiles'"
    ).fetchone()["id"]
    detail = get_run(explored_reader, run_id)
    assert detail is not None
    written = b"".join(
        write_report(explored_reader, detail, "csv", table, True, START_US, stale_after_s=30)
    ).decode()
    loaded = load(
        write_report(explored_reader, detail, "parquet", table, True, START_US, stale_after_s=30)
    )
    same(loaded, written)
    assert loaded[REST].null_count == loaded.num_rows
    assert json.loads(loaded.schema.metadata[b"compileboard.what"])["run_id"] == run_id


def test_types_are_told_by_the_columns_and_not_by_what_a_run_has(store: sqlite3.Connection) -> None:
    record_run(store)
    detail = get_run(store, RUN)
    assert detail is not None
    schema = load(
        write_report(store, detail, "parquet", "compilations", True, START_US, stale_after_s=30)
    ).schema
    types = {
        "duration_us": "int64",
        "start_us": "timestamp[us, tz=UTC]",
        "code_gen_time_s": "double",
        "function": "string",
    }
    types |= {
        "guard_count": "int64",
        "is_forward": "bool",
        "restart_reasons": "list<element: string>",
        "phase_dynamo_us": "int64",
    }
    assert {name: str(schema.field(name).type) for name in types} == types


def test_suites_and_comparisons_have_the_csvs_values(store: sqlite3.Connection) -> None:
    bench_suite(store)
    screen = read(store)
    for table in SUITE_TABLES:
        same(load(ours.write_suite_parquet(screen, table, START_US)), write(screen, "csv", table))
    compared = build_comparison(FileStore(store), read_clock(), RUNS[0], RUNS[2])
    written = b"".join(write_comparison(compared, "csv", START_US)).decode()
    same(load(write_comparison(compared, "parquet", START_US)), written)


@given(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.lists(st.text())
)
def test_any_value_is_kept_in_its_column_or_beside_it(value: Any) -> None:
    for kind in ("int", "float", "bool", "moment"):
        if (
            kind == "moment"
            and isinstance(value, int)
            and not isinstance(value, bool)
            and abs(value) > 2**55
        ):
            continue  # a year that Python's datetime has not
        (row,) = load(write_parquet(["x"], {"x": kind}, [{"x": value}], {}, START_US)).to_pylist()
        is_stored = value is None or row["x"] is not None or json.loads(row[REST]) == {"x": value}
        assert is_stored and (kind == "moment" or row["x"] in (None, value))


@given(st.none() | st.lists(st.text()))
def test_lists_come_back_from_csv_and_parquet_as_they_were(value: list[str] | None) -> None:
    (row,) = load(write_parquet(["x"], {"x": "list"}, [{"x": value}], {}, START_US)).to_pylist()
    assert (row["x"], row[REST]) == (value, None)
    written = format_cell(value)
    assert (json.loads(written) if written else None) == value


def test_without_pyarrow_one_sentence_says_what_to_install(
    client: FlaskClient, store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench_suite(store)
    monkeypatch.setattr(ours.importlib.util, "find_spec", lambda _name: None)
    for address in (
        f"/runs/{RUNS[0]}/report.parquet",
        "/compare/report.parquet",
        "/trends/report.parquet?suite=x",
    ):
        answer = client.get(address)
        assert answer.status_code == 400
        assert "pip install &#39;compileboard[parquet]&#39;" in answer.text


def test_no_page_loads_pyarrow(tmp_path: Path) -> None:
    code = (
        "import sys; from compileboard.app import create_app; "
        "from compileboard.app.core import settings; from compileboard.app.cli import main as cli; "
        f"cli.main(['migrate', '--db', {str(tmp_path / 'x.db')!r}]); "
        f"client = create_app(settings.Settings(db={str(tmp_path / 'x.db')!r})).test_client(); "
        "[client.get(it) for it in ('/', '/trends', '/compare', '/runs')]; "
        "sys.exit('pyarrow' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode
        == 0
    )
