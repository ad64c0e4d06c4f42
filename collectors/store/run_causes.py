"""List the causes of a run's lost compile time from the database."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from compileboard.collectors.contract.compile_labels import label_line
from compileboard.collectors.contract.events import Recompiled
from compileboard.collectors.contract.fingerprints import content_id
from compileboard.collectors.contract.library_names import is_library_name
from compileboard.collectors.contract.verdicts import LABELS, MIN_SAMPLES
from compileboard.collectors.fixes.cache_entries import to_recorded
from compileboard.collectors.fixes.causes import Cause, bare_name, build_causes
from compileboard.collectors.fixes.fix import (
    BreakOccurrence,
    RecordedBreak,
    RecordedCompile,
    RecordedRecompile,
    RecordedRun,
    SourceLines,
    StackFrame,
    TriedFix,
    TriedStep,
)
from compileboard.collectors.fixes.titles import describe_slower
from compileboard.collectors.store.connection import read_value
from compileboard.collectors.store.dashboard import OUTCOME_LABELS, TOGETHER, list_trials
from compileboard.collectors.store.ingest.insert import InsertOnce
from compileboard.collectors.store.reading import read_body, read_event, read_json
from compileboard.collectors.store.run_steps import load_run_steps

MAX_EXCERPTS = 500  # a run's
MAX_LINES = 60  # of an excerpt, before and after the line that it was read for

_EXCERPT = InsertOnce("source_excerpts", "file", "first_line", "text")


def save_source_lines(
    connection: sqlite3.Connection, run_id: str, excerpts: Iterable[SourceLines]
) -> None:
    for excerpt in excerpts:
        text = "\n".join(excerpt.lines)
        excerpt_id = content_id("source", excerpt.file, excerpt.first_line, text)
        values = {
            "id": excerpt_id,
            "file": excerpt.file,
            "first_line": excerpt.first_line,
            "text": text,
        }
        _EXCERPT.add_once(connection, values)
        connection.execute(
            """
            insert or ignore into run_source_excerpts (run_id, excerpt_id)
            select id, :excerpt_id
            from runs
            where id = :run_id
            """,
            {"run_id": run_id, "excerpt_id": excerpt_id},
        )


def list_source_lines(connection: sqlite3.Connection, run_id: str) -> list[SourceLines]:
    rows = connection.execute(
        """
        select e.file, e.first_line, e.text
        from run_source_excerpts as r
        join source_excerpts as e on e.id = r.excerpt_id
        where r.run_id = :run_id
        order by e.file, e.first_line
        limit :most
        """,
        {"run_id": run_id, "most": MAX_EXCERPTS},
    )
    return [
        SourceLines(row["file"], row["first_line"], tuple(row["text"].split("\n"))) for row in rows
    ]


def list_source_lines_at(
    connection: sqlite3.Connection, run_id: str, places: Iterable[tuple[str | None, int | None]]
) -> list[SourceLines]:
    """List the excerpts that may contain one of the lines, given by file and number."""
    lines: dict[str, set[int]] = defaultdict(set)
    for file, line in places:
        if file is not None and line is not None:
            lines[file].add(line)
    rows = connection.execute(
        """
        select e.id, e.file, e.first_line
        from run_source_excerpts as r
        join source_excerpts as e on e.id = r.excerpt_id
        where r.run_id = :run_id
          and e.file in (select value from json_each(:files))
        limit :most
        """,
        {"run_id": run_id, "files": json.dumps([*lines]), "most": MAX_EXCERPTS},
    )
    ids = [
        row["id"]
        for row in rows
        if any(0 <= line - row["first_line"] <= 2 * MAX_LINES for line in lines[row["file"]])
    ]
    texts = connection.execute(
        """
        select file, first_line, text
        from source_excerpts
        where id in (select value from json_each(:ids))
        order by file, first_line
        """,
        {"ids": json.dumps(ids)},
    )
    return [SourceLines(row[0], row[1], tuple(row[2].split("\n"))) for row in texts]


MAX_ROWS = 100_000
_DEEPEST = 500
_TORCH = ("torch/", "functorch/", "torchgen/")
_TYPE = re.compile(r"type=<class '(?P<name>[\w.<>]+)'>")
_VERSION = re.compile(r"^(\d+)\.(\d+)")

COMPILES_SQL = """
select
  c.id as key, c.process_id, c.compile_id, c.generation, c.frame_id, f.name as function, f.file,
  c.line,
  max(c.resumed_at) over (
    partition by c.process_id, c.generation, c.frame_id) as resumed_at,  -- not known at the limit
  c.outcome, c.started_us, c.total_us, c.stack_id, c.recompiled_from is not null as is_recompile,
  coalesce(sum(k.restart_us), 0) as restart_us,
  coalesce(sum(k.aot_us), 0) as aot_us,
  coalesce(sum(k.inductor_us), 0) as inductor_us,
  coalesce(sum(k.codegen_us), 0) as codegen_us,
  coalesce(sum(k.triton_us), 0) as triton_us,
  coalesce(max(k.graph_op_count), 0) as op_count
