"""A run's row and its results, shared by run lists and the run's pages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compileboard.app.core.engine import Row
from compileboard.app.core.page import recorded_us
from compileboard.collectors.store.results import COLUMNS, fill
from compileboard.collectors.store.rollups import RUN_COUNTS


@dataclass(frozen=True)
class RunRow:
    """One run with its annotations and totals; `title` is None unless a person renamed it."""

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
    compile_count: int
    record_count: int
    graph_break_count: int
    recompile_count: int
    recompile_limit_count: int
    failure_count: int
    skipped_frame_count: int
    restart_count: int
    cache_hit_count: int
    cache_miss_count: int
    cache_bypass_count: int
    cudagraph_skip_count: int
    process_count: int
    loss_count: int
    compile_us: int | None  # None: no record of its compiles has a time
    recompile_us: int | None
    result_count: int
    failed_result_count: int

    @property
    def is_observed(self) -> bool:
        """True if torch itself was recorded; a file of benchmark results has no counts but its own
        columns.
        """
        return self.torch_version is not None or self.compile_count > 0

    @property
    def has_only_results(self) -> bool:
        return self.result_count > 0 and not self.is_observed

    def count(self, name: str) -> int | None:
        if name == "process_count":  # of a file of results the store has one for each table
            return None if self.has_only_results else self.process_count
        value: int = getattr(self, name)
        return value if value or self.is_observed else None

    @property
    def shown_name(self) -> str:
        return self.title or (self.git_subject if self.result_count else None) or self.name

    @property
    def duration_us(self) -> int | None:
        """Duration, up to the last heartbeat while the run goes on; None without a start or if it
        is 0.
        """
        return (
            ((self.ended_us or self.heartbeat_us) - self.started_us or None)
            if self.started_us
            else None
        )

    @property
    def device(self) -> str | None:
        """GPU model and count, "CPU" if torch was recorded without a GPU, None if unknown."""
        if self.gpu_name is None:
            return (
                "CPU"
                if self.gpu_count == 0 and (self.is_observed or self.source in ("live", "trial"))
                else None
            )
        return f"{self.gpu_name} × {self.gpu_count}" if self.gpu_count > 1 else self.gpu_name


RUN_COLUMNS = f"""
  r.id, r.name, $a.title, $a.note, coalesce($a.pinned, 0) as pinned, r.suite, r.source, r.state, r.level, r.command,
  r.started_us, r.ended_us, r.heartbeat_us, r.exit_code, r.signal, r.host, r.gpu_name, r.gpu_count,
  r.torch_version, r.cuda_version, r.python_version, r.git_commit, r.git_branch, r.git_subject, r.git_dirty,
  {", ".join(f"coalesce($t.{name}, 0) as {name}" for name in RUN_COUNTS)},
  {recorded_us("$t.compile_us", "$t.compile_count")} as compile_us,
  {recorded_us("$t.recompile_us", "$t.recompile_count")} as recompile_us
"""
RUN_SOURCE = """
from runs as r
$totals
$words
"""
RUN_SQL = f"select {RUN_COLUMNS} {RUN_SOURCE} where r.id = :id limit 1"
MOST_RESULTS = 100_000
RESULTS_SQL = f"""
select {COLUMNS}
from results as x
join series as s on s.id = x.series_id
where x.run_id = :run_id
order by x.series_id, x.experiment
limit :limit
"""  # noqa: S608 - our own names


def to_row(row: Row) -> RunRow:
    values = dict(
        zip(row.keys(), row)
    )  # dict(row) looks each of 45 names up by comparing it with the others
    values["pinned"] = bool(values["pinned"])
    values["git_dirty"] = None if values["git_dirty"] is None else bool(values["git_dirty"])
    run = fill(RunRow, values)
    if run.is_observed:
        return run
    return replace(run, compile_us=run.compile_us or None, recompile_us=run.recompile_us or None)
