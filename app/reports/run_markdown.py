"""A run's report as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compileboard.app.aot.model import AotScreen
from compileboard.app.benchmarks.exports import DistributedResult, ExportedResult
from compileboard.app.benchmarks.labels import (
    describe_missing,
    describe_speedup,
    describe_status,
    describe_verdict,
)
from compileboard.app.benchmarks.matrix import ConfigurationResults, SuiteMatrix
from compileboard.app.benchmarks.metrics import BY_NAME, format_short
from compileboard.app.benchmarks.model import ReportedResults
from compileboard.app.core import labels
from compileboard.app.core.format import (
    format_count,
    format_duration,
    format_number,
    format_percent,
    format_plural,
    format_ratio,
    format_time,
)
from compileboard.app.core.resources import __version__
from compileboard.app.guards.model import RunGuardsScreen
from compileboard.app.ranks.model import RanksScreen
from compileboard.app.reasons.run_queries import RunDistinctBreak
from compileboard.app.reports.contents import Contents
from compileboard.app.reports.text import MOST_TABLE_ROWS, code, prose, table
from compileboard.app.runs.advice import CauseRow
from compileboard.app.runs.model import RunSummaryScreen
from compileboard.app.runs.trace_files import RejectSum
from compileboard.collectors.contract.categories import label_category
from compileboard.collectors.contract.rejects import KINDS
from compileboard.collectors.store.results import ResultRow
from compileboard.collectors.store.rollups import SuiteSummary


def write_sections(contents: Contents) -> Iterator[list[str]]:
    if contents.ranks is not None:
        yield _ranks(contents.ranks)
    if contents.guards is not None:
        yield _guards(contents.guards)
    if contents.aot is not None:
        yield _aot(contents.aot)
    if contents.rejects:
        yield _rejects(contents.rejects)


def _ranks(screen: RanksScreen) -> list[str]:
    divergence = screen.divergence
    lines = ["### Ranks", ""]
    lines += (
        [f"**{prose(divergence.sentence, 500)}** {prose(divergence.before)}", ""]
        if divergence
        else []
    )
    lines.append(prose(screen.summary, 500))
    for row in screen.reasons[:MOST_TABLE_ROWS]:
        guard = code(row.guards[0].reason) if row.guards else "a guard that torch did not name"
        lines += [
            "",
            (
                f"Rank {row.rank} recompiled {code(row.function)} as {code(row.compile_id)} "
                f"because {guard}"
            ),
        ]
    return lines


def _guards(screen: RunGuardsScreen) -> list[str]:
    totals = screen.totals
    values = [format_count(totals.set_count), format_count(totals.guard_count)]
    values += [format_duration(totals.median_us), format_duration(totals.highest_us)]
    lines = table(["Guard sets>", "Guards>", "Median latency>", "Largest latency>"], [values])
    return ["### Guards", "", *lines]


def _aot(screen: AotScreen) -> list[str]:
    report = screen.report
    rows = [
        [prose(cost.title), format_count(cost.graph_count)]
        for cost in report.findings[:MOST_TABLE_ROWS]
    ]
    head = f"### What AOTAutograd's wrappers do ({format_plural(report.graph_count, 'graph')})"
    return [head, "", *table(["Finding", "Graphs>"], rows)]


def _rejects(rejects: Sequence[RejectSum]) -> list[str]:
    rows = [
        [
            prose(KINDS.get(reject.kind, reject.kind)),
            format_count(reject.count),
            code(reject.log_name),
            format_count(reject.first_line),
        ]
        for reject in rejects[:MOST_TABLE_ROWS]
    ]
    return ["### What could not be read", "", *table(["What", "Times>", "First in", "Line>"], rows)]


MOST_ROWS = 60
_COLUMNS = (
    "Model",
    "Status",
    "Speedup>",
    "95% interval>",
    "Compile time>",
    "Breaks>",
    "Recompiles>",
    "Ops>",
)


def write_results(reported: ReportedResults | None) -> list[str]:
    if reported is None:
        return []
    shown = reported.results
    count, left_count = shown.result_count, MOST_ROWS
    limit = f" (the first {MOST_ROWS} of {format_count(count)})" if count > MOST_ROWS else ""
    lines = [f"### Benchmark results{limit}"]
    for matrix in shown.matrices:
        lines += ["", f"#### {prose(matrix.suite)}", "", *_write_matrix(matrix)]
    for configuration in shown.configurations:
        rows = configuration.listed[:left_count]
        left_count -= len(rows)
        if not rows:
            break
        lines += ["", f"#### {prose(configuration.label)}", "", *_sum_up(configuration), ""]
        lines += table(_COLUMNS, [_row(row) for row in rows])
    return [*lines, *_write_exports(reported.exports), *_write_distributed(reported.distributed)]


def _write_exports(exports: Sequence[ExportedResult]) -> list[str]:
    if not exports:
        return []
    rows = []
    for export in exports[:MOST_ROWS]:
        status, failure = prose(export.state), export.failure
        if failure is not None:
            words = (failure.error or failure.message, failure.operator, failure.line)
            status += "<br>" + ", ".join(prose(word, 160) for word in words if word)
        times = [
            _seconds(export.export_latency_s, "–"),
            _seconds(export.compilation_latency_s, "–"),
        ]
        loaded = [] if export.load_latency_s is None else [_seconds(export.load_latency_s, "–")]
        if export.second_process_latency_s is not None:
            loaded.append(f"second process {_seconds(export.second_process_latency_s, '–')}")
        times.append("<br>".join(loaded) or "–")
        numbers = [
            _number("package_bytes", export.package_bytes),
            _number("speedup", export.speedup),
        ]
        what = f"{prose(export.label)}<br>{prose(export.configuration)}"
        rows.append([prose(export.model), what, status, *times, *numbers])
    columns = (
        "Model",
        "Experiment",
        "Status",
        "Export time>",
        "Compile time>",
        "Load time>",
        "Package>",
        "Speedup>",
    )
    return ["", f"### Export{_of(len(rows), len(exports), 'first')}", "", *table(columns, rows)]


def _write_distributed(results: Sequence[DistributedResult]) -> list[str]:
    if not results:
        return []
    rows = []
    for several in results[:MOST_ROWS]:
        times = (several.latency_ms, several.one_process_latency_ms)
        status = prose(several.state) + (
            f"<br>accuracy: {prose(several.accuracy)}" if several.accuracy else ""
        )
        status += f"<br>{prose(several.message, 160)}" if several.message else ""
        row = [prose(several.model), f"{prose(several.way)}<br>{prose(several.configuration)}"]
        row += [format_count(several.world_size), status]
        row += [_seconds(None if time is None else time / 1000, "–") for time in times]
        row.append(_number("scaling_efficiency", several.scaling_efficiency))
        rows.append(
            [*row, "–" if several.gradient_error is None else format_number(several.gradient_error)]
        )
    columns = (
        "Model",
        "Way",
        "Ranks>",
        "Status",
        "Slowest rank>",
        "One process>",
        "Efficiency>",
        "Gradient error>",
    )
    return [
        "",
        f"### Distributed{_of(len(rows), len(results), 'first')}",
        "",
        *table(columns, rows),
    ]


def _number(metric: str, value: float | None) -> str:
    return "–" if value is None else format_short(BY_NAME[metric], value)


def _write_matrix(matrix: SuiteMatrix) -> list[str]:
    columns = [f"{column.label}: {column.name}" for column in matrix.columns]
    rows = [
        [
            row.model,
            *(
                "; ".join(f"{cell.state.word} {cell.numbers}".strip() for cell in cells) or "–"
                for cells in row.cells
            ),
        ]
        for row in matrix.rows[:MOST_ROWS]
    ]
    return table(("Model", *columns), rows)


def _sum_up(configuration: ConfigurationResults) -> list[str]:
    return table(
        (
            "By the formula of",
            "Pass rate>",
            "Geomean speedup>",
            "Compile time>",
            "Peak memory ratio>",
        ),
        [
            [
                summary.definition.label,
                _pass_rate(summary),
                "not measured"
                if summary.geomean_speedup is None
                else f"{summary.geomean_speedup:.3f}×",
                _seconds(summary.compilation_latency_s, "not measured"),
                "not measured"
                if summary.compression_ratio is None
                else format_ratio(summary.compression_ratio),
            ]
            for summary in configuration.summaries
        ],
    )


def _pass_rate(summary: SuiteSummary) -> str:
    if summary.pass_ratio is None:
        return "not measured" if summary.definition.has_pass_rate else "–"
    return f"{format_percent(summary.pass_ratio)}, {summary.passed_count}/{summary.total_count}"


def _row(result: ResultRow) -> list[str]:
    missing = describe_missing(result)
    verdict = describe_speedup(result)
    status = describe_status(result).word
    judged = describe_verdict(result)
    if judged is not None:
        status += f"; accuracy: {judged.word}"
    speedup = missing if result.speedup is None else f"{result.speedup:.3f}×"
    interval = "–"
    if verdict is not None:
        interval = f"{result.speedup_low:.3f}–{result.speedup_high:.3f}, {verdict.word}"
    counts = (result.graph_breaks, result.recompiles, result.calls_captured)
    return [
        prose(result.model),
        prose(status),
        speedup,
        interval,
        _seconds(result.compilation_latency_s, missing),
        *(missing if value is None else format_count(value) for value in counts),
    ]


def _seconds(value: float | None, missing: str) -> str:
    return missing if value is None else format_duration(value * 1e6)


def render_markdown(contents: Contents) -> str:
    parts = [
        _head(contents),
        write_results(contents.results),
        _fix_first(contents.summary),
    ]
    parts += [_breaks(contents), _recompiles(contents), _failures(contents)]
    parts += [*write_sections(contents), _foot(contents)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(contents: Contents) -> list[str]:
    run, detail, header, summary = contents.run, contents.detail, contents.header, contents.summary
    state = ", ".join((header.state.word, *header.state.problems))
    line = [
        state,
        f"{format_time(run.started_us or None)} UTC",
        format_duration(run.duration_us),
        prose(run.device),
    ]
    line += [f"torch {prose(run.torch_version)}"]
    triton = contents.environment.find_version("triton_version")
    line += [
        f"{name} {prose(version)}"
        for name, version in (("CUDA", run.cuda_version), ("triton", triton))
        if version
    ]
    line += [prose(run.host)] if run.host else []
    line += (
        [f"commit {code(run.git_commit[:9])}{' with changes' if run.git_dirty else ''}"]
        if run.git_commit
        else []
    )
    values = [format_count(run.compile_count), format_duration(run.compile_us)]
    values += [format_count(run.graph_break_count)]
    values += [format_count(run.recompile_count), format_count(run.recompile_limit_count)]
    values += [
        format_count(run.failure_count),
        format_count(run.skipped_frame_count),
        "–" if summary.hit_ratio is None else format_percent(summary.hit_ratio),
    ]
    names = [
        "Compiles>",
        "Compile time>",
        "Graph breaks>",
        "Recompiles>",
        "Limit reached>",
        "Failures>",
        "Skipped frames>",
        "Cache hits>",
    ]
    lines = [f"## torch.compile: {prose(run.shown_name)}", "", " · ".join(line), ""]
    if detail.tags:
        lines += [" ".join(code(f"{key}={value}") for key, value in detail.tags), ""]
    if run.note:
        lines += [f"> {prose(run.note, 1000)}", ""]
    lines += table(names, [values])
    if run.loss_count:
        lines += ["", f"**{format_plural(run.loss_count, 'record was', 'records were')} lost "
                      "while recording**: "
                  "some numbers are too low."]  # fmt: skip
    return lines


def _where(function: str | None, file: str | None, line: int | None = None) -> str:
    location = f"<br>{code(file + (f':{line}' if line else ''))}" if file else ""
    return code(function) + location


def _fix_first(summary: RunSummaryScreen) -> list[str]:
    lines = [f"**{prose(summary.verdict.sentence)}**", ""]
    lines += [prose(summary.verdict.note), ""] if summary.verdict.note else []
    if not summary.causes and not summary.problems:
        return lines
    lines += ["### Fix this first", ""]
    for problem in summary.problems[:MOST_TABLE_ROWS]:
        lines.append(
            f"- **{prose(problem.title)}** "
            f"({prose(problem.number)})<br>{prose(problem.advice, 500)}"
        )
        if problem.function or problem.file:
            lines.append(f"  <br>in {_where(problem.function, problem.file, problem.line)}")
        if problem.code:
            lines.append(f"  <br>{code(problem.code)}")
    if len(summary.problems) > MOST_TABLE_ROWS:
        lines.append(f"- And {len(summary.problems) - MOST_TABLE_ROWS} more problems.")
    lines.append("")
    for cause in summary.causes[:MOST_TABLE_ROWS]:
        lines += _describe_cause(cause)
    if len(summary.causes) > MOST_TABLE_ROWS:
        lines += ["", f"And {format_plural(len(summary.causes) - MOST_TABLE_ROWS, 'more cause')}."]
    return lines


def _describe_cause(cause: CauseRow) -> list[str]:
    verb = "saves" if cause.is_fixable else "takes"
    saved = (
        f"{verb} {format_duration(cause.saved_us)} at most"
        if cause.saved_us
        else "time not recorded"
    )
    saved = "nothing to fix" if cause.is_expected else saved
    words = ["runs eagerly"] * cause.is_eager + (
        [saved] if cause.saved_us or not cause.is_eager else []
    )
    lines = [f"{cause.number}. **{prose(cause.title)}** ({', '.join([*words, cause.noun])})"]
    lines.append(f"   <br>in {_where(cause.function, cause.file, cause.line)}")
    if cause.source_line or cause.kind == "recompile":
        lines.append(f"   <br>{code(cause.source_line or cause.evidence)}")
    if not cause.advice:
        hint = f" torch's hint: {prose(cause.hints[0], 300)}" if cause.hints else ""
        return [*lines, f"   <br>No fix is known.{hint}"]
    first = cause.advice[0]
    lines.append(f"   <br>Fix: {prose(first.title)}")
    lines.append(f"   <br>Applies: {prose(first.applies, 300)} Cost: {prose(first.cost, 300)}")
    lines += [f"   <br>{code(line)}" for line in first.diff if line[:1] in "+-"]
    lines += [f"   <br>Tried: {prose(trial.summary)}" for trial in cause.trials[:1]]
    return lines


def _break_name(run_distinct_break: RunDistinctBreak) -> str:
    address = run_distinct_break.page_url
    name = prose(run_distinct_break.gb_type or run_distinct_break.reason)
    return (
        f"[{run_distinct_break.gb_id}]({address}) {name}"
        if address
        else f"{prose(run_distinct_break.gb_id)} {name}"
        if run_distinct_break.gb_id
        else name
    )


def _breaks(contents: Contents) -> list[str]:
    shown = contents.breaks.distinct[:MOST_TABLE_ROWS]
    if not shown:
        return []
    rows = []
    for run_distinct_break in shown:
        line = (
            f"<br>{code(run_distinct_break.source_line, 120)}"
            if run_distinct_break.source_line
            else ""
        )
        cells = (
            f"{labels.describe_break_outcome(key).word} × {number}"
            for key, number in run_distinct_break.outcomes.items()
        )
        where = (
            _where(run_distinct_break.function, run_distinct_break.file, run_distinct_break.line)
            + line
        )
        cost = format_duration(run_distinct_break.compile_us)
        rows.append(
            [
                _break_name(run_distinct_break),
                where,
                format_count(run_distinct_break.break_count),
                prose(", ".join(cells)),
                cost,
            ]
        )
    columns = ["Graph break", "Where", "Times>", "Outcome", "Compiles that had it took>"]
    return [
        f"### Graph breaks{_of(len(shown), contents.breaks.distinct_count)}",
        "",
        *table(columns, rows),
    ]


def _recompiles(contents: Contents) -> list[str]:
    causes = contents.recompiles.causes.rows
    shown = causes[:MOST_TABLE_ROWS]
    if not shown:
        return []
    rows = [
        [
            prose(label_category(cause.category).label),
            code(cause.source or cause.reason, 120),
            _where(cause.function, cause.file),
            format_count(cause.recompile_count),
            format_duration(cause.compile_us),
            prose(cause.suggestion or label_category(cause.category).meaning),
        ]
        for cause in shown
    ]
    columns = ["Recompiled for", "Guard", "Function", "Recompiles>", "Compile time>", "Fix"]
    return [f"### Recompiles{_of(len(shown), len(causes))}", "", *table(columns, rows)]


def _failures(contents: Contents) -> list[str]:
    page = contents.failures.page
    shown = page.rows[:MOST_TABLE_ROWS]
    if not shown:
        return []
    rows = [
        [
            *(
                code(failure.error_type),
                prose(failure.phase),
                format_count(failure.occurrence_count),
            ),
            *(
                _where(failure.function, failure.file, failure.line),
                code(failure.message),
                code(failure.repro_id),
            ),
        ]
        for failure in shown
    ]
    columns = ["Exception", "Raised in", "Times>", "Where", "Message", "Repro"]
    return [
        f"### Failures{' (the first ones)' if page.next or len(page.rows) > len(shown) else ''}",
        "",
        *table(columns, rows),
    ]


def _of(shown: int, total: int, word: str = "most costly") -> str:
    return f" (the {shown} {word} of {total})" if shown < total else ""


def _foot(contents: Contents) -> list[str]:
    written = f"Written by CompileBoard {__version__} at {format_time(contents.written_us)} UTC"
    return ["---", f"<sub>{written}, run {code(contents.run.id)}. {contents.source_note}</sub>"]
