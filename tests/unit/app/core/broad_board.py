"""A board for statements across runs: recorded runs, and made-up ones with odd values."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compileboard.app.core.newest import RecorderClock
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.dashboard import Trial, annotate, save_trial
from compileboard.collectors.store.ingest.commit_history import StoredCommit, save_commits
from compileboard.collectors.store.rollups import DEFINITIONS
from compileboard.collectors.store.trash import delete_run
from tests.tools.history import RECORDED
from tests.unit.app.benched import RUNS, bench_suite
from tests.unit.app.benchmarks.test_h200_suite import ingest_recorded
from tests.unit.app.recorded import record_run
from tests.unit.app.seed import START_US, add_run, insert

HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000
NOW_US = START_US + 40 * HOUR_US
ODD_TEXTS = (
    *(
        "",
        "a",
        "A",
        "ä",
        "Ä",
        "İi",
        "ß",
        "日本",
        "😀",
        "it's",
        'say "x"',
        "tab\tline\nend",
        "back\\slash",
        "\\N",
        "%_*?",
    ),
    *(
        ":id $is -- /* {x:Int64}",
        "null",
        "NULL",
        "0",
        "1e5",
        " ",
        "a b",
        "e\u0301",
        "\x01\x7f",
        "nul\0byte",
        "x" * 3000,
    ),
)
_VERSIONS = (None, "2.11.0", "2.11.0+cu128", "2.11", "2.12.0.dev20261101", "3")
_STATES = ("running", "finished", "failed", "killed", "interrupted", "imported")
_RUN_COUNT, _THING_COUNT = 60, 9


@dataclass(frozen=True)
class BroadBoard:
    """What arguments of queries are made of: what there is, and what there is not."""

    connection: sqlite3.Connection

    def select(self, sql: str) -> list[Any]:
        """Return the first column of a statement."""
        return [row[0] for row in self.connection.execute(sql)]

    @property
    def run_ids(self) -> list[str]:
        """Return every run, then one that there is none of."""
        return [*self.select("select id from runs order by id"), "01NOBODY"]

    @property
    def clock(self) -> RecorderClock:
        """Return a moment at which some recorders are silent."""
        return RecorderClock(NOW_US)


def make_broad_board(path: Path, recorded: Path) -> None:
    """Make it of a database with recorded trace logs."""
    shutil.copy(recorded, path)
    with closing(open_writer(path)) as store:
        ingest_recorded(store, RECORDED)
        bench_suite(store)
        record_run(store)
        chance = random.Random(16)  # the same board each time
        store.execute("begin")
        _add_odd_runs(store, chance)
        _add_odd_results(store, chance)
        store.execute("commit")
        _add_words(store, chance)
        _add_commits(store)
        for number in (7, 30):
            delete_run(store, _run_id(number), now_us=NOW_US)


def _run_id(number: int) -> str:
    return f"01ODD{number:021d}"


def _add_odd_runs(store: sqlite3.Connection, chance: random.Random) -> None:
    names = (
        *("functions", "distinct_breaks", "recompile_causes", "rerecording_reasons"),
        "failure_issues",
    )
    things: dict[str, list[int]] = {name: [] for name in names}
    for number in range(_THING_COUNT):
        text, other = chance.choice(ODD_TEXTS), chance.choice(ODD_TEXTS)
        function = None if number % 4 == 0 else chance.choice(things["functions"] or [None])
        of_function = {"id": 2**62 + number, "file": text, "name": f"{other} {number}"}
        things["functions"].append(insert(store, "functions", **of_function))
        shown = {
            "reason": f"{other}\nsecond line",
            "function_id": function,
            "fingerprint": f"odd {number}",
        }
        of_break = {
            "gb_id": chance.choice((None, "GB0059")),
            "gb_type": chance.choice((None, text)),
            "hints": "[]",
        }
        more = {
            "explanation": chance.choice((None, text)),
            "source_line": chance.choice((None, other)),
            "line": number,
        }
        thing = insert(store, "distinct_breaks", id=2**61 + number, **shown, **of_break, **more)
        things["distinct_breaks"].append(thing)
        of_cause = {
            "category": chance.choice(("tensor_size", "other", text)),
            "source": chance.choice((None, text)),
        }
        things["recompile_causes"].append(
            insert(store, "recompile_causes", id=2**60 + number, **shown, **of_cause)
        )
        of_graphs = {
            "status": ("StaticInputIdxMismatch", text)[number % 2],
            "inputs": (None, other)[number % 3 % 2],
            "fingerprint": shown["fingerprint"],
            "function_id": function,
        }
        thing = insert(store, "rerecording_reasons", id=2**58 + number, **of_graphs)
        things["rerecording_reasons"].append(thing)
        of_failure = {
            "error_type": (None, "RuntimeError", text)[number % 3],
            "operation": (None, "aten.add.Tensor")[number % 2],
            "message": (None, other)[number % 5 % 2],
            "fingerprint": shown["fingerprint"],
            "function_id": function,
        }
        thing = insert(store, "failure_issues", id=2**57 + number, **of_failure)
        things["failure_issues"].append(thing)
    for number in range(_RUN_COUNT):
        started_us = START_US + number // 3 * HOUR_US  # three at a time
        run_id = _run_id(number)
        state = chance.choice(_STATES)
        ended_us = None if state == "running" else started_us + chance.choice((0, 1, 60_000_000))
        counts = (
            "compile_count",
            "graph_break_count",
            "recompile_count",
            "recompile_limit_count",
            "compile_us",
        )
        more_counts = (
            "failure_count",
            "recompile_us",
            "skipped_frame_count",
            "process_count",
            "result_count",
        )
        add_run(
            *(store, run_id),
            started_us=started_us,
            tags={chance.choice(ODD_TEXTS): chance.choice(ODD_TEXTS) for _ in range(number % 4)}
            | {"team": "ä"},
            totals={name: chance.choice((0, 0, 1, 2, 2**40)) for name in (*counts, *more_counts)},
            name=chance.choice(("train", "Train", *ODD_TEXTS)),
            suite=chance.choice((None, "", "nightly", "Nightly", chance.choice(ODD_TEXTS))),
            source=chance.choice(("live", "import", "bench", "trial")),
            state=state,
            ended_us=ended_us,
            heartbeat_us=chance.choice((started_us, NOW_US)),
            command=chance.choice(ODD_TEXTS),
            host=chance.choice((None, "box", *ODD_TEXTS)),
            gpu_name=chance.choice((None, "NVIDIA H200", "CPU")),
            gpu_count=chance.choice((0, 0, 1, 8)),
            torch_version=chance.choice(_VERSIONS),
            cuda_version=None,
            exit_code=chance.choice((None, 0, 1)),
            git_commit=chance.choice((None, "ab" * 20, "abcd" * 10, f"c{number % 7}")),
            git_branch=chance.choice((None, "main", "", *ODD_TEXTS)),
            git_subject=chance.choice((None, *ODD_TEXTS)),
            git_dirty=chance.choice((None, 0, 1)),
            facts=json.dumps(
                chance.choice(({}, {"gpus": []}, {"gpus": [{"driver_version": f"570.{number}"}]}))
            ),
        )
        if number % 9 == 4:
            store.execute("delete from run_totals where run_id = ?", (run_id,))
        for process in range(number % 3):
            insert(
                *(store, "processes"),
                id=f"{run_id}/{process}",
                run_id=run_id,
                started_us=started_us - process,
                capabilities="{}",
                last_seen_us=started_us,
                last_sequence=0,
                environment="{}",
                torch_version=chance.choice((None, "2.11.0")),
                triton_version=chance.choice((None, f"3.{process}")),
            )
        _add_rollups(store, chance, run_id, things)
        for thing in things["rerecording_reasons"][number % 9 : number % 7]:
            counts = {"rerecording_count": number % 3, "duration_us": number % 4 * 500}
            insert(store, "run_rerecordings", run_id=run_id, reason_id=thing, **counts)
        for thing in things["failure_issues"][number % 7 : number % 11]:
            counts = {"failure_count": number % 4, "compile_us": number % 3 * 500}
            insert(store, "run_issues", run_id=run_id, issue_id=thing, **counts)


def _add_rollups(
    store: sqlite3.Connection, chance: random.Random, run_id: str, things: dict[str, Sequence[int]]
) -> None:
    columns = {
        "run_breaks": ("distinct_breaks", "distinct_id", ("break_count",)),
        "run_causes": ("recompile_causes", "cause_id", ("recompile_count", "partial_count")),
        "run_functions": (
            *("functions", "function_id"),
            ("compile_count", "graph_break_count", "recompile_count", "recompile_limit_count"),
        ),
    }
    for table, (kind, key, counts) in columns.items():
        for thing in chance.sample(things[kind], chance.choice((0, 1, 4))):
            values = {name: chance.choice((0, 1, 1, 3)) for name in counts}
            insert(
                store,
                table,
                run_id=run_id,
                compile_us=chance.choice((0, 0, 500, 2**45)),
                **{key: thing},
                **values,
            )


def _add_odd_results(store: sqlite3.Connection, chance: random.Random) -> None:
    series = []
    for number in range(12):
        words = {
            name: chance.choice(("", "eager", "İi"))
            for name in ("mode", "dtype", "device", "hardware", "backend")
        }
        own = {
            "suite": chance.choice(("", "odd", "Odd")),
            "model": f"{ODD_TEXTS[number * 2]}{number % 5}",
        }
        sizes = {
            "dynamic": number % 2,
            "batch_size": chance.choice((0, 8)),
            "world_size": chance.choice((1, 2)),
        }
        series.append(insert(store, "series", id=2**59 + number, **own, **words, **sizes))
    number_columns = (
        "speedup",
        "speedup_low",
        "speedup_high",
        "abs_latency_ms",
        "compilation_latency_s",
    )
    for number in range(0, _RUN_COUNT, 2):
        run_id = _run_id(number)
        for index, key in enumerate(chance.sample(series, 5)):
            values = {
                name: chance.choice((None, 0.0, 1.1, 1e-300, 1e300, 0.1 + number))
                for name in number_columns
            }
            insert(
                *(store, "results"),
                run_id=run_id,
                series_id=key,
                process_id=run_id,
                sequence=index,
                facts="{}",
                experiment=chance.choice(
                    ("performance", "accuracy", "export", "caching_precompile", "İi")
                ),
                status=chance.choice(("measured", "failed", "skipped")),
                reason=chance.choice((None, *ODD_TEXTS)),
                accuracy=chance.choice((None, "pass", "fail_accuracy")),
                message=chance.choice((None, *ODD_TEXTS)),
                task=chance.choice((None, f"task {index}")),
                time_us=START_US + number // 6 * HOUR_US,
                graph_breaks=chance.choice((None, 0, 3)),
                **values,
            )
        for index, definition in enumerate(DEFINITIONS):
            counts = {
                name: chance.choice((0, 1, 5))
                for name in ("measured_count", "failed_count", "speedup_count")
            }
            words = {
                name: chance.choice(("", "eager"))
                for name in ("mode", "dtype", "device", "hardware", "backend")
            }
            numbers = {
                "total_count": 7,
                "passed_count": chance.choice((None, 2)),
                "time_us": START_US,
            }
            mean = {"geomean_speedup": chance.choice((None, 1.25))}
            insert(
                *(store, "run_summaries"),
                run_id=run_id,
                suite=chance.choice(("odd", "", "日本")),
                definition=definition,
                dynamic=index % 2,
                world_size=1,
                **(words | counts | numbers | mean),
            )


def _add_words(store: sqlite3.Connection, chance: random.Random) -> None:
    for number in range(0, _RUN_COUNT, 5):
        title = chance.choice(ODD_TEXTS)[:200]
        annotate(
            store,
            _run_id(number),
            title=title,
            note=chance.choice(ODD_TEXTS),
            pinned=number % 2 == 0,
        )
    words = {
        "title": "Take it out",
        "patch": "",
        "outcome": "improved",
        "summary": "7 breaks → 0",
        "cause_fingerprint": None,
    }
    ends = {"fix_id": None, "settings": (), "started_us": START_US, "ended_us": START_US}
    save_trial(
        store,
        Trial(
            id="X", run_id=RUNS[0], base_run_id=_run_id(1), new_run_id=_run_id(2), **words, **ends
        ),
    )


def _add_commits(store: sqlite3.Connection) -> None:
    chain = [(f"c{number}", f"c{number - 1}" if number else "base", number) for number in range(30)]
    others = [
        ("side1", "c4", 5),
        ("late", "never-told", 90),
        ("loop1", "loop2", 3),
        ("loop2", "loop1", 3),
        ("ä", None, 1),
    ]
    save_commits(
        store,
        [
            StoredCommit(
                name,
                parent,
                START_US + day * DAY_US,
                ODD_TEXTS[day % len(ODD_TEXTS)] or None,
                f"{name} {day}",
            )
            for name, parent, day in (*chain, *others)
        ],
    )
