"""Runs: the list with its filters, orders and pages, and one run's row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from compileboard.app.core.engine import Dialect, Engine, get_row
from compileboard.app.core.fields import Count, TimeUs
from compileboard.app.core.newest import (
    RecorderClock,
    RunCandidate,
    find_newest_run,
    get_newest_run_id,
)
from compileboard.app.core.page import FilterError, Page, check_order, decode_cursor, make_page
from compileboard.app.core.parameters import (
    OTHER_KEYS,
    SINCE,
    SINCE_HELP,
    UNTIL,
    UNTIL_HELP,
    Parameter,
    check_days,
    list_names,
    read_query,
)
from compileboard.app.core.schema import Keywords
from compileboard.app.runs.rows import ON_CPU, RUN_COLUMNS, RUN_SOURCE, RUN_SQL, RunRow, to_row

STATES = ("running", "finished", "failed", "killed", "interrupted", "imported")

# Orders of the list. None is ever null, so that a keyset page can start after any row.
ORDERS = {
    "started": "r.started_us",
    "duration": "(coalesce(r.ended_us, r.heartbeat_us) - r.started_us)",
    "compiles": "coalesce($t.compile_count, 0)",
    "recompiles": "coalesce($t.recompile_count, 0)",
    "breaks": "coalesce($t.graph_break_count, 0)",
    "rerecordings": "coalesce($t.cudagraph_rerecording_count, 0)",
    "compile_time": "coalesce($t.compile_us, 0)",
}
DEFAULT_ORDER = "started"


def _read_tag(_name: str, text: str) -> str | None:
    return text.partition("=")[0] or None


def _read_tag_value(_name: str, text: str) -> str | None:
    return text.partition("=")[2] or None


def _read_commit(name: str, text: str) -> str:
    if not all(letter in "0123456789abcdefABCDEF" for letter in text):
        raise FilterError(f"{name}: {text!r} is not the beginning of a commit's hash")
    return text


@dataclass(frozen=True)
class RunFilter:
    """The filter of runs. None or an empty string selects everything. `before_us`, in microseconds
    since the epoch, is exclusive.
    """

    text: Annotated[str | None, Parameter("q"), "Text to look for; capitals do not matter."] = None
    name: Annotated[str | None, "A run's exact name."] = None
    suite: Annotated[str | None, "A run's suite, whole; else the suite of its results."] = None
    tag_key: Annotated[
        str | None, Parameter("tag", read=_read_tag), "A run's tag: `key` or `key=value`."
    ] = None
    tag_value: Annotated[str | None, Parameter("tag", read=_read_tag_value)] = None
    host: Annotated[str | None, "The name of a run's machine."] = None
    gpu: Annotated[
        str | None, "The name of a run's GPU, or `CPU` for runs that are known to have had none."
    ] = None
    torch: Annotated[str | None, "A run's exact torch version."] = None
    commit: Annotated[
        str | None,
        Parameter(read=_read_commit),
        Keywords(pattern="^[0-9a-fA-F]*$"),
        "The beginning of the hash of a run's commit.",
    ] = None
    state: Annotated[str | None, Parameter(choices=STATES), "A run's state."] = None
    since_us: Annotated[int | None, SINCE, SINCE_HELP] = None
    before_us: Annotated[int | None, UNTIL, UNTIL_HELP] = None
    trials: Annotated[
        bool | None,
        Parameter(choices=("no", "yes"), read=lambda _name, text: text == "yes" or None),
        "`yes`: also the runs that `try` made. Default: `no`.",
    ] = None

    def check(self, query: Mapping[str, str]) -> None:
        """Raises FilterError if the last day is before the first."""
        check_days(query, self.since_us, self.before_us)


FILTERS = list_names(RunFilter)


def read_run_filter(query: Mapping[str, str]) -> RunFilter:
    """Read the filter of runs from a query. An empty parameter selects everything.

    Raises FilterError for an unknown key or invalid value.
    """
    return read_query(RunFilter, query, (*OTHER_KEYS, "done"))


CONDITIONS = {
    "name": "r.name = :name",
    "suite": "r.suite = :suite",
    "result_suite": "r.id in (select run_id from run_summaries where suite = :result_suite)",
    "host": "r.host = :host",
    "gpu": f"(r.gpu_name = :gpu or (:gpu = 'CPU' and {ON_CPU}))",
    "torch": "r.torch_version = :torch",
    "commit": "substr(r.git_commit, 1, length(:commit)) = lower(:commit)",
    "state": "r.state = :state",
    "since_us": "r.started_us >= :since_us",
    "before_us": "r.started_us < :before_us",
    "tag_key": """exists (
    select 1
    from run_tags as g
    where g.run_id = r.id
      and g.key = :tag_key
      and (:tag_value is null or g.value = :tag_value)
  )""",
    "text": """(
    instr(lower(r.name), lower(:text))
    or instr(lower(coalesce($a.title, '')), lower(:text))
    or instr(lower(coalesce($a.note, '')), lower(:text))
    or instr(lower(r.command), lower(:text))
    or instr(lower(coalesce(r.git_branch, '')), lower(:text))
    or instr(lower(coalesce(r.git_subject, '')), lower(:text))
    or substr(r.id, 1, length(:text)) = upper(:text)
    or r.id = :text
  )""",
}
# LIKE takes a third of the time of instr() of lower(), and folds the same letters. It stops at a
# NUL: runs with one have an index of their own, and :pattern is null if the search has one.
_LIKE = """
    r.name like :pattern escape '\\'
    or r.command like :pattern escape '\\'
    or r.git_branch like :pattern escape '\\'
    or r.git_subject like :pattern escape '\\'
