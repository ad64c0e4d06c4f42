"""Merge results of several experiments into one row per model.

Each experiment (performance, accuracy, …) writes its own result. The others add to the leading one,
which is performance if present.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, groupby
from typing import Annotated, Any, NamedTuple, TypeVar

from compileboard.collectors.contract.records import PRIVATE, published
from compileboard.collectors.contract.result_columns import STORED

LEADING = ("performance", "accuracy")  # then the others, by name
# What makes a program or a package: a model passes where it is right, with a speedup or without
# one.
EXPORTS = ("export", "export_strict", "aot_inductor", "aot_precompile", "onnx")
# What is summed up as a suite of its own, and times by itself what it makes.
ALONE = (*EXPORTS, "quantization", "nothing")
TIMING = frozenset(("performance", *ALONE))

Key = tuple[object, ...]


@dataclass(frozen=True)
class ResultFields:
    """One benchmark result: the series it belongs to, its status and its measured values.

    A value that was not measured is None, never 0. `time_us` is microseconds since the epoch.
    """

    tables = ("results", "series")

    id: int
    run_id: str
    suite: str
    model: str
    mode: str | None
    dtype: str | None
    device: str | None
    hardware: str | None
    backend: str | None
    dynamic: bool
    batch_size: int | None
    world_size: int
    status: str
    reason: str | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    abs_latency_ms: float | None
    eager_latency_ms: float | None
    compilation_latency_s: float | None
    warm_compilation_latency_s: float | None
    compression_ratio: float | None
    eager_peak_mem_gb: float | None
    dynamo_peak_mem_gb: float | None
    cache_lookup_latency_us: float | None
    export_latency_s: float | None
    load_latency_s: float | None
    second_process_latency_s: float | None
    package_bytes: float | None
    scaling_efficiency: float | None
    output_error: float | None
    quantized_error: float | None
    quantized_eager_error: float | None
    accuracy: str | None
    calls_captured: int | None
    unique_graphs: int | None
    graph_breaks: int | None
    unique_graph_breaks: int | None
    recompiles: int | None
    fallbacks_to_eager: int | None
    autograd_captures: int | None
    autograd_compiles: int | None
    cudagraph_skips: int | None
    time_us: int
    command: str | None
    message: str | None

    @property
    @published
    def gpu(self) -> Annotated[str | None, "The GPU's model; null for what no GPU made."]:
        return self.hardware if self.device == "cuda" else None


@dataclass(frozen=True)
class ExperimentResult(ResultFields):
    experiment: str
    task: str | None

    @property
    def key(self) -> Key:
        """The fields that all results of a model share; batch sizes may differ."""
        return (
            self.suite,
            self.model,
            self.mode or "",
            self.dtype or "",
            self.device or "",
            self.hardware or "",
            self.backend or "",
            self.dynamic,
            self.world_size,
        )


class BriefResult(NamedTuple):
    suite: str
    mode: str | None
    dtype: str | None
    device: str | None
    hardware: str | None
    backend: str | None
    dynamic: int
    world_size: int
    model: str
    experiment: str
    batch_size: int | None
    id: int
    status: str
    accuracy: str | None
    speedup: float | None
    speedup_high: float | None
    time_us: int
    run_id: str

    @property
    def key(self) -> Key:
        return self[: self._fields.index("experiment")]


_NAMES = tuple(field.name for field in fields(ExperimentResult))
NUMBERS = tuple(name for name in _NAMES if name in STORED)
COUNTS = tuple(name for name in NUMBERS if STORED[name].is_count)
# A series keeps '' and 0 for what was not said.
COLUMNS = f"""
  x.id, x.run_id, s.suite, s.model, nullif(s.mode, '') as mode, nullif(s.dtype, '') as dtype,
  nullif(s.device, '') as device, nullif(s.hardware, '') as hardware,
  nullif(s.backend, '') as backend, s.dynamic, nullif(s.batch_size, 0) as batch_size, s.world_size,
  {", ".join(f"x.{name}" for name in _NAMES[_NAMES.index("status") :])}
