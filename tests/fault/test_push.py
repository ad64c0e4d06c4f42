"""Boxes push to the real server: runs of a database, logs and spools."""

from __future__ import annotations

import lzma
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.pruning import PruneRule, prune_runs
from compileboard.collectors.store.tokens import create_token
from tests.tools.make_db import DATA
from tests.tools.observed import PROGRAMS, Workplace, processes_of, program, wait_for
from tests.tools.serving import Server, serving
from tests.unit.app.explored import LOGS
from tests.unit.decode.recorded_logs import log_bytes


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    database = tmp_path_factory.mktemp("server") / "board.db"
    migrate(database)
    with serving(database) as server:
        yield server


def database_of(server: Server) -> str:
    return str(server.process.args[server.process.args.index("--db") + 1])  # type: ignore[index, union-attr]


def rows_of(server: Server, sql: str) -> list[Any]:
    with closing(open_reader(database_of(server))) as reader:
        return [tuple(row) for row in reader.execute(sql)]


@pytest.mark.nightly
def test_runs_of_a_database_and_a_folder_are_pushed_once(
    workplace: Workplace, server: Server
) -> None:
    workplace.run(PROGRAMS / "spooling.py", 3)
    run_id = workplace.only_run()["id"]
    done = workplace.collect("push", workplace.database, "--server", server.address)
    assert done.stderr.splitlines()[-1] == f"compileboard: pushed to {server.address}/runs/{run_id}"
    assert rows_of(server, f"select compile_count from run_totals where run_id = '{run_id}'") == [
        (3,)
    ]
    again = workplace.collect("push", workplace.database, "--server", server.address)
    assert f"run {run_id} is at {server.address}/runs/{run_id} already" in again.stderr
    imported = workplace.collect("import", "--server", server.address, LOGS["zoo_graph_breaks"])
    assert imported.returncode == 0, imported.stderr
    assert "--db" not in imported.stderr
    assert len(rows_of(server, "select 1 from runs")) == 2


def test_a_program_is_pushed_while_it_runs_and_ends_as_it_would_in_a_database(
    workplace: Workplace, server: Server
) -> None:
    command = program((PROGRAMS / "spooling.py", 60, 0.05))
    started = workplace.start_command(
        "run", "--name", "pushed", "--server", server.address, "--", *command
    )
    select = (
        "select state, compile_count from runs join run_totals on run_id = id where name = 'pushed'"
    )
    wait_for(
        lambda: [
            state for state, count in rows_of(server, select) if state == "running" and count > 5
        ]
    )
    assert started.wait(60) == 0
    assert wait_for(lambda: [row for row in rows_of(server, select) if row[0] != "running"]) == [
        ("finished", 60)
    ]
    wait_for(lambda: not workplace.outbox)
    assert rows_of(
        server, "select count(*) from streams where ended_us is not null and lost_count = 0"
    ) == [(1,)]


@pytest.mark.nightly
@pytest.mark.torch
def test_the_texts_of_a_program_that_becomes_another_are_pushed(
    workplace: Workplace, server: Server
) -> None:
    options = ("--level", "full", "--name", "replaced", "--server", server.address)
    done = workplace.collect(
        "run", *options, "--", *program((PROGRAMS / "scenarios.py", "replaced"))
    )
    assert (done.returncode, workplace.outbox) == (0, []), done.stderr
    graphs = """
        select count(artifacts.id) from processes join runs on runs.id = processes.run_id
        left join artifacts on process_id = processes.id and artifacts.name = 'dynamo_output_graph'
        where runs.name = 'replaced' group by processes.id order by processes.started_us
    """
    assert rows_of(server, graphs) == [(1,), (5,)]


def test_a_spool_that_nobody_recorded_is_pushed(workplace: Workplace, server: Server) -> None:
    no_database = f'rm -f {workplace.database}; mkdir {workplace.database}; exec "$@"'
    workplace.run("sh", "-c", no_database, "sh", *program((PROGRAMS / "spooling.py", 4)))
    (spool,) = workplace.spools or (workplace.home / "set-aside").iterdir()
    done = workplace.collect("push", spool, "--server", server.address)
    assert done.returncode == 0, done.stderr
    totals = f"select compile_count from run_totals where run_id = '{spool.name}'"
    assert rows_of(server, totals) == [(4,)]


