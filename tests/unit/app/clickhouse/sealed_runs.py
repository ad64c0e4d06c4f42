"""A board with sealed runs as a store, and the addresses of its runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from flask import Flask

from compileboard.app.clickhouse.run_files import RunFiles
from compileboard.app.core.engine import SqliteEngine
from compileboard.app.core.store import FolderStore
from compileboard.collectors.store.connection import open_reader
from tests.unit.app.benched import RUNS
from tests.unit.app.pages import list_benched, list_explored, list_pages
from tests.unit.app.repros.captured import RUN as REPRO_RUN


def open_folder(board: Path, across: Path | None = None) -> FolderStore:
    files = RunFiles(str(board), str(board.parent / "cache"))
    return FolderStore(open_reader(board), SqliteEngine(open_reader(across or board)), files)


def list_addresses(live: Path, app: Flask) -> list[str]:
    """List every page and API address of every run, with the things that it has."""
    addresses = []
    with closing(open_reader(live)) as reader:
        for pages in (list_explored, list_pages, list_benched):
            addresses += [page for kind in pages.values() for page in kind(reader)[:5]]
        run_ids = [
            row["id"]
            for row in reader.execute("select id from runs where suite = 'captures' order by id")
        ]
        ids = {
            "artifact_id": "select id from artifacts where run_id = ? order by name, id limit 1",
            "guards_id": "select artifact_id from guard_sets where run_id = ? order by id limit 1",
            "key": "select id from compiles where run_id = ? order by id limit 1",
            "lookup_id": "select id from cache_lookups where run_id = ? order by id limit 1",
            "config_hash": "select hash from configs limit 1",
            "format": 'select value from json_each(\'["html", "md", "json"]\')',
            "name": "select name from trace_files where run_id = ?",
        }
        for rule in app.url_map.iter_rules():
            if "run_id" not in rule.arguments or "GET" not in (rule.methods or ()):
                continue
            for run_id in (*run_ids[-2:], RUNS[0], REPRO_RUN):
                (other,) = rule.arguments - {"run_id"} or {""}
                sql = ids.get(other, "select ''")
                sql = ids["guards_id"] if "guards" in rule.rule and other else sql
                for (value,) in reader.execute(sql, (run_id,) if "?" in sql else ()).fetchall():
                    with app.test_request_context():
                        values = {other: value} if other else {}
                        addresses.append(app.url_for(rule.endpoint, run_id=run_id, **values))
    return [address for address in dict.fromkeys(addresses) if not address.startswith("/metrics")]
