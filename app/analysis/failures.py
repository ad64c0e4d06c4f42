"""Which models of a suite fail on one side or both: newly, still, or no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.analysis.result_words import describe_accuracy, describe_status
from compileboard.app.queries.result_rows import ResultRow


@dataclass(frozen=True)
class Failure:
    """Hold a model that fails on a side: `word` is new, resolved or still; a side without the model says nothing."""

    row: ResultRow
    word: str
    base: str | None
    new: str | None


def list_failures(base: Sequence[ResultRow], new: Sequence[ResultRow]) -> list[Failure]:
    """List what fails in new, newly first, and what failed on base and is measured again."""
    before, after = ({(it.model, it.batch_size): it for it in rows} for rows in (base, new))
    found = []
    for key, row in {**before, **after}.items():
        was, now = _say_failure(before.get(key)), _say_failure(after.get(key))
        if now is not None:
            found.append(Failure(row, "still" if was is not None else "new", was, now))
        elif was is not None and key in after and after[key].status == "measured":
            found.append(Failure(row, "resolved", was, None))
    order = ("new", "resolved", "still")
    return sorted(found, key=lambda it: (order.index(it.word), it.row.model.lower(), it.row.batch_size or 0))


def _say_failure(row: ResultRow | None) -> str | None:
    """Say how a model fails; None where it does not."""
    if row is None:
        return None
    if row.status == "failed":
        return describe_status(row).word
    verdict = None if row.accuracy is None else describe_accuracy(row.accuracy)
    return verdict.word if verdict is not None and verdict.kind == "bad" else None
