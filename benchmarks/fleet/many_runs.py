"""Make runs out of numbers in ClickHouse's tables.

    python -m benchmarks.fleet.many_runs FOLDER --compilations N

A run has 1,000 compiles; for each 4 of them a row of a break, for each 4 one of a cause, for each 8
one of a function: about the most that recorded histories of small programs have. A replay of large
ones has a tenth of that. What runs of a suite have in common, what is rare and what comes and goes
is drawn by hashes: two calls make the same rows.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compileboard.app.clickhouse import tables
from compileboard.app.clickhouse.client import SETTINGS, connect
from compileboard.app.clickhouse.passes import list_months, rebuild_month
from compileboard.app.core.address import parse_address
from compileboard.collectors.contract.categories import CATEGORIES
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate_connection

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

COMPILES_A_RUN = 1000
RESULTS_A_RUN = 400  # of each eighth run: 200 models, speed and accuracy
DAYS = 730
NEWEST_US = 1_790_000_000_000_000
THINGS_COUNT = 50_000
# Of what a suite's name may have, the share that its runs have: the first nearly always, the last
# hardly ever.
VOCABULARY = {"run_breaks": 4000, "run_causes": 4000, "run_functions": 2000}
RARITY = 7
MODELS_COUNT = 200
CONFIGURATIONS_COUNT = 10
SUITES_COUNT, NAMES_COUNT = 20, 10

_RUNS = f"""
insert into runs (
  id, name, suite, source, state, level, keep_source, command, cwd, started_us, ended_us,
  heartbeat_us, exit_code, host,
  gpu_name, gpu_count, torch_version, cuda_version, python_version, git_commit, git_branch,
  git_subject, git_dirty, pub,
  version, is_deleted, driver_version, triton_version, tags, title, note, pinned, changed_us,
  compile_count,
  record_count, graph_break_count, recompile_count, recompile_limit_count, failure_count,
  restart_count,
  cache_hit_count, cache_miss_count, cache_bypass_count, cudagraph_skip_count, process_count,
  loss_count, compile_us,
  recompile_us, result_count, failed_result_count, skipped_frame_count
)
with
  number as i,
  cityHash64(i, 'run') as h,
  i % 8 = 0 as is_bench,
  toInt64({{newest_us:Int64}} - ({{runs:Int64}} - 1 - i) * intDiv({DAYS} * 86400000000,
    {{runs:Int64}}) - h % 60000000)
    as start_us,
  toInt64(floor({SUITES_COUNT} * pow((h % 10007) / 10007, 2))) as s,
  toInt64(floor({NAMES_COUNT} * pow((intDiv(h, 10007) % 10007) / 10007, 2))) as n,
  toInt64(intDiv(i, 8) % {CONFIGURATIONS_COUNT}) as c,
  intDiv(h, 1000003) as g
select
  concat('01', leftPad(hex(start_us), 16, '0'), leftPad(hex(toUInt32(h)), 8, '0')),
  if(is_bench, concat('bench_', toString(c)), concat('model_', toString(s), '_', toString(n))),
  if(is_bench, concat('suite_', toString(c % 3)), if(s = 19, null, concat('project_',
    toString(s)))),
  if(is_bench, 'bench', 'live'), ['finished', 'failed', 'killed'][1 + (g % 50 = 0) + (g % 150 = 0)],
  'full', 1,
  concat('python train_', toString(s), '.py --config ', toString(g % 1000)),
  '/home/someone/project',
  start_us, start_us + 60000000 + g % 600000000, start_us + 60000000 + g % 600000000,
  if(g % 50 = 0, 1, 0),
  concat('gpu-', leftPad(toString(g % 40), 2, '0')),
  ['NVIDIA H200', 'NVIDIA H100', 'NVIDIA L4'][1 + g % 3], 1 + g % 8,
  concat('2.', toString(6 + intDiv(i * 8, {{runs:Int64}})), '.0+cu130'), '13.0', '3.12.4',
  lower(hex(cityHash64(intDiv(i, 10)))) || lower(hex(cityHash64(intDiv(i, 10), 1))) || '00000000',
  ['main', 'main', 'main', 'release', 'dynamic-shapes'][1 + g % 5],
  concat('change ', toString(intDiv(i, 10))), 0,
  i + 1, i + 1, 0, '570.86', '3.4.0',
  if(g % 10 = 0, map('team', concat('team_', toString(g % 7))), map()),
  if(g % 200 = 0, concat('Run ', toString(i)), null), if(g % 200 = 0, 'looked at', null),
  g % 2000 = 0,
  if(g % 200 = 0, start_us, null),
  {COMPILES_A_RUN}, 5000, 400 + g % 200, 300 + g % 200, g % 7, g % 50 = 0, g % 3, 100, 900, 3,
  g % 5, 1 + g % 8, 0,
  600000000 + g % 600000000, 100000000 + g % 100000000, if(is_bench, {RESULTS_A_RUN}, 0),
  if(is_bench, g % 4, 0), 0
