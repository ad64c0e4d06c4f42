"""A database's newest runs, as a table for the terminal."""

from __future__ import annotations

from datetime import datetime

from collectors.store.connect import open_reader

HEADER = ("run", "started", "name", "state", "compiles", "breaks", "recompiles", "compile time")


def list_text(database: str, limit: int) -> str:
    """Lay the newest runs out as a table.

    Raises: StoreError if the database cannot be read.
    """
    connection = open_reader(database)
    try:
        rows = connection.execute(
            """
            select id, started_us, coalesce(title, name) as name, state, compile_count, graph_break_count,
              recompile_count, compile_us
            from runs
            join run_totals on run_totals.run_id = runs.id
            left join run_annotations on run_annotations.run_id = runs.id
            order by started_us desc, id desc
            limit :limit
            """,
            {"limit": limit},
        ).fetchall()
    finally:
        connection.close()
    if not rows:
        return f"{database} has no runs yet. Record one: compileboard-collect run -- python train.py"
    table = [HEADER]
    for row in rows:
        started = datetime.fromtimestamp(row["started_us"] / 1e6).strftime("%Y-%m-%d %H:%M")
        counts = (row["compile_count"], row["graph_break_count"], row["recompile_count"])
        seconds = f"{row['compile_us'] / 1e6:.2f} s"
        table.append((row["id"], started, row["name"][:30], row["state"], *map(str, counts), seconds))
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column >= 4 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        )
        for line in table
    )