from compiles as c
left join functions as f on f.id = c.function_id
left join compilations as k on k.compile_key = c.id and k.kind <> 'runtime'
where c.run_id = :run_id
group by c.id
order by c.started_us, c.id
limit :most
"""
RECOMPILES_SQL = """
select r.id, r.compile_key, r.cause_id, u.fingerprint, f.file, f.name as function, e.body
from recompiles as r
join events as e on e.process_id = r.process_id and e.sequence = r.sequence
left join recompile_causes as u on u.id = r.cause_id
left join functions as f on f.id = r.function_id
where r.run_id = :run_id
  and r.compile_key is not null
order by r.time_us, r.id
limit :most
"""
# A body has what its own columns lack.
DYNAMIC_SQL = """
select k.compile_key, e.body
from recompiles as r
join compilations as k on k.compile_key = r.compile_key and k.kind = 'forward'
join events as e on e.process_id = k.process_id and e.sequence = k.sequence
where r.run_id = :run_id
order by r.time_us, r.id
limit :most
"""
CONFIGS_SQL = """
select distinct t.hash, t.body
from processes as p
join process_configs as c on c.process_id = p.id and c.kind = 'dynamo'
join configs as t on t.hash = c.config_hash
where p.run_id = :run_id
order by t.hash
limit 20
"""
_OF_TRIAL = (
    "outcome",
    "summary",
    "title",
    "new_run_id",
    "base_run_id",
    "fix_id",
    "cause_fingerprint",
    "ended_us",
)
# A step is that of this run where the trial executed the same program on the same hardware.
TRIALS_SQL = """
select t.outcome, t.summary, t.title, t.new_run_id, t.base_run_id, t.fix_id, t.cause_fingerprint,
  t.ended_us, t.settings, t.result,
  case
    when e.id is null then t.run_id = own.id
    else e.torch_version is own.torch_version
      and e.gpu_name is own.gpu_name
      and (e.gpu_name is not null or e.host is own.host)
      and (own.source = 'bench' or e.command = own.command)
      and (t.run_id = own.id or (
        e.cwd = own.cwd
        and e.git_commit = own.git_commit
        and e.git_dirty = 0
        and own.git_dirty = 0))
  end as has_same_step
from runs as own
join trials as t
join runs as r on r.id = t.run_id
left join runs as e on e.id = coalesce(t.base_run_id, t.new_run_id)
where own.id = :run_id
  and (t.run_id = own.id or (t.fix_id is not null and r.torch_version = own.torch_version))
order by t.run_id = own.id desc, t.ended_us desc, t.id
limit 1000
"""
# A body has what its own columns lack: the context, and the stack of a break in a function that
# another one called.
BREAKS_SQL = """
with firsts (id) as materialized (
  select min(b.id)
  from graph_breaks as b
  left join compiles as c on c.id = b.compile_key
  where b.run_id = :run_id
  group by b.distinct_id, c.function_id
)
select
  b.distinct_id, b.compile_key, b.outcome, b.line, d.fingerprint, d.gb_id, d.gb_type, d.reason,
  d.explanation, d.hints,
  f.name as function, f.file, d.source_line, c.function_id is not b.function_id as is_inlined,
  cf.name as frame_function, cf.file as frame_file, c.line as compiled_line, c.stack_id,
  case when c.function_id is not b.function_id or b.id in (select id from firsts)
    then e.body end as body
