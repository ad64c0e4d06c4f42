"""Merge files of one folder that describe the same results: a CSV row, its JSON twin, its phases
and its raw timings.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from statistics import median
from typing import Any

from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.formats import result_file as upstream_status
from compileboard.collectors.formats.database import METRICS_FILE
from compileboard.collectors.formats.result_file import (
    ResultFile,
    damage_stem,
    list_series,
    name_task,
    read_timings_name,
)

_DIGITS = re.compile(r"\d{9,17}(?:\.\d+)?")


@dataclass
class MergedResults:
    results: list[tuple[ResultFile, BenchMeasured]] = field(default_factory=list)
    _places: dict[Any, int] = field(default_factory=dict)

    @property
    def stems(self) -> set[str]:
        return {(measurement.task or "").split("/", 1)[0] for _file, measurement in self.results}


def merge(files: Sequence[ResultFile]) -> MergedResults:
    """Merge equal results of several files, preferring a file in full precision to its rounded
    twin.
    """
    merged = MergedResults()
    for file in sorted(files, key=lambda file: (not file.is_full, file.name)):
        for result in file.results:
            _add_result(merged, file, result)
    by_task: dict[str, list[int]] = {}
    for index, (_file, result) in enumerate(merged.results):
        by_task.setdefault(result.task or "", []).append(index)
    for file in sorted(files, key=lambda result_file: (not result_file.is_full, result_file.name)):
        _add_times_and_repeats(merged, by_task, file)
    _set_failure_reasons(merged)
    return merged


def _add_result(merged: MergedResults, file: ResultFile, result: BenchMeasured) -> None:
    facts = result.facts
    about = (facts.get("commit"), facts.get("timestamp"), facts.get("tag"))
    # Of one table a model is there once; of a dump of the database it is there in every
    # configuration.
    key = (
        result.task,
        result.experiment,
        *about,
        list_series(result) if facts.get("commit") else None,
    )
    index = merged._places.setdefault(key, len(merged.results))
    if index == len(merged.results):
        merged.results.append((file, result))
        return
    first_file, first = merged.results[index]
    if first_file is file:
        merged.results.append((file, result))
        return
    absent = {
        name: value
        for name, value in result.__dict__.items()
        if value is not None and getattr(first, name) is None
    }
    values = {**result.values, **first.values} if first.status == result.status else first.values
    merged.results[index] = (
        first_file,
        replace(first, **absent, values=values, facts={**facts, **first.facts}),
    )


def _add_times_and_repeats(
    merged: MergedResults, by_task: dict[str, list[int]], file: ResultFile
) -> None:
    named = read_timings_name(file.stem)
    stem = named[0] if named else file.stem.replace(METRICS_FILE, "")
    for addition in file.additions:
        indices = by_task.get(name_task(stem, addition.model, addition.tag), [])
        if not indices:
            file.rejects.add("no_result", None, f"{file.name}: {addition.model}")
        for index in indices:
            of_file, result = merged.results[index]
            changes: dict[str, Any] = {}
            if addition.phases_s and "phases_s" not in result.facts:
                changes["facts"] = {**result.facts, "phases_s": addition.phases_s}
            if addition.repeats.get("eager"):
                changes["repeats"] = addition.repeats
                changes["values"] = {
                    "eager_latency": median(addition.repeats["eager"]),
                    **result.values,
                }
            merged.results[index] = of_file, replace(result, **changes)


def _set_failure_reasons(merged: MergedResults) -> None:
    """Set the reason of a failed measurement from the accuracy result of the same model, since its
    own file has none.
    """
    reasons = {
        (measurement.model, *list_series(measurement)[:-1]): measurement.reason
        for _file, measurement in merged.results
        if measurement.experiment == "accuracy" and measurement.status == "failed"
    }
    for index, (file, measurement) in enumerate(merged.results):
        reason = reasons.get((measurement.model, *list_series(measurement)[:-1]))
        if (
            measurement.status == "failed"
            and measurement.reason == upstream_status.UNKNOWN_FAILURE
            and reason
        ):
            merged.results[index] = file, replace(measurement, reason=reason)


def build_break_table(file: ResultFile, stems: Iterable[str]) -> str:
    stem = file.stem.removesuffix("_graph_breaks")
    return next(
        (
            other_stem
            for other_stem in sorted(stems)
            if stem in (other_stem, damage_stem(other_stem))
        ),
        stem,
    )


def time_us_of(result: BenchMeasured) -> int | None:
    timestamp = str(result.facts.get("timestamp") or "").strip()
    try:
        if _DIGITS.fullmatch(timestamp):
            seconds = float(timestamp)
            while seconds > 1e11:  # milliseconds or microseconds since the epoch
                seconds /= 1e3
        else:
            moment = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return int(seconds * 1e6) if math.isfinite(seconds) and 0 < seconds < 1e11 else None


def commit_key(result: BenchMeasured) -> tuple[str, str] | None:
    commit = result.facts.get("commit")
    if not commit:
        return None
    time_us = time_us_of(result)
    day = datetime.fromtimestamp(time_us / 1e6, timezone.utc).date().isoformat() if time_us else ""
    return str(commit), day


def series_text(result: BenchMeasured) -> str:
    return json.dumps(
        [result.model, result.experiment, result.dynamic, result.world_size, *list_series(result)]
    )
