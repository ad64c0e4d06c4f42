"""Which finding a change is: the one that is known from the same place of the series, or a new one."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from compileboard.app.findings.detect import Found
from compileboard.app.findings.series import make_place
from compileboard.app.queries.findings import Finding
from compileboard.collectors.store.findings import SERIES

_ID_BYTES = 10


def place_of(it: Finding) -> tuple[Any, ...]:
    """Return what a kept finding's series is told by, as Line and Found do."""
    return make_place(it.subject, {name: getattr(it, name) for name in SERIES}, it.branch, it.metric)


def match(
    found: Sequence[Found], kept: Iterable[Finding], order: Mapping[str, int]
) -> tuple[list[tuple[str, Found, Finding | None]], list[Finding]]:
    """Give each change of one series its id; return those kept that were not found again.

    A change is the kept one of the same kind and direction whose range of runs touches its own, the nearest first. One
    whose runs were deleted can be neither found nor lost: it stays as it is.
    """
    known = list(kept)
    left, taken = [it for it in known if it.first_run_id in order], {it.id for it in known}
    matched: list[tuple[str, Found, Finding | None]] = []
    for one in found:
        near = [it for it in left if _is_same(one, it, order)]
        best = min(near, key=lambda it: (abs(order[it.first_run_id] - order[one.first_run_id]), it.id), default=None)
        if best is not None:
            left.remove(best)
        matched.append((best.id if best else _make_free_id(one, taken), one, best))
    return matched, left


def _make_free_id(one: Found, taken: set[str]) -> str:
    """Make an id; a finding that moved since may have taken the place's own."""
    found = next(it for again in count() if (it := make_id(one, again)) not in taken)
    taken.add(found)
    return found


def make_id(one: Found, again: int = 0) -> str:
    """Make the id of a new finding: the same whenever the same is found anew; `again` is for one whose id is taken."""
    told = json.dumps(
        [*one.place, one.kind, one.direction, one.first_run_id, *([again] if again else [])], separators=(",", ":")
    )
    digest = hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=_ID_BYTES).digest()
    return base64.b32encode(digest).decode().lower()


def _is_same(one: Found, it: Finding, order: Mapping[str, int]) -> bool:
    if (one.kind, one.direction) != (it.kind, it.direction):
        return False
    if one.kind == "vanished":
        return one.first_run_id == it.first_run_id
    low, high = order[one.low_run_id], order[one.high_run_id]
    its_low = order.get(it.low_run_id or "", order[it.first_run_id])
    its_high = order.get(it.high_run_id or "", order[it.first_run_id])
    return its_low <= high and low <= its_high
