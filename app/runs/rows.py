"""A run's row, the description of its state, and its results, shared by lists and the run's
pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

from compileboard.app.core.engine import Row
from compileboard.app.core.fields import DurationUs
from compileboard.app.core.format import format_duration, format_plural
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.page import recorded_us_sql
from compileboard.app.core.schema import PRIVATE, published
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.store.results import COLUMNS, fill
from compileboard.collectors.store.rollups import COMPILER_COUNTS, RUN_COUNTS


class HasRunState(Protocol):
    @property
    def state(self) -> str: ...
    @property
    def heartbeat_us(self) -> int: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def signal(self) -> str | None: ...
    @property
    def failure_count(self) -> int | None: ...
    @property
    def failed_result_count(self) -> int: ...


class RunState(NamedTuple):
    word: str
    kind: str
    explanation: str
    problems: tuple[str, ...] = ()


def list_problems(run: HasRunState) -> tuple[str, ...]:
    """List the failures: compiles that raised, exceptions in compiled code, failed results."""
    counts = (
        (run.failure_count, "failure", "failures"),
        (run.failed_result_count, "result failed", "results failed"),
    )
    return tuple(format_plural(number, noun, many) for number, noun, many in counts if number)


def describe_state(run: HasRunState, now_us: int, stale_after_s: int) -> RunState:
    state = _describe_program(run, now_us, stale_after_s)
    problems = list_problems(run)
    return state._replace(
        kind="warn" if problems and state.kind == "good" else state.kind, problems=problems
    )


def _describe_program(run: HasRunState, now_us: int, stale_after_s: int) -> RunState:
    if run.state == "running":
        if not RecorderClock(now_us, stale_after_s).is_running(run.state, run.heartbeat_us):
            silence = format_duration(stale_after_s * 1_000_000)
            explanation = (
                f"No sign of life from its recorder for over {silence}: the recorder "
                "was stopped, or its machine sleeps. What it wrote is kept, and the next "
                "collector command picks it up."
            )
            return RunState("interrupted?", "warn", explanation)
        return RunState("running", "busy", "Recording. This page refreshes itself.")
    if run.state in ("finished", "failed", "killed"):
        return RunState(
            run.state, "good" if run.state == "finished" else "bad", f"{describe_end(run)}."
        )
    if run.state == "imported":
        return RunState("imported", "quiet", "Imported from a trace log, which has no exit code.")
    return RunState("interrupted", "warn", "The recorder ended before the program.")


class HasStreamState(Protocol):
    @property
    def is_here(self) -> bool: ...
    @property
    def updated_us(self) -> int: ...
    @property
    def ended_us(self) -> int | None: ...
    @property
    def is_replaced(self) -> bool: ...


def describe_stream(stream: HasStreamState, clock: RecorderClock) -> RunState:
    """Describe the state of a pushed stream. A stream that stopped before its end is lost."""
    if not stream.is_here:
        return RunState("deleted", "quiet", "The run was deleted, or nothing of it was stored yet.")
    if stream.ended_us is not None:
        return RunState("delivered", "good", "All that its recorder wrote is stored.")
    if stream.updated_us >= clock.alive_since_us:
        return RunState("receiving", "busy", "The machine is sending.")
    if stream.is_replaced:
        return RunState(
            "replaced", "quiet", "The recorder started a new stream, which contains the whole run."
        )
    silence = format_duration(clock.now_us - stream.updated_us)
    return RunState(
        "silent",
        "warn",
        f"Nothing was received for {silence}. "
        "Data waiting on the machine is sent once it reconnects.",
    )


def describe_end(run: HasRunState) -> str:
    if run.state == "killed":
        return f"The program was ended by {run.signal or 'a signal'}"
    return "The program ended" + (
        "" if run.exit_code is None else f" with exit code {run.exit_code}"
    )


@dataclass(frozen=True)
class RunRow:
    """One run with its annotations and totals; a count is None if nothing was observed."""

    tables: ClassVar[tuple[str, ...]] = ("runs", "run_annotations", "run_totals")

    id: str
    name: str
    title: str | None
    note: str | None
    pinned: bool
    suite: str | None
    source: str
    state: str
    level: str
    command: str
    started_us: int
    ended_us: int | None
    heartbeat_us: int
    exit_code: int | None
    signal: str | None
    host: str | None
    gpu_name: str | None
    gpu_count: int
    torch_version: str | None
    cuda_version: str | None
    python_version: str | None
    git_commit: str | None
    git_branch: str | None
    git_subject: str | None
    git_dirty: bool | None
    compile_count: int | None
    record_count: int | None
    graph_break_count: int | None
    recompile_count: int | None
    recompile_limit_count: int | None
    failure_count: int | None
    skipped_frame_count: int | None
    restart_count: int | None
    cache_hit_count: int | None
    cache_miss_count: int | None
    cache_bypass_count: int | None
    cudagraph_skip_count: int | None
    cudagraph_recording_count: int | None
    cudagraph_rerecording_count: int | None
    process_count: int | None
    loss_count: int
    compile_us: int | None  # None if none of its compiles was timed
    recompile_us: int | None
    result_count: int
    failed_result_count: int
    is_on_cpu: bool = field(metadata=PRIVATE)

    @property
    def is_observed(self) -> bool:
        """Return False for a file of benchmark results, which has only the counts in its
        columns.
        """
        return self.torch_version is not None or bool(self.compile_count)

    @property
    def has_only_results(self) -> bool:
        return self.result_count > 0 and not self.is_observed

    @property
    def lookup_count(self) -> int:
        return (
            (self.cache_hit_count or 0)
            + (self.cache_miss_count or 0)
            + (self.cache_bypass_count or 0)
        )

    @property
    @published
    def shown_name(self) -> str:
        """Return `title`, else the subject of a benchmark's commit, else `name`."""
        return self.title or (self.git_subject if self.result_count else None) or self.name

    @property
    @published
    def duration_us(
        self,
    ) -> Annotated[DurationUs | None, "From start to end, or to the last heartbeat."]:
        return (
            ((self.ended_us or self.heartbeat_us) - self.started_us or None)
            if self.started_us
            else None
        )

    @property
    def device(self) -> str | None:
        """Return the GPU that the run used, or CPU; None if neither was recorded."""
        if self.gpu_name is None:
            return "CPU" if self.is_on_cpu else None
        return f"{self.gpu_name} × {self.gpu_count}" if self.gpu_count > 1 else self.gpu_name


