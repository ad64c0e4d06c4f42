"""The divergence of ranks in sentences: the first one, and each aspect that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.analysis.labels import describe_outcome
from compileboard.app.analysis.ranks.comparison import (
    ASPECTS,
    Divergence,
    RankComparison,
    RankGroup,
    RankSummary,
)
from compileboard.app.format import format_duration, format_plural
from compileboard.app.queries.run.ranks import RankCompile

_MOST_RANGES = 10
_CACHES = {"fx_graph": "FX graph", "aot_autograd": "AOTAutograd"}
_TEXTS = {
    "tensors": "had inputs of other sizes, or buffers that inductor laid out otherwise",
    "graphs": "traced another graph",
    "code": "got other code from inductor",
    "collectives": "scheduled other collectives",
}


@dataclass(frozen=True)
class RankGroupText:
    ranks: str
    did: str
    compile: RankCompile | None


@dataclass(frozen=True)
class DivergenceText:
    sentence: str
    before: str
    groups: tuple[RankGroupText, ...]


def name_ranks(ranks: Iterable[int], capital: bool = False) -> str:
    """Format ranks with ranges: `ranks 0–6, 8`."""
    ranges: list[list[int]] = []
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    shown = [
        f"{a}" if a == b else f"{a}, {b}" if b == a + 1 else f"{a}–{b}"
        for a, b in ranges[:_MOST_RANGES]
    ]
    if len(ranges) > _MOST_RANGES:
        left = sum(b - a + 1 for a, b in ranges[_MOST_RANGES:])
        shown.append(f"and {left} more")
    is_single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"{'Rank' if capital else 'rank'}{'' if is_single else 's'} {', '.join(shown)}"


def describe_divergence(
    divergence: Divergence, names: Mapping[int, tuple[str, str]]
) -> DivergenceText:
    groups = sorted(
        divergence.groups, key=lambda group: (group.compile is None, len(group.ranks), group.ranks)
    )
    after = divergence.last.compile_id if divergence.last else None
    texts = tuple(
        RankGroupText(
            name_ranks(group.ranks), _did(divergence.aspect, group, names, after), group.compile
        )
        for group in groups
    )
    parts = [f"{group.ranks} {group.did}" for group in texts[:4]]
    if len(texts) > 4:
        parts.append(f"{format_plural(len(texts) - 4, 'more group')} of ranks differ")
    sentence = "; ".join(parts)
    before = "The ranks differ from their first compile on."
    if divergence.shared_count:
        before = (
            f"The {format_plural(divergence.shared_count, 'compile')} before it are the same "
            "on every rank."
        )
    if divergence.shared_count == 1:
        before = "The compile before it is the same on every rank."
    return DivergenceText(f"{sentence[:1].upper()}{sentence[1:]}.", before, texts)


def _did(
    aspect: str, group: RankGroup, names: Mapping[int, tuple[str, str]], after: str | None
) -> str:
    rank_compile = group.compile
    if rank_compile is None:
        return f"compiled nothing after {after}" if after else "compiled nothing"
    name = names.get(rank_compile.function_id or 0, ("a function that torch did not name", ""))[0]
    where = f"{name} ({rank_compile.position.compile_id})"
    if aspect == "compiles":
        return (
            f"{'re' if rank_compile.causes else ''}compiled {name} as "
            f"{rank_compile.position.compile_id}"
        )
    if aspect == "recompiles":
        why = "for another guard" if rank_compile.causes else "without a failed guard"
        return f"compiled {name} as {rank_compile.position.compile_id} {why}"
    if aspect == "outcomes":
        return f"ended {where} as “{describe_outcome(rank_compile.outcome, running=False).word}”"
    if aspect == "breaks":
        count = (
            format_plural(len(rank_compile.breaks), "graph break")
            if rank_compile.breaks
            else "no graph break"
        )
        return f"had {count} in {where}"
    if aspect == "caches":
        return f"found in the caches for {where}: {describe_caches(rank_compile.caches)}"
    return f"{_TEXTS[aspect]} in {where}"


def describe_caches(results: Sequence[str]) -> str:
    """Format the lookups of one compile: `FX graph 2 hits, 1 miss`."""
    counts = Counter(results)
    by_cache: dict[str, list[str]] = {}
    for result, count in counts.items():
        cache, _space, word = result.partition(" ")
        by_cache.setdefault(_CACHES.get(cache, cache), []).append(f"{count} × {word}")
    return (
        "; ".join(f"{cache} {', '.join(counts)}" for cache, counts in by_cache.items())
        or "no lookup"
    )


def explain_groups(divergence: Divergence | None) -> list[int]:
    if divergence is None or divergence.aspect not in ("compiles", "recompiles"):
        return []
    return [
        group.compile.key for group in divergence.groups if group.compile and group.compile.causes
    ]


def describe_times(ranks: Sequence[RankSummary]) -> str | None:
    slow = max(ranks, key=lambda rank: (rank.total_us, -rank.rank))
    quick = min(ranks, key=lambda rank: (rank.total_us, rank.rank))
    if not slow.total_us:
        return None
    most, least = format_duration(slow.total_us), format_duration(quick.total_us)
    if (slow.total_us - quick.total_us) * 20 < slow.total_us:
        return f"All ranks took about as long: {least} to {most}."
    more = format_duration(slow.total_us - quick.total_us)
    return (
        f"Rank {slow.rank} spent {most} compiling, {more} "
        f"more than rank {quick.rank}. Ranks meet at every collective, so the others may have "
        "waited that long. "
        "Waiting is not recorded."
    )


def list_verdicts(comparison: RankComparison) -> list[tuple[tuple[int, ...], dict[str, str]]]:
    groups: dict[tuple[str, ...], list[RankSummary]] = {}
    for rank in comparison.ranks:
        groups.setdefault(tuple(rank.verdicts.values()), []).append(rank)
    ordered = sorted(
        groups.items(), key=lambda item: (-item[0].count("differs"), len(item[1]), item[1][0].rank)
    )
    return [
        (tuple(summary.rank for summary in group), group[0].verdicts) for _key, group in ordered
    ]


def describe_differences(comparison: RankComparison) -> str:
    odd = [
        aspect.label.lower() for aspect in ASPECTS if comparison.aspects[aspect.name] == "differs"
    ]
    if not odd:
        return f"All {len(comparison.ranks)} ranks compiled the same, as far as recorded."
    listed = odd[0] if len(odd) == 1 else f"{', '.join(odd[:-1])} and {odd[-1]}"
    return f"The ranks differ in {listed}."