"""
_ELSEWHERE = f"""
    select a.run_id
    from run_annotations as a
    where instr(lower(a.title), lower(:text)) or instr(lower(a.note), lower(:text))
    union all
    select id
    from runs
    where (id >= upper(:text) and id < upper(:text) || char(1114111)) or id = :text
    union all
    select r.id
    from runs as r
    $words
    where instr(r.name || r.command || coalesce(r.git_branch, '') || coalesce(r.git_subject, ''),
      char(0)) > 0
      and {CONDITIONS["text"]}
"""  # noqa: S608  own texts only
_TEXT_SQLITE = f"({_LIKE} or r.id in ({_ELSEWHERE}))"
# Reads a small index of these columns. A value with more runs than this is found sooner from the
# newest run on.
_FEW = 200
BY_TEXT_SQL = f"""
select r.id
from runs as r
where {_LIKE}
union all
{_ELSEWHERE}
limit :most
"""  # noqa: S608 - our own names
# Each is true if its filter is not set, except for trials.
_WHERE = "\n  and ".join(
    (
        "(:trials is not null or r.source <> 'trial')",
        *(f"(:{name} is null or {condition})" for name, condition in CONDITIONS.items()),
    )
)
_NO_TRIAL: Mapping[Dialect, str] = {
    "sqlite": "r.id not in (select id from runs where source = 'trial')",  # they have an index
    "clickhouse": "r.source <> 'trial'",
}


_PINNED = {
    None: "true",
    0: "coalesce($a.pinned, 0) = 0",
    1: "r.id in (select run_id from run_annotations where pinned = 1)",  # pinned runs are few
}


def where_sql(filters: Mapping[str, Any], dialect: Dialect) -> str:
    conditions = CONDITIONS | {"run_ids": "r.id $in(:run_ids)"}
    if dialect == "sqlite":
        conditions["text"] = _TEXT_SQLITE
    texts = [text for name, text in conditions.items() if filters[name] is not None]
    texts += [_NO_TRIAL[dialect]] if filters["trials"] is None else []
    return "\n  and ".join(texts) or "true"


def bind_suite(engine: Engine, suite: str | None) -> dict[str, str | None]:
    """Return the bound values for a suite that only results have, as in imported files."""
    sql = "select 1 from runs where suite = :suite limit 1"
    is_of_runs = not suite or engine.rows(sql, {"suite": suite})
    return {
        "suite": suite if is_of_runs else None,
        "result_suite": None if is_of_runs else suite,
    }


def _bind_filter(selection: RunFilter) -> dict[str, Any]:
    given = {name: value if value != "" else None for name, value in vars(selection).items()}
    return given | {"result_suite": None}


def _bind_list(engine: Engine, selection: RunFilter) -> dict[str, Any]:
    values = _bind_filter(selection)
    values |= bind_suite(engine, values["suite"])
    values |= {"pattern": _write_pattern(values["text"]), "run_ids": None}
    if values["text"] is None or engine.dialect == "clickhouse":
        return values
    run_ids = [row[0] for row in engine.rows(BY_TEXT_SQL, values | {"most": _FEW + 1})]
    return values if len(run_ids) > _FEW else values | {"text": None, "run_ids": run_ids}


def _write_pattern(text: str | None) -> str | None:
    if text is None or "\0" in text:
        return None
    return "%" + re.sub(r"[\\%_]", r"\\\g<0>", text) + "%"


TAGS_SQL = """
select run_id, key, value
from run_tags
where run_id $in(:run_ids)
order by run_id, key
limit 20000
"""


def runs_sql(order: str, up: bool, after: bool, given: Mapping[str, Any], dialect: Dialect) -> str:
    key, direction, sign = ORDERS[order], "asc" if up else "desc", ">" if up else "<"
    behind = f"and ({key}, r.id) {sign} (:after_key, :after_id)" if after else ""
    # Every part is a constant of this module; values are bound.
    return f"""
