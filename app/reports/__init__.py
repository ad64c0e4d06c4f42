"""Reports, each as one file: HTML, Markdown, JSON, CSV or Parquet."""

# Name and media type of each format.
FORMATS = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8; header=present",
    "md": "text/markdown; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
# Formats with one table.
TABULAR = ("csv", "parquet")
# Formats that are a folder of files, available only on the command line.
FOLDERS = ("upstream",)
# Formats that are a database.
BUNDLE = "bundle"
# Tables that csv and parquet have of a suite over a period, default first (app.benchmarks.suite).
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
