"""A run's report as one file: HTML to read and forward, Markdown for a pull request, JSON and CSV for programs."""

# Name of each format, and what a server calls it.
FORMATS = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8; header=present",
    "md": "text/markdown; charset=utf-8",
}
# What is no one file but a folder of them: for the command line alone.
FOLDERS = ("upstream",)
