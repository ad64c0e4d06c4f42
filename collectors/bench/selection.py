"""Which of the models a run measures: `--only`, `--filter`, `--exclude`, `--exclude-exact`, partitions, as upstream."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from compileboard.collectors.bench.models import ModelRef


class SelectionError(ValueError):
    """Say in words what cannot be selected."""


def select(
    models: Iterable[ModelRef],
    *,
    filter: Sequence[str] = (),
    exclude: Sequence[str] = (),
    exclude_exact: Sequence[str] = (),
    only: str | None = None,
    total_partitions: int = 1,
    partition_id: int = 0,
) -> list[ModelRef]:
    """Return the chosen models by suite and name; where `only` gives an exact name, nothing else counts.

    A partition is a slice of all models, and the expressions choose within it: they move no model to another machine.

    Raises: SelectionError.
    """
    ordered = sorted(models, key=lambda ref: (ref.suite, ref.name))
    if only is not None:
        return _exactly(ordered, only)
    wanted, unwanted = _compile("--filter", filter), _compile("--exclude", exclude)
    start, end = partition_bounds(len(ordered), total_partitions, partition_id)
    return [
        ref
        for ref in ordered[start:end]
        if (not wanted or any(it.search(ref.name) for it in wanted))
        and not any(it.search(ref.name) for it in unwanted)
        and ref.name not in exclude_exact
    ]


def partition_bounds(count: int, total_partitions: int, partition_id: int) -> tuple[int, int]:
    """Return where a partition starts and ends; the last one takes what does not divide.

    Raises: SelectionError if there is no such partition.
    """
    if total_partitions < 1:
        raise SelectionError(f"--total-partitions {total_partitions}: expected 1 or more")
    if not 0 <= partition_id < total_partitions:
        raise SelectionError(
            f"--partition-id {partition_id}: with --total-partitions {total_partitions} expected "
            f"{'0' if total_partitions == 1 else f'0 to {total_partitions - 1}'}"
        )
    size = count // total_partitions
    return partition_id * size, count if partition_id == total_partitions - 1 else (partition_id + 1) * size


def _exactly(models: list[ModelRef], name: str) -> list[ModelRef]:
    found = [ref for ref in models if ref.name == name]
    if found:
        return found
    suites = ", ".join(dict.fromkeys(ref.suite for ref in models)) or "no suite"
    near = difflib.get_close_matches(name, [ref.name for ref in models], n=3)
    hint = (
        f"; did you mean {' or '.join(near)}?" if near else "; --suite chooses another suite, --list names all models"
    )
    raise SelectionError(f"--only {name}: no model of {suites} has this name{hint}")


def _compile(flag: str, expressions: Sequence[str]) -> list[re.Pattern[str]]:
    compiled = []
    for expression in expressions:
        try:
            compiled.append(re.compile(expression, re.IGNORECASE))
        except re.error as error:
            raise SelectionError(f"{flag} {expression}: not a regular expression: {error}") from error
    return compiled