"""


@dataclass(frozen=True)
class ResultRow(ResultFields):
    """Results of one model in one run. A value that was not measured is null, never 0.

    A model whose accuracy experiment failed counts as failed, and keeps its numbers. `judge` is the
    result of its accuracy experiment.
    """

    experiments: Annotated[
        tuple[str, ...], "The experiments that it is made of, the leading one first."
    ]
    tasks: Annotated[
        tuple[str, ...], "The benchmark's tasks: `task` of the processes that worked on it."
    ]
    judge: ExperimentResult | None = field(metadata=PRIVATE)


# What belongs together comes from one experiment: an interval is of its own speedup.
_TIMES = ("speedup", "speedup_low", "speedup_high", "abs_latency_ms", "eager_latency_ms")
_MEMORY = ("compression_ratio", "eager_peak_mem_gb", "dynamo_peak_mem_gb")
_ALONE = tuple(name for name in NUMBERS if name not in (*_TIMES, *_MEMORY, "compilation_latency_s"))
_SINGLE = (*_ALONE, "command", "message")
_FAILURE = ("status", "reason", "message", "command")

Filled = TypeVar("Filled")


def fill(kind: type[Filled], values: dict[str, Any]) -> Filled:
    """Create a frozen dataclass from a complete dict.

    The constructor takes 30 µs for 40 fields, and a suite of 1 000 models has 3 000 rows.
    """
    row = object.__new__(kind)
    object.__setattr__(row, "__dict__", values)
    return row


def read_measured(rows: Iterable[Iterable[Any]]) -> Iterator[ExperimentResult]:
    for row in (
        rows
    ):  # not dict(row): sqlite3.Row looks each name up from the first column on, 40 µs for these 42
        values = dict(zip(_NAMES, row))
        values["dynamic"] = bool(values["dynamic"])
        yield fill(ExperimentResult, values)


def find_batch_sizes(results: Sequence[Any]) -> dict[int, int]:
    """Return, by position, the batch size of each failed result without one.

    PyTorch writes 0 for a failed model. If its model has several batch sizes, the last one measured
    before it (otherwise the first after it) is used, unless its own run has a result for that size.
    """
    unknown = [
        at for at, row in enumerate(results) if row.batch_size is None and row.status != "measured"
    ]
    keys = {results[at].key for at in unknown}
    known: dict[tuple[Key, str], list[tuple[int, int]]] = {}
    taken: set[tuple[Key, str, str, int]] = set()
    for row in results if keys else ():
        if row.batch_size is not None and row.key in keys:
            for experiment in (row.experiment, ""):
                known.setdefault((row.key, experiment), []).append((row.time_us, row.batch_size))
            taken.add((row.key, row.experiment, row.run_id, row.batch_size))
    for candidates in known.values():
        candidates.sort()
    found = {}
    for at in unknown:
        row = results[at]
        candidates = known.get((row.key, row.experiment)) or known.get((row.key, ""), [])
        after = bisect_right(candidates, row.time_us, key=lambda candidate: candidate[0])
        sizes = (size for _time_us, size in chain(reversed(candidates[:after]), candidates[after:]))
        free = (size for size in sizes if (row.key, row.experiment, row.run_id, size) not in taken)
        size = next(free, None)
        if size is not None:
            found[at] = size
            taken.add((row.key, row.experiment, row.run_id, size))
    return found


Measured = TypeVar("Measured", ExperimentResult, BriefResult)


def assign_batch_sizes(results: Iterable[Measured]) -> list[Measured]:
    rows = list(results)
    for at, batch_size in find_batch_sizes(rows).items():
        row = rows[at]
        if isinstance(row, BriefResult):
            rows[at] = row._replace(batch_size=batch_size)
        else:
            rows[at] = replace(row, batch_size=batch_size)
    return rows


def merge_results(measured: Iterable[ExperimentResult]) -> list[ResultRow]:
    return [row for row, _parts in merge_with_parts(measured)]


def merge_with_parts(
    measured: Iterable[ExperimentResult],
) -> list[tuple[ResultRow, tuple[ExperimentResult, ...]]]:
    """Merge results, returning each row with its sources, the leading one first."""
    by_key: dict[Key, list[ExperimentResult]] = {}
    for result in measured:
        by_key.setdefault(result.key, []).append(result)
    rows: list[tuple[ResultRow, tuple[ExperimentResult, ...]]] = []
    for key in sorted(by_key):
        results = by_key[key]
        if (
            len(results) == 1
        ):  # Most models have one result; sorting and choosing would take half of the time.
            rows.append((_merge_parts((results[0],)), (results[0],)))
            continue
        results.sort(
            key=lambda result: (
                rank_experiment(result.experiment),
                result.batch_size or 0,
                result.id,
            )
        )
        leads = [result for result in results if result.experiment == results[0].experiment]
        others = results[len(leads) :]
        for lead in leads:
            parts = (lead, *_pick_others(lead, others))
            rows.append((_merge_parts(parts), parts))
    return rows


def rank_experiment(experiment: str) -> tuple[int, str]:
    return (LEADING.index(experiment) if experiment in LEADING else len(LEADING), experiment)


def _pick_others(
    lead: ExperimentResult, others: Sequence[ExperimentResult]
) -> list[ExperimentResult]:
    if len(others) < 2:
        return list(others)
    picked = []
    for _experiment, group in groupby(others, key=lambda result: result.experiment):
        picked.append(
            min(
                group,
                key=lambda result: (
                    result.batch_size != lead.batch_size,
                    result.batch_size or 0,
                    result.id,
                ),
            )
        )
    return picked


def _merge_parts(parts: tuple[ExperimentResult, ...]) -> ResultRow:
    lead, others = parts[0], parts[1:]
    values = dict(vars(lead))
    del values["experiment"], values["task"]
    if lead.experiment not in TIMING:
        # By this column upstream's accuracy file means all of torch's compile time, not the
        # warm-up's.
        values["compilation_latency_s"] = None
        # Beside a performance that failed, another experiment's speedup would be misleading.
        _add(values, others, _TIMES)
    if others:
        _add(values, others, _MEMORY)
        for result in others:
            for name in _SINGLE:
                if values[name] is None:
                    values[name] = result.__dict__[name]
        judges = (
            part.accuracy for part in sorted(parts, key=lambda part: part.experiment != "accuracy")
        )
        values["accuracy"] = next((judge for judge in judges if judge is not None), None)
    judge = None
    for part in parts:
        if part.experiment == "accuracy":
            judge = part
            break
    if judge is not None and judge.status == "failed" and lead.status == "measured":
        values |= {name: getattr(judge, name) for name in _FAILURE}
    values["judge"] = judge
    values["experiments"] = tuple([part.experiment for part in parts])
    values["tasks"] = tuple(dict.fromkeys([part.task for part in parts if part.task is not None]))
    return fill(ResultRow, values)


def _add(
    values: dict[str, Any], others: Sequence[ExperimentResult], names: tuple[str, ...]
) -> None:
    for name in names:
        if values[name] is not None:
            return
    for result in others:
        candidates = [getattr(result, name) for name in names]
        if candidates.count(None) < len(candidates):
            values.update(zip(names, candidates))
            return