from graph_breaks as b
join distinct_breaks as d on d.id = b.distinct_id
left join functions as f on f.id = b.function_id
left join compiles as c on c.id = b.compile_key
left join functions as cf on cf.id = c.function_id
left join events as e on e.process_id = b.process_id and e.sequence = b.sequence
where b.run_id = :run_id
order by b.time_us, b.id
limit :most
"""
STACK_SQL = """
with recursive stack (id, parent_id, file, line, name, code, depth) as (
  select id, parent_id, file, line, name, code, 0
  from stack_nodes
  where id = :node
  union all
  select n.id, n.parent_id, n.file, n.line, n.name, n.code, s.depth + 1
  from stack_nodes as n
  join stack as s on n.id = s.parent_id
  where s.depth < :deepest
)
select file, line, name, code
from stack
where file not like '<%'
order by depth
limit :deepest
"""
FIRST_LINES_SQL = """
select distinct f.file, f.name, c.line
from compiles as c
join functions as f on f.id = c.function_id
where c.run_id = :run_id
  and c.resumed_at is null
  and c.outcome <> 'recompile_limit'  -- it may be of code after a break
  and c.line is not null
limit :most
"""
# The frame that is skipped runs at once: the first thing that is compiled then is what it calls.
NEXT_STACK_SQL = """
select n.stack_id
from compiles as c
join compiles as n on n.process_id = c.process_id and n.id > c.id
where c.id = :key
  and n.stack_id is not null
order by n.id
limit 1
"""
NODES_SQL = """
select id, parent_id, file, name, line
from stack_nodes
where run_id = :run_id
order by id
"""
CALLERS_SQL = """
select id as key, process_id, function_id, stack_id, line, resumed_at
from compiles
where run_id = :run_id
  and stack_id is not null
order by id
limit :most
"""
FIRST_BREAK_SQL = """
select e.body
from distinct_breaks as d
join graph_breaks as b on b.distinct_id = d.id and b.run_id = :run_id
join events as e on e.process_id = b.process_id and e.sequence = b.sequence
where d.fingerprint = :fingerprint
order by b.time_us, b.id
limit 1
"""
FIRST_STACK_SQL = """
select c.stack_id
from functions as f
join compiles as c on c.function_id = f.id and c.run_id = :run_id
where f.file = :file
  and f.name = :name
  and c.stack_id is not null
