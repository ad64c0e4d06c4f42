"""The summary of a run, as text for the terminal and as HTML for notebooks."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import sqlite3
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from compileboard.collectors.contract.compile_labels import (
    build_label,
    label_function,
    label_line,
)
from compileboard.collectors.contract.fingerprints import ULID_ALPHABET
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.contract.run_config import (
    STALE_AFTER_S,
    describe_uncompiled,
    is_device_known,
)
from compileboard.collectors.contract.secrets import can_run_again
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.fixes.fix import TriedFix
from compileboard.collectors.fixes.titles import (
    NOTHING_TO_FIX,
    describe_saving,
    describe_savings,
    list_eager,
    strip_ticks,
)
from compileboard.collectors.observe.torch_compat import describe_too_old
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.cudagraph_reasons import list_cudagraph_reasons
from compileboard.collectors.store.repros import ReproLine, list_repros
from compileboard.collectors.store.run_causes import list_other_trials, load_causes
from compileboard.collectors.store.run_costs import RunCost, list_run_costs
from compileboard.collectors.store.runs import list_disabling, load_process_names
from compileboard.collectors.terminal import values as command_hints

MAX_OUTCOMES = 12
MAX_CONFIGURATIONS = 6


def count_outcomes(connection: sqlite3.Connection, run_id: str) -> list[CountedItem]:
    rows = connection.execute(
        """
        select experiment, status, coalesce(accuracy, reason) as word, count(*) as result_count
        from results
        where run_id = :run_id
        group by experiment, status, word
        order by result_count desc, experiment, status, word
        limit :most
        """,
        {"run_id": run_id, "most": MAX_OUTCOMES},
    )
    return [CountedItem(_find_outcome(row), row["result_count"]) for row in rows]


def _find_outcome(row: sqlite3.Row) -> str:
    text = f"{row['experiment']}: {row['status'].replace('_', ' ')}"
    return f"{text}, {row['word']}" if row["word"] else text


def find_geomeans(connection: sqlite3.Connection, run_id: str) -> list[CountedItem]:
    rows = connection.execute(
        """
        select suite, mode, dtype, device, backend, dynamic, speedup
        from results join series on series.id = series_id
        where run_id = :run_id and experiment = 'performance' and status = 'measured'
          and speedup > 0
        limit 1000000
        """,
        {"run_id": run_id},
    )
    logs: dict[str, list[float]] = {}
    for *words, dynamic, speedup in rows:
        name = " ".join(word for word in (*words, "dynamic" if dynamic else "") if word)
        logs.setdefault(name, []).append(math.log(speedup))
    most = sorted(logs.items(), key=lambda item: (-len(item[1]), item[0]))[:MAX_CONFIGURATIONS]
    return [
        CountedItem(f"{math.exp(math.fsum(values) / len(values)):.3f}×  {name}", len(values))
        for name, values in most
    ]


TOP = 5
NOT_RECORDED = "not recorded"
# A run whose recorder fell silent is not running, as in the dashboard.
SHOWN_STATE = (
    "case when state = 'running' and heartbeat_us < :alive_since_us then 'interrupted?' else "
    "state end"
)
PIPE_SIZE = (100, 24)  # if there is no terminal
MIN_COLUMNS = 40
NOTE_INDENT = 11


@dataclass(frozen=True)
class CountedItem:
    text: str
    count: int
    note: str = ""
    is_numbered: bool = False  # the count is its position in a list

    @property
    def prefix(self) -> str:
        return f"{self.count:>6}.   " if self.is_numbered else f"{self.count:>6} ×  "


@dataclass(frozen=True)
class RunSummary:
    """The columns of a run's row, and lists of its items."""

    id: str
    name: str
    state: str
    source: str
    command: str
    torch_version: str | None
    cuda_version: str | None
    triton_version: str | None
    gpu_name: str | None
    gpu_count: int | None
    host: str | None
    compile_count: int
    graph_break_count: int
    recompile_count: int
    recompile_limit_count: int
    failure_count: int
    skipped_frame_count: int
    cudagraph_skip_count: int
    cudagraph_rerecording_count: int
    loss_count: int
    compile_us: int
    result_count: int
    started_us: int
    ended_us: int | None
    exit_code: int | None
    signal: str | None
    git_commit: str | None
    git_dirty: int | None
    suite: str | None
    database: str
    tags: dict[str, str]
    disabling: list[str]  # what turned torch.compile off, where nothing was compiled
    savings: str  # potential savings of the fixes, in one sentence
    is_needless: bool  # whether all causes are as expected
    can_try: bool  # whether `try` has an automatic fix
    wrong: list[CountedItem]  # functions whose graphs give other results than eager
    causes: list[CountedItem]
    trials: list[CountedItem]  # of patches, of several fixes, of fixes no longer suggested
    costs: list[CountedItem]  # if steps were timed
    cudagraphs: list[CountedItem]
    ranks: list[CountedItem]  # those that behaved the same, if not all did
    failures: list[CountedItem]
    unfinished: list[CountedItem]
    outcomes: list[CountedItem]
    geomeans: list[CountedItem]
    cliffs: list[CountedItem]
    repros: list[ReproLine]

    @property
    def device(self) -> str:
        is_known = self.torch_version is not None and is_device_known(
            self.source, self.torch_version
        )
        device = "CPU" if is_known else f"device {NOT_RECORDED}"
        if self.gpu_count:
            device = f"{self.gpu_count} × {self.gpu_name}"
        return f"{device} ({self.host or 'host not recorded'})"

    def headline(self) -> list[tuple[str, str]]:
        counts = [
            ("compiles", self.compile_count),
            ("graph breaks", self.graph_break_count),
            ("recompiles", self.recompile_count),
            ("recompile limits reached", self.recompile_limit_count),
            ("failures", self.failure_count),
            ("skipped frames", self.skipped_frame_count),
        ]
        is_observed = self.torch_version is not None or self.compile_count > 0
        time_text = f"{self.compile_us / 1e6:.2f} s" if self.compile_us else NOT_RECORDED
        # A result file has graph breaks, but nothing else of this.
        pairs = [
            (name, str(count) if is_observed or count else NOT_RECORDED) for name, count in counts
        ]
        graphs = [
            ("CUDA graphs not used", self.cudagraph_skip_count),
            ("CUDA graphs recorded again", self.cudagraph_rerecording_count),
        ]
        pairs += [(name, str(count)) for name, count in graphs if count]
        results = [("results", str(self.result_count))] if self.result_count else []
        return [*results, *pairs, ("compile time", time_text)]

    def ending(self) -> str:
        end = self.signal or (None if self.exit_code is None else f"exit code {self.exit_code}")
        parts = [f"{self.state} ({end})" if end else self.state]
        began = f"{datetime.fromtimestamp(self.started_us / 1e6):%Y-%m-%d %H:%M:%S}"
        parts.append(f"started {began}" if self.started_us else f"start {NOT_RECORDED}")
        if self.started_us and self.ended_us is not None and self.ended_us != self.started_us:
            parts.append(f"took {duration_text(self.ended_us - self.started_us)}")
        if self.git_commit:
            parts.append(f"commit {self.git_commit[:12]}{' (dirty)' if self.git_dirty else ''}")
        if self.suite:
            parts.append(f"suite {self.suite}")
        if self.tags:
            parts.append("tags " + ", ".join(f"{key}={value}" for key, value in self.tags.items()))
        return " · ".join(parts)

    def text(self) -> str:
        columns = max(MIN_COLUMNS, shutil.get_terminal_size(PIPE_SIZE).columns)
        lines = [printable(f"run {self.id}  {self.name}")]
        versions = [f"torch {self.torch_version or NOT_RECORDED}"]
        versions += [f"CUDA {self.cuda_version}"] if self.cuda_version else []
        versions += [f"triton {self.triton_version}"] if self.triton_version else []
        for line in (self.ending(), self.command, f"{', '.join(versions)}; {self.device}"):
            lines += _wrap(line, columns, "  ", "    ") if line else []
        lines.append("")
        width = max(len(name) for name, _ in self.headline())
        lines += [f"  {name:<{width}}  {value:>12}" for name, value in self.headline()]
        if self.savings and not self.causes:
            lines += ["", *_wrap(self.savings, columns, "  ", "  ")]
        for title, rows in self.sections():
            lines += ["", *_wrap(f"{title}:", columns, "  ", "    ")]
            for row in rows:
                lines += _wrap(row.text, columns, f"  {row.prefix}", " " * NOTE_INDENT)
                for note in row.note.splitlines():
                    lines += _wrap(note, columns, " " * NOTE_INDENT, " " * NOTE_INDENT)
        if self.loss_count:
            words = "1 record was" if self.loss_count == 1 else f"{self.loss_count} records were"
            lines += ["", f"  {words} dropped; the reasons are on the run's page."]
        lines += [
            "",
            (
                f"  See it: {command_hints.dashboard_command('serve', database=self.database)}  "
                f"(page /runs/{self.id})"
            ),
        ]
        return "\n".join(lines)

    @property
    def fixes_title(self) -> str:
        return self.savings if self.is_needless else f"Fix this first ({self.savings})"

    def sections(self) -> list[tuple[str, list[CountedItem]]]:
        every = [
            ("Compiled functions whose results differ from eager", self.wrong),
            ("Results", self.outcomes),
            ("Geomean speedup, by the number of models", self.geomeans),
            (self.fixes_title, self.causes),
            ("Tried on this program", self.trials),
            (
                "Time of the run, steps included, an estimate where not verified",
                self.costs,
            ),
            ("CUDA graphs recorded again, not used or overwritten", self.cudagraphs),
            ("The ranks diverge", self.ranks),
            ("Failures", self.failures),
            ("Compiles that never finished", self.unfinished),
            ("May lose time to Python's frame stack", self.cliffs),
        ]
        return [(title, rows) for title, rows in every if rows]

    def html(self) -> str:
        cells = "".join(
            (
                f"<tr><th style='text-align:left'>{html.escape(name)}</th><td "
                f"style='text-align:right'>{value}</td></tr>"
            )
            for name, value in self.headline()
        )
        items = "".join(
            (
                f"<li>{row.prefix.strip()} "
                f"{html.escape(row.text)}<br><small>{html.escape(row.note)}</small></li>"
            )
            for _, rows in self.sections()
            for row in rows
        )
        title = (
            f"<b>{html.escape(self.name)}</b> <code>{html.escape(self.id)}</code> "
            f"{html.escape(self.state)}"
        )
        return f"<div>{title}<table>{cells}</table><ul>{items}</ul></div>"


