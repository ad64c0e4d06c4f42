"""Each rank's compiles in order, with only the data needed to compare them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from compileboard.app.compiles.run_queries import OUTCOME_SQL
from compileboard.collectors.store.codec import unpack

MAX_PROCESSES = 4096
MAX_ROWS = 400_000

# Texts to compare, by name of their aspect.
TEXTS = {
    "collectives": "inductor_collective_schedule",
    "tensors": "inductor_runtime_and_tensor_meta",
    "graphs": "dynamo_output_graph",
    "code": "inductor_output_code",
}


class CompilePosition(NamedTuple):
    process: int
    generation: int
    compile_id: str


class RankCompile(NamedTuple):
    key: int
    position: CompilePosition
    function_id: int | None
    outcome: str
    total_us: int
    causes: tuple[int, ...]
    breaks: tuple[int, ...]
    caches: tuple[str, ...]
    sizes: tuple[str, ...]
    texts: tuple[tuple[int, ...], ...]  # payloads, in the order of TEXTS
    piece_count: int = 0  # pieces of its graph split by DDPOptimizer


@dataclass(frozen=True)
class RankProcess:
    id: str
    pid: int | None
    rank: int
    local_rank: int | None


@dataclass
class RankSequence:
    rank: int
    processes: list[RankProcess] = field(default_factory=list)
    compiles: list[RankCompile] = field(default_factory=list)
    phases: dict[str, int] = field(default_factory=dict)

    @property
    def total_us(self) -> int:
        return sum(rank_compile.total_us for rank_compile in self.compiles)


PROCESSES_SQL = """
select id, pid, rank, local_rank
from processes
where run_id = :run_id
  and rank is not null
order by rank, started_us, id
limit :limit
"""
# By start: the order of the index, and within one process that of its own clock.
COMPILES_SQL = f"""
select process_id, id, generation, compile_id, function_id, {OUTCOME_SQL}, total_us
from compiles as c
where run_id = :run_id
order by started_us, id
limit :limit
"""  # noqa: S608 - our own names
CAUSES_SQL = """
select compile_key, cause_id
from recompiles
where run_id = :run_id
  and cause_id is not null
order by time_us, id
limit :limit
"""
BREAKS_SQL = """
select compile_key, distinct_id
from graph_breaks
where run_id = :run_id
order by time_us, id
limit :limit
"""
CACHES_SQL = """
select compile_key, cache || ' ' || result
from cache_lookups
where run_id = :run_id
order by time_us, id
limit :limit
"""
SIZES_SQL = """
select compile_key, metadata, payload_id
from artifacts
where run_id = :run_id
  and name = 'dynamo_output_graph'
order by id
limit :limit
"""
TEXTS_SQL = """
select compile_key, payload_id
from artifacts
where run_id = :run_id
  and name = :name
order by id
limit :limit
"""
PIECES_SQL = """
select compile_key, id
from artifacts
where run_id = :run_id
  and name = 'optimize_ddp_split_child'
order by id
limit :limit
"""
PHASES_SQL = """
select
  k.process_id,
  sum(case when k.kind != 'runtime' then k.dynamo_us end) as dynamo,
  sum(case when k.kind != 'runtime' then k.aot_us end) as aot,
  sum(case when k.kind != 'runtime' then k.inductor_us end) as inductor,
  sum(case when k.kind != 'runtime' then k.codegen_us end) as codegen,
  sum(case when k.kind != 'runtime' then k.triton_us end) as triton,
  sum(k.cudagraph_us) as cudagraph,
  sum(case when k.kind != 'runtime' then k.restart_us end) as restart,
  sum(case when k.kind = 'runtime' then k.duration_us - coalesce(k.cudagraph_us,
    0) end) as first_calls