order by c.id
limit 1
"""


Place = tuple[str, str, int | None]  # a function of a stack: file, bare name, first line
FirstLines = defaultdict[tuple[str, str], set[int]]  # By file and bare name of a function.


def load_causes(connection: sqlite3.Connection, run_id: str) -> list[Cause]:
    """Return the causes of a run, those with a verified fix first."""
    return build_causes(load_recorded_run(connection, run_id))


def list_tried_fixes(connection: sqlite3.Connection, run_id: str) -> list[TriedFix]:
    """List trials of a run, and of the fixes of other runs with the same torch."""
    trials = []
    for row in connection.execute(TRIALS_SQL, {"run_id": run_id}):
        result = read_json(dict[str, Any], row["result"]) or {}
        metrics = {metric.get("name"): metric for metric in result.get("metrics") or ()}
        times = metrics.get("compile_s", {})
        trials.append(
            TriedFix(
                label=OUTCOME_LABELS[row["outcome"]],
                settings=tuple(read_json(list[str], row["settings"]) or ()),
                base_us=_read_us(times.get("base")),
                new_us=_read_us(times.get("new")),
                is_single=times.get("word") == "single",
                causes=tuple(result.get(TOGETHER) or ()),
                step=_read_step(result, metrics.get("abs_latency_ms"))
                if row["has_same_step"]
                else None,
                has_fewer_breaks=metrics.get("graph_break_count", {}).get("word") == "better",
                compile_label=LABELS.get(times.get("word")),
                fewer=_name_fewer(metrics),
                slower=_list_slower(metrics, bool(result.get("is_step_changed"))),
                **{name: row[name] for name in _OF_TRIAL},
            )
        )
    return trials


def list_other_trials(
    connection: sqlite3.Connection, run_id: str, causes: Iterable[Cause]
) -> list[TriedFix]:
    """List the trials shown under no cause: those of patches, of several fixes, and of fixes no
    longer suggested. An interrupted trial of a fix says nothing about it.
    """
    own = {trial.key for trial in list_trials(connection, run_id)}
    shown = {trial.key[:2] for cause in causes for trial in cause.trials}
    return [
        trial
        for trial in list_tried_fixes(connection, run_id)
        if trial.key in own
        and (
            trial.cause_fingerprint is None
            or (trial.outcome != "interrupted" and trial.key[:2] not in shown)
        )
    ]


def _name_fewer(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    fewer = []
    for name, noun in (("graph_break_count", "graph break"), ("recompile_count", "recompile")):
        metric = metrics.get(name, {})
        if metric.get("word") == "better":
            count = round(metric.get("base", 0) - metric.get("new", 0))
            fewer.append(f"{count} {noun}{'' if count == 1 else 's'}")
    return f"{' and '.join(fewer)} fewer" if fewer else ""


def _list_slower(
    metrics: Mapping[str, Mapping[str, Any]], is_step_changed: bool
) -> tuple[str, ...]:
    texts = (
        describe_slower(name, metric.get("change"), metric.get("word", ""))
        for name, metric in metrics.items()
        if name != "abs_latency_ms" or is_step_changed
    )
    return tuple(text for text in texts if text)


def _read_step(result: Mapping[str, Any], metric: Mapping[str, Any] | None) -> TriedStep | None:
    if metric is None or not result.get("is_step_changed"):
        return None
    try:
        base, new = result["step_ms"]
        is_repeated = min(len(base), len(new)) >= MIN_SAMPLES
        return TriedStep(
            function=result["step"],
            base_us=1000 * metric["base"],
            new_us=1000 * metric["new"],
            lowest_us=1000 * (min(base) - max(new)) if is_repeated else None,
            highest_us=1000 * (max(base) - min(new)) if is_repeated else None,
            basis=metric["basis"],
            label=LABELS[metric["word"]],
        )
    except (LookupError, TypeError, ValueError):  # a row that was changed
        return None


def _read_us(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


def load_recorded_run(connection: sqlite3.Connection, run_id: str) -> RecordedRun:
    values = {"run_id": run_id, "most": MAX_ROWS}
    dynamo = {
        row["hash"]: read_json(dict[str, Any], row["body"]) or {}
        for row in connection.execute(CONFIGS_SQL, values)
    }
    # `dynamic=False` sets both.
    static = {
        hash_
        for hash_, settings in dynamo.items()
        if settings.get("automatic_dynamic_shapes") is False
        and settings.get("assume_static_by_default") is True
    }
    recompiles = _read_recompiles(connection, values, static)
    breaks, occurrences = _read_breaks(connection, values)
    torch_version = read_value(
        connection, "select torch_version from runs where id = :run_id", values
    )
    version = _VERSION.match(torch_version or "")
    run = RecordedRun(
        called=_read_called(connection, values, occurrences),
        compiles=_read_compiles(connection, values, recompiles),
        recompiles=recompiles,
        breaks=breaks,
        occurrences=occurrences,
        code=list_source_lines(connection, run_id),
        trials=list_tried_fixes(connection, run_id),
        steps=load_run_steps(connection, run_id),
        settings={
            name: value
            for name, value in next(iter(dynamo.values()), {}).items()
            if all(other.get(name) == value for other in dynamo.values())
        },
    )
    return (
        run if version is None else replace(run, torch_version=(int(version[1]), int(version[2])))
    )


class Caller(NamedTuple):
    file: str
    line: int | None
    name: str
    code: str | None

    @property
    def label(self) -> str:
        return f"module called by {self.name}"


def is_wrapper(file: str) -> bool:
    """Return whether a file is torch's or holds Python's own decorators."""
    return file.startswith("torch/") or file in {"contextlib.py", "functools.py"}


def find_caller(
    connection: sqlite3.Connection, stack_id: int, is_skipped: Callable[[str], bool] = is_wrapper
) -> Caller | None:
    """Return the innermost frame of a stack whose file is not skipped: by default the user's."""
    frames = _list_callers(connection, stack_id)
    return next((frame for frame in frames if not is_skipped(frame.file)), None)


def _is_in_hook(connection: sqlite3.Connection, stack_id: int) -> bool:
    """Return whether a user's function runs as a module's hook: `Module`'s code for modules with
    hooks calls it (torch 2.6), and it is not the module's forward.
    """
    own: Caller | None = None
    for frame in _list_callers(connection, stack_id):
        if frame.file.startswith(_TORCH):
            is_module = (frame.file, frame.name) == ("torch/nn/modules/module.py", "inner")
            return is_module and own is not None and "forward" not in own.name
        own = frame
    return False