@pytest.mark.nightly
def test_what_waits_for_a_wrong_address_is_sent_to_the_right_one(
    workplace: Workplace, server: Server
) -> None:
    wrong = "http://127.0.0.1:9"
    done = workplace.collect(
        "run", "--server", wrong, "--", *program((PROGRAMS / "spooling.py", 2))
    )
    (run_id,) = (path.name for path in (workplace.home / "outbox").glob("01*"))
    assert f"of run {run_id} wait in" in done.stderr
    other = workplace.collect("push", "--server", server.address)  # chooses what waits for it
    assert (other.returncode, other.stderr) == (0, "compileboard: nothing waits to be pushed\n")
    unknown = workplace.collect("push", "--run", "01XYZ")
    assert (unknown.returncode, "no run 01XYZ waits" in unknown.stderr) == (2, True)
    right = workplace.collect(
        "push", "--run", run_id, "--server", server.address, "--token-file", "missing"
    )
    assert (right.returncode, "--token-file" in right.stderr) == (2, True)
    right = workplace.collect("push", "--run", "latest", "--server", server.address)
    assert right.stderr == f"compileboard: pushed to {server.address}/runs/{run_id}\n"
    assert rows_of(server, f"select compile_count from run_totals where run_id = '{run_id}'") == [
        (2,)
    ]


def test_push_sends_what_a_killed_recorder_left(workplace: Workplace, server: Server) -> None:
    command = program((PROGRAMS / "spooling.py", 40, 0.05))
    started = workplace.start_command("run", "--server", server.address, "--", *command)
    (spool,) = wait_for(lambda: [path for path in workplace.spools if list(path.glob("*.jsonl"))])
    started.kill()
    started.wait()
    totals = f"select compile_count from run_totals where run_id = '{spool.name}'"
    wait_for(lambda: any(b'"final"' in path.read_bytes() for path in spool.glob("*.jsonl")))
    done = workplace.collect("push")
    assert (
        done.stderr.splitlines()[-1]
        == f"compileboard: pushed to {server.address}/runs/{spool.name}"
    )
    assert rows_of(server, totals) == [(40,)]


@pytest.mark.parametrize(
    ("stop", "log_name"), [(signal.SIGINT, "zoo_recompiles"), (signal.SIGTERM, "torch2.13-shapes")]
)
def test_a_followed_log_is_pushed_when_its_following_ends(
    workplace: Workplace, server: Server, stop: signal.Signals, log_name: str
) -> None:
    lines = lzma.decompress(LOGS[log_name].read_bytes()).splitlines(keepends=True)
    log = workplace.folder / f"dedicated_log_torch_trace_{stop.name}.log"
    log.write_bytes(b"".join(lines[:200]))
    name = f"followed {stop.name}"
    workplace.environment = {"TMPDIR": str(workplace.folder)}
    started = workplace.start_command(
        "import", "--follow", "--name", name, "--again", "--server", server.address, log
    )
    database = wait_for(lambda: next(workplace.folder.glob("compileboard-push-*/push.db"), None))
    wait_for(lambda: count_records(database) > 0)
    before = count_records(database)
    with log.open("ab") as file:
        file.writelines(lines[200:400])
    wait_for(lambda: count_records(database) > before)
    started.send_signal(stop)
    assert started.wait(60) == 0, workplace.errors.read_text()
    (state, record_count) = rows_of(
        server,
        (
            "select state, record_count from runs join logs on logs.run_id = runs.id where "
            f"runs.name = '{name}'"
        ),
    )[0]
    assert (state, record_count > before) == ("imported", True)
    assert not database.exists()


def count_records(database: Path) -> int:
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as reader,
    ):
        (count,) = reader.execute("select coalesce(sum(record_count), 0) from logs").fetchone()
        return int(count)
    return 0