# An imported log names no GPU: without one, the run is on a CPU only if torch is a CPU build.
# Result files have neither torch nor compiles.
ON_CPU = """r.gpu_name is null
  and r.gpu_count = 0
  and (r.source in ('live', 'trial') or r.torch_version is not null or $t.compile_count > 0)
  and (r.source <> 'import' or r.torch_version like '%+cpu')"""
_DETAIL = ("keep_source", "cwd", "facts", "stack_room", "pub")  # columns that lists do not read
RUN_COLUMNS = f"""
  {TABLES["runs"].select_sql("r", *_DETAIL)}, $a.title, $a.note, coalesce($a.pinned, 0) as pinned,
  {", ".join(f"coalesce($t.{name}, 0) as {name}" for name in RUN_COUNTS)},
  {recorded_us_sql("$t.compile_us", "$t.compile_count")} as compile_us,
  {recorded_us_sql("$t.recompile_us", "$t.recompile_count")} as recompile_us,
  coalesce({ON_CPU}, 0) as is_on_cpu
"""
RUN_SOURCE = """
from runs as r
$totals
$words
"""
RUN_SQL = f"select {RUN_COLUMNS} {RUN_SOURCE} where r.id = :id limit 1"
MAX_RESULTS = 100_000
RESULTS_SQL = f"""
select {COLUMNS}
from results as x
join series as s on s.id = x.series_id
where x.run_id = :run_id
order by x.series_id, x.experiment
limit :limit
"""  # noqa: S608 - our own names


def to_row(row: Row) -> RunRow:
    values = dict(zip(row.keys(), row))  # dict(row) would compare each of 45 names with the others
    values |= {name: bool(values[name]) for name in ("pinned", "is_on_cpu")}
    values["git_dirty"] = None if values["git_dirty"] is None else bool(values["git_dirty"])
    run = fill(RunRow, values)
    if run.is_observed:
        return run
    unseen: Any = {
        name: values[name] or None for name in (*COMPILER_COUNTS, "compile_us", "recompile_us")
    }
    # A result file has a stored process for each of its tables.
    return replace(run, **unseen, process_count=None if run.result_count else run.process_count)