def find_user_call(
    connection: sqlite3.Connection, file: str | None, stack_id: int | None
) -> str | None:
    """Return the place where the user's code called a library's function, None for a user's own
    file.
    """
    call = _find_call(connection, file, stack_id)
    return label_line(call.file, call.line) if call else None


def _find_call(
    connection: sqlite3.Connection, file: str | None, stack_id: int | None
) -> Caller | None:
    if stack_id is None or not is_library_name(file or ""):
        return None
    call = find_caller(connection, stack_id, is_library_name)
    if call is None and is_wrapper(file or ""):
        call = find_caller(connection, stack_id)
    return call


def find_break_call(
    connection: sqlite3.Connection, run_id: str, fingerprint: str, file: str | None
) -> str | None:
    """Return the place where the user's code called the library's function in which a graph first
    broke in a run, None for a user's own function.
    """
    if not is_library_name(file or ""):
        return None
    values = {"run_id": run_id, "fingerprint": fingerprint}
    call = find_call_in_stack(read_body(read_value(connection, FIRST_BREAK_SQL, values)))
    return call.place if call else None


def find_first_call(
    connection: sqlite3.Connection, run_id: str, file: str | None, function: str | None
) -> str | None:
    """Return the place where the user's code called a library's function before its first compile
    in a run, None for a user's own function.
    """
    if not is_library_name(file or ""):
        return None
    values = {"run_id": run_id, "file": file, "name": function}
    return find_user_call(connection, file, read_value(connection, FIRST_STACK_SQL, values))


def _list_callers(connection: sqlite3.Connection, stack_id: int) -> list[Caller]:
    return [
        Caller(*row)
        for row in connection.execute(STACK_SQL, {"node": stack_id, "deepest": _DEEPEST})
    ]


def _read_recompiles(
    connection: sqlite3.Connection, values: Mapping[str, Any], static: Collection[str]
) -> list[RecordedRecompile]:
    dynamic: dict[int, str] = {}
    is_static: dict[int, bool] = {}
    for row in connection.execute(DYNAMIC_SQL, values):
        body = read_body(row["body"])
        dynamic[row["compile_key"]] = str(body.get("dynamic_sources") or "")
        config = (body.get("metrics") or {}).get("dynamo_config") or {}
        is_static[row["compile_key"]] = config.get("config_hash") in static
    recompiles = []
    for row in connection.execute(RECOMPILES_SQL, values):
        event = read_event(row["body"])
        if isinstance(event, Recompiled):
            recompile = to_recorded(event, row["compile_key"], row["file"], row["function"])
            sources = dynamic.get(row["compile_key"], "").split(",")
            recompiles.append(
                replace(
                    recompile,
                    dynamic_sources=tuple(filter(None, sources)),
                    is_static=is_static.get(row["compile_key"], False),
                    cause_id=row["cause_id"],
                    fingerprint=row["fingerprint"],
                )
            )
    return recompiles


