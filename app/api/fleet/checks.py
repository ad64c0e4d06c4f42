"""Stored baselines, and checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.api.answers import PageQuery, operation, refuse
from compileboard.app.checks.rules.model import RuleDistinct, RuleOptions
from compileboard.app.checks.sides import load_baseline
from compileboard.app.checks.tables import CannotCompare, is_file, list_flaky
from compileboard.app.db import get_clock, get_reader, get_store
from compileboard.app.queries.dashboard.baselines import BaselineRow
from compileboard.app.queries.dashboard.baselines import get_baseline as find_stored
from compileboard.app.queries.dashboard.baselines import list_baselines as list_stored
from compileboard.app.queries.fields import Count, FileName, FunctionName, LineNumber
from compileboard.app.queries.page import FilterError, Page
from compileboard.app.queries.parameters import (
    BackendName,
    DeviceName,
    DtypeName,
    ModeName,
    Parameter,
    SuiteName,
)
from compileboard.app.schema import Keywords
from compileboard.app.screens.fleet.checks import CheckJson, CheckRequest, build_check, report_check
from compileboard.collectors.store.rollups.results import fill


@dataclass(frozen=True)
class KeptDistinct:
    """A graph break or recompile cause in a baseline."""

    fingerprint: Annotated[str, "What makes it the same in another run."]
    kind: Annotated[str | None, "torch's id of a graph break, the category of a guard."]
    reason: Annotated[str, "Why, in torch's words."]
    function: FunctionName
    file: FileName
    line: LineNumber
    count: Annotated[Count, "Occurrences."]
    result: Annotated[str | None, "The result whose process had it; null where that is not known."]


@dataclass(frozen=True)
class KeptResult:
    """One model in a baseline."""

    model: Annotated[str, "The model's name."]
    series: Annotated[dict[str, Any], "Suite, mode, dtype and so on."]
    values: Annotated[dict[str, Any], "The measured values, by upstream's column names."]


@dataclass(frozen=True)
class BaselineDetail(BaselineRow):
    """A stored baseline with its content."""

    environment: Annotated[dict[str, str], "What speeds depend on: the hardware, torch's version."]
    results: Annotated[list[KeptResult], "Results."]
    graph_breaks: Annotated[list[KeptDistinct] | None, "Graph breaks. null where not recorded."]
    recompile_causes: Annotated[
        list[KeptDistinct] | None, "Causes of recompiles; null where none could be recorded."
    ]


@dataclass(frozen=True)
class CheckQuery:
    run: Annotated[str | None, "A run's id or its beginning, or `latest`."] = None
    baseline: Annotated[
        str | None,
        "What to compare with: a run, a commit, a stored baseline, `latest` or `previous`.",
    ] = None
    rule: Annotated[
        str | None, "A rule's name, or names with commas between; `default` where it is not given."
    ] = None
    environment: Annotated[
        bool, Parameter(choices=("any",)), "`any`: compare speeds across another GPU or torch too."
    ] = False
    suite: SuiteName = None
    mode: ModeName = None
    dtype: DtypeName = None
    device: DeviceName = None
    backend: BackendName = None
    dynamic: Annotated[
        bool | None,
        Parameter(choices=("yes", "no"), expected="yes or no"),
        Keywords(pattern="^(yes|no)?$"),
        "`yes`: with dynamic shapes; `no`: without.",
    ] = None
    batch_size: Annotated[int | None, Parameter(expected="a whole number"), "The batch size."] = (
        None
    )
    world_size: Annotated[
        int | None, Parameter(expected="a whole number"), "Ranks that it ran on."
    ] = None
    model: Annotated[str | None, "A model's name, whole."] = None


_SERIES = ("suite", "mode", "dtype", "device", "backend", "dynamic", "batch_size", "world_size")


@operation("/baselines")
def list_baselines(page: PageQuery) -> Page[BaselineRow]:
    """List stored baselines, by name."""
    return list_stored(get_reader(), page.cursor, page.limit)


@operation("/baselines/<path:baseline_name>")
def get_baseline(baseline_name: str) -> BaselineDetail:
    """Return one stored baseline with its content."""
    stored = find_stored(get_reader(), baseline_name)
    if stored is None:
        refuse(f"There is no baseline {baseline_name[:80]}; /api/v1/baselines lists them.")
    try:
        side = load_baseline(stored.body, stored.name)
    except CannotCompare as error:
        refuse(f"{error}.")
    contents = {
        "environment": side.environment,
        "results": [KeptResult(row.name, dict(row.series), dict(row.cells)) for row in side.rows],
        "graph_breaks": _list_distinct(side.breaks),
        "recompile_causes": _list_distinct(side.causes),
    }
    return fill(BaselineDetail, vars(stored) | contents)


def _list_distinct(items: Iterable[RuleDistinct] | None) -> list[KeptDistinct] | None:
    return (
        None
        if items is None
        else [fill(KeptDistinct, vars(item) | {"result": item.model}) for item in items]
    )


@operation("/check")
def get_check(query: CheckQuery) -> CheckJson:
    """Check a run against a baseline under rules, as `compileboard check` does. What cannot be
    compared is 400.
    """
    asked = query.run or "latest"
    for name, value in (("run", asked), ("baseline", query.baseline)):
        if value and is_file(value):  # a file of the server's is nobody's business
            raise FilterError(
                f"{name}: {value[:80]!r} is a file; the API compares what is in the database"
            )
    names = [word for word in (query.rule or "").split(",") if word]
    series = {name: value for name in _SERIES if (value := getattr(query, name)) is not None}
    request = CheckRequest(
        run=asked,
        baseline=query.baseline or None,
        rules=names,
        choices=series,
        models=[query.model] if query.model else [],
        options=RuleOptions(flaky=list_flaky()),
        allow_environment_change=query.environment,
    )
    try:
        return report_check(build_check(get_store, get_clock(), request).report)
    except FilterError as error:
        raise FilterError(f"could not compare: {error}") from None
