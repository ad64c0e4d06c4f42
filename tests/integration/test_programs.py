"""Real programs, recorded whole: processes, threads, ranks, resets, failures, caches."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import closing
from typing import Any

import pytest

from compileboard.app.runs.run_queries import list_processes
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.connection import open_reader
from tests.tools.observed import PROGRAMS, Workplace, torch_release

pytestmark = pytest.mark.torch
SCENARIOS = PROGRAMS / "scenarios.py"


def done(workplace: Workplace, *words: str, **rest: Any) -> Any:
    finished = workplace.run(SCENARIOS, *words, **rest)
    assert finished.returncode == 0, finished.stderr
    return finished


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workplace, Any]:
    """Observe one process that does many things, one after the other."""
    workplace = Workplace(tmp_path_factory.mktemp("mixed"))
    words = ("failing", "fullgraph", "aot", "callbacks", "threads", "settings", "logging_config")
    return workplace, done(
        workplace, *words, options=("--suite", "s", "--tag", "a=b", "--tag", "<i>=&")
    )


def test_a_hundred_compiles_are_a_hundred_records(workplace: Workplace) -> None:
    done(workplace, "many")
    assert workplace.only_run()["compile_count"] == 100
    assert workplace.value("select count(*) from compilations") == 100
    assert workplace.value("select count(distinct function_id) from compiles") == 100


def test_a_reset_restarts_torchs_ids_and_not_ours(workplace: Workplace) -> None:
    done(workplace, "reset")
    rows = workplace.rows(
        "select generation, compile_id, outcome, recompiled_from from compiles order by id"
    )
    assert [(row["generation"], row["compile_id"]) for row in rows] == [
        (generation, compile_id) for generation in range(3) for compile_id in ("0/0", "0/1")
    ]
    assert {row["outcome"] for row in rows} == {"compiled"}
    assert workplace.only_run()["recompile_count"] == 3


def test_forked_children_are_processes_with_their_own_compiles(workplace: Workplace) -> None:
    done(workplace, "forks")
    parent = workplace.value("select id from processes where parent_id is null")
    children = workplace.rows(
        "select pid, counters from processes where parent_id = :parent", parent=parent
    )
    assert len({row["pid"] for row in children}) == 4
    per_process = workplace.rows(
        "select process_id, count(*) as count from compiles group by process_id"
    )
    assert sorted(row["count"] for row in per_process) == [1, 1, 1, 1, 1]
    assert workplace.only_run()["process_count"] == 5
    assert workplace.spools == []


@pytest.mark.nightly
def test_workers_and_subprocesses_have_the_parent_that_started_them(workplace: Workplace) -> None:
    done(workplace, "threads", "workers", "pools", "subprocesses")
    parent = workplace.value("select id from processes order by started_us limit 1")
    rows = workplace.rows(
        "select parent_id, count(*) as count from processes group by parent_id order by count"
    )
    assert [row["parent_id"] for row in rows] == [None, parent]
    assert rows[1]["count"] >= 8, (
        "two workers and one or two of each pool for each method, two subprocesses"
    )
    with closing(open_reader(workplace.database)) as reader:
        (pid,) = {
            process.parent_pid for process in list_processes(reader, workplace.only_run()["id"])
        } - {None}
    assert pid == workplace.value("select pid from processes where id = :parent", parent=parent)


@pytest.mark.nightly
def test_workers_of_multiprocessing_say_their_final_counters(workplace: Workplace) -> None:
    done(workplace, "workers")
    rows = workplace.rows(
        "select snapshot_final, counters, parent_id from processes where id in (select "
        "process_id from compiles)"
    )
    assert len(rows) == 4
    assert [row["snapshot_final"] for row in rows] == [1, 1, 1, 1]
    assert all(json.loads(row["counters"])["stats"]["unique_graphs"] == 1 for row in rows)
    assert workplace.only_run()["compile_count"] == 4


def test_ranks_of_one_job_are_one_run(workplace: Workplace) -> None:
    command = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        SCENARIOS,
        "ranks",
    )
    finished = workplace.run(*command)
    assert finished.returncode == 0, finished.stderr
    rows = workplace.rows(
        "select rank, local_rank, world_size from processes where rank is not null order by rank"
    )
    assert [tuple(row.values()) for row in rows] == [(0, 0, 2), (1, 1, 2)]
    compiles = workplace.rows("select distinct rank from compiles order by rank")
    assert [row["rank"] for row in compiles] == [0, 1]
    assert workplace.only_run()["name"] == "scenarios.py"


def test_a_failing_backend_is_a_failure_and_the_program_sees_it(
    mixed: tuple[Workplace, Any],
) -> None:
    workplace, finished = mixed
    assert "BackendCompilerFailed True" in finished.stdout
    row = workplace.rows(
        "select error_type, message, compile_key from failures where error_type = "
        "'BackendCompilerFailed'"
    )[0]
    assert "<b>this backend</b> always fails & 'says' so" in row["message"]
    outcome = workplace.value(
        "select outcome from compiles where id = :key", key=row["compile_key"]
    )
    assert outcome == "failed"
    assert workplace.only_run()["failure_count"] >= 1


def test_a_fullgraph_error_is_the_programs_and_a_row(mixed: tuple[Workplace, Any]) -> None:
    workplace, finished = mixed
    assert "Unsupported " in finished.stdout and "graph_break" in finished.stdout
    recorded = workplace.rows(
        "select error_type, message from failures where error_type = 'Unsupported'"
    )
    assert any("graph_break" in row["message"] for row in recorded)


def test_training_and_inference_give_their_own_kinds_of_record(
    mixed: tuple[Workplace, Any],
) -> None:
    workplace, _ = mixed
    kinds = workplace.rows(
        """
        select kind, count(*) as count
        from compilations
        join functions on functions.id = function_id
        where functions.name like 'aot%'
        group by kind
        """
    )
    counts = {row["kind"]: row["count"] for row in kinds}
    assert counts["forward"] == 2
    assert counts["backward"] >= 1
    phases = workplace.rows(
        "select dynamo_us, aot_us from compilations where kind = 'forward' and aot_us > 0"
    )
    assert phases


def test_callbacks_of_the_program_are_called_as_ever(mixed: tuple[Workplace, Any]) -> None:
    assert "['start', 'end']" in mixed[1].stdout


def test_threads_lose_nothing(mixed: tuple[Workplace, Any]) -> None:
    workplace, _ = mixed
    sql = "select id from functions where name like 'threads%'"
    assert workplace.value(f"select count(*) from compiles where function_id in ({sql})") == 4


def test_logging_configuration_that_disables_loggers_costs_no_event(
    mixed: tuple[Workplace, Any],
) -> None:
    workplace, _ = mixed
    last = workplace.rows("select outcome from compiles order by id desc limit 1")[0]
    assert last["outcome"] == "compiled"
    starts = workplace.value("select count(*) from events where kind = 'compile_started'")
    assert starts == workplace.value("select count(*) from compiles")


def test_settings_are_kept_as_first_seen_and_as_last(mixed: tuple[Workplace, Any]) -> None:
    workplace, _ = mixed
    hashes = workplace.rows("select config_hash from process_configs where kind = 'changed'")
    assert len(hashes) == 2
    kinds = {row["kind"] for row in workplace.rows("select kind from configs")}
    functorch = {"functorch"} if torch_release() >= (2, 13) else set()
    assert kinds >= {"changed", "dynamo", "inductor", *functorch}


def test_what_the_run_is_is_recorded(mixed: tuple[Workplace, Any]) -> None:
    workplace, _ = mixed
    run = workplace.only_run()
    facts = json.loads(run["facts"])
    assert (run["name"], run["suite"], run["state"], run["exit_code"]) == (
        "scenarios.py",
        "s",
        "finished",
        0,
    )
    assert {
        row["key"]: row["value"] for row in workplace.rows("select key, value from run_tags")
    } == {
        "a": "b",
        "<i>": "&",
    }
    assert facts["host"]["cpu_count"] >= 1
    assert run["torch_version"]
    process = workplace.rows("select * from processes")[0]
    assert json.loads(process["compile_times"])
    assert json.loads(process["counters"])["stats"]["unique_graphs"] >= 1
    assert process["python_version"] == sys.version.split()[0]


def test_show_and_list_print_the_run(mixed: tuple[Workplace, Any]) -> None:
    workplace, _ = mixed
    shown = workplace.collect(
        "show", workplace.only_run()["id"][:8], "--db", workplace.database
    ).stdout
    assert "scenarios.py\n  finished (exit code 0) · started " in shown
    assert f"-m compileboard.app serve --db {workplace.database}" in shown
    assert (
        workplace.only_run()["id"] in workplace.collect("list", "--db", workplace.database).stdout
    )


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor's CPU code needs a C++ compiler")
def test_inductors_caches_miss_first_then_hit_and_are_passed_by(workplace: Workplace) -> None:
    lookups = []
    for fx_graph_cache in ("1", "1", "0"):
        env = {
            "TORCHINDUCTOR_CACHE_DIR": str(workplace.folder / "cache"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        done(workplace, "inductor", env={**env, "TORCHINDUCTOR_FX_GRAPH_CACHE": fx_graph_cache})
        sql = (
            "select cache, result, reason from cache_lookups where run_id = (select max(id) "
            "from runs)"
        )
        lookups.append(
            {(row["cache"], row["result"]): row["reason"] for row in workplace.rows(sql)}
        )
    first, second, passed_by = lookups
    assert {("aot_autograd", "miss"), ("fx_graph", "miss")} <= set(first)
    assert ("aot_autograd", "hit") in second
    assert ("aot_autograd", "miss") not in second
    assert passed_by == {("aot_autograd", "bypass"): "FX graph cache is not enabled"}
    assert workplace.value("select count(*) from compilations where inductor_us > 0") > 0
    assert workplace.value("select count(*) from compilations where kind = 'backward'") >= 2


def test_the_level_full_keeps_torchs_own_logs(workplace: Workplace) -> None:
    done(workplace, "reset", options=("--level", "full"))
    row = workplace.rows("select name, size_bytes from trace_files")[0]
    assert row["size_bytes"] > 10_000
    assert workplace.only_run()["compile_count"] == 6
    # Six compiles of two ids, told apart by their resets: each has the graph that its own attempt
    # made.
    assert (
        workplace.value(
            "select count(distinct compile_key) from artifacts where name = 'dynamo_output_graph'"
        )
        == 6
    )
    assert workplace.value("select count(*) from spans where compile_key is null") == 0
    assert workplace.spools == []


def test_the_level_full_joins_kernels_to_lines_a_backward_alone(workplace: Workplace) -> None:
    asked = {"INDUCTOR_PROVENANCE": "2"}
    finished = workplace.run(PROGRAMS / "backwards.py", options=("--level", "full"), env=asked)
    assert finished.returncode == 0, finished.stderr
    traces = workplace.rows(
        "select body from artifacts join payloads on payloads.id = payload_id "
        "where name = 'inductor_provenance_tracking_kernel_stack_traces' order by sequence"
    )
    kernels = [json.loads(unpack(row["body"])) for row in traces]
    assert [len(of_graph) for of_graph in kernels] == [1] * 6
    functions = [str(of_graph).rpartition(", in ")[2].partition("\\n")[0] for of_graph in kernels]
    assert functions == ["first", "first", "second", "second", "third", "third"]


@pytest.mark.nightly
def test_a_program_that_becomes_another_keeps_the_texts_of_both(workplace: Workplace) -> None:
    done(workplace, "replaced", options=("--level", "full"))
    first, second = workplace.rows("select id, pid from processes order by started_us")
    assert first["pid"] == second["pid"]
    graphs = (
        "select count(*) from artifacts where process_id = :id and name = 'dynamo_output_graph'"
    )
    assert [workplace.value(graphs, id=row["id"]) for row in (first, second)] == [1, 5]
    functions = """
        select group_concat(distinct functions.name) from artifacts
        join compiles on compiles.id = compile_key join functions on functions.id = function_id
        where artifacts.process_id = :id and artifacts.name = 'dynamo_output_graph'
    """
    assert workplace.value(functions, id=first["id"]) == "replaced.<locals>.<lambda>"
    assert workplace.value("select count(*) from trace_files") == 2
    assert workplace.rows("select * from run_rejects") == []


@pytest.mark.nightly
def test_a_log_whose_process_the_hooks_did_not_see_is_counted(workplace: Workplace) -> None:
    unseen = (
        "import subprocess, sys; subprocess.run([sys.executable, '-I', *sys.argv[1:]], check=True)"
    )
    command = (sys.executable, "-c", unseen, SCENARIOS, "callbacks")
    assert workplace.run(*command, options=("--level", "full")).returncode == 0
    (reject,) = workplace.rows("select kind, example from run_rejects")
    assert (reject["kind"], "the hooks did not see" in reject["example"]) == ("bad_log", True)


@pytest.mark.nightly
def test_a_trace_of_the_users_own_is_left_alone_and_read(workplace: Workplace) -> None:
    folder = workplace.folder / "trace"
    done(workplace, "reset", env={"TORCH_TRACE": str(folder)})
    (log,) = folder.glob("*.log")
    assert workplace.value("select end_offset_bytes from logs") == log.stat().st_size
    assert (
        workplace.value("select count(*) from artifacts") > 6
        and workplace.rows("select name from trace_files") == []
    )


@pytest.mark.nightly
def test_ranks_with_collectives_are_told_apart(workplace: Workplace) -> None:
    if torch_release() < (2, 7):
        pytest.skip("the program hangs without us too")
    launcher = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        PROGRAMS / "ranks.py",
    )
    env = {
        "TORCHINDUCTOR_CACHE_DIR": str(workplace.folder / "cache"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    assert (
        workplace.run(
            *launcher, env={"TORCH_TRACE": str(workplace.folder / "trace"), **env}
        ).returncode
        == 0
    )
    recorded = workplace.rows(
        "select rank, recompiled_from from compiles where recompiled_from is not null"
    )
    assert [row["rank"] for row in recorded] == [1, 1]
    schedules = (
        "select count(distinct process_id) from artifacts where name = "
        "'inductor_collective_schedule'"
    )
    assert workplace.value(schedules) == 2 == workplace.value("select count(*) from logs")
