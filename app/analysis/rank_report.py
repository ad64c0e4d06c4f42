"""What a run's ranks have in common and where they part, read and compared: the same for the page and for the API."""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict

from app.analysis.ranks import RankComparison, compare_ranks, list_unclear, normalize
from app.queries.ranks import get_state, list_ranks, read_texts

_MOST_TEXT_BYTES = 600_000  # of texts that differ as they are; reading and normalising them takes ≈ 0.15 s
_MOST_KEPT = 4  # comparisons; one of 64 ranks with 500 compiles each is ≈ 10 MB
_kept: OrderedDict[tuple[object, ...], RankComparison] = OrderedDict()
_lock = threading.Lock()


def read_comparison(connection: sqlite3.Connection, run_id: str) -> RankComparison | None:
    """Compare a run's ranks; None where it has fewer than two.

    Comparing 64 ranks with 500 compiles each takes a second, so it is kept for as long as nothing more is recorded.
    """
    file = connection.execute("pragma database_list").fetchone()[2]
    key = (file, run_id, *get_state(connection, run_id))
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    sequences = list_ranks(connection, run_id)
    if len(sequences) < 2:
        return None
    unclear = list_unclear(sequences)
    texts = read_texts(connection, (number for _aspect, number in unclear), _MOST_TEXT_BYTES)
    digests = {number: normalize(texts[number], aspect) for aspect, number in unclear if number in texts}
    found = compare_ranks(sequences, digests)
    with _lock:
        _kept[key] = found
        while len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)
    return found