def _read_compiles(
    connection: sqlite3.Connection, values: Mapping[str, Any], recompiles: list[RecordedRecompile]
) -> list[RecordedCompile]:
    rows = connection.execute(COMPILES_SQL, values).fetchall()
    types = {
        recompile.compile_key: match["name"]
        for recompile in recompiles
        for guard in recompile.guards
        if (guard.source or "") == "fn" and (match := _TYPE.search(guard.reason))
    }
    frame_types = {
        (row["process_id"], row["generation"], row["frame_id"]): types[row["key"]]
        for row in rows
        if row["key"] in types
    }
    dynamic = {
        recompile.compile_key
        for recompile in recompiles
        if recompile.dynamic_sources
        or (
            not recompile.is_static
            and any(guard.category == "tensor_size" for guard in recompile.guards[:1])
        )
    }
    callers: dict[int, Caller | None] = {}
    calls: dict[tuple[str | None, int | None], Caller | None] = {}
    in_hook: dict[int | None, bool] = {None: False}
    compiles = []
    for row in rows:
        function, file, line, caller = row["function"], row["file"], row["line"], None
        if (file or "").startswith(_TORCH) and row["stack_id"] is not None:
            if row["stack_id"] not in callers:
                callers[row["stack_id"]] = find_caller(connection, row["stack_id"])
            caller = callers[row["stack_id"]]
        if caller is not None:
            module = frame_types.get((row["process_id"], row["generation"], row["frame_id"]))
            if module:
                function = f"{module.rsplit('.', 1)[-1]}.forward"
            elif function is None or "<locals>" in function:  # a wrapper, whatever it calls
                function = caller.label
            file, line = caller.file, caller.line
        location = (file, row["stack_id"])
        if location not in calls:
            calls[location] = _find_call(connection, *location)
        call = calls[location]
        if row["is_recompile"] and row["stack_id"] not in in_hook:
            in_hook[row["stack_id"]] = _is_in_hook(connection, row["stack_id"])
        compiles.append(
            RecordedCompile(
                key=row["key"],
                process_id=row["process_id"],
                compile_id=row["compile_id"],
                frame=(row["generation"], row["frame_id"]),
                function=function,
                file=file,
                line=line,
                resumed_at=row["resumed_at"],
                outcome=row["outcome"],
                total_us=row["total_us"],
                restart_us=min(row["restart_us"], row["total_us"]),
                is_recompile=bool(row["is_recompile"]),
                started_us=row["started_us"],
                phases_us=_list_phases(row),
                op_count=row["op_count"],
                is_dynamic=row["key"] in dynamic,
                torch_function=row["function"] if caller is not None else None,
                source_line=caller.code if caller is not None else None,
                called_at=label_line(call.file, call.line) if call else None,
                call_code=call.code if call else None,
                is_in_hook=bool(row["is_recompile"]) and in_hook[row["stack_id"]],
            )
        )
    return compiles


def _list_phases(row: sqlite3.Row) -> tuple[int, ...]:
    """Return the time of dynamo and of each later phase, without restarts."""
    later = [row[f"{phase}_us"] for phase in ("aot", "inductor", "codegen", "triton")]
    left = row["total_us"] - min(row["restart_us"], row["total_us"])
    return (max(0, left - sum(later)), *(later if sum(later) <= left else [0] * len(later)))


def _read_breaks(
    connection: sqlite3.Connection, values: Mapping[str, Any]
) -> tuple[list[RecordedBreak], list[BreakOccurrence]]:
    distinct: dict[int, RecordedBreak] = {}
    occurrences = []
    firsts: FirstLines = defaultdict(set)
    for row in connection.execute(FIRST_LINES_SQL, values):
        firsts[row["file"], bare_name(row["name"])].add(row["line"])
    for row in connection.execute(BREAKS_SQL, values):
        body = read_body(row["body"])
        if row["distinct_id"] not in distinct:
            distinct[row["distinct_id"]] = RecordedBreak(
                id=row["distinct_id"],
                hints=tuple(body.get("hints") or read_json(list[str], row["hints"]) or ()),
                context=str(body.get("debug_context") or ""),
                explanation=body.get("explanation") or row["explanation"] or "",
                call=find_call_in_stack(body) if is_library_name(row["file"] or "") else None,
                **{name: body.get(name) or row[name] for name in ("reason", "source_line")},
                **{
                    name: row[name]
                    for name in ("fingerprint", "gb_id", "gb_type", "function", "file", "line")
                },
            )
        found = _find_frame(connection, row, _list_frames(body), firsts) if body else ((), (), None)
        above, inside, frame_line = found
        if frame_line is None and not row["is_inlined"]:
            frame_line = row["line"]
        elif frame_line is None and row["outcome"] == "skipped":
            frame_line = _find_called_line(connection, row, firsts)
        key = (row["distinct_id"], row["compile_key"], row["outcome"])
        occurrences.append(
            BreakOccurrence(*key, frame_line, above, inside, bool(row["is_inlined"]))
        )
    return list(distinct.values()), occurrences


def _list_frames(body: Mapping[str, Any]) -> list[StackFrame]:
    return [
        StackFrame(frame["file"], str(frame.get("name")), frame.get("line"), frame.get("code"))
        for frame in body.get("stack") or ()
        if isinstance(frame, dict) and isinstance(frame.get("file"), str)
    ]


