"""A comparison as Markdown: what fits a pull request's comment."""

from __future__ import annotations

from collections.abc import Sequence

from compileboard.app.analysis.chains import label_category
from compileboard.app.analysis.comparison_distinct import WORDS
from compileboard.app.analysis.comparison_environment import DIFFERS, REFUSES, WARNS
from compileboard.app.analysis.comparison_headline import list_headlines
from compileboard.app.analysis.comparison_model import CompareSide, Comparison, DistinctChange, DistinctDiff, Pair
from compileboard.app.analysis.comparison_pairs import describe_entry, list_shown
from compileboard.app.analysis.comparison_table import show_change, show_share, show_value
from compileboard.app.analysis.comparison_verdicts import ACCURACY_CHANGES, CHANGED, METHODS, RULE, VERDICTS
from compileboard.app.reports.markdown_words import code, prose, table
from compileboard.app.resources import __version__

MOST_ROWS = 60


def render_markdown(found: Comparison) -> str:
    """Write a comparison as Markdown that GitHub shows as it should."""
    parts = [_head(found), metric_lines(found), model_lines(found), left_out_lines(found)]
    parts += [distinct_lines("Graph breaks", found.breaks), distinct_lines("Causes of recompiles", found.causes)]
    parts += [
        _environment(found),
        _settings(found),
        [f"_CompileBoard {__version__}; a change is new relative to base_"],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(found: Comparison) -> list[str]:
    lines = [f"## {prose(found.new.title)} against {prose(found.base.title)}", ""]
    lines += [f"- **{label}**: {_side(side)}" for label, side in (("Base", found.base), ("New", found.new))]
    for said in found.refused:
        lines += ["", f"**Not compared, it would compare machines: {prose(said)}**"]
    for said in found.warnings:
        lines += ["", f"**Read with care: {prose(said)}**"]
    tiles = list_headlines(found)
    return [*lines, "", *table(("What", "Change>", "How"), [[it.label, it.value, prose(it.note)] for it in tiles])]


def _side(side: CompareSide) -> str:
    runs = [f"{code(it.id)}" + (f" of commit {code(it.commit[:9])}" if it.commit else "") for it in side.runs[:4]]
    more = f" and {len(side.runs) - 4} more" if len(side.runs) > 4 else ""
    return f"{prose(side.title)}: {', '.join(runs)}{more}" if runs else prose(side.title)


def metric_lines(found: Comparison) -> list[str]:
    """Write every metric over all models."""
    if not found.sums:
        return []
    names = ("Metric", "Models>", "Base>", "New>", "Change>", "Worse>", "Better>", "Judged by")
    rows = [
        [
            it.metric.label,
            str(it.count),
            show_value(it.metric, it.base),
            show_value(it.metric, it.new),
            show_share(it.change),
            str(it.verdicts.get("worse", 0)),
            str(it.verdicts.get("better", 0)),
            ", ".join(METHODS[key] for key in it.methods),
        ]
        for it in found.sums
    ]
    return ["### Every metric (geometric means; counts are sums)", "", *table(names, rows), "", prose(RULE, len(RULE))]


def model_lines(found: Comparison) -> list[str]:
    """Write the models that changed, metric by metric."""
    shown = list_shown((*found.base.entries, *found.new.entries))
    rows = [row for pair in found.pairs for row in _changes(pair, shown)]
    if not rows:
        return ["No model changed by more than noise."] if found.pairs else []
    cut = f" (the first {MOST_ROWS} of {len(rows)})" if len(rows) > MOST_ROWS else ""
    names = ("Model", "Metric", "Base>", "New>", "Change>", "Verdict", "By")
    return [f"### Changes{cut}", "", *table(names, rows[:MOST_ROWS])]


def _changes(pair: Pair, shown: Sequence[str]) -> list[list[str]]:
    name = prose(" · ".join(word for word in (pair.model, describe_entry(pair.new, shown)) if word))
    rows = [
        [
            name,
            it.metric.label,
            show_value(it.metric, it.base),
            show_value(it.metric, it.new),
            show_change(it),
            VERDICTS[it.verdict],
            METHODS[it.method] + (f"; {prose(pair.warning)}" if pair.warning and it.metric.name == "speedup" else ""),
        ]
        for it in pair.deltas.values()
        if it.verdict in CHANGED
    ]
    if pair.accuracy:
        words = [prose(pair.base.accuracy), prose(pair.new.accuracy)]
        rows.append([name, "Accuracy", *words, "–", ACCURACY_CHANGES[pair.accuracy][0], "upstream's verdict"])
    return rows


def left_out_lines(found: Comparison) -> list[str]:
    """Write the models that are not compared, each with the reason."""
    shown = list_shown((*found.base.entries, *found.new.entries))
    rows = [(it.new, it.reason) for it in found.excluded]
    rows += [(it, "only on base") for it in found.only_base] + [(it, "only in new") for it in found.only_new]
    if not rows:
        return []
    cut = f" (the first {MOST_ROWS} of {len(rows)})" if len(rows) > MOST_ROWS else ""
    lines = [[prose(it.model), prose(describe_entry(it, shown) or "–"), prose(why)] for it, why in rows[:MOST_ROWS]]
    return [f"### Left out{cut}", "", *table(("Model", "As", "Why"), lines)]


def distinct_lines(title: str, diff: DistinctDiff) -> list[str]:
    """Write which graph breaks, or causes of recompiles, are new, resolved, or came more or less often."""
    if diff.lacks:
        return [f"### {title}", "", f"Not compared: {prose(diff.lacks)}."]
    changed = [it for it in diff.changes if it.word != "unchanged"]
    same = f"{diff.count('unchanged')} unchanged."
    if not changed:
        return [f"### {title}", "", f"None is new or resolved; {same}"]
    rows = [_break(it) for it in changed[:MOST_ROWS]]
    names = ("What", "Model", "Reason", "Kind", "Where", "Base>", "New>")
    return [f"### {title}", "", *table(names, rows), "", same]


def _break(it: DistinctChange) -> list[str]:
    what = it.what
    where = f"{what.file}:{what.line}" if what.file and what.line else what.file or what.function
    kind = what.kind and (label_category(what.kind).label if not what.kind.startswith("GB") else what.kind)
    words = [WORDS[it.word][0], prose(it.model or "the whole side"), prose(what.reason), prose(kind or "–")]
    return [*words, code(where), str(it.base_count), str(it.new_count)]


def _environment(found: Comparison) -> list[str]:
    words = {REFUSES: "not compared", WARNS: "with care", DIFFERS: "differs", "intended": "what is compared"}
    differing = [it for it in found.environment if it.weight != "same"]
    if not differing:
        return []
    rows = [[it.name, prose(", ".join(it.base)), prose(", ".join(it.new)), words[it.weight]] for it in differing]
    return ["### Environment", "", *table(("What", "Base", "New", "Weight"), rows)]


def _settings(found: Comparison) -> list[str]:
    differing = [it for it in found.settings if it.differs]
    if not differing:
        return []
    rows = [
        [
            code(f"{it.module}.{it.name}"),
            code(it.default),
            *("default" if side is None else code(side) for side in (it.base, it.new)),
        ]
        for it in differing[:MOST_ROWS]
    ]
    return ["### Configuration", "", *table(("Setting", "Default", "Base", "New"), rows)]
