"""The summary of a bench run, like upstream's: failures with their reasons, graph breaks with their
models, and the comparison of two runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean, median

from compileboard.collectors.bench.report.progress import (
    HIGH,
    LOW,
    REASONS,
    is_unclear,
    judge_against_baseline,
    name_result,
    read_side,
    speedup_text,
)
from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.contract.library_names import is_harness_step
from compileboard.collectors.contract.verdicts import (
    CHANGED,
    COMPARED,
    ComparedMetric,
    Verdict,
    count_models,
    describe_models,
    is_wrong_answer,
    judge_sides,
)
from compileboard.collectors.formats.result_file import SPEEDUPS
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.rollups import HUD_PASSING, geomean
from compileboard.collectors.terminal.run_summary import printable
from compileboard.collectors.terminal.values import count_text, format_table


def summarize(results: Sequence[BenchMeasured]) -> str:
    if not results:
        return "Nothing was measured."
    tag = results[0].facts.get("tag")
    heading = ["", printable(f"Summary for tag={tag}:")] if tag else [""]
    lines = [
        *heading,
        *_performance_lines(results),
        *_accuracy_lines(results),
        *_other_lines(results),
        *_failure_lines(results),
    ]
    return "\n".join(lines)


def _unclear_rows(timed: Sequence[BenchMeasured]) -> Rows:
    spans = [result.model for result in timed if is_unclear(result.values)]
    bare = [result.model for result in timed if LOW not in result.values]
    rows = [("no clear difference", printable(", ".join(spans)))] if spans else []
    return [*rows, ("too few repeats", printable(", ".join(bare)))] if bare else rows


def _baseline_rows(results: Sequence[BenchMeasured], wrong: Models) -> Rows:
    verdicts = {
        result.model: judge_against_baseline(result, wrong)
        for result in results
        if result.experiment == "performance" and {"speedup", "baseline"} <= result.values.keys()
    }
    rows = [
        (
            f"{word} than the baseline",
            ", ".join(f"{model} ({verdict.basis})" for model, verdict in named),
        )
        for word in ("worse", "better")
        if (named := [item for item in verdicts.items() if item[1].word == word])
    ]
    return rows or (
        [("against the baseline", f"none of {len(verdicts)} worse or better")] if verdicts else []
    )


def list_wrong(results: Sequence[BenchMeasured]) -> set[tuple[str, str]]:
    return {(result.suite, result.model) for result in results if is_wrong_answer(result.accuracy)}


def _accuracy_lines(results: Sequence[BenchMeasured]) -> list[str]:
    rows = []
    judged = [result for result in results if result.status != "skipped"]
    for experiment in dict.fromkeys(
        result.experiment for result in judged if result.accuracy or result.experiment == "accuracy"
    ):
        verdicts = [
            result.accuracy or result.reason for result in judged if result.experiment == experiment
        ]
        passed = verdicts.count("pass")
        others = [
            f"{verdict} {verdicts.count(verdict)}"
            for verdict in sorted(HUD_PASSING & {*verdicts} - {"pass"})
        ]
        beside = f"; not counted: {', '.join(others)}" if others else ""
        rate = 100 * passed / len(verdicts)
        rows.append((experiment, f"pass_rate={rate:.2f}% ({passed} of {len(verdicts)}{beside})"))
    return format_table(rows)


PACKAGED = {
    "compilation_latency": "mean={:.3f} seconds",
    "load_latency": "mean={:.3f} seconds",
    "package_bytes": "mean={:.0f}",
}
SECOND_PROCESS = {"second_process_latency": "mean={:.3f} seconds"}
MEANS = {  # an experiment's numbers, as in upstream's summary if it has them
    "performance": {
        "speedup_vs_baseline": "mean={:.3f}x",
        "scaling_efficiency": "mean={:.3f}, 1 is linear",
        "abs_latency": "mean={:.3f} ms",
        "compilation_latency": "mean={:.3f} seconds",
        "warm_compilation_latency": "mean={:.3f} seconds",
        "cache_lookup_latency": "mean={:.0f} µs",
        "compression_ratio": "mean={:.3f}x",
        "eager_peak_mem": "mean={:.3f} GB",
        "dynamo_peak_mem": "mean={:.3f} GB",
        "calls_captured": "mean={:.1f}",
        "unique_graphs": "mean={:.1f}",
        "graph_breaks": "mean={:.1f}",
        "recompiles": "mean={:.1f}",
    },
    "coverage": {"pct_ops": "mean={:.3%}", "pct_time": "mean={:.3%}", "graphs": "mean={:.3f}"},
    "tolerance": {"max": "mean={:.3g}", "mean": "mean={:.3g}", "std": "mean={:.3g}"},
    "recompile_profile": {"recompiles": "mean={:.1f}", "guard_failures": "mean={:.1f}"},
    "aot_inductor": PACKAGED,
    "onnx": PACKAGED,
    "aot_precompile": {**PACKAGED, **SECOND_PROCESS},
    "caching_precompile": SECOND_PROCESS,
    "quantization": dict.fromkeys(
        ("quantized_error", "quantized_eager_error", "unquantized_error"), "mean={:.3g}"
    ),
    "batch_size": {"batch_size_found": "mean={:.0f}"},
}
Rows = list[tuple[str, str]]


def _performance_lines(results: Sequence[BenchMeasured]) -> list[str]:
    done = [result for result in results if result.status == "measured"]
    speedups = _speedup_rows(done, "performance")
    rows = [*speedups, *(_baseline_rows(done, list_wrong(results)) if speedups else [])]
    return format_table([*rows, *_mean_rows(done, "performance")])


def _other_lines(results: Sequence[BenchMeasured]) -> list[str]:
    timed = [name for name in (*SPEEDUPS, "aot_inductor") if name != "performance"]
    listed = [name for name in MEANS if name != "performance"]
    rows = [(name, row) for name in timed for row in _speedup_rows(results, name)]
    rows += [(name, row) for name in listed for row in _mean_rows(results, name)]
    return format_table([(f"{experiment} {name}", text) for experiment, (name, text) in rows])


def _speedup_rows(results: Sequence[BenchMeasured], experiment: str) -> Rows:
    timed = [
        result
        for result in results
        if result.experiment == experiment and result.values.get("speedup")
    ]
    if not timed:
        return []
    speedups = [result.values["speedup"] for result in timed]
    mean = f" mean={fmean(speedups):.3f}x" if experiment == "performance" else ""
    counted = count_text(len(speedups), "model")
    rows = [("speedup", f"gmean={geomean(speedups) or 0:.2f}x{mean} of {counted}")]
    return [*rows, *(_noise_floor_rows(timed) if experiment == "nothing" else _unclear_rows(timed))]


def _mean_rows(results: Sequence[BenchMeasured], experiment: str) -> Rows:
    own = [result.values for result in results if result.experiment == experiment]
    return [
        (name, words.format(fmean(known)))
        for name, words in MEANS[experiment].items()
        if (known := [values[name] for values in own if name in values])
    ]


def _noise_floor_rows(timed: Sequence[BenchMeasured]) -> Rows:
    known = [result.values for result in timed if LOW in result.values]
    if not known:
        return []
    width = median(max(values[HIGH] - 1, 1 - values[LOW]) for values in known)
    spanning = f"{sum(map(is_unclear, known))} of {len(known)} intervals hold 1"
    return [("noise floor", f"±{width:.1%}, median of {len(known)}; {spanning}")]


def _failure_lines(results: Sequence[BenchMeasured]) -> list[str]:
    lines: list[str] = []
    for status in ("failed", "skipped"):
        names_by_reason: dict[str, list[str]] = {}
        for result in results:
            if result.status == status:
                reason = result.reason or "no reason given"
                names_by_reason.setdefault(reason, []).append(name_result(result))
        for reason, names in sorted(names_by_reason.items()):
            cause = f"{reason}: {REASONS[reason]}" if reason in REASONS else reason
            lines.append(printable(f"{status} ({cause}): {', '.join(names)}"))
    return ["", *lines] if lines else []


HEADINGS = ("model", "speedup base → new", "latency ms", "compile s", "breaks", "")
Models = set[tuple[str, str]]  # suite and model
Verdicts = dict[str, Verdict[ComparedMetric]]


def compare(base: Sequence[BenchMeasured], new: Sequence[BenchMeasured]) -> str:
    before = {_key(result): result for result in base}
    after = {_key(result): result for result in new}
    both = [(before[key], after[key]) for key in after if key in before]
    timed = [pair for pair in both if all("speedup" in result.values for result in pair)]
    wrong = list_wrong(base), list_wrong(new)
    verdicts = [judge_results(*pair, wrong) for pair in timed]
    rows = [HEADINGS, *(_comparison_row(*pair, verdict) for pair, verdict in zip(timed, verdicts))]
    lines = format_table(rows) if timed else ["Neither has speedups of the same models to compare."]
    lines += [_format_count(both, wrong)] if timed else []
    leading = [
        pair for pair in timed if pair[1].experiment == "performance"
    ]  # in other experiments, speedup means something else
    if len(leading) > 1:
        lines.append(_geomean_line(leading))
    lines += [line for pair in both if pair not in timed for line in _describe_states(*pair)]
    for side, results, others in (("base", before, after), ("new", after, before)):
        lines += [
            f"{model} ({experiment}): only in {side}"
            for _, model, experiment in (key for key in results if key not in others)
        ]
    return "\n".join(lines)


def judge_results(
    base: BenchMeasured, new: BenchMeasured, wrong: tuple[Models, Models] = (set(), set())
) -> Verdicts:
    return judge_sides(COMPARED, read_side(base, wrong[0]), read_side(new, wrong[1]))


def _format_count(
    both: Sequence[tuple[BenchMeasured, BenchMeasured]], wrong: tuple[Models, Models]
) -> str:
    words: dict[tuple[str, str], set[str]] = {}
    for base, new in both:
        model_words = words.setdefault((new.suite, new.model), set())
        if new.experiment == "performance":
            model_words |= {verdict.word for verdict in judge_results(base, new, wrong).values()}
        if (
            base.accuracy
            and new.accuracy
            and is_wrong_answer(base.accuracy) != is_wrong_answer(new.accuracy)
        ):
            model_words.add("worse" if is_wrong_answer(new.accuracy) else "better")
    return (
        f"{count_text(len(words), 'model')} over all metrics: "
        f"{describe_models(count_models(words.values()))}"
    )


def _key(result: BenchMeasured) -> tuple[str, str, str]:
    return result.suite, result.model, result.experiment


def _comparison_row(base: BenchMeasured, new: BenchMeasured, verdicts: Verdicts) -> tuple[str, ...]:
    return (
        name_result(new),
        f"{speedup_text(base.values)} → {speedup_text(new.values)}",
        _format_change(base, new, "abs_latency", "{:.3f}"),
        _format_change(base, new, "compilation_latency", "{:.1f}"),
        _format_change(base, new, "graph_breaks", "{:.0f}"),
        describe_verdicts(verdicts),
    )


def describe_verdicts(verdicts: Verdicts) -> str:
    changed = [
        f"{verdict.metric.label.lower()} {verdict.text}"
        for name, verdict in verdicts.items()
        if name != "speedup" and verdict.word in CHANGED
    ]
    return "; ".join([verdicts["speedup"].text, *changed])


def _format_change(base: BenchMeasured, new: BenchMeasured, name: str, form: str) -> str:
    values = [
        form.format(result.values[name]) if name in result.values else "–" for result in (base, new)
    ]
    return " → ".join(values)


def _geomean_line(timed: list[tuple[BenchMeasured, BenchMeasured]]) -> str:
    base, new = (
        geomean([pair[which].values["speedup"] for pair in timed]) or 0 for which in (0, 1)
    )
    return f"geomean of {count_text(len(timed), 'model')}: {base:.3f}x → {new:.3f}x"


def _describe_states(base: BenchMeasured, new: BenchMeasured) -> list[str]:
    if base.experiment == "performance" or _describe_state(base) != _describe_state(new):
        return [f"{new.model} ({new.experiment}): {_describe_state(base)} → {_describe_state(new)}"]
    return []


def _describe_state(result: BenchMeasured) -> str:
    if result.status == "measured":
        timed = speedup_text(result.values) if "speedup" in result.values else "measured"
        return result.accuracy or timed
    reason = REASONS.get(result.reason or "", result.reason or "no reason given")
    return f"{result.status} ({reason})"


SHORT_LIST, MOST = 10, 1000  # listed by default, and at most
LIST_BREAKS = """
select distinct_breaks.gb_id,
  distinct_breaks.reason,
  functions.file,
  distinct_breaks.line,
  count(*) as break_count,
  json_group_array(distinct series.model) as models
