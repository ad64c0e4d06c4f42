"""Two sides compared: what changed from base to new, over what both have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from compileboard.app.analysis.comparison_distinct import diff_distinct
from compileboard.app.analysis.comparison_environment import diff_environment, diff_settings, refuse, warn
from compileboard.app.analysis.comparison_metrics import COMPARED, TOTALS
from compileboard.app.analysis.comparison_model import CompareSide, Comparison, Delta, Key, MetricSum, Pair
from compileboard.app.analysis.comparison_pairs import describe_entry, is_wrong, list_shown, pair_entries
from compileboard.app.analysis.comparison_verdicts import judge_values
from compileboard.app.analysis.metrics import Metric
from compileboard.app.analysis.summaries import geomean
from compileboard.app.queries.comparison import FunctionSum

FunctionPair = tuple["FunctionSum | None", "FunctionSum | None"]


def compare(base: CompareSide, new: CompareSide, anyway: bool = False) -> Comparison:
    """Compare two sides; `anyway` compares numbers across machines as well."""
    paired = pair_entries(base.entries, new.entries, anyway)
    differences = diff_environment(base, new)
    refused, warnings = refuse(differences), warn(differences)
    if anyway:
        warnings = (*(f"compared anyway: {it}" for it in refused), *warnings)
        refused = ()
    entries = [*base.entries, *new.entries]
    named = {it.key: it for it in entries}
    shown = list_shown(entries)

    def name(key: Key) -> str:
        return " · ".join(word for word in (named[key].model, describe_entry(named[key], shown)) if word)

    comparable = _share_experiments(base, new)
    return Comparison(
        base=base,
        new=new,
        anyway=anyway,
        pairs=paired.pairs,
        only_base=paired.only_base,
        only_new=paired.only_new,
        excluded=paired.excluded,
        sums=sum_metrics(paired.pairs),
        breaks=diff_distinct(base.breaks, new.breaks, comparable, name),
        causes=diff_distinct(base.causes, new.causes, comparable, name),
        totals=_compare_totals(base, new, bool(refused)),
        functions=() if refused else _pair_functions(base.functions, new.functions),  # their times are the machine's
        environment=differences,
        settings=diff_settings(base, new),
        refused=refused,
        warnings=warnings,
    )


def _share_experiments(base: CompareSide, new: CompareSide) -> dict[Key, frozenset[str]]:
    """Return what both sides ran of each model that both measured; breaks of other experiments have no counterpart."""
    ours, theirs = ({it.key: it.experiments for it in side.entries if it.status == "measured"} for side in (base, new))
    found = {}
    for key in ours.keys() & theirs.keys():
        shared = frozenset(ours[key]) & frozenset(theirs[key])
        if shared or not (ours[key] and theirs[key]):
            found[key] = shared
    return found


def sum_metrics(pairs: Sequence[Pair]) -> tuple[MetricSum, ...]:
    """Sum up each metric over the models that have it on both sides."""
    return tuple(it for metric in COMPARED if (it := _sum_metric(metric, pairs)) is not None)


def _sum_metric(metric: Metric, pairs: Sequence[Pair]) -> MetricSum | None:
    found = [(it, it.deltas[metric.name]) for it in pairs if metric.name in it.deltas]
    if not found:
        return None
    verdicts, methods = Counter(it.verdict for _pair, it in found), Counter(it.method for _pair, it in found)
    if metric.kind == "count":
        sums = (sum(it.base for _pair, it in found), sum(it.new for _pair, it in found))
        whole = judge_values(metric, *sums)
        return MetricSum(metric, len(found), *sums, whole.change, verdicts, methods)
    # How fast a wrong answer comes says nothing; a ratio needs both sides above 0.
    kept = [it for pair, it in found if min(it.base, it.new) > 0 and not (is_wrong(pair.base) or is_wrong(pair.new))]
    before, after = geomean([it.base for it in kept]), geomean([it.new for it in kept])
    change = None if before is None or after is None else after / before - 1
    return MetricSum(metric, len(kept), before, after, change, verdicts, methods)


def _compare_totals(base: CompareSide, new: CompareSide, is_refused: bool) -> tuple[Delta, ...]:
    """Compare what whole runs came to; sums over other runs or models, or times across machines, say nothing."""
    models = [sorted(map(str, (it.key for it in side.entries))) for side in (base, new)]
    if len(base.runs) != len(new.runs) or models[0] != models[1]:
        return ()
    return tuple(
        judge_values(metric, base.totals[metric.name], new.totals[metric.name])
        for metric in TOTALS
        if metric.name in base.totals and metric.name in new.totals and (metric.kind == "count" or not is_refused)
    )


def _pair_functions(base: Sequence[FunctionSum], new: Sequence[FunctionSum]) -> tuple[FunctionPair, ...]:
    """Pair functions by file and name, the largest change of compile time first."""
    ours, theirs = ({(it.file, it.name): it for it in side} for side in (base, new))
    found = [(ours.get(place), theirs.get(place)) for place in {**ours, **theirs}]

    def away(pair: FunctionPair) -> tuple[int, str, str]:
        times = [(it.compile_us if it else None) or 0 for it in pair]
        it = pair[1] or pair[0]
        assert it is not None  # each place is of one side at least
        return (-abs(times[1] - times[0]), it.file, it.name)

    return tuple(sorted(found, key=away))
