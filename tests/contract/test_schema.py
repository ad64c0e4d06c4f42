"""The schema keeps the house rules: strict tables, units, nothing left of a deleted run."""

import re

import pytest

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.search import index_run
from compileboard.collectors.store.trash import delete_run, prune_trash
from tests.tools.make_db import main as make_db


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    connection = open_writer(tmp_path_factory.mktemp("schema") / "t.db")
    migrate_connection(connection)
    yield connection
    connection.close()


def tables(connection):
    rows = connection.execute(
        "select name, sql from sqlite_schema where type = 'table' and sql not null"
    ).fetchall()
    # SQLite makes the search index's tables itself.
    inner = ("sqlite_", "_sqlite", "search_words")
    return {row["name"]: row["sql"] for row in rows if not row["name"].startswith(inner)}


def test_every_table_is_strict(schema):
    assert [
        name
        for name, sql in tables(schema).items()
        if "strict" not in sql.lower().rsplit(")", 1)[1]
    ] == []


def test_numbers_carry_their_unit(schema):
    plain = {
        "id",
        "sequence",
        "position",
        "generation",
        "line",
        "resumed_at",
        "pid",
        "rank",
        "local_rank",
        "world_size",
    }
    plain |= {
        "exit_code",
        "git_dirty",
        "keep_source",
        "pinned",
        "snapshot_final",
        "frame_id",
        "frame_compile_id",
    }
    plain |= {
        "last_sequence",
        "cache_size",
        "compile_key",
        "depth",
        "instant",
        "thread",
        "redacted",
        "first_line",
        "guard_line",
        "is_partial",
    }
    plain |= {
        "attempt",
        "dynamic",
        "batch_size",
        "ended_program",
        "stack_room",
        "is_on_stack_cliff",
    }
    # A benchmark's numbers have upstream's names.
    plain |= {
        "speedup",
        "speedup_low",
        "speedup_high",
        "value",
        "recompiles",
        "fallbacks_to_eager",
        "cudagraph_skips",
    }
    plain |= {"calls_captured", "unique_graphs", "graph_breaks", "unique_graph_breaks"}
    plain |= {"autograd_captures", "autograd_compiles"}
    plain |= {"geomean_speedup", "graph_breaks_per_model", "recompiles_per_model"}
    plain |= {"scaling_efficiency", "output_error", "quantized_error", "quantized_eager_error"}
    plain |= {
        "pub",
        "removed_pub",
        "run_pub",
        "rows_pub",
        "rows_run_pub",
        "month",
    }  # numbers of commits and of months
    plain |= {"tree", "device", "graph", "graph_function", "parent_graph"}  # numbers of torch's
    plain |= {"failure_position", "seconds", "checksum"}
    # A finding's levels are in its metric's unit.
    plain |= {"before_value", "after_value", "relative", "p_value", "version", "severity"}
    unit = re.compile(r"_(us|ms|s|gb|bytes|count|ratio|id)$")
    columns = [
        (table, column["name"])
        for table in tables(schema)
        for column in schema.execute(f"pragma table_info({table})")
        if column["type"] in ("INTEGER", "REAL")
    ]
    assert [c for c in columns if not unit.search(c[1]) and c[1] not in plain] == []


def test_deleting_a_run_leaves_nothing_of_it(tmp_path, capsys):
    make_db([str(tmp_path / "all.db")])
    connection = open_writer(tmp_path / "all.db")
    runs = [row["id"] for row in connection.execute("select id from runs").fetchall()]
    assert all(index_run(connection, run_id).document_count for run_id in runs)
    assert all(delete_run(connection, run_id) for run_id in runs)
    matches = connection.execute(
        "select rowid from search_words where search_words match 'forward OR run*'"
    ).fetchall()
    assert (matches, connection.execute("select count(*) from search_words").fetchone()[0]) == (
        [],
        0,
    )
    # Texts wait for a week, with nothing that leads to them; where a query begins at any other
    # table, it finds nothing.
    assert count_rows(connection).keys() == {"removed_runs", "payloads", "publications"}
    assert len(prune_trash(connection, age_us=0)) == len(runs)
    left = count_rows(connection)
    connection.close()
    assert left == {"removed_runs": len(runs), "publications": 1}


def count_rows(connection):
    counts = {
        name: connection.execute(f"select count(*) from {name}").fetchone()[0]
        for name in tables(connection)
    }
    return {name: count for name, count in counts.items() if count}
