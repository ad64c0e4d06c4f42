"""What Markdown says of torch's own logs: where ranks part, guards, AOT, what could not be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compileboard.app.format import format_count, format_duration, format_plural
from compileboard.app.reports.explored import Section
from compileboard.app.reports.markdown_words import MOST_ROWS, code, prose, table


def write_sections(sections: Mapping[str, Section]) -> Iterator[list[str]]:
    """Write the sections that fit a comment; each is short."""
    if "ranks" in sections:
        yield _ranks(sections["ranks"])
    if "guards" in sections:
        yield _guards(sections["guards"])
    if "aot" in sections:
        yield _aot(sections["aot"])
    if "rejects" in sections:
        yield _rejects(sections["rejects"])


def _ranks(section: Section) -> list[str]:
    said = section["parting"]
    lines = ["### Ranks", ""]
    lines += [f"**{prose(said.sentence, 500)}** {prose(said.before)}", ""] if said else []
    lines.append(prose(section["summary"], 500))
    for it in section["why"][:MOST_ROWS]:
        guard = code(it.guards[0].reason) if it.guards else "a guard that torch did not name"
        lines += ["", f"Rank {it.rank} compiled {code(it.function)} again as {code(it.compile_id)} because {guard}"]
    return lines


def _guards(section: Section) -> list[str]:
    totals = section["totals"]
    values = [format_count(totals.set_count), format_count(totals.guard_count)]
    values += [format_duration(totals.median_us), format_duration(totals.highest_us)]
    lines = table(["Guard sets>", "Guards>", "Median latency>", "Largest latency>"], [values])
    return ["### Guards", "", *lines]


def _aot(section: Section) -> list[str]:
    report = section["report"]
    rows = [[prose(it.title), format_count(it.graph_count)] for it in report.findings[:MOST_ROWS]]
    head = f"### What AOTAutograd's wrappers do ({format_plural(report.graph_count, 'graph')})"
    return [head, "", *table(["Finding", "Graphs>"], rows)]


def _rejects(section: Section) -> list[str]:
    kinds = section["kinds"]
    rows = [
        [prose(kinds.get(it.kind, it.kind)), format_count(it.count), code(it.log_name), format_count(it.first_line)]
        for it in section["rows"][:MOST_ROWS]
    ]
    return ["### What could not be read", "", *table(["What", "Times>", "First in", "Line>"], rows)]
