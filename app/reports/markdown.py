"""The Markdown report: what fits a pull request's comment. Other people's text stays text there too."""

from __future__ import annotations

from collections.abc import Sequence

from compileboard.app.analysis import words
from compileboard.app.analysis.chains import label_category
from compileboard.app.analysis.diagnosis import Finding
from compileboard.app.analysis.run_states import list_problems
from compileboard.app.format import format_count, format_duration, format_percent, format_plural, format_time
from compileboard.app.queries.run_breaks import DistinctBreak
from compileboard.app.queries.runs import RunRow
from compileboard.app.reports.contents import Contents
from compileboard.app.reports.markdown_explored import write_sections
from compileboard.app.reports.markdown_results import write_results
from compileboard.app.reports.markdown_words import MOST_ROWS, code, prose, table
from compileboard.app.resources import __version__


def render_markdown(contents: Contents) -> str:
    """Write the report as Markdown that GitHub shows as it should."""
    parts = [
        _head(contents),
        write_results(contents.results),
        _todo(contents.findings, contents.run),
    ]
    parts += [_breaks(contents), _recompiles(contents), _failures(contents)]
    parts += [*write_sections(contents.sections), _foot(contents)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(contents: Contents) -> list[str]:
    run, detail = contents.run, contents.detail
    state = ", ".join((run.state, *list_problems(run)))
    line = [state, f"{format_time(run.started_us or None)} UTC", format_duration(run.duration_us), prose(run.device)]
    line += [f"torch {prose(run.torch_version)}"]
    line += [prose(run.host)] if run.host else []
    line += [f"commit {code(run.git_commit[:9])}{' with changes' if run.git_dirty else ''}"] if run.git_commit else []
    lookups = run.cache_hit_count + run.cache_miss_count + run.cache_bypass_count
    values = [format_count(run.count("compile_count")), format_duration(run.compile_us)]
    values += [format_count(run.count("graph_break_count"))]
    values += [format_count(run.count("recompile_count")), format_count(run.count("recompile_limit_count"))]
    raised_count = contents.raised_count if contents.raised_count or run.is_observed else None
    values += [format_count(raised_count), format_percent(run.cache_hit_count / lookups) if lookups else "–"]
    names = ["Compiles>", "Compile time>", "Graph breaks>", "Recompiles>", "Limit hits>", "Failures>", "Cache hits>"]
    lines = [f"## torch.compile: {prose(run.shown_name)}", "", " · ".join(line), ""]
    if detail.tags:
        lines += [" ".join(code(f"{key}={value}") for key, value in detail.tags), ""]
    if run.note:
        lines += [f"> {prose(run.note, 1000)}", ""]
    lines += table(names, [values])
    if run.loss_count:
        lines += ["", f"**{format_plural(run.loss_count, 'record was', 'records were')} lost while recording**: "
                  "some numbers are too low."]  # fmt: skip
    return lines


def _where(function: str | None, file: str | None, line: int | None = None) -> str:
    place = f"<br>{code(file + (f':{line}' if line else ''))}" if file else ""
    return code(function) + place


def _todo(findings: Sequence[Finding], run: RunRow) -> list[str]:
    lines = ["### What to do", ""]
    if not findings:
        if run.has_only_results:
            return [*lines, "Not recorded: a file of results says nothing of compiles."]
        return [*lines, "Nothing stands out." if run.compile_count else "Nothing was compiled in this run."]
    for number, it in enumerate(findings[:MOST_ROWS], start=1):
        lines.append(f"{number}. **{prose(it.title)}** ({prose(it.number)})<br>{prose(it.fix, 500)}")
        if it.function or it.file:
            others = f" and {format_plural(it.others, 'other function')}" if it.others else ""
            lines.append(f"   <br>in {_where(it.function, it.file, it.line)}{others}")
        if it.code:
            lines.append(f"   <br>{code(it.code)}")
    if len(findings) > MOST_ROWS:
        lines += ["", f"And {len(findings) - MOST_ROWS} more."]
    return lines


def _break_name(it: DistinctBreak) -> str:
    address = words.gb_url(it.gb_id)
    name = prose(it.gb_type or it.reason)
    return f"[{it.gb_id}]({address}) {name}" if address else f"{prose(it.gb_id)} {name}" if it.gb_id else name


def _breaks(contents: Contents) -> list[str]:
    shown = contents.breaks[:MOST_ROWS]
    if not shown:
        return []
    rows = []
    for it in shown:
        line = f"<br>{code(it.source_line, 120)}" if it.source_line else ""
        said = (f"{words.describe_break_outcome(key).word} × {number}" for key, number in it.outcomes.items())
        where = _where(it.function, it.file, it.line) + line
        cost = format_duration(it.compile_us)
        rows.append([_break_name(it), where, format_count(it.break_count), prose(", ".join(said)), cost])
    columns = ["Graph break", "Where", "Times>", "Outcome", "Compiles that had it took>"]
    return [f"### Graph breaks{_of(len(shown), contents.distinct_count)}", "", *table(columns, rows)]


def _recompiles(contents: Contents) -> list[str]:
    shown = contents.causes[:MOST_ROWS]
    if not shown:
        return []
    rows = [
        [
            prose(label_category(it.category).label),
            code(it.source or it.reason, 120),
            _where(it.function, it.file),
            format_count(it.recompile_count),
            format_duration(it.compile_us),
            prose(it.suggestion or label_category(it.category).meaning),
        ]
        for it in shown
    ]
    columns = ["Recompiled for", "Guard", "Function", "Recompiles>", "Compile time>", "What to do"]
    return [f"### Recompiles{_of(len(shown), len(contents.causes))}", "", *table(columns, rows)]


def _failures(contents: Contents) -> list[str]:
    shown = contents.failures[:MOST_ROWS]
    if not shown:
        return []
    rows = [
        [
            *(code(it.error_type), prose(it.phase), format_count(it.occurrence_count)),
            *(_where(it.function, it.file, it.line), code(it.message)),
        ]
        for it in shown
    ]
    columns = ["Exception", "Raised in", "Times>", "Where", "Message"]
    return [f"### Failures{' (the first ones)' if contents.more_failures else ''}", "", *table(columns, rows)]


def _of(shown: int, total: int) -> str:
    return f" (the {shown} most costly of {total})" if shown < total else ""


def _foot(contents: Contents) -> list[str]:
    written = f"Written by CompileBoard {__version__} at {format_time(contents.written_us)} UTC"
    return ["---", f"<sub>{written}, run {code(contents.run.id)}. {contents.source_note}</sub>"]
