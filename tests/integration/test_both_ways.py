"""One program, seen by the hooks and read from torch's log: the rows are the same."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.tools.observed import PROGRAMS, ROOT, Workplace, torch_release

pytestmark = pytest.mark.torch

# What identifies a row's run, process and place in its stream is not compared; what it says is. A
# recompile's cause is not, either: a log has the first failed guard alone.
WHAT = {
    "compiles": """
        select generation, compile_id, frame_id, frame_compile_id, rank, file, name, line,
        resumed_at, outcome,
          duration_us, total_us, attempt_count, graph_break_count, recompiled_from
        from compiles left join functions on functions.id = function_id
    """,
    "compilations": """
        select compile_id, kind, file, name, outcome, start_us, duration_us, dynamo_us, aot_us,
        inductor_us, codegen_us,
          triton_us, cudagraph_us, restart_us, graph_op_count, guard_count, guard_latency_us,
          cache_size, restart_count,
          fail_type, fail_reason
        from compilations left join functions on functions.id = function_id
    """,
    "graph_breaks": """
        select compile_id, fingerprint, gb_id, gb_type, reason, explanation, hints, source_line,
        graph_breaks.line,
          outcome, file, name
        from graph_breaks
        join distinct_breaks on distinct_breaks.id = distinct_id
        left join functions on functions.id = graph_breaks.function_id
    """,
    "recompiles": """
        select compile_id, recompiled_from, position, g.cache_entry, g.reason, g.expected,
        g.actual, g.source_line, g.line, g.category, g.source
        from recompiles
        join guard_failures as g on recompile_id = recompiles.id
    """,
    "failures": "select compile_id, error_type, message from failures",
    "cache_lookups": (
        "select compile_id, cache, result, key, reason, time_taken_us, time_saved_us from "
        "cache_lookups"
    ),
    # Of a stack the place alone: torch 2.13's log lacks up to two callers, which the hooks add.
    "stacks": """
        select compile_id, stack_nodes.file, stack_nodes.line, stack_nodes.name, code
        from compiles join stack_nodes on stack_nodes.id = stack_id
    """,
    "artifacts": """
        select artifacts.compile_id, attempt, artifacts.name, title, encoding, metadata, state,
        size_bytes, md5, outcome
        from artifacts left join compiles on compiles.id = compile_key
    """,
    "spans": """
        select spans.compile_id, span_names.name, begin_us, spans.duration_us, depth, instant, args,
        outcome
        from spans join span_names on span_names.id = name_id left join compiles
          on compiles.id = compile_key
    """,
    "symbols": (
        "select compile_id, kind, symbol, expression, value, value_range, source, file, line "
        "from symbols"
    ),
    "guard_sets": "select compile_id, guard_count, latency_us, summary from guard_sets",
    "configs": "select kind, hash from configs where kind <> 'changed'",
    "totals": """
        select compile_count, record_count, graph_break_count, recompile_count,
        recompile_limit_count, failure_count,
          restart_count, compile_us, recompile_us
        from run_totals
    """,
}
RUN_IN_TURN = Path(__file__).parent / "programs" / "in_turn.py"
IN_TURN = (
    ("breaks.py",),
    ("recompiles.py",),
    ("scenarios.py", "inductor"),
    ("scenarios.py", "reset"),
)


def ask(database: Path, what: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return sorted(connection.execute(WHAT[what]), key=repr)


# Forks come before the first compile: a later one's log names files by numbers that are in its
# parent's log alone.
PROCESSES = (PROGRAMS / "scenarios.py", "workers", "pools", "threads", "subprocesses", "replaced")


@pytest.fixture(
    scope="module",
    params=["one process", pytest.param("many processes", marks=pytest.mark.nightly)],
)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Observe programs that also write torch's own log, and import the log into a database of its
    own.
    """
    workplace = Workplace(tmp_path_factory.mktemp("both"))
    words = [RUN_IN_TURN, *(" ".join((str(PROGRAMS / name), *more)) for name, *more in IN_TURN)]
    if request.param == "many processes":
        words = list(PROCESSES)
    cache = {
        "TORCHINDUCTOR_CACHE_DIR": str(workplace.folder / "cache"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    done = workplace.run(*words, env={"TORCH_TRACE": str(workplace.folder / "trace"), **cache})
    assert done.returncode == 0, done.stderr
    imported = workplace.folder / "imported.db"
    roots = ("--root", str(ROOT), "--root", str(workplace.folder))
    done = workplace.collect(
        "import", "--db", str(imported), *roots, str(workplace.folder / "trace")
    )
    assert done.returncode == 0, done.stderr
    return workplace.database, imported


# 2.5 logs no break, failure or compile that reaches the limit, 2.4 no recompile either; 2.6 logs a
# compile that reaches the limit as a backward's.
NOT_IN_LOG = ("compiles", "compilations", "spans", "totals")
NOT_IN_LOG_OF_2_5 = (*NOT_IN_LOG, "artifacts", "graph_breaks", "failures")
NOT_IN_LOG_OF_2_4 = (*NOT_IN_LOG_OF_2_5, "recompiles")


@pytest.mark.parametrize("what", WHAT)
def test_the_hooks_and_the_log_say_the_same(both: tuple[Path, Path], what: str) -> None:
    lacks = {(2, 4): NOT_IN_LOG_OF_2_4, (2, 5): NOT_IN_LOG_OF_2_5, (2, 6): NOT_IN_LOG}
    if what in lacks.get(torch_release(), ()):
        pytest.skip("this torch's log has less")
    hooked, logged = (ask(database, what) for database in both)
    assert logged == hooked