select {RUN_COLUMNS}
{RUN_SOURCE}
where {_PINNED[given["pinned"]]}
  and {where_sql(given, dialect)}
  {behind}
order by {key} {direction}, r.id {direction}
limit :limit
"""


def list_runs(
    engine: Engine,
    selection: RunFilter | None = None,
    *,
    sort: str = "started",
    cursor: str | None = None,
    limit: int = 50,
    pinned_first: bool = True,
) -> Page[RunRow]:
    """List runs; `sort` is a name in ORDERS, largest first, or that name with ".asc".

    Raises FilterError for an invalid sort or cursor.
    """
    order, direction = check_order(sort, ORDERS)
    after = decode_cursor(cursor, int, int, str)
    selected = _bind_list(engine, selection or RunFilter())
    rows: list[RunRow] = []
    # Pinned runs, then the others: each is read along its index instead of sorting all.
    for pinned in (1, 0) if pinned_first else (None,):
        phase = pinned or 0
        if after and int(after[0]) < phase:
            continue
        behind = after if after and after[0] == phase else None
        values = selected | {"pinned": pinned, "limit": limit + 1 - len(rows)}
        if behind:
            values |= {"after_key": behind[1], "after_id": behind[2]}
        sql = runs_sql(order, direction == "asc", behind is not None, values, engine.dialect)
        records = engine.rows(sql, values)
        rows += [to_row(row) for row in records]
        if len(rows) > limit:
            break
    return make_page(
        rows, limit, lambda row: (int(row.pinned and pinned_first), _sort_value(row, order), row.id)
    )


def _sort_value(row: RunRow, order: str) -> int:
    return {
        "started": row.started_us,
        "duration": (row.heartbeat_us if row.ended_us is None else row.ended_us) - row.started_us,
        "compiles": row.compile_count or 0,
        "recompiles": row.recompile_count or 0,
        "breaks": row.graph_break_count or 0,
        "rerecordings": row.cudagraph_rerecording_count or 0,
        "compile_time": row.compile_us or 0,
    }[order]


def count_runs(engine: Engine, selection: RunFilter | None = None) -> int:
    values = _bind_list(engine, selection or RunFilter())
    where = where_sql(values, engine.dialect)
    totals = "$totals" if values["gpu"] else ""  # CPU runs are recognised by their totals
    sql = f"select count(*) from runs as r {totals} where {where}"  # noqa: S608 - our own names
    return int(engine.rows(sql, values)[0][0])


def get_run(engine: Engine, run_id: str) -> RunRow | None:
    row = get_row(engine, RUN_SQL, {"id": run_id})
    return to_row(row) if row else None


def get_newest_run(engine: Engine, clock: RecorderClock) -> RunRow | None:
    newest = get_newest_run_id(engine, clock)
    return get_run(engine, newest) if newest else None


def get_run_to_compare(
    engine: Engine, run: RunRow, word: str, clock: RecorderClock
) -> RunRow | None:
    """Return the run to compare with, of the same name and suite: `latest` is the newest other,
    `previous` the one before.
    """
    alike = list_runs(
        engine, RunFilter(name=run.name, suite=run.suite), limit=1000, pinned_first=False
    ).rows
    others = {
        other.id: other
        for other in alike
        if other.id != run.id
        and other.suite == run.suite
        and (word == "latest" or (other.started_us, other.id) < (run.started_us, run.id))
    }
    newest = find_newest_run(
        RunCandidate(other.id, other.started_us, clock.is_running(other.state, other.heartbeat_us))
        for other in others.values()
    )
    return others[newest] if newest else None


def list_tags(engine: Engine, run_ids: list[str]) -> dict[str, list[tuple[str, str]]]:
    tags_by_run: dict[str, list[tuple[str, str]]] = {run_id: [] for run_id in run_ids}
    for row in engine.rows(TAGS_SQL, {"run_ids": run_ids}):
        tags_by_run[row["run_id"]].append((row["key"], row["value"]))
    return tags_by_run


@dataclass(frozen=True)
class RunChoices:
    names: tuple[str, ...]
    suites: tuple[str, ...]
    hosts: tuple[str, ...]
    gpus: tuple[str, ...]
    torches: tuple[str, ...]
    tags: tuple[str, ...]


_MAX_CHOICES = 200
_CHOICE_COLUMNS = ("name", "suite", "host", "gpu_name", "torch_version")
# SQLite jumps from each value in an index to the next; ClickHouse reads the column.
_DISTINCT: dict[Dialect, str] = {
    "sqlite": """
  with recursive steps (value) as (
    select min({name})
    from runs
    union all
    select (select min({name}) from runs where {name} > steps.value)
    from steps
    where steps.value is not null
    limit :most + 1
  )
  select value
  from steps
  where value is not null
  limit :most
