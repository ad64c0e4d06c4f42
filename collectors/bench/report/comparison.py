"""Set the results of two runs against each other, model by model: base → new."""

from __future__ import annotations

from collections.abc import Sequence

from compileboard.collectors.bench.report.progress import REASONS
from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.store.rollups.summaries import geomean
from compileboard.collectors.terminal.progress_line import count_text

HEADINGS = ("model", "speedup base → new", "latency ms", "compile s", "breaks", "")
LOW, HIGH = "speedup_low", "speedup_high"


def compare(base: Sequence[BenchMeasured], new: Sequence[BenchMeasured]) -> str:
    """Write the table. A difference is one where the two intervals do not overlap."""
    before = {_key(it): it for it in base}
    after = {_key(it): it for it in new}
    both = [(before[key], after[key]) for key in after if key in before]
    timed = [pair for pair in both if all("speedup" in it.values for it in pair)]
    rows = [HEADINGS, *(_row(*pair) for pair in timed)]
    lines = _columns(rows) if timed else ["Neither has speedups of the same models to compare."]
    if len(timed) > 1:
        lines.append(_overall(timed))
    lines += [line for pair in both if pair not in timed for line in _words(*pair)]
    lines += [f"{it.model} ({it.experiment}): only in base" for key, it in before.items() if key not in after]
    lines += [f"{it.model} ({it.experiment}): only in new" for key, it in after.items() if key not in before]
    return "\n".join(lines)


def _key(result: BenchMeasured) -> tuple[str, str, str]:
    return result.suite, result.model, result.experiment


def _row(base: BenchMeasured, new: BenchMeasured) -> tuple[str, ...]:
    name = new.model if new.experiment == "performance" else f"{new.model} ({new.experiment})"
    return (
        name,
        f"{_speedup(base)} → {_speedup(new)}",
        _change(base, new, "abs_latency", "{:.3f}"),
        _change(base, new, "compilation_latency", "{:.1f}"),
        _change(base, new, "graph_breaks", "{:.0f}"),
        verdict(base, new),
    )


def _speedup(it: BenchMeasured) -> str:
    text = f"{it.values['speedup']:.3f}x"
    return text + (f" [{it.values[LOW]:.3f}, {it.values[HIGH]:.3f}]" if LOW in it.values else "")


def _change(base: BenchMeasured, new: BenchMeasured, name: str, form: str) -> str:
    values = [form.format(it.values[name]) if name in it.values else "–" for it in (base, new)]
    return " → ".join(values)


def verdict(base: BenchMeasured, new: BenchMeasured) -> str:
    """Say what the speedups tell: better, worse, or nothing where their intervals overlap."""
    if not all(LOW in it.values for it in (base, new)):
        return "too few repeats to tell"
    if new.values[LOW] > base.values[HIGH]:
        return "better"
    if new.values[HIGH] < base.values[LOW]:
        return "worse"
    return "no clear difference: the intervals overlap"


def _overall(timed: list[tuple[BenchMeasured, BenchMeasured]]) -> str:
    base, new = (geomean([pair[which].values["speedup"] for pair in timed]) or 0 for which in (0, 1))
    return f"geomean of {count_text(len(timed), 'model')}: {base:.3f}x → {new:.3f}x"


def _words(base: BenchMeasured, new: BenchMeasured) -> list[str]:
    """Say what came of a pair that has no two speedups; nothing where both say the same."""
    if base.experiment == "performance" or _state(base) != _state(new):
        return [f"{new.model} ({new.experiment}): {_state(base)} → {_state(new)}"]
    return []


def _state(it: BenchMeasured) -> str:
    if it.status == "measured":
        return it.accuracy or ("measured" if "speedup" not in it.values else _speedup(it))
    reason = REASONS.get(it.reason or "", it.reason or "no reason given")
    return f"{it.status} ({reason})"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