def _find_frame(
    connection: sqlite3.Connection, row: sqlite3.Row, stack: list[StackFrame], firsts: FirstLines
) -> tuple[tuple[StackFrame, ...], tuple[StackFrame, ...], int | None]:
    """Split a stack at the compiled function: its callers, the frames from it on, and its line,
    None if torch omitted its frame.
    """
    callers = [
        (caller.file, caller.name)
        for caller in reversed(_list_callers(connection, row["stack_id"] or 0)[1:])
        if not caller.file.startswith("torch/_dynamo/")
    ]
    position = len(callers)
    if not position or [(frame.file, frame.name) for frame in stack[:position]] != callers:
        named = [place for place, one in enumerate(stack) if _is_frame(row, one, firsts)]
        position = max(named, default=len(stack))
    own = stack[position] if position < len(stack) else None
    is_last = position == len(stack) - 1  # which is what broke, not the function that called it
    is_itself = own is not None and _is_frame(row, own, firsts)
    is_itself = is_itself and not (is_last and row["is_inlined"])
    line = own.line if own and is_itself else None
    return tuple(stack[:position]), tuple(stack[position:]), line


def _is_frame(row: sqlite3.Row, frame: StackFrame | Caller, firsts: FirstLines) -> bool:
    """Return whether a frame belongs to the compiled function, and not to another function of that
    name.
    """
    bare = bare_name(row["frame_function"])
    if frame.file != row["frame_file"] or bare_name(frame.name) != bare:
        return False
    own, other = (
        _find_place(frame.file, bare, line, firsts) for line in (row["compiled_line"], frame.line)
    )
    return own == other or None in (row["compiled_line"], frame.line)


def _find_called_line(
    connection: sqlite3.Connection, row: sqlite3.Row, firsts: FirstLines
) -> int | None:
    """Return the line at which a skipped function called the next compiled one."""
    following = read_value(connection, NEXT_STACK_SQL, {"key": row["compile_key"]})
    for caller in _list_callers(connection, following)[1:] if following else ():
        if _is_frame(row, caller, firsts):
            return caller.line
    return None


def _read_called(
    connection: sqlite3.Connection,
    values: Mapping[str, Any],
    occurrences: Iterable[BreakOccurrence],
) -> dict[int, tuple[int, ...]]:
    """Return the compiles of other functions below each skipped frame, by its key. Frames of the
    same function share one tuple, so it may contain compiles from before a frame.
    """
    compiles = {row["key"]: row for row in connection.execute(CALLERS_SQL, values)}
    skipped = [
        compiles[event.compile_key]
        for event in occurrences
        if event.outcome == "skipped" and event.compile_key in compiles
    ]
    if not skipped:
        return {}
    nodes = connection.execute(NODES_SQL, values).fetchall()
    own = {row["stack_id"]: row["line"] for row in compiles.values() if row["resumed_at"] is None}
    firsts: FirstLines = defaultdict(set)
    for node in nodes:
        if own.get(node["id"]) is not None:
            firsts[node["file"], node["name"]].add(own[node["id"]])
    places = {
        node["id"]: _find_place(node["file"], node["name"], node["line"], firsts) for node in nodes
    }
    wanted = {places[row["stack_id"]] for row in skipped}
    callers: dict[int, frozenset[Place]] = {}  # a node's parent has a lower id
    for node in nodes:
        parent = node["parent_id"]
        known = callers.get(parent, frozenset())
        callers[node["id"]] = known | ({places[parent]} & wanted) if parent else known
    below = defaultdict(list)
    for row in compiles.values():
        for place in callers.get(row["stack_id"], ()):
            below[row["process_id"], place].append(row)
    called: dict[tuple[str, Place, int | None], tuple[int, ...]] = {}
    frames = {row["key"]: (row["process_id"], places[row["stack_id"]]) for row in skipped}
    for row in skipped:
        frame, function_id = frames[row["key"]], row["function_id"]
        if (*frame, function_id) not in called:
            others = (other for other in below[frame] if other["function_id"] != function_id)
            called[(*frame, function_id)] = tuple(other["key"] for other in others)
    return {row["key"]: called[(*frames[row["key"]], row["function_id"])] for row in skipped}


def _find_place(file: str, name: str, line: int | None, firsts: FirstLines) -> Place:
    lines = firsts.get((file, name), set())
    return file, name, max((first for first in lines if first <= (line or 0)), default=None)


def find_call_in_stack(body: Mapping[str, Any]) -> StackFrame | None:
    for frame in reversed(_list_frames(body)):
        if not frame.file.startswith("<") and not is_library_name(frame.file):
            return frame
    return None