""",
    "clickhouse": """
  select distinct {name} as value
  from runs
  where {name} is not null
  order by value
  limit :most
""",
}
_CHOICES = {
    dialect: "union all".join(
        f"""
select '{name}' as column_name, value
from ({text.format(name=name)}) as {name}_values
"""  # noqa: S608  own names only
        for name in _CHOICE_COLUMNS
    )
    for dialect, text in _DISTINCT.items()
}
_TAGS: dict[Dialect, str] = {
    "sqlite": """
with recursive steps (key, tag_value) as (
  select min(key), (select value from run_tags order by key, value limit 1)
  from run_tags
  union all
  select
    case
      when exists (select 1 from run_tags where key = s.key and value > s.tag_value) then s.key
      else (select min(key) from run_tags where key > s.key)
    end,
    coalesce(
      (select min(value) from run_tags where key = s.key and value > s.tag_value),
      (select min(value) from run_tags where key = (select min(key) from run_tags
        where key > s.key))
    )
  from steps as s
  where s.key is not null
  limit 201
)
select key || '=' || tag_value as value
from steps
where key is not null
order by value
limit 200
""",
    "clickhouse": """
select key || '=' || t.tag_value as value
from (select distinct key, value as tag_value from run_tags) as t
order by value
limit 200
""",
}


def list_values(engine: Engine, column: str, limit: int) -> list[str]:
    sql = _DISTINCT[engine.dialect].format(name=column)
    return [row["value"] for row in engine.rows(sql, {"most": limit})]


def list_choices(engine: Engine) -> RunChoices:
    columns: dict[str, list[str]] = {name: [] for name in _CHOICE_COLUMNS}
    for column, value in engine.rows(_CHOICES[engine.dialect], {"most": _MAX_CHOICES}):
        columns[column].append(value)
    names, suites, hosts, gpus, torches = (tuple(sorted(values)) for values in columns.values())
    tags = tuple(row["value"] for row in engine.rows(_TAGS[engine.dialect]))
    return RunChoices(names, suites, hosts, (*gpus, "CPU"), torches, tags)


LOOKUP_SQL = """
select id
from runs
where id >= :prefix
  and id < :end
