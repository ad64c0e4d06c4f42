"""A run's numbers, for the terminal and for a notebook."""

from __future__ import annotations

import html
import sqlite3
from dataclasses import dataclass, field

from collectors.store.connect import open_reader

TOP = 5


@dataclass(frozen=True)
class Counted:
    """Name one thing and how often it happened."""

    text: str
    count: int
    note: str = ""


@dataclass(frozen=True)
class RunSummary:
    """Hold what `show` prints."""

    id: str
    name: str
    state: str
    command: str
    torch_version: str | None
    device: str
    compile_count: int
    graph_break_count: int
    recompile_count: int
    recompile_limit_count: int
    failure_count: int
    loss_count: int
    compile_us: int
    database: str
    breaks: list[Counted] = field(default_factory=list)
    causes: list[Counted] = field(default_factory=list)

    def headline(self) -> list[tuple[str, str]]:
        """Pair each headline number with its name."""
        return [
            ("compiles", str(self.compile_count)),
            ("graph breaks", str(self.graph_break_count)),
            ("recompiles", str(self.recompile_count)),
            ("recompile limits hit", str(self.recompile_limit_count)),
            ("failures", str(self.failure_count)),
            ("compile time", f"{self.compile_us / 1e6:.2f} s"),
        ]

    def text(self) -> str:
        """Write the summary for a terminal."""
        lines = [f"run {self.id}  {self.name}  {self.state}"]
        lines.append(f"  {self.command}")
        lines.append(f"  torch {self.torch_version or 'not recorded'} on {self.device}")
        lines.append("")
        width = max(len(name) for name, _ in self.headline())
        lines += [f"  {name:<{width}}  {value:>9}" for name, value in self.headline()]
        for title, rows in (("Most frequent graph breaks", self.breaks), ("Why it recompiled", self.causes)):
            if rows:
                lines += ["", f"  {title}:"]
                for row in rows:
                    lines.append(f"  {row.count:>6} ×  {row.text}")
                    if row.note:
                        lines.append(f"            {row.note}")
        if self.loss_count:
            lines += ["", f"  {self.loss_count} records were lost; the run's page says why."]
        lines += ["", f"  See it: compileboard serve --db {self.database}  (page /runs/{self.id})"]
        return "\n".join(lines)

    def html(self) -> str:
        """Write the summary for a notebook."""
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td style='text-align:right'>{value}</td></tr>"
            for name, value in self.headline()
        )
        items = "".join(
            f"<li>{row.count} × {html.escape(row.text)}<br><small>{html.escape(row.note)}</small></li>"
            for row in [*self.breaks, *self.causes]
        )
        title = f"<b>{html.escape(self.name)}</b> <code>{html.escape(self.id)}</code> {html.escape(self.state)}"
        return f"<div>{title}<table>{cells}</table><ul>{items}</ul></div>"


def summarize(database: str, run_id: str) -> RunSummary | None:
    """Read a run's numbers; a prefix of the id is enough if only one run has it. None if there is no such run.

    Raises: StoreError if the database cannot be read; ValueError if the prefix fits several runs.
    """
    connection = open_reader(database)
    try:
        rows = connection.execute(
            """
            select id, coalesce(title, name) as name, state, command, torch_version, gpu_name, gpu_count, host,
              compile_count, graph_break_count, recompile_count, recompile_limit_count, failure_count, loss_count,
              compile_us
            from runs
            join run_totals on run_totals.run_id = runs.id
            left join run_annotations on run_annotations.run_id = runs.id
            where id >= :prefix and id < :end
            order by id
            limit 2
            """,
            {"prefix": run_id.upper(), "end": run_id.upper() + "\x7f"},
        ).fetchall()
        if len(rows) == 2:
            raise ValueError(f"{run_id!r} fits several runs; give more of the id: {rows[0]['id']}, {rows[1]['id']}, …")
        return _summary(connection, rows[0], database) if rows else None
    finally:
        connection.close()


def _summary(connection: sqlite3.Connection, row: sqlite3.Row, database: str) -> RunSummary:
    device = f"{row['gpu_count']} × {row['gpu_name']}" if row["gpu_count"] else "CPU"
    names = ("compile_count", "graph_break_count", "recompile_count", "recompile_limit_count", "failure_count")
    return RunSummary(
        id=row["id"],
        name=row["name"],
        state=row["state"],
        command=row["command"],
        torch_version=row["torch_version"],
        device=f"{device} ({row['host'] or 'host not recorded'})",
        loss_count=row["loss_count"],
        compile_us=row["compile_us"],
        database=database,
        breaks=_top_breaks(connection, row["id"]),
        causes=_top_causes(connection, row["id"]),
        **{name: row[name] for name in names},
    )


def _top_breaks(connection: sqlite3.Connection, run_id: str) -> list[Counted]:
    rows = connection.execute(
        """
        select gb_id, coalesce(gb_type, reason) as text, break_count, file, name, line, hints
        from run_breaks
        join distinct_breaks on distinct_breaks.id = distinct_id
        left join functions on functions.id = function_id
        where run_id = :run_id
        order by break_count desc, distinct_id
        limit :top
        """,
        {"run_id": run_id, "top": TOP},
    )
    return [
        Counted(
            f"{row['gb_id'] or ''} {row['text'].splitlines()[0]}".strip(),
            row["break_count"],
            f"{row['file']}:{row['line']} in {row['name']}" if row["name"] else "",
        )
        for row in rows
    ]


def _top_causes(connection: sqlite3.Connection, run_id: str) -> list[Counted]:
    rows = connection.execute(
        """
        select category, reason, suggestion, recompile_count, file, name
        from run_causes
        join recompile_causes on recompile_causes.id = cause_id
        left join functions on functions.id = function_id
        where run_id = :run_id and recompile_count > 0
        order by recompile_count desc, cause_id
        limit :top
        """,
        {"run_id": run_id, "top": TOP},
    )
    return [
        Counted(
            f"{row['name'] or 'unknown function'}: {row['reason'].splitlines()[0]}",
            row["recompile_count"],
            row["suggestion"] or "",
        )
        for row in rows
    ]