from numbers({{runs:Int64}})
"""
# A run has the thing number j of its suite and name with a likelihood that falls with j, for half
# of the time.
_CELLS = f"""
insert into {{table}}_rows (month, pub, started_us, run_id, {{key}}, {{columns}})
with
  cityHash64(r.pub, j, '{{table}}') as h,
  toInt64(1 + (cityHash64(r.name) * 7919 + j) % {THINGS_COUNT}) as thing
select toYYYYMM(fromUnixTimestamp64Micro(r.started_us, 'UTC')), r.pub, r.started_us, r.id, thing,
{{values}}
from runs as r
array join range({{vocabulary}}) as j
where r.pub > {{{{after:Int64}}}} and r.pub <= {{{{until:Int64}}}}
  and (intDiv(r.started_us, 86400000000) + cityHash64(r.name, j) % {DAYS}) % {DAYS} < {DAYS} / 2
  and h % 1000003 < 1000003 * pow(1 - j / {{vocabulary}}, {RARITY})
"""
# Things that stand side by side in a program are often of one kind.
_KIND_NUMBER = "toInt64(floor(60 * pow(intHash64(intDiv(thing, 64)) % 1000 / 1000, 2)))"
_KIND = f"if(thing % 10 = 0, 'a reason of its own', concat('kind ', toString({_KIND_NUMBER})))"
_CATEGORY = (
    f"{[category.name for category in CATEGORIES]}[1 + intDiv(thing, 64) % {len(CATEGORIES)}]"
)
_CELL_VALUES = {
    "run_breaks": ("distinct_id", "break_count, compile_us", "1 + h % 5, h % 3000000"),
    "run_causes": (
        "cause_id",
        "recompile_count, partial_count, compile_us",
        "h % 5, 0, if(h % 5 = 0, 0, h % 2000000)",
    ),
    "run_functions": (
        "function_id",
        "compile_count, graph_break_count, recompile_count, recompile_limit_count, compile_us",
        "1 + h % 20, h % 4, h % 6, h % 40 = 0, h % 4000000",
    ),
}
_THINGS = (
    f"""
insert into functions
select
  number + 1, concat('/src/package/module_', toString(number % 900), '.py'),
  concat('Model.forward_', toString(number)), 1
from numbers({THINGS_COUNT})
""",
    f"""
insert into distinct_breaks
with toInt64(number + 1) as thing
select
  thing, lower(hex(sipHash128(thing))),
  if(thing % 10 = 0, null, concat('GB', leftPad(toString({_KIND_NUMBER}), 4, '0'))),
  if(thing % 10 = 0, null, {_KIND}),
  if(thing % 10 = 0, {_KIND}, concat('Call of ', toString(thing), ' is not supported')),
  'Dynamo does not know how to trace it.', '["Move it out of the function."]',
  toInt64(1 + cityHash64(thing) % {THINGS_COUNT}),
  concat('x = f_', toString(thing), '(y)'), thing % 900, 1
from numbers({THINGS_COUNT})
""",
    f"""