order by id
limit :limit
"""


def find_run_ids(engine: Engine, prefix: str, limit: int = 4) -> list[str]:
    for text in dict.fromkeys((prefix, prefix.upper())):
        rows = engine.rows(LOOKUP_SQL, {"prefix": text, "end": text + "\x7f", "limit": limit})
        run_ids = [str(row["id"]) for row in rows]
        if text in run_ids:
            return [text]
        if run_ids and text:
            return run_ids
    return []


MAX_SLOTS = 48


def _write_conditions(*columns: str) -> str:
    return f"""
wanted as materialized (
  select
    {", ".join(columns)}
  {RUN_SOURCE}
  where {_WHERE}
)
"""


_SLOT = "(row_number() over (order by r.started_us, r.id) - 1) $div :slot_size as slot"
_LIMITS = "$t.recompile_limit_count as recompile_limit_count"
WANTED = _write_conditions("r.id", "r.started_us")
WANTED_SLOTS = _write_conditions("r.id", "r.started_us", "r.pub", _SLOT)
# Numbers of runs whose roll-ups ClickHouse has.
WANTED_PUBS = _write_conditions("r.pub as pub")
WANTED_SLOT_PUBS = _write_conditions("r.pub as pub", _LIMITS, _SLOT)
SLOTS_SQL = f"""
with {WANTED_SLOTS}
select slot, min(started_us) as started_us, max(id) as run_id, count(*) as run_count
from wanted
group by slot
order by slot
limit 48
"""  # noqa: S608 - our own names


@dataclass(frozen=True)
class TrendSlot:
    """One slot of a trend: one run, or several consecutive ones."""

    started_us: Annotated[TimeUs, "Start of its first run."]
    run_id: Annotated[str, "Id of the last run."]
    run_count: Annotated[Count, "Number of runs."]


def bind_runs(runs: RunFilter) -> dict[str, Any]:
    return _bind_filter(runs) | {"text": None}


def list_slots(engine: Engine, runs: RunFilter) -> list[TrendSlot]:
    """Divide runs, oldest first, into at most MAX_SLOTS slots of consecutive runs.

    A slot has one run, or two, four, eight …, so that earlier slots stay the same when runs are
    added.
    """
    values = bind_runs(runs) | {
        "slot_size": choose_slot_size(count_runs(engine, replace(runs, text=None)))
    }
    return [
        TrendSlot(row["started_us"], row["run_id"], row["run_count"])
        for row in engine.rows(SLOTS_SQL, values)
    ]


def choose_slot_size(run_count: int) -> int:
    slot_size = 1
    while slot_size * MAX_SLOTS < run_count:
        slot_size *= 2
    return slot_size


def bind_slots(runs: RunFilter, slots: list[TrendSlot]) -> dict[str, Any]:
    return bind_runs(runs) | {"slot_size": choose_slot_size(sum(slot.run_count for slot in slots))}
