"""Count where a column is stated: its declarations, and the lists of columns that name it.

`python -m tests.tools.places [ROOT] [-v]` prints how many lines of app, collectors, templates and
docs state each
column of COLUMNS: a select, an insert, a class, a table of fields. Reading one value (`run.host` on
a page) is no such place, nor is an example in docs/api.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from compileboard.collectors.contract.records import TABLES

COLUMNS = {  # what else a file with it names
    ("runs", "host"): "torch_version",
    ("distinct_breaks", "reason"): "gb_type",
    ("recompile_causes", "source"): "category",
    ("results", "speedup"): "abs_latency_ms",
    ("repro_results", "status"): "repro_results|ReproResult",
}
_NOT_A_COLUMN = {
    "id",
    "name",
    "message",
    "title",
    "line",
    "time_us",
    "command",
    "level",
    "key",
    "text",
}


def list_places(root: Path, table: str, name: str, beside: str) -> Iterator[str]:
    """Yield the places of a column as `path:line: text`."""
    others = TABLES[table].columns.keys() - _NOT_A_COLUMN - {name}
    prose = re.compile(r'\s*(?:#|"""|\{#|f?"[^"]* \w+ \w+ )')
    declared = re.compile(
        rf"\s*(?:\| `)?{name}(?:[:|=`]| (?:text|real|integer|String|Nullable|LowCardinality)\b)"
    )
    for top in ("app", "collectors", "templates", "docs"):
        for path in sorted((root / top).rglob("*.*")):
            if path.suffix not in (".py", ".sql", ".html", ".md"):
                continue
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".md":
                text = re.sub(
                    "(?s)<!-- (?!end).*?<!-- end -->", _blank, text
                )  # tables that commands write
            if path.name == "records.py":
                text = re.sub(
                    rf"(?s)\A.*?(?=\ntable {table}\b)|(?<=\n)\n(?=table (?!{table}\b)).*",
                    _blank,
                    text,
                )
            for number, line in enumerate(text.splitlines() if re.search(beside, text) else (), 1):
                if (path.suffix == ".md" and not line.startswith("| `")) or prose.match(line):
                    continue
                words = re.findall(r"\w+", line)
                is_listed = name in words and "," in line and not others.isdisjoint(words)
                if is_listed or declared.match(line):
                    yield f"{path.relative_to(root)}:{number}: {line.strip()}"


def _blank(part: re.Match[str]) -> str:
    return "\n" * part[0].count("\n")


def main(arguments: list[str]) -> None:
    root = Path(next((argument for argument in arguments if argument != "-v"), "."))
    for (table, name), beside in COLUMNS.items():
        places = [*list_places(root, table, name, beside)]
        print(f"{len(places):4} {table}.{name}")
        if "-v" in arguments:
            print(*(f"       {place}" for place in places), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
