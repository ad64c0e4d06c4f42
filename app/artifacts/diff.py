"""Line differences of two texts, because difflib is quadratic on graphs of thousands of lines.

Lines that occur once on both sides are anchors (patience diff), recursively between them, and the
rest is matched exactly (Hunt and Szymanski, CACM 20:5, 1977) within a budget.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, islice, pairwise
from typing import Literal, NamedTuple

Kind = Literal["same", "changed", "added", "removed"]
Pieces = tuple[tuple[str, bool], ...]

# Parts that two runs of one program never share; the second column is the pattern to ignore.
NOISE = {
    "memory addresses": (
        r"(?:\bat 0x(?P<address>[0-9a-fA-F]+)"
        r"|\b0x(?P<pointer>[0-9a-fA-F]{9,16})\b)"
    ),
    "object ids": (
        r"___check_(?:obj|type)_id\([^\n]*?, "
        r"(?P<object>\d+)\)|\b__builtins_dict___(?P<dict>\d+)"
    ),
    "paths of generated code": r"(?P<path>(?:/[\w.+-]+)*/\w{2}/c[a-z0-9]{50,52}(?:\.\w+)?)",
}
_HINTS = {
    "memory addresses": ("0x",),
    "object ids": ("___check_", "__builtins_dict___"),
    "paths of generated code": ("/c",),
}
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_STEP_BUDGET = 4_000_000  # lines and pairs compared in one diff, ≈ 1 s
_GAP_PAIRS = 300_000  # pairs compared in one gap
_ALIGN_BUDGET = 60_000  # pairs of lines compared for similarity in one diff, ≈ 60 ms
_LIKE = 0.4  # less similar lines are shown as one removed and one added
_LIKE_CHARS = 4_000  # Longer lines are compared only up to here.
_MARK_CHARS = 400_000  # of changed lines are marked word by word, ≈ 0.2 s; others are marked whole
SHOWN_LIMIT = 5_000  # rows of a page: Chromium takes a second for a table of 20,000
_IGNORED = "\0"


class DiffRow(NamedTuple):
    kind: Kind
    left_number: int | None
    left_text: str | None
    right_number: int | None
    right_text: str | None


class ShownRow(NamedTuple):
    kind: Kind
    left_number: int | None
    left: Pieces | None
    left_sign: str
    right_number: int | None
    right: Pieces | None
    right_sign: str


@dataclass(frozen=True)
class Fold:
    count: int
    left_number: int
    right_number: int
    kind: str = "fold"


@dataclass(frozen=True)
class TextDiff:
    """Two texts compared; `equivalent` means that they differ only in ignored parts."""

    rows: tuple[DiffRow, ...]
    identical: bool
    equivalent: bool
    added_count: int
    removed_count: int
    changed_count: int
    ignored: tuple[str, ...]
    coarse_because: str = ""
    context: int = 3
    shown_limit: int = SHOWN_LIMIT

    @cached_property
    def parts(self) -> tuple[ShownRow | Fold, ...]:
        return tuple(
            islice(
                _fold_equal_rows(self.rows, self.context, _Noise(self.ignored)), self.shown_limit
            )
        )

    @property
    def hidden_count(self) -> int:
        return len(self.rows) - sum(
            part.count if isinstance(part, Fold) else 1 for part in self.parts
        )


def diff_texts(
    old: str,
    new: str,
    *,
    ignore: Collection[str] = (),
    context: int = 3,
    shown_limit: int = SHOWN_LIMIT,
) -> TextDiff:
    """Compare two texts by lines, ignoring the kinds of NOISE that `ignore` names.

    Raises ValueError for an unknown kind.
    """
    if unknown := sorted(set(ignore) - set(NOISE)):
        raise ValueError(f"ignore: {unknown[0]!r} is not one of {', '.join(NOISE)}.")
    ignored = tuple(name for name in NOISE if name in ignore)
    left, right = old.split("\n"), new.split("\n")
    noise = _Noise(ignored)
    numbers: dict[str, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in noise.remove_noise(left)]
    b = [numbers.setdefault(line, len(numbers)) for line in noise.remove_noise(right)]
    matcher = _Matcher(a, b)
    rows = tuple(_iterate_rows(left, right, matcher.match(), noise))
    counts = Counter(row.kind for row in rows)
    return TextDiff(
        rows=rows,
        identical=old == new,
        equivalent=a == b,
        added_count=counts["added"],
        removed_count=counts["removed"],
        changed_count=counts["changed"],
        ignored=ignored,
        coarse_because=""
        if matcher.exact
        else "The texts repeat the same lines too often for an exact comparison: "
        "lines that occur often were not matched, so that more may be shown as changed than "
        "did change.",
        context=context,
        shown_limit=shown_limit,
    )


class _Noise:
    def __init__(self, names: Iterable[str]) -> None:
        names = tuple(names)
        self._hints = tuple(hint for name in names for hint in _HINTS[name])
        self._pattern = re.compile("|".join(NOISE[name] for name in names)) if names else None

    def remove_noise(self, lines: Sequence[str]) -> Iterator[str]:
        return (self._clean(line) for line in lines) if self._pattern else iter(lines)

    def _clean(self, line: str) -> str:
        if not any(hint in line for hint in self._hints):
            return line
        pieces: list[str] = []
        at = 0
        for start, end in self.spans(line):
            pieces += (line[at:start], _IGNORED)
            at = end
        return "".join([*pieces, line[at:]])

    def spans(self, line: str) -> Iterator[tuple[int, int]]:
        if self._pattern and any(hint in line for hint in self._hints):
            for match in self._pattern.finditer(line):
                yield match.span(match.lastgroup or 0)

    def words(self, line: str) -> tuple[list[str], list[str]]:
        shown: list[str] = []
        compared: list[str] = []
        at = 0
        for start, end in self.spans(line):
            words = _WORD.findall(line[at:start])
            shown += (*words, line[start:end])
            compared += (*words, _IGNORED)
            at = end
        words = _WORD.findall(line[at:])
        return shown + words, compared + words


@dataclass
class _Matcher:
    a: Sequence[int]
    b: Sequence[int]
    exact: bool = True
    _budget: int = field(default=_STEP_BUDGET)

    def match(self) -> list[tuple[int, int]]:
        pairs: list[tuple[int, int]] = []
        todo = [(0, len(self.a), 0, len(self.b))]
        while todo:
            a_low, a_high, b_low, b_high = todo.pop()
            while a_low < a_high and b_low < b_high and self.a[a_low] == self.b[b_low]:
                pairs.append((a_low, b_low))
                a_low, b_low = a_low + 1, b_low + 1
            while a_low < a_high and b_low < b_high and self.a[a_high - 1] == self.b[b_high - 1]:
                a_high, b_high = a_high - 1, b_high - 1
                pairs.append((a_high, b_high))
            if a_low == a_high or b_low == b_high:
                continue
            anchors, final = self._find_anchors(a_low, a_high, b_low, b_high)
            pairs += anchors
            if anchors and not final:
                ends = [(a_low - 1, b_low - 1), *anchors, (a_high, b_high)]
                todo += [
                    (i + 1, k, j + 1, m)
                    for (i, j), (k, m) in pairwise(ends)
                    if k > i + 1 and m > j + 1
                ]
        return sorted(pairs)

    def _find_anchors(
        self, a_low: int, a_high: int, b_low: int, b_high: int
    ) -> tuple[list[tuple[int, int]], bool]:
        self._budget -= a_high - a_low + b_high - b_low
        if self._budget < 0:
            self.exact = False
            return [], True
        here, there = Counter(self.a[a_low:a_high]), Counter(self.b[b_low:b_high])
        weights = {line: count * there[line] for line, count in here.items() if line in there}
        anchors: dict[int, list[int]] = {
            line: [] for line, weight in weights.items() if weight == 1
        }
        final = not weights
        if not anchors:
            allowed = min(_GAP_PAIRS, self._budget)
            for line, weight in sorted(weights.items(), key=lambda item: item[1]):
                if weight > allowed:
                    break
                allowed -= weight
                self._budget -= weight
                anchors[line] = []
            final = len(anchors) == len(weights)
            self.exact = self.exact and bool(anchors or final)
        for j in range(b_high - 1, b_low - 1, -1):
            if self.b[j] in anchors:
                anchors[self.b[j]].append(j)
        return _find_longest_chain(
            (i, anchors[self.a[i]]) for i in range(a_low, a_high) if self.a[i] in anchors
        ), final


def _find_longest_chain(candidates: Iterable[tuple[int, Iterable[int]]]) -> list[tuple[int, int]]:
    ends: list[int] = []
    links: list[tuple[int, int, object]] = []
    for i, positions in candidates:
        for j in positions:
            length = bisect_left(ends, j)
            link = (i, j, links[length - 1] if length else None)
            if length == len(ends):
                ends.append(j)
                links.append(link)
            elif j < ends[length]:
                ends[length], links[length] = j, link
    chain: list[tuple[int, int]] = []
    link_or_none: object = links[-1] if links else None
    while isinstance(link_or_none, tuple):
        chain.append((link_or_none[0], link_or_none[1]))
        link_or_none = link_or_none[2]
    chain.reverse()
    return chain


def _iterate_rows(
    left: Sequence[str], right: Sequence[str], matched: Sequence[tuple[int, int]], noise: _Noise
) -> Iterator[DiffRow]:
    aligner = _Aligner(left, right, noise)
    i = j = 0
    for here, there in (*matched, (len(left), len(right))):
        if i < here or j < there:
            for left_at, right_at in aligner.align(i, here, j, there):
                yield _make_row(left, right, left_at, right_at)
        if here < len(left) and there < len(right):
            yield DiffRow("same", here + 1, left[here], there + 1, right[there])
        i, j = here + 1, there + 1


def _make_row(left: Sequence[str], right: Sequence[str], i: int | None, j: int | None) -> DiffRow:
    if i is None and j is not None:
        return DiffRow("added", None, None, j + 1, right[j])
    if j is None and i is not None:
        return DiffRow("removed", i + 1, left[i], None, None)
    assert i is not None and j is not None
    return DiffRow("changed", i + 1, left[i], j + 1, right[j])


class _Aligner:
    def __init__(self, left: Sequence[str], right: Sequence[str], noise: _Noise) -> None:
        self._left, self._right, self._noise = left, right, noise
        self._budget = _ALIGN_BUDGET

    def align(
        self, a_low: int, a_high: int, b_low: int, b_high: int
    ) -> list[tuple[int | None, int | None]]:
        size = (a_high - a_low) * (b_high - b_low)
        if size == 0:
            return [(i, None) for i in range(a_low, a_high)] + [
                (None, j) for j in range(b_low, b_high)
            ]
        here = [self._split_words(line) for line in self._left[a_low:a_high]]
        there = [self._split_words(line) for line in self._right[b_low:b_high]]
        if size <= self._budget:
            self._budget -= size
            pairs = _choose_best_pairs(here, there)
        else:  # too many to compare all pairs: the first with the first
            pairs = [
                (k, k)
                for k, (left, right) in enumerate(zip(here, there))
                if _measure_similarity(left, right) >= _LIKE
            ]
        aligned: list[tuple[int | None, int | None]] = []
        i, j = a_low, b_low
        for here_at, there_at in (*pairs, (a_high - a_low, b_high - b_low)):
            aligned += [(at, None) for at in range(i, a_low + here_at)]
            aligned += [(None, at) for at in range(j, b_low + there_at)]
            i, j = a_low + here_at, b_low + there_at
            if i < a_high and j < b_high:
                aligned.append((i, j))
            i, j = i + 1, j + 1
        return aligned

    def _split_words(self, line: str) -> frozenset[str]:
        return frozenset(line[:_LIKE_CHARS].replace("(", " ").replace(",", " ").split())


def _measure_similarity(left: frozenset[str], right: frozenset[str]) -> float:
    return 2 * len(left & right) / (len(left) + len(right)) if left or right else 1.0


def _choose_best_pairs(
    here: Sequence[frozenset[str]], there: Sequence[frozenset[str]]
) -> list[tuple[int, int]]:
    width = len(there) + 1
    best = [[0.0] * width for _ in range(len(here) + 1)]
    likeness = [[_measure_similarity(left, right) for right in there] for left in here]
    for i in range(len(here) - 1, -1, -1):
        row, below, alike = best[i], best[i + 1], likeness[i]
        for j in range(width - 2, -1, -1):
            score = max(below[j], row[j + 1])
            row[j] = max(score, below[j + 1] + alike[j]) if alike[j] >= _LIKE else score
    pairs, i, j = [], 0, 0
    while i < len(here) and j < len(there):
        if likeness[i][j] >= _LIKE and best[i][j] == best[i + 1][j + 1] + likeness[i][j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _fold_equal_rows(
    rows: Sequence[DiffRow], context: int, noise: _Noise
) -> Iterator[ShownRow | Fold]:
    shown = bytearray(len(rows))
    for at, row in enumerate(rows):
        if row.kind != "same":
            low, high = max(0, at - context), min(len(rows), at + context + 1)
            shown[low:high] = b"\1" * (high - low)
    at, marked = 0, 0
    while at < len(rows):
        end = at
        while end < len(rows) and not shown[end]:
            end += 1
        if end - at > 1:  # folding a single line would save nothing
            yield Fold(end - at, rows[at].left_number or 0, rows[at].right_number or 0)
            at = end
        else:
            if rows[at].kind == "changed":
                marked += len(rows[at].left_text or "") + len(rows[at].right_text or "")
            yield _make_shown_row(rows[at], noise, marked < _MARK_CHARS)
            at += 1


def _make_shown_row(row: DiffRow, noise: _Noise, in_full: bool) -> ShownRow:
    left: Pieces | None = None if row.left_text is None else ((row.left_text, False),)
    right: Pieces | None = None if row.right_text is None else ((row.right_text, False),)
    if row.kind == "changed":
        left, right = mark_changes(row.left_text or "", row.right_text or "", noise, in_full)
    signs = {"same": ("", ""), "changed": ("~", "~"), "added": ("", "+"), "removed": ("−", "")}[
        row.kind
    ]
    return ShownRow(row.kind, row.left_number, left, signs[0], row.right_number, right, signs[1])


def mark_changes(old: str, new: str, noise: _Noise, in_full: bool = True) -> tuple[Pieces, Pieces]:
    if not in_full:
        return ((old, True),), ((new, True),)
    (a, a_keys), (b, b_keys) = noise.words(old), noise.words(new)
    numbers: dict[str, int] = {}
    matcher = _Matcher(
        [numbers.setdefault(key, len(numbers)) for key in a_keys],
        [numbers.setdefault(key, len(numbers)) for key in b_keys],
        _budget=_GAP_PAIRS // 20,
    )
    pairs = matcher.match()
    return _split_pieces(a, {i for i, _ in pairs}), _split_pieces(b, {j for _, j in pairs})


def _split_pieces(words: Sequence[str], same: set[int]) -> Pieces:
    # A space between two changed words is part of the change: one mark is easier to read than many.
    same -= {
        k
        for k in same
        if words[k].isspace() and 0 < k < len(words) - 1 and not {k - 1, k + 1} & same
    }
    runs = groupby(range(len(words)), key=lambda at: at not in same)
    return tuple([("".join([words[at] for at in run]), changed) for changed, run in runs])
