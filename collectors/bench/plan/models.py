"""Name the models that a benchmark can run, and select some of them, without importing torch."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

UNSET = -1  # A model without a batch size in a file of batch sizes.


@dataclass(frozen=True)
class ModelRef:
    """A model, and the function that builds it in a child process.

    `builder` is "module:function"; it is called with the batch size and, if set,
    `argument`, and returns a compileboard.collectors.bench.loaded.Loaded.
    """

    suite: str
    name: str
    builder: str
    argument: str | None = None
    family: str = ""
    batch_size: int = 8  # replaced by --batch-size
    training_batch_size: int | None = None
    trains: bool = True  # whether --training applies

    def batch_size_for(self, mode: str, batch_size: int | None) -> int:
        if batch_size is not None:
            return batch_size
        return (self.training_batch_size if mode == "training" else None) or self.batch_size

    @property
    def only(self) -> str:
        return (
            self.argument
            if self.argument is not None and self.argument.startswith("path:")
            else self.name
        )


def list_refs(
    suite: str, builder: str, catalogue: Mapping[str, Mapping[str, int]]
) -> tuple[ModelRef, ...]:
    """Return the models of a catalogue, which has batch sizes by name by family."""
    return tuple(
        ModelRef(suite, name, builder, name, family, batch_size)
        for family, names in catalogue.items()
        for name, batch_size in names.items()
    )


class NotAvailable(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def select_models(
    models: Iterable[ModelRef],
    *,
    filter: Sequence[str] = (),
    exclude: Sequence[str] = (),
    exclude_exact: Sequence[str] = (),
    only: str | None = None,
    total_partitions: int = 1,
    partition_id: int = 0,
) -> list[ModelRef]:
    """Return the selected models by suite and name. An exact name in `only` overrides everything
    else.

    A partition is a slice of all models and is cut first, so that filters never move a model to
    another machine. Raises ValueError for an invalid pattern or partition, or if no model is named
    `only`.
    """
    ordered = sorted(models, key=lambda ref: (ref.suite, ref.name))
    if only is not None:
        return _select_exact(ordered, only)
    included, excluded = _compile("--filter", filter), _compile("--exclude", exclude)
    start, end = partition_bounds(len(ordered), total_partitions, partition_id)
    return [
        ref
        for ref in ordered[start:end]
        if (not included or any(pattern.search(ref.name) for pattern in included))
        and not any(pattern.search(ref.name) for pattern in excluded)
        and ref.name not in exclude_exact
    ]


def partition_bounds(count: int, total_partitions: int, partition_id: int) -> tuple[int, int]:
    """Return start and end of a partition; the last one includes the remainder. Raises ValueError
    if it does not exist.
    """
    if not 0 <= partition_id < total_partitions:
        raise ValueError(
            f"--partition-id {partition_id}: with --total-partitions {total_partitions} expected "
            f"{'0' if total_partitions == 1 else f'0 to {total_partitions - 1}'}"
        )
    size = count // total_partitions
    is_last = partition_id == total_partitions - 1
    return partition_id * size, count if is_last else (partition_id + 1) * size


def _select_exact(models: list[ModelRef], name: str) -> list[ModelRef]:
    matches = [ref for ref in models if ref.name == name]
    if matches:
        return matches
    suites = ", ".join(dict.fromkeys(ref.suite for ref in models)) or "no suite"
    near = difflib.get_close_matches(name, [ref.name for ref in models], n=3)
    hint = (
        f"; did you mean {' or '.join(near)}?"
        if near
        else "; --suite chooses another suite, --list names all models"
    )
    raise ValueError(f"--only {name}: no model of {suites} has this name{hint}")


def _compile(flag: str, expressions: Sequence[str]) -> list[re.Pattern[str]]:
    compiled = []
    for expression in expressions:
        try:
            compiled.append(re.compile(expression, re.IGNORECASE))
        except re.error as error:
            raise ValueError(f"{flag} {expression}: not a regular expression: {error}") from error
    return compiled


def read_batch_sizes(path: str | None) -> dict[str, int]:
    """Read a file with lines NAME,SIZE in upstream's format; empty without a path. Raises
    ValueError for an invalid file.
    """
    if path is None:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or error
        raise ValueError(f"--batch-size-file {path}: {problem}; expected lines NAME,SIZE") from None
    sizes: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, size = (part.strip() for part in line.rpartition(","))
        if not name or not (
            size == str(UNSET) or (size.isascii() and size.isdigit() and int(size))
        ):
            raise ValueError(
                f"--batch-size-file {path}, line {number}: expected NAME,SIZE, got {line.strip()!r}"
            )
        sizes[name] = int(size)
    return sizes