def printable(text: str) -> str:
    """Replace control characters by spaces, so that recorded text cannot control the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def duration_text(duration_us: int) -> str:
    """Format a duration: 85 µs, 3.40 ms, 34.1 ms, 0.42 s, 12.3 s, 4 m 05 s, 2 h 10 m."""
    if 0 < duration_us < 1000:
        return f"{duration_us} µs"
    if 0 < duration_us < 100_000:
        return f"{duration_us / 1000:.{2 if duration_us < 10_000 else 1}f} ms"
    seconds = max(0, duration_us) / 1e6
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} m {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} m"


def format_us(duration_us: float | None) -> str:
    return NOT_RECORDED if duration_us is None else duration_text(round(duration_us))


def _wrap(text: str, columns: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        printable(text),
        columns,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def summarize(database: str, run_id: str) -> RunSummary | None:
    """Summarise a run by id or unique prefix; None if there is none.

    Raises StoreError; ValueError if the prefix is ambiguous.
    """
    connection = open_reader(database)
    try:
        found_id = find_run(connection, run_id)
        if found_id is None:
            return None
        row = connection.execute(
            f"""
            select {", ".join(_STORED)}, coalesce(title, name) as name, {SHOWN_STATE} as state,
              (
                select triton_version
                from processes
                where run_id = runs.id
                  and triton_version is not null
                order by started_us, id
                limit 1
              ) as triton_version
            from runs
            join run_totals on run_totals.run_id = runs.id
            left join run_annotations on run_annotations.run_id = runs.id
            where id = :id
            limit 1
            """,  # noqa: S608  own text
            {"id": found_id, "alive_since_us": read_alive_since_us()},
        ).fetchone()
        return _make_summary(connection, row, database) if row else None
    finally:
        connection.close()


_STORED = [
    item.name
    for item in fields(RunSummary)
    if item.name in {**TABLES["runs"].columns, **TABLES["run_totals"].columns}
    and item.name not in ("name", "state")
]


def read_alive_since_us() -> int:
    return time.time_ns() // 1000 - STALE_AFTER_S * 1_000_000


NEWEST = "latest"


def find_run(connection: sqlite3.Connection, given: str, *sources: str) -> str | None:
    """Return a run by id or unique, case-insensitive prefix.

    `latest` is the last started run that has ended, otherwise a running one, optionally of some
    `sources`. Raises ValueError if several runs match.
    """
    if given == NEWEST:
        row = connection.execute(
            """
            select id
            from runs
            where source <> 'trial'
              and (:sources = '[]' or source in (select value from json_each(:sources)))
            order by state = 'running' and heartbeat_us >= :alive_since_us, started_us desc, id desc
            limit 1
            """,
            {"sources": json.dumps(sources), "alive_since_us": read_alive_since_us()},
        ).fetchone()
        return str(row["id"]) if row else None
    upper = given.upper()
    rows = connection.execute(
        """
        select id
        from runs
        where id = :given
          or (id >= :given and id < :end)
          or (id >= :upper and id < :upper_end and length(id) = 26 and id not glob :other_letter)
        order by id = :given desc, id
        limit 2
        """,
        {
            "given": given,
            "end": given + "\x7f",
            "upper": upper,
            "upper_end": upper + "\x7f",
            "other_letter": f"*[^{ULID_ALPHABET}]*",
        },
    ).fetchall()
    ids = [row["id"] for row in rows]
    if len(ids) > 1 and given not in ids:
        raise ValueError(f"{given!r} fits several runs; give more of the id: {ids[0]}, {ids[1]}, …")
    return ids[0] if ids else None


def need_run(connection: sqlite3.Connection, given: str, database: str) -> str:
    """Return a run by id, unique prefix or `latest`. Raises ValueError if there is none."""
    run_id = find_run(connection, given)
    if run_id is None:
        raise ValueError(
            f"there is no run {given!r} in {database}; "
            f"`{command_hints.collector_command('list', database=database)}` names them"
        )
    return run_id


def _make_summary(connection: sqlite3.Connection, row: sqlite3.Row, database: str) -> RunSummary:
    tags = connection.execute(
        "select key, value from run_tags where run_id = :id order by key limit 100",
        {"id": row["id"]},
    )
    causes = load_causes(connection, row["id"])
    repros = list_repros(connection, row["id"])
    wrong = _list_wrong_results(repros, database)
    can_try = can_run_again(row["source"], row["command"])
    disabling = [] if row["compile_count"] else list_disabling(connection, row["id"])
    return RunSummary(
        **dict(row),
        database=database,
        tags={tag["key"]: tag["value"] for tag in tags},
        disabling=disabling,
        savings=_describe_savings(row, causes, len(wrong), disabling),
        is_needless=all(cause.is_expected for cause in causes),
        can_try=can_try and any(cause.can_try for cause in causes),
        wrong=wrong,
        causes=_list_fixes(causes, row["id"] if can_try else None, database),
        trials=_list_trials(list_other_trials(connection, row["id"], causes)),
        costs=_describe_costs(list_run_costs(connection, row["id"], causes)),
        cudagraphs=_list_cudagraphs(connection, row["id"]),
        ranks=_list_diverging_ranks(connection, row["id"]),
        failures=_top_failures(connection, row["id"]),
        unfinished=[] if row["state"] == "running" else _list_unfinished(connection, row["id"]),
        cliffs=_stack_cliffs(connection, row["id"]),
        repros=repros,
        outcomes=count_outcomes(connection, row["id"]),
        geomeans=find_geomeans(connection, row["id"]),
    )


def _describe_savings(
    row: sqlite3.Row, causes: Sequence[Cause], wrong_count: int, disabling: Sequence[str]
) -> str:
    if not causes:
        return "" if wrong_count else _describe_fine(row, disabling)
    counts = ((wrong_count, "wrong result"), (row["failure_count"] or 0, "failure"))
    problems = ", ".join(command_hints.count_text(count, noun) for count, noun in counts if count)
    savings = describe_savings(causes, row["compile_us"], format_us, problems)
    return "; ".join([savings, *list_eager(causes)])


def _describe_fine(row: sqlite3.Row, disabling: Sequence[str]) -> str:
    """Describe a run without causes: either everything was compiled, or nothing."""
    counts = (
        *("graph_break", "recompile", "recompile_limit", "failure", "skipped_frame"),
        *("cudagraph_skip", "cudagraph_rerecording"),
    )
    wrong = sum(row[f"{name}_count"] or 0 for name in counts)
    if row["state"] == "running" or wrong:
        return ""
    if not row["compile_count"] and row["source"] != "import" and not row["result_count"]:
        torch_version = row["torch_version"]
        too_old = describe_too_old(torch_version) if torch_version else None
        reason = too_old or describe_uncompiled(row["state"], torch_version, disabling)
        return f"{reason[0].upper()}{reason[1:]}."
    return NOTHING_TO_FIX if row["state"] == "finished" and row["compile_count"] else ""


def _list_wrong_results(repros: Sequence[ReproLine], database: str) -> list[CountedItem]:
    graphs: dict[str, list[ReproLine]] = {}
    for repro in repros:
        if repro.kind == "accuracy":
            place = f" ({label_line(repro.file, repro.line)})" if repro.file else ""
            graphs.setdefault(f"{label_function(repro.function)}{place}", []).append(repro)
    items = []
    for name, members in list(graphs.items())[:TOP]:
        first = members[0]
        command = command_hints.collector_command("repro", "analyze", first.id, database=database)
        note = f"{first.message or ''}\n{command}".strip()
        items.append(CountedItem(name, len(members), note))
    return items


def _list_fixes(causes: Sequence[Cause], run_id: str | None, database: str) -> list[CountedItem]:
    """List the fixes of causes. `run_id` is None if the program cannot be run again."""
    items = []
    for cause in causes[:TOP]:
        saved = describe_saving(cause, duration_text)
        effects = ["runs eagerly" if cause.is_eager else None, saved]
        effect = ", ".join(filter(None, effects)) or "time not recorded"
        effect = "nothing to fix" if cause.is_expected else effect
        line = f":{cause.line}" if cause.line else ""
        called = f", called at {cause.called_at}" if cause.called_at else ""
        notes = [
            f"{cause.file or 'unknown file'}{line} in {cause.function or 'unknown function'}"
            f"{called}; {effect}"
        ]
        notes += [strip_ticks(sentence) for sentence in cause.eager_sentences]
        notes += [
            f"{part.describe(cause.function)}, {duration_text(part.compile_us)}"
            for part in cause.resumed[:TOP]
        ]
        notes += [cause.passed_sentence] if cause.passed_keys else []
        if cause.variation and cause.variation.sets:
            notes += [cause.variation.sentence, *cause.variation.lines]
        notes += [strip_ticks(cause.fixes[0].title)] if cause.fixes else ["no fix is known"]
        notes += [
            f"{_describe_verdict(trial)}: {strip_ticks(trial.title)}: {trial.summary}"
            for trial in cause.trials
        ]
        if run_id is not None and cause.can_try:
            words = ("try", run_id, "--fix", str(cause.number), *["--apply"] * bool(cause.verified))
            other = strip_ticks(cause.fixes[cause.automatic].title) if cause.automatic else ""
            notes += [f"another option, which can be tried: {other}"] if other else []
            notes.append(command_hints.collector_command(*words, database=database))
        items.append(
            CountedItem(strip_ticks(cause.title), cause.number, "\n".join(notes), is_numbered=True)
        )
    left_out = len(causes) - len(items)
    return [*items, CountedItem("more on the run's page", left_out)] if left_out else items


def _describe_verdict(trial: TriedFix) -> str:
    day = f"{datetime.fromtimestamp(trial.ended_us / 1e6):%Y-%m-%d}"
    return f"{'verified' if trial.is_verified else trial.label.lower()} on {day}"


def _list_trials(trials: Sequence[TriedFix]) -> list[CountedItem]:
    items = []
    for place, trial in enumerate(trials[:TOP], 1):
        gone = " (this advice is no longer given)" if trial.cause_fingerprint else ""
        note = f"{_describe_verdict(trial)}: {trial.summary}{gone}"
        items.append(CountedItem(strip_ticks(trial.title), place, note, is_numbered=True))
    left_out = len(trials) - len(items)
    return [*items, CountedItem("more on the run's page", left_out)] if left_out else items


def _describe_costs(costs: Sequence[RunCost]) -> list[CountedItem]:
    items = []
    for place, cost in enumerate(costs[:TOP], 1):
        once = "compile time" if cost.number else "to record"
        parts = [f"{format_us(cost.once_us)} {once}"] if cost.once_us else []
        parts += [f"{duration_text(cost.step_us)} each step"] if cost.step_us else []
        fix = f"fix {cost.number}" if cost.number else ""
        note = ", ".join(filter(None, [" and ".join(parts), fix]))
        text = f"{duration_text(cost.run_us)}: {strip_ticks(cost.title)}"
        items.append(CountedItem(text, place, note, is_numbered=True))
    return items


def _list_cudagraphs(connection: sqlite3.Connection, run_id: str) -> list[CountedItem]:
    items = []
    for reason in list_cudagraph_reasons(connection, run_id)[:TOP]:
        place = reason if reason.file or reason.call is None else reason.call
        where = filter(None, (reason.function, label_line(place.file, place.line)))
        notes = [", ".join(where), *(fix.warn(fix.title) for fix in reason.fixes[:1])]
        items.append(CountedItem(reason.status, reason.count, "\n".join(notes)))
    return items


def _list_diverging_ranks(connection: sqlite3.Connection, run_id: str) -> list[CountedItem]:
    rows = connection.execute(
        """
        with ranks as (
          select
            coalesce(c.rank, p.rank) as rank, count(*) as compile_count,
            count(c.recompiled_from) as recompile_count,
            sum((select count(*) from graph_breaks as b where b.compile_key = c.id)) as break_count
          from compiles as c
          join processes as p on p.id = c.process_id
          where c.run_id = :run_id
            and coalesce(c.rank, p.rank) is not null
          group by coalesce(c.rank, p.rank)
        )
        select min(rank) as first, count(*) as rank_count, compile_count, recompile_count,
          break_count
        from ranks
        group by compile_count, recompile_count, break_count
        order by first
        limit :most
        """,
        {"run_id": run_id, "most": MAX_OUTCOMES},
    ).fetchall()
    return [
        CountedItem(
            f"{'as ' * (row['rank_count'] > 1)}rank {row['first']}: compiles "
            f"{row['compile_count']}, recompiles {row['recompile_count']}, "
            f"graph breaks {row['break_count']}",
            row["rank_count"],
        )
        for row in rows
        if len(rows) > 1
    ]


# Dynamo's form of an operator's exception: below its own words, above generic hints.
_RAISED = re.compile(
    r"with fake tensors: (?P<call>.+): got (?P<type>\w+)\((?P<mark>['\"])(?P<text>.+)(?P=mark)\)"
)


def describe_failure(message: str) -> str:
    """Return an operator's exception and call, or a failure's first paragraph."""
    text = " ".join(message.split("\n\n")[0].split())
    raised = _RAISED.search(text)
    return f"{raised['type']}: {raised['text']} In {raised['call']}" if raised else text


def _top_failures(connection: sqlite3.Connection, run_id: str) -> list[CountedItem]:
    rows = connection.execute(
        """
        select error_type, message, functions.file as file, functions.name as name,
          sum(occurrence_count) as failure_count
        from failures
        left join compiles on compiles.id = compile_key
        left join functions on functions.id = coalesce(failures.function_id, compiles.function_id)
        where failures.run_id = :run_id and (failures.phase <> 'compile' or coalesce(outcome,
          '') <> 'skipped')
        group by error_type, message, functions.id
        order by failure_count desc, min(failures.id)
        limit :top
        """,
        {"run_id": run_id, "top": TOP},
    )
    return [
        CountedItem(
            f"{row['name'] or 'unknown function'}: {row['error_type'] or 'error'}",
            row["failure_count"],
            describe_failure(row["message"] or ""),
        )
        for row in rows
    ]


def _list_unfinished(connection: sqlite3.Connection, run_id: str) -> list[CountedItem]:
    rows = connection.execute(
        """
        select compile_id, process_id, functions.name as name, file, compiles.line as line,
        count(*) over () as whole,
          case
            when not exists (
              select 1
              from compiles as later
              where later.process_id = compiles.process_id
                and (later.started_us, later.id) > (compiles.started_us, compiles.id)
            )
            then runs.ended_us - compiles.started_us
          end as until_us
        from compiles
        join runs on runs.id = run_id
        left join functions on functions.id = function_id
        where run_id = :run_id and outcome = 'started'
        order by compiles.started_us desc, compiles.id desc
        limit :top
        """,
        {"run_id": run_id, "top": TOP},
    ).fetchall()
    names = load_process_names(connection, (row["process_id"] for row in rows))
    compiles = [
        CountedItem(
            build_label(
                names[row["process_id"]],
                f"{label_function(row['name'])}: compile {row['compile_id']}",
                "",
            ),
            1,
            "\n".join(_describe_unfinished(row)),
        )
        for row in rows
    ]
    left_out = rows[0]["whole"] - len(rows) if rows else 0
    return [*compiles, CountedItem("others", left_out)] if left_out else compiles


def _describe_unfinished(row: sqlite3.Row) -> list[str]:
    lines = [f"{row['file']}:{row['line']}"] if row["file"] else []
    if row["until_us"] is not None and row["until_us"] >= 0:
        lines.append(f"{duration_text(row['until_us'])} from its start to the end of the run")
    return lines


def _stack_cliffs(connection: sqlite3.Connection, run_id: str) -> list[CountedItem]:
    row = connection.execute(
        """
        select count(*) as process_count, max(calm_fault_count * 1e6 / calm_us) as faults_per_s
        from processes
        where run_id = :run_id and is_on_stack_cliff = 1
        """,
        {"run_id": run_id},
    ).fetchone()
    if not row["process_count"]:
        return []
    text = (
        f"up to {row['faults_per_s']:,.0f} page faults a second in a process that compiled nothing"
    )
    return [
        CountedItem(
            text, row["process_count"], "`run --stack-room` avoids it; see docs/stack-cliff.md"
        )
    ]
