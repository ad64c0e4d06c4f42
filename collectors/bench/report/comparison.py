"""Compare the results of two runs, model by model: base → new."""

from __future__ import annotations

from collections.abc import Sequence

from compileboard.collectors.bench.report.progress import HIGH, LOW, REASONS, read_side
from compileboard.collectors.bench.report.summary import list_wrong
from compileboard.collectors.contract.events import BenchMeasured
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
from compileboard.collectors.store.rollups.summaries import geomean
from compileboard.collectors.terminal.progress_line import count_text

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
    rows = [HEADINGS, *(_row(*pair, verdict) for pair, verdict in zip(timed, verdicts))]
    lines = _columns(rows) if timed else ["Neither has speedups of the same models to compare."]
    lines += [_format_count(both, wrong)] if timed else []
    leading = [
        pair for pair in timed if pair[1].experiment == "performance"
    ]  # of the others, speedup is another thing
    if len(leading) > 1:
        lines.append(_overall(leading))
    lines += [line for pair in both if pair not in timed for line in _describe_states(*pair)]
    lines += [
        f"{result.model} ({result.experiment}): only in base"
        for key, result in before.items()
        if key not in after
    ]
    lines += [
        f"{result.model} ({result.experiment}): only in new"
        for key, result in after.items()
        if key not in before
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


def _row(base: BenchMeasured, new: BenchMeasured, verdicts: Verdicts) -> tuple[str, ...]:
    name = new.model if new.experiment == "performance" else f"{new.model} ({new.experiment})"
    return (
        name,
        f"{_speedup(base)} → {_speedup(new)}",
        _change(base, new, "abs_latency", "{:.3f}"),
        _change(base, new, "compilation_latency", "{:.1f}"),
        _change(base, new, "graph_breaks", "{:.0f}"),
        describe_verdicts(verdicts),
    )


def describe_verdicts(verdicts: Verdicts) -> str:
    changed = [
        verdict
        for name, verdict in verdicts.items()
        if name != "speedup" and verdict.word in CHANGED
    ]
    return "; ".join(
        [
            verdicts["speedup"].text,
            *(f"{verdict.metric.label.lower()} {verdict.text}" for verdict in changed),
        ]
    )


def _speedup(result: BenchMeasured) -> str:
    text = f"{result.values['speedup']:.3f}x"
    return text + (
        f" [{result.values[LOW]:.3f}, {result.values[HIGH]:.3f}]" if LOW in result.values else ""
    )


def _change(base: BenchMeasured, new: BenchMeasured, name: str, form: str) -> str:
    values = [
        form.format(result.values[name]) if name in result.values else "–" for result in (base, new)
    ]
    return " → ".join(values)


def _overall(timed: list[tuple[BenchMeasured, BenchMeasured]]) -> str:
    base, new = (
        geomean([pair[which].values["speedup"] for pair in timed]) or 0 for which in (0, 1)
    )
    return f"geomean of {count_text(len(timed), 'model')}: {base:.3f}x → {new:.3f}x"


def _describe_states(base: BenchMeasured, new: BenchMeasured) -> list[str]:
    if base.experiment == "performance" or _state(base) != _state(new):
        return [f"{new.model} ({new.experiment}): {_state(base)} → {_state(new)}"]
    return []


def _state(result: BenchMeasured) -> str:
    if result.status == "measured":
        return result.accuracy or (
            "measured" if "speedup" not in result.values else _speedup(result)
        )
    reason = REASONS.get(result.reason or "", result.reason or "no reason given")
    return f"{result.status} ({reason})"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    ]
