from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from compileboard.app.clickhouse.tables import SHARD_KEYS, list_statements
from compileboard.collectors.store.connection import AddressError
from tests.tools.observed import ROOT

# One shard, and a keeper in memory: what a process alone can have. It runs no statement on other
# servers.
_CONFIG = """
<clickhouse>
  <zookeeper><implementation>testkeeper</implementation></zookeeper>
  <tcp_port>9000</tcp_port>
  <macros><shard>1</shard><replica>a</replica></macros>
  <remote_servers><fleet><shard>
    <internal_replication>true</internal_replication>
    <replica><host>127.0.0.1</host><port>9000</port></replica>
  </shard></fleet></remote_servers>
</clickhouse>
"""
_PROGRAM = """
import os, re, sys
from pathlib import Path
import clickhouse_connect
from compileboard.app.clickhouse.passes import Publisher
from compileboard.app.clickhouse.tables import list_statements
from tests.unit.app.engines.databases import OneClient
from tests.unit.app.engines.publication.boards import assert_same, change_run, write

board, folder, config = sys.argv[1:]
options = {"config-file": config}
client = clickhouse_connect.get_client(interface="chdb", path=folder, chdb_options=options)
statements = [re.sub(" on cluster 'fleet'", "", text) for text in list_statements("fleet")]
client.command("create database replicated")
client.command("use replicated")
for text in statements:
    client.command(text)
paths = client.query("select zookeeper_path from system.replicas where database = 'replicated'").result_rows
client.command("create database sharded")
client.command("use sharded")
for text in statements:
    client.command(re.sub(r"Replicated(\\w*MergeTree)\\('[^']*', '[^']*'(, )?", r"\\1(", text))
now_us = 1_795_420_000_000_000
with write(Path(board)) as writer:
    publisher = Publisher(OneClient(client, Path(folder)))
    publisher.run_pass(writer, now_us)
    assert_same(client, writer)
    change_run(writer, writer.execute("select min(id) from runs").fetchone()[0])
    publisher.run_pass(writer, now_us, everything=True)
    assert publisher.rebuild_months(writer, now_us + 3_600_000_000, most=12)
    assert_same(client, writer)
print(len(set(paths)), client.query("select count() from runs_local final").result_rows[0][0], flush=True)
os._exit(0)  # the keeper in memory does not end in order
"""


@pytest.mark.clickhouse
def test_a_clusters_tables_can_be_made_and_are_read_as_one(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    config = tmp_path / "config.xml"
    config.write_text(_CONFIG)
    path = board.execute("pragma database_list").fetchone()[2]
    command = [sys.executable, "-c", _PROGRAM, path, str(tmp_path / "clickhouse"), str(config)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    replicated = [text for text in list_statements("fleet") if "engine = Replicated" in text]
    assert done.stdout.splitlines()[-1].split() == [str(len(replicated)), "3"]


def test_every_statement_of_a_cluster_names_it() -> None:
    statements = list(list_statements("fleet"))
    assert all(" on cluster 'fleet'" in text for text in statements)
    assert not any("cluster" in text for text in list_statements())
    for table in SHARD_KEYS:
        assert sum(f"if not exists {table}_local " in text for text in statements) == 1
        assert any(
            "Distributed" in text and f", {table}_local, cityHash64" in text for text in statements
        )


def test_a_cluster_has_a_plain_name() -> None:
    with pytest.raises(AddressError, match="expected the name of a cluster"):
        list(list_statements("fleet' as x; drop table runs"))