from compilations as k
where k.run_id = :run_id
group by k.process_id
order by k.process_id
limit :limit
"""


def list_ranks(connection: sqlite3.Connection, run_id: str) -> list[RankSequence]:
    sequences: dict[int, RankSequence] = {}
    owners: dict[str, tuple[RankSequence, int]] = {}
    for row in connection.execute(PROCESSES_SQL, {"run_id": run_id, "limit": MAX_PROCESSES}):
        process = RankProcess(**dict(row))
        sequence = sequences.setdefault(process.rank, RankSequence(process.rank))
        owners[process.id] = (sequence, len(sequence.processes))
        sequence.processes.append(process)
    if len(sequences) > 1:
        _read_compiles(connection, run_id, owners)
        _read_phases(connection, run_id, owners)
    return [sequences[rank] for rank in sorted(sequences)]


def _read_compiles(
    connection: sqlite3.Connection, run_id: str, owners: dict[str, tuple[RankSequence, int]]
) -> None:
    values = {"run_id": run_id, "limit": MAX_ROWS}
    reader = connection.cursor()
    reader.row_factory = None  # plain tuples: there may be 100,000 of them
    causes = _group_by_compile(reader.execute(CAUSES_SQL, values))
    breaks = _group_by_compile(reader.execute(BREAKS_SQL, values))
    caches = _group_by_compile(reader.execute(CACHES_SQL, values))
    graphs = reader.execute(SIZES_SQL, values).fetchall()
    sizes = _group_by_compile((key, metadata) for key, metadata, _id in graphs)
    texts = [
        _group_by_compile(((key, number) for key, _metadata, number in graphs))
        if aspect == "graphs"
        else _group_by_compile(reader.execute(TEXTS_SQL, values | {"name": name}))
        for aspect, name in TEXTS.items()
    ]
    pieces = Counter(key for key, _id in reader.execute(PIECES_SQL, values))
    for process_id, key, generation, compile_id, function_id, outcome, total_us in reader.execute(
        COMPILES_SQL, values
    ):
        owner = owners.get(process_id)
        if owner is not None:
            owner[0].compiles.append(
                RankCompile(
                    key,
                    CompilePosition(owner[1], generation, compile_id),
                    function_id,
                    outcome,
                    total_us,
                    causes.get(key, ()),
                    breaks.get(key, ()),
                    caches.get(key, ()),
                    sizes.get(key, ()),
                    tuple([texts_by_compile.get(key, ()) for texts_by_compile in texts]),
                    pieces[key],
                )
            )
    for sequence, _number in owners.values():
        if len(sequence.processes) > 1:
            sequence.compiles.sort(
                key=lambda rank_compile: rank_compile.position.process
            )  # stable: each process keeps its order


def _group_by_compile(rows: Iterable[tuple[int, Any]]) -> dict[int, tuple[Any, ...]]:
    values_by_compile: dict[int, tuple[Any, ...]] = {}
    once: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for key, value in rows:
        if value is not None:
            values = (*values_by_compile[key], value) if key in values_by_compile else (value,)
            values_by_compile[key] = once.setdefault(values, values)
    return values_by_compile


def _read_phases(
    connection: sqlite3.Connection, run_id: str, owners: dict[str, tuple[RankSequence, int]]
) -> None:
    for row in connection.execute(PHASES_SQL, {"run_id": run_id, "limit": MAX_PROCESSES}):
        owner = owners.get(row["process_id"])
        if owner is None:
            continue
        phases = owner[0].phases
        for name in row.keys():  # noqa: SIM118 - a row iterates its values
            if name != "process_id" and row[name] is not None:
                phases[name] = phases.get(name, 0) + row[name]


def read_texts(
    connection: sqlite3.Connection, ids: Iterable[int], max_bytes: int
) -> dict[int, str]:
    """Read stored texts in order, up to `max_bytes` in total; a text that is too long is
    left out.
    """
    texts: dict[int, str] = {}
    for number in ids:
        row = connection.execute(
            "select size_bytes, body from payloads where id = :id and size_bytes <= :most limit 1",
            {"id": number, "most": max_bytes},
        ).fetchone()
        if row is None:
            continue
        max_bytes -= row["size_bytes"]
        try:
            texts[number] = unpack(row["body"])
        except ValueError:
            continue
    return texts


def list_names(connection: sqlite3.Connection, ids: Iterable[int]) -> dict[int, tuple[str, str]]:
    selected = sorted(set(ids))[:500]
    marks = ", ".join(f":id{n}" for n in range(len(selected)))
    sql = f"select id, name, file from functions where id in ({marks}) order by id limit 500"  # noqa: S608 - our own names
    rows = connection.execute(sql, {f"id{n}": number for n, number in enumerate(selected)})
    return {row["id"]: (row["name"], row["file"]) for row in rows}
