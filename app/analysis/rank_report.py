"""What a run's ranks have in common and where they part, read and compared: the same for the page and for the API."""

from __future__ import annotations

import sqlite3

from compileboard.app.analysis.kept import keep
from compileboard.app.analysis.ranks import RankComparison, compare_ranks, list_unclear, normalize
from compileboard.app.queries.ranks import list_ranks, read_texts

_MOST_TEXT_BYTES = 600_000  # of texts that differ as they are; reading and normalising them takes ≈ 0.15 s


def read_comparison(connection: sqlite3.Connection, run_id: str) -> RankComparison | None:
    """Compare a run's ranks, 64 with 500 compiles each in a second, and keep it; None where it has fewer than two."""
    return keep(connection, run_id, _compare)


def _compare(connection: sqlite3.Connection, run_id: str) -> RankComparison | None:
    sequences = list_ranks(connection, run_id)
    if len(sequences) < 2:
        return None
    unclear = list_unclear(sequences)
    texts = read_texts(connection, (number for _aspect, number in unclear), _MOST_TEXT_BYTES)
    digests = {number: normalize(texts[number], aspect) for aspect, number in unclear if number in texts}
    return compare_ranks(sequences, digests)