insert into recompile_causes
with toInt64(number + 1) as thing
select
  thing, lower(hex(sipHash128(thing, 'cause'))), {_CATEGORY},
  concat('L[\\'x_', toString(thing), '\\']'),
  concat('tensor size mismatch at index 0 of ', toString(thing)),
  if(thing % 3 = 0, 'mark_dynamic(x, 0)', null),
  toInt64(1 + cityHash64(thing, 'cause') % {THINGS_COUNT}), 1
from numbers({THINGS_COUNT})
""",
    f"""
insert into series_rows
with number % {MODELS_COUNT} as model, toInt64(intDiv(number, {MODELS_COUNT})) as c
select
  number + 1, concat('suite_', toString(c % 3)), concat('model_', leftPad(toString(model), 3, '0')),
  if(c < 5, 'training', 'inference'), 'bfloat16', 'cuda', 'NVIDIA H200', 'inductor', c % 2, 8, 1, 1
from numbers({MODELS_COUNT * CONFIGURATIONS_COUNT})
""",
    """
insert into commits
select
  r.git_commit, nullif(lagInFrame(r.git_commit) over (order by r.time_us), ''), r.time_us,
  'someone', r.git_subject,
  1, 0
from (
  select git_commit, any(git_subject) as git_subject, min(started_us) - 3600000000 as time_us
  from runs
  group by git_commit
) as r
""",
)
_RESULTS = f"""
insert into results_rows (
  month, pub, id, run_id, series_id, experiment, process_id, sequence, status, reason, accuracy,
  speedup, speedup_low,
  speedup_high, abs_latency_ms, eager_latency_ms, compilation_latency_s, compression_ratio,
  graph_breaks, recompiles,
  message, time_us
)
with cityHash64(r.pub, m, e) as h, h % 400 = 0 as has_failed
select
  toYYYYMM(fromUnixTimestamp64Micro(r.started_us, 'UTC')), r.pub, r.pub * 1000 + m * 2 + e, r.id,
  1 + m + {MODELS_COUNT} * (intDiv(r.pub - 1, 8) % {CONFIGURATIONS_COUNT}), ['performance',
  'accuracy'][1 + e],
  'p', m * 2 + e,
  if(has_failed, 'failed', 'measured'), if(has_failed, 'fail_to_run', null),
  if(e = 1 and not has_failed, 'pass', null),
  if(e = 0 and not has_failed, 1.2 + (m % 17) / 10 + (h % 100) / 1000, null) as speedup,
  speedup - 0.01, speedup + 0.01,
  10 + h % 100, 20 + h % 100, 5 + h % 20, 1.1, m % 3, m % 5,
  if(has_failed, 'RuntimeError: it failed', null),
  r.started_us + m * 1000000
from runs as r
array join range({MODELS_COUNT}) as m
array join range(2) as e
where r.result_count > 0 and r.pub > {{after:Int64}} and r.pub <= {{until:Int64}}
"""
_SUMMARIES = f"""
insert into run_summaries_rows (
  month, pub, started_us, run_id, suite, mode, dtype, device, hardware, backend, dynamic,
  world_size, definition,
  time_us, total_count, measured_count, failed_count, passed_count, speedup_count, geomean_speedup,
  compilation_latency_s, abs_latency_ms, compression_ratio, graph_breaks_per_model,
  recompiles_per_model
)
with toInt64(intDiv(r.pub - 1, 8) % {CONFIGURATIONS_COUNT}) as c, cityHash64(r.pub) as h
select
  toYYYYMM(fromUnixTimestamp64Micro(r.started_us, 'UTC')), r.pub, r.started_us, r.id,
  concat('suite_', toString(c % 3)),
  if(c < 5, 'training', 'inference'), 'bfloat16', 'cuda', 'NVIDIA H200', 'inductor', c % 2, 1,
  definition,
  r.started_us, {MODELS_COUNT}, {MODELS_COUNT} - h % 4, h % 4, {MODELS_COUNT} - h % 4,
  {MODELS_COUNT} - h % 4,
  1.5 + (h % 100) / 1000, 20, 50, 1.1, 1, 2