from graph_breaks
  join processes on processes.id = graph_breaks.process_id
  join results on results.run_id = graph_breaks.run_id and results.task = processes.task
  join series on series.id = results.series_id
  join distinct_breaks on distinct_breaks.id = graph_breaks.distinct_id
  left join functions on functions.id = distinct_breaks.function_id
where graph_breaks.run_id = :run
group by distinct_breaks.id
order by count(distinct series.model) desc, break_count desc, distinct_breaks.id
limit :most
"""


@dataclass(frozen=True)
class BenchBreak:
    gb_id: str | None
    reason: str
    file: str | None
    line: int | None
    break_count: int
    models: tuple[str, ...]


def list_breaks(database: str, run_id: str) -> list[BenchBreak]:
    with closing(open_reader(database)) as reader:
        rows = reader.execute(LIST_BREAKS, {"run": run_id, "most": MOST}).fetchall()
    return [
        BenchBreak(**{**dict(row), "models": tuple(sorted(json.loads(row["models"])))})
        for row in rows
    ]


def format_breaks(breaks: Sequence[BenchBreak], *, explain: bool) -> list[str]:
    ours = sum(row.break_count for row in breaks if is_harness_step(row.file))
    breaks = [row for row in breaks if not is_harness_step(row.file)]
    if not breaks and not ours:
        return []
    shown = breaks if explain else breaks[:SHORT_LIST]
    total = sum(bench_break.break_count for bench_break in breaks)
    beside = (
        f" ({ours} more in bench's own training step, as in upstream's harness)" if ours else ""
    )
    lines = [
        "",
        f"distinct graph breaks: {len(breaks)}, by reason and line; {total} in all{beside}",
    ]
    for bench_break in shown:
        reason = bench_break.reason.strip().partition("\n")[0]
        location = bench_break.file or "no place recorded"
        if bench_break.file and bench_break.line:
            location += f":{bench_break.line}"
        lines.append(printable(f"  {bench_break.gb_id + ' ' if bench_break.gb_id else ''}{reason}"))
        models = _name_models(bench_break.models)
        lines.append(printable(f"    {location}, {bench_break.break_count} times in {models}"))
    if len(shown) < len(breaks):
        lines.append(f"  and {len(breaks) - len(shown)} more, which --explain lists")
    return lines


def _name_models(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} models: {', '.join(names)}"
