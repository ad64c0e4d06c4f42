"""Reports as one file: HTML, Markdown, JSON, CSV and Parquet."""

# Name of each format, and what a server calls it.
FORMATS = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8; header=present",
    "md": "text/markdown; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
# What is one table.
TABULAR = ("csv", "parquet")
# What is no one file but a folder of them: for the command line alone.
FOLDERS = ("upstream",)
# What is a database.
BUNDLE = "bundle"
# What csv and parquet have of a suite over a period, the first where none is named
# (app.benchmarks.suite).
SUITE_TABLES = (
    "runs",
    "headlines",
    "models",
    "failures",
    "graph_breaks",
    "recompile_causes",
    "rerecording_reasons",
    "environment",
    "commits",
    "incidents",
    "changes",
)