from runs as r
array join ['hud', 'runner', 'summarize_perf'] as definition
where r.result_count > 0
"""
_NEWEST = """
insert into newest_results
select * except (month, pub), 1, 0
from results_rows
order by time_us desc
limit 1 by series_id, experiment
"""


def fill(client: Client, compilations: int) -> None:
    """Make the tables and their rows; nothing is there yet."""
    runs = compilations // COMPILES_A_RUN
    settings = SETTINGS | {"max_partitions_per_insert_block": 0, "max_memory_usage": 8 << 30}

    def command(sql: str, **values: Any) -> None:
        client.command(sql, parameters=values, settings=settings)

    tables.create_tables(client)
    command(_RUNS, runs=runs, newest_us=NEWEST_US)
    for sql in _THINGS:
        command(sql)
    step = 2_000
    for after in range(0, runs, step):
        for table, (key, columns, values) in _CELL_VALUES.items():
            sql = _CELLS.format(
                table=table, key=key, columns=columns, values=values, vocabulary=VOCABULARY[table]
            )
            command(sql, after=after, until=after + step)
        command(_RESULTS, after=after, until=after + step)
    command(_SUMMARIES)
    command(_NEWEST)
    for month in sorted(list_months(client)):
        rebuild_month(client, month, runs)


_OF_BOARD = {
    "series": "select * from series",
    "runs": "select * from runs where id in {run_ids:Array(String)}",
    "run_totals": "select * from run_totals where run_id in {run_ids:Array(String)}",
    "results": "select * from results where run_id in {run_ids:Array(String)}",
}


def add_detail(client: Client, board: sqlite3.Connection) -> None:
    """Put the newest benchmarks into the board as runs that are not sealed: what compares them
    reads their results.
    """
    sql = "select id from runs where result_count > 0 order by started_us desc limit 20"
    run_ids = [row[0] for row in client.query(sql, settings=SETTINGS).result_rows]
    board.execute("pragma foreign_keys = off")  # of their processes there is nothing
    for table, sql in _OF_BOARD.items():
        answer = client.query(sql, parameters={"run_ids": run_ids}, settings=SETTINGS)
        own = {row[1] for row in board.execute(f"pragma table_info({table})")}
        columns = [column for column, name in enumerate(answer.column_names) if name in own]
        names = [answer.column_names[column] for column in columns]
        facts = ["{}"] if "facts" in own else []
        names += ["facts"] * len(facts)
        marks = ", ".join("?" * len(names))
        rows = ([*(row[column] for column in columns), *facts] for row in answer.result_rows)
        board.executemany(f"insert into {table} ({', '.join(names)}) values ({marks})", rows)


def main(argv: list[str] | None = None) -> int:
    """Fill a folder and say what is in it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet.many_runs", description=__doc__
    )
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="a folder that does not exist yet"
    )
    parser.add_argument("--compilations", type=int, default=100_000_000)
    arguments = parser.parse_args(argv)
    if arguments.folder.exists():
        parser.error(f"{arguments.folder} exists; give a new folder")
    address = parse_address(f"clickhouse://{arguments.folder.absolute()}")
    arguments.folder.mkdir(parents=True)
    begin_s = time.monotonic()
    assert address.clickhouse is not None
    client = connect(address.clickhouse)
    fill(client, arguments.compilations)
    with closing(open_writer(address.board)) as board:
        migrate_connection(board)
        add_detail(client, board)
    print(f"{arguments.folder} made in {time.monotonic() - begin_s:.0f} s:")
    sizes = """
      select table, sum(rows) as row_count, formatReadableSize(sum(bytes_on_disk)), count()
      from system.parts
      where active and database = currentDatabase()
      group by table
      having row_count > 0
      order by row_count desc
    """
    for table, rows, size, parts in client.query(sizes).result_rows:
        print(f"{table:24} {rows:>12,} rows {size:>12} in {parts} parts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