def test_what_a_log_grew_by_is_pushed_once(workplace: Workplace, server: Server) -> None:
    whole = log_bytes("torch2.13-guards")
    log = workplace.folder / "grown.log"
    counts = []
    for body in (whole[: whole.index(b"\nV", len(whole) // 2) + 1], whole, whole):
        log.write_bytes(body)
        done = workplace.collect("import", "--server", server.address, "--name", "grown", log)
        assert done.returncode == 0, done.stderr
        counts += rows_of(
            server, "select count(*) from events join runs on id = run_id where name = 'grown'"
        )
    assert counts[0] < counts[1] == counts[2]
    assert "already" in done.stderr and "pushed to" not in done.stderr
    workplace.collect("import", "--db", workplace.database, "--name", "grown", log)
    sql = (
        "select count(*), sum(sequence), max(time_us) from events join runs on id = run_id "
        "where name = 'grown'"
    )
    with closing(open_reader(str(workplace.database))) as reader:
        assert rows_of(server, sql) == [tuple(reader.execute(sql).fetchone())]


@pytest.mark.nightly
def test_a_box_adds_to_no_run_that_another_one_pushed(workplace: Workplace, server: Server) -> None:
    whole = lzma.decompress((DATA / "trace" / "torch2.13-breaks.log.xz").read_bytes())
    log, codes = workplace.folder / "owned.log", []
    with closing(open_writer(database_of(server))) as writer:
        tokens = [
            create_token(writer, name, ("ingest",), created_by="me") for name in ("box-1", "box-2")
        ]
    half = whole[: whole.index(b"\nV", len(whole) // 2) + 1]
    for body, token in ((half, tokens[0]), (whole, tokens[1]), (whole, tokens[0])):
        log.write_bytes(body)
        done = workplace.collect(
            "import", "--server", server.address, log, env={"COMPILEBOARD_TOKEN": token}
        )
        codes.append((done.returncode, "box-2 did not send it" in done.stderr))
        shutil.rmtree(workplace.home / "outbox", ignore_errors=True)  # else the sender tries again
        wait_for(lambda: not processes_of(workplace.home))
    assert codes == [(0, False), (1, True), (0, False)]
    assert rows_of(server, "select end_offset_bytes from logs where name like 'owned%'") == [
        (len(whole),)
    ]


@pytest.mark.nightly
def test_a_run_that_was_pruned_on_the_server_is_not_sent_again(
    workplace: Workplace, server: Server
) -> None:
    workplace.run(PROGRAMS / "spooling.py", 2)
    words = ("push", workplace.database, "--server", server.address)
    assert workplace.collect(*words).returncode == 0
    with closing(open_writer(database_of(server))) as writer:
        pruned = [run.id for run in prune_runs(writer, PruneRule(2**60), 0)]
    run_id = workplace.only_run()["id"]
    done = workplace.collect(*words)
    assert run_id in pruned and done.returncode == 0, done.stderr
    assert f"run {run_id} is at {server.address}/runs/{run_id} already" in done.stderr


@pytest.mark.nightly
def test_what_was_added_while_the_server_was_away_is_sent_later(
    workplace: Workplace, tmp_path: Path
) -> None:
    whole = lzma.decompress(LOGS["zoo_graph_breaks"].read_bytes())
    log, database = workplace.folder / "grown.log", tmp_path / "away" / "board.db"
    database.parent.mkdir()
    log.write_bytes(whole[: whole.index(b"\nV", len(whole) // 2) + 1])
    with serving(database) as server:
        assert workplace.collect("import", "--server", server.address, log).returncode == 0
    log.write_bytes(whole)
    away = workplace.collect("import", "--server", server.address, log)
    assert (away.returncode, "are sent when the server takes them" in away.stderr) == (1, True)
    with serving(database, "--port", server.address.rpartition(":")[2]) as server:
        assert workplace.collect("push").returncode == 0
        assert rows_of(server, "select count(*), max(end_offset_bytes) from logs") == [
            (1, len(whole))
        ]


@pytest.mark.nightly
def test_a_run_with_other_records_on_the_server_is_told(
    workplace: Workplace, server: Server
) -> None:
    whole = log_bytes("torch2.13-aot-wrappers")
    log = workplace.folder / "apart.log"
    log.write_bytes(whole[: whole.index(b"\nV", len(whole) // 2) + 1])
    assert workplace.collect("import", "--server", server.address, log).returncode == 0
    ((process_id, run_id),) = rows_of(
        server, "select process_id, run_id from logs where name like 'apart%'"
    )
    with closing(open_writer(database_of(server))) as writer:
        writer.execute(
            "insert into events values (?, 9999999999, ?, 'x', 0, x'00')", (process_id, run_id)
        )
    log.write_bytes(whole)
    done = workplace.collect("import", "--server", server.address, log)
    assert (
        done.returncode,
        "with records that" in done.stderr,
        "Import the logs" in done.stderr,
    ) == (1, True, True)
    shutil.rmtree(workplace.home / "outbox" / run_id)  # else the sender tries again
    wait_for(lambda: not processes_of(workplace.home))
