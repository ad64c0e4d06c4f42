"""Calls of every function that reads across runs, with arguments that a board makes interesting."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import product
from pkgutil import walk_packages
from typing import Any

from compileboard import app
from compileboard.app.benchmarks import commit_order as commits
from compileboard.app.benchmarks import queries as models
from compileboard.app.benchmarks import series_queries as series
from compileboard.app.benchmarks import trend_queries as trends
from compileboard.app.benchmarks.queries import ModelFilter
from compileboard.app.benchmarks.trend_queries import TrendFilter
from compileboard.app.comparison import queries as comparison
from compileboard.app.comparison import sides
from compileboard.app.compiles import queries as compiles
from compileboard.app.core import newest, run_cache
from compileboard.app.core.engine import SqliteEngine
from compileboard.app.reasons import failure_issues
from compileboard.app.reasons import queries as reasons
from compileboard.app.reasons import reason_events as reason_events
from compileboard.app.reasons.failure_issues import FAILURES, STATUSES, IssueFilter
from compileboard.app.reasons.graph_breaks import GRAPH_BREAKS, BreakFilter
from compileboard.app.reasons.recompiles import RECOMPILES, CauseFilter
from compileboard.app.reasons.rerecordings import RERECORDINGS, RerecordingFilter
from compileboard.app.runs import overview_queries as overview
from compileboard.app.runs import queries as runs
from compileboard.app.runs.queries import RunFilter
from compileboard.app.search import queries as search
from compileboard.app.server import prometheus as newest_runs
from compileboard.collectors.store.rollups import DEFINITIONS
from tests.unit.app.benched import RUNS
from tests.unit.app.core.broad_board import HOUR_US, NOW_US, BroadBoard
from tests.unit.app.seed import START_US

Arguments = dict[str, Any]
MakeCalls = Callable[[BroadBoard], Iterator[Arguments]]
# What runs a statement that it is given, or gives what an engine numbers by itself.
NOT_COMPARED = {"list_points", "get_newest_pub"}
_ALIVE = {"alive_since_us": NOW_US - HOUR_US}
_SCOPES: tuple[Arguments, ...] = (
    {},
    {"suite": "nightly"},
    {"suite": "", "name": "train"},
    {"name": "it's"},
)

RUN_FILTERS = (
    RunFilter(),
    *(
        RunFilter(text=text)
        for text in ("TRAIN", "ä", "Ä", "\\", "'", "%", "01odd", "İ", "e\u0301")
    ),
    *(RunFilter(text=text) for text in ("\0", "l\0B", "BYTE")),
    *(RunFilter(name=name) for name in ("train", "", "😀", "nul\0byte")),
    *(RunFilter(suite=suite) for suite in ("Nightly", "null", "builtin")),
    *(RunFilter(tag_key=key) for key in ("team", "a", "%_*?")),
    *(RunFilter(tag_key="team", tag_value=value) for value in ("ä", "a")),
    *(RunFilter(gpu=gpu) for gpu in ("CPU", "NVIDIA H200")),
    *(RunFilter(commit=commit) for commit in ("ABCD", "abcdabcdabcd", "f" * 40)),
    *(RunFilter(state=state) for state in ("running", "imported")),
    RunFilter(host="box", torch="2.11.0+cu128"),
    RunFilter(torch="2.11"),
    RunFilter(since_us=START_US + HOUR_US, before_us=START_US + 5 * HOUR_US),
    RunFilter(since_us=NOW_US * 2),
)
TREND_FILTERS = (
    TrendFilter(),
    *(TrendFilter(suite=suite) for suite in ("bench_models", "odd", "", "日本", "no such")),
    *(
        TrendFilter(**{word: value})
        for word in ("mode", "dtype", "device", "hardware", "backend")
        for value in ("", "eager")
    ),
    *(TrendFilter(dynamic=dynamic, world_size=1) for dynamic in (False, True)),
    *(TrendFilter(branch=branch) for branch in ("main", "")),
    TrendFilter(run=RUNS[1]),
    TrendFilter(commit="AB", torch="2.11.0"),
    TrendFilter(since_us=START_US, until_us=START_US + 3 * HOUR_US),
)
MODEL_FILTERS = (
    ModelFilter(),
    *(ModelFilter(q=text) for text in ("bert", "ODD", "\\", "ä", "'")),
    *(
        ModelFilter(suite=suite, dynamic=dynamic)
        for suite in ("odd", "bench_models")
        for dynamic in (None, False, True)
    ),
    *(ModelFilter(mode=word, device=word) for word in ("eager", "inference", "cuda")),
    *(ModelFilter(status=status) for status in models.STATUSES),
    *(ModelFilter(accuracy=accuracy) for accuracy in models.ACCURACIES),
    *(ModelFilter(experiment=name, world_size=1) for name in ("performance", "export", "İi")),
    *(ModelFilter(run=run) for run in (RUNS[0], "01ODD000000000000000000004", "no such")),
    ModelFilter(run=RUNS[0], q="BERT", hardware="NVIDIA H200"),
)
_RUN_PARTS = (
    RunFilter(),
    RunFilter(suite="nightly"),
    RunFilter(name="train"),
    RunFilter(gpu="CPU"),
    RunFilter(suite="no such"),
)
BREAK_FILTERS = (
    *(BreakFilter(part) for part in _RUN_PARTS),
    *(
        BreakFilter(RunFilter(), text=text)
        for text in ("builtin", "GRAPH", "\\", "ä", "second line", "nul\0")
    ),
    *(BreakFilter(RunFilter(), function=text) for text in ("forward", ":", "it's", "MODEL.py:f")),
    BreakFilter(RunFilter(), gb_id="GB0059"),
    BreakFilter(RunFilter(text="train"), kind="Builtin", gb_id="GB0059"),
)
CAUSE_FILTERS = (
    *(CauseFilter(part) for part in _RUN_PARTS),
    *(CauseFilter(RunFilter(), text=text) for text in ("size", "TENSOR", "\\", "\0")),
    *(CauseFilter(RunFilter(), category=name) for name in ("tensor_size", "other", "no such")),
    CauseFilter(RunFilter(since_us=START_US), function="f"),
)
GRAPH_FILTERS = (
    *(RerecordingFilter(part) for part in _RUN_PARTS),
    *(RerecordingFilter(RunFilter(), text=text) for text in ("arg", "MISMATCH", "\\", "\0")),
    RerecordingFilter(RunFilter(), status="StaticInputIdxMismatch"),
    RerecordingFilter(RunFilter(since_us=START_US), function="f"),
)
ISSUE_FILTERS = (
    *(IssueFilter(part) for part in _RUN_PARTS),
    *(IssueFilter(RunFilter(), text=text) for text in ("kernel", "RUNTIME", "\\", "\0")),
    *(IssueFilter(RunFilter(), error=error) for error in ("RuntimeError", "no such")),
    IssueFilter(RunFilter(), issue_ids=()),
    IssueFilter(RunFilter(), operation="aten.add.Tensor", issue_ids=(2**57 + 1, 2**57 + 2)),
)
SUBJECTS: tuple[tuple[reasons.AnySubject, tuple[Any, ...], str], ...] = (
    (GRAPH_BREAKS, BREAK_FILTERS, "select id from distinct_breaks order by id"),
    (RECOMPILES, CAUSE_FILTERS, "select id from recompile_causes order by id"),
    (RERECORDINGS, GRAPH_FILTERS, "select id from rerecording_reasons order by id"),
    (FAILURES, ISSUE_FILTERS, "select id from failure_issues order by id"),
)


def _each(**values: Any) -> MakeCalls:
    """Make a call of every combination of some values."""
    return lambda _board: (dict(zip(values, chosen)) for chosen in product(*values.values()))


def _of_reasons(step: int, **more: Any) -> MakeCalls:
    return lambda _board: (
        {"subject": subject, "selected": selected} | more
        for subject, filters, _sql in SUBJECTS
        for selected in filters[::step]
    )


def _list_reasons(board: BroadBoard) -> Iterator[Arguments]:
    yield from _of_reasons(1, limit=1000)(board)
    for subject, filters, _sql in SUBJECTS:
        for order, way in product(subject.orders, ("", ".asc")):
            yield {"subject": subject, "selected": filters[0], "sort": order + way, "limit": 1000}


def _some(values: list[Any]) -> list[Any]:
    """Return a few of many, the last among them."""
    return values[:: -max(len(values) // 8, 1)]


def _of_a_reason(**more: Any) -> MakeCalls:
    return lambda board: (
        {"subject": subject, "reason_id": id_} | more
        for subject, _filters, sql in SUBJECTS
        for id_ in (*_some(board.select(sql)), -1)
    )


def _find_last_runs(board: BroadBoard) -> Iterator[Arguments]:
    engine = SqliteEngine(board.connection)
    for subject, filters, _sql in SUBJECTS:
        listed = reasons.list_reasons(engine, subject, filters[0]).rows
        yield {"subject": subject, "reasons": listed}


def _describe_issues(board: BroadBoard) -> Iterator[Arguments]:
    engine = SqliteEngine(board.connection)
    listed = reasons.list_reasons(engine, FAILURES, IssueFilter(RunFilter())).rows
    yield {"board": board.connection, "issues": listed}


def _list_runs(board: BroadBoard) -> Iterator[Arguments]:
    yield from (
        {"selection": selected, "limit": 500, "pinned_first": False} for selected in RUN_FILTERS
    )
    for order, way in product(runs.ORDERS, ("", ".asc")):
        yield {"sort": order + way, "limit": 500}


def _get_other(board: BroadBoard) -> Iterator[Arguments]:
    for run_id, word in product(_some(board.run_ids), ("latest", "previous")):
        run = runs.get_run(SqliteEngine(board.connection), run_id)
        if run:
            yield {"run": run, "word": word, "clock": board.clock}


def _pages_of_runs(board: BroadBoard) -> list[list[str]]:
    return [board.run_ids, board.run_ids[:1], ["01NOBODY"], []]


def _of_runs(**more: Any) -> MakeCalls:
    return lambda board: ({"run_ids": run_ids} | more for run_ids in _pages_of_runs(board))


def _list_model_points(board: BroadBoard) -> Iterator[Arguments]:
    ids = board.select("select id from series order by id")
    metrics = ("speedup", "graph_breaks", "abs_latency_ms")
    yield from ({"metrics": metrics, "series_ids": chosen} for chosen in (None, ids, ids[:1], []))
    yield from ({"metrics": metrics, "run_ids": chosen} for chosen in _pages_of_runs(board))


def _count_runs(board: BroadBoard) -> Iterator[Arguments]:
    for kind, table in (("function", "functions"), ("break", "distinct_breaks")):
        for id_ in (*_some(board.select(f"select id from {table} order by id")), -1):
            yield {"kind": kind, "thing_id": id_, "run_count": 40}


def _list_summaries(_board: BroadBoard) -> Iterator[Arguments]:
    yield from ({"selection": selected, "definition": "hud"} for selected in TREND_FILTERS)
    yield from (
        {"selection": TrendFilter(), "definition": name, "limit": 50} for name in DEFINITIONS
    )


def _list_model_rows(board: BroadBoard) -> Iterator[Arguments]:
    names = board.select("select distinct model from series order by model")
    for selected in TREND_FILTERS[::3]:
        yield {"selection": selected, "models": names, "columns": ("speedup", "graph_breaks")}
    yield from (
        {"selection": TrendFilter(), "models": some, "columns": ()}
        for some in (names[:1], [], ["no such"])
    )


def _choose_set(board: BroadBoard) -> Iterator[Arguments]:
    sets = trends.list_sets(SqliteEngine(board.connection))
    for selected, model in product(TREND_FILTERS[::4], (None, "Bert4", "no such")):
        yield {"sets": sets, "selection": selected, "model": model}


def _name_sides(board: BroadBoard) -> list[str]:
    commits_of_runs = ("commit:abcd", "commit:ABAB", "commit:ffff")
    texts = (
        *commits_of_runs,
        "branch:main",
        "torch:2.11",
        "torch:2.11.0",
        "torch:3",
        "01ODD",
        "what",
    )
    return [*texts, *_some(board.run_ids)]


def _find_sides(board: BroadBoard) -> Iterator[Arguments]:
    for text in _name_sides(board):
        yield {"connection": board.connection, "clock": board.clock, "text": text, "name": "base"}


def _find_runs(board: BroadBoard) -> Iterator[Arguments]:
    for text in ("latest", "abcd", "abab", "c3c3", *_name_sides(board)):
        yield {"connection": board.connection, "clock": board.clock, "text": text}


def _name_runs(board: BroadBoard) -> Iterator[Arguments]:
    for base, new in product(
        ("latest", "previous", RUNS[0]), ("latest", RUNS[1], "branch:main", "no such")
    ):
        yield {"connection": board.connection, "clock": board.clock, "base": base, "new": new}


def _find_default(board: BroadBoard) -> Iterator[Arguments]:
    pairs = [
        (None, None),
        *((None, run_id) for run_id in _some(board.run_ids)[:4]),
        *((run_id, None) for run_id in RUNS),
    ]
    for base, new in pairs:
        yield {"connection": board.connection, "clock": board.clock, "base": base, "new": new}


def _list_ancestry(board: BroadBoard) -> Iterator[Arguments]:
    span = {
        "since_us": START_US,
        "until_us": START_US + 9 * 24 * HOUR_US,
        "commit_count": 0,
        "parent_count": 0,
    }
    yield {"span": commits.CommitSpan(**span, time_total=0.0)}


_PAIRS = [
    ("c3", "c7"),
    ("c7", "c3"),
    ("base", "c9"),
    ("c5", "c5"),
    ("c1", "late"),
    ("side1", "c9"),
    ("x", "loop1"),
]
_HASHES = ([], ["c3", "c7", None], ["unknown"], ["ä", "c1"])
CALLS: dict[Callable[..., Any], MakeCalls] = {
    commits.find_span: _each(hashes=_HASHES),
    commits.list_ancestry: _list_ancestry,
    commits.list_commit_range: lambda _board: (
        {"base_hash": base, "new_hash": new, "limit": 3} for base, new in _PAIRS
    ),
    run_cache.cached_ancestry: _each(hashes=_HASHES),
    comparison.list_function_sums: _of_runs(),
    compiles.list_function_runs: lambda board: (
        {"function_id": id_, "limit": 7}
        for id_ in (*_some(board.select("select id from functions order by id")), -1)
    ),
    comparison.find_distinct_ids: _each(
        table=("breaks", "causes", "rerecordings"),
        fingerprints=([f"odd {number}" for number in range(9)], ["b1", "size-x", "'"], []),
    ),
    models.list_models: _each(selection=MODEL_FILTERS),
    models.list_measured: _each(selection=MODEL_FILTERS[::4]),
    models.list_newest: _each(selection=MODEL_FILTERS[::4]),
    models.list_brief_results: _each(selection=MODEL_FILTERS[::2]),
    models.list_results_of: lambda board: (
        {"ids": ids}
        for ids in (board.select("select id from results order by id desc limit 20"), [-1], [])
    ),
    models.list_history: lambda board: (
        {"model": model, "suite": suite}
        for model in (
            *_some(board.select("select distinct model from series order by model")),
            "no such",
        )
        for suite in ((None, "odd") if model == "no such" else (None,))
    ),
    models.list_model_choices: _each(),
    models.list_bench_runs: _each(),
    newest_runs.list_newest_runs: _each(limit=(3, 200)),
    overview.has_observed_runs: lambda _board: iter(_SCOPES),
    overview.get_totals: lambda _board: (
        scope | more for scope in _SCOPES for more in ({}, _ALIVE)
    ),
    overview.list_trend: lambda _board: (
        scope | more for scope in _SCOPES for more in ({}, {"run_count": 7} | _ALIVE)
    ),
    overview.list_top: lambda _board: (
        scope | more | {"kind": kind}
        for kind in (overview.TopBreak, overview.TopCause, overview.TopFunction)
        for scope in _SCOPES
        for more in ({"limit": 100}, {"run_count": 20, "limit": 2})
    ),
    overview.list_series: _each(),
    overview.list_program_runs: _each(
        suite=(None, "nightly", ""), name=(None, "train"), run_count=(20,), max_compiles=(100,)
    ),
    search.list_models: _each(text=("", "a", "%"), limit=(5,)),
    search.list_suites: _each(text=("", "n", "%"), limit=(5,)),
    overview.list_failed_models: _of_runs(),
    overview.list_wrong_models: lambda board: (
        {"run_id": it, "suite": suite}
        for it in _some(board.run_ids)
        for suite in ("builtin", "odd")
    ),
    overview.list_measured_models: lambda board: (
        {"run_ids": run_ids, "models": names}
        for run_ids in _pages_of_runs(board)
        for names in (["Bert4", "mlp"], board.select("select distinct model from series"), [])
    ),
    overview.list_speedups: _of_runs(),
    reasons.list_reasons: _list_reasons,
    reasons.list_with_trends: _list_reasons,
    reasons.get_reason_trends: _of_reasons(3),
    reasons.get_reason: _of_a_reason(),
    reasons.find_last_runs: _find_last_runs,
    reasons.list_affected_runs: _of_a_reason(limit=500, **_ALIVE),
    reasons.list_history: _of_a_reason(run_count=30),
    failure_issues.choose_issues: _each(
        selected=[IssueFilter(RunFilter(), status=status) for status in (None, *STATUSES)]
    ),
    failure_issues.find_statuses: lambda board: (
        {"ids": ids} for ids in (board.select("select id from failure_issues"), [])
    ),
    failure_issues.describe_issues: _describe_issues,
    runs.bind_suite: _each(suite=(None, "", "nightly", "builtin", "none")),
    runs.list_runs: _list_runs,
    runs.count_runs: _each(selection=(None, *RUN_FILTERS[::3])),
    runs.get_run: lambda board: ({"run_id": run_id} for run_id in _some(board.run_ids)),
    runs.get_newest_run: lambda board: iter([{"clock": board.clock}]),
    runs.get_run_to_compare: _get_other,
    runs.list_tags: _of_runs(),
    runs.list_choices: _each(),
    runs.list_values: _each(
        column=("name", "suite", "host", "gpu_name", "torch_version", "git_branch"), limit=(2, 200)
    ),
    runs.find_run_ids: _each(
        prefix=("", "01", "01odd", "01ODD000", RUNS[0], RUNS[0].lower(), "\x7f", "İ", "'"),
        limit=(4, 100),
    ),
    runs.list_slots: _each(runs=RUN_FILTERS[::4]),
    series.list_point_runs: _each(),
    series.list_series_of: _of_runs(),
    series.list_suites_of: _of_runs(),
    series.list_names_of: _of_runs(),
    series.list_model_points: _list_model_points,
    series.list_suite_points: _each(definition=tuple(DEFINITIONS), suites=(None, ["odd", ""], [])),
    series.list_run_points: _each(names=(None, ["train", ""], [])),
    series.list_series_names: _each(),
    series.count_runs: _count_runs,
    series.count_recompiles: _each(
        category=("tensor_size", "other", "a"), suite=(None, "nightly"), run_count=(5, 200)
    ),
    trends.list_sets: _each(branch=(None, "main", "")),
    trends.list_sets_of: _each(model=("Bert4", "mlp", "no such")),
    trends.list_summaries: _list_summaries,
    trends.list_eligible_summaries: _each(selection=TREND_FILTERS[::4], definition=(None, "hud")),
    trends.list_timed_runs: _each(selection=TREND_FILTERS[::3]),
    trends.list_model_rows: _list_model_rows,
    trends.list_trend_runs: _of_runs(**_ALIVE),
    trends.list_model_names: _each(suite=("odd", "bench_models", "")),
    trends.list_branches: _each(),
    trends.choose_set: _choose_set,
    reason_events.list_benchmarks: _of_a_reason(),
    newest.list_running_ids: lambda board: iter([{"clock": board.clock}]),
    newest.get_newest_run_id: lambda board: (
        {"clock": board.clock, "benched": benched} for benched in (False, True)
    ),
    sides.find_run: _find_runs,
    sides.find_word: lambda board: iter([{"clock": board.clock, "word": "latest"}]),
    sides.find_side: _find_sides,
    sides.resolve_run_ids: _name_runs,
    sides.find_default: _find_default,
    sides.list_side_choices: lambda board: iter([{"connection": board.connection}]),
}


def list_functions() -> Iterator[Callable[..., Any]]:
    """Yield functions that take an engine, of modules of queries and of those in CALLS."""
    compared = {function.__module__ for function in CALLS}
    for info in walk_packages(app.__path__, f"{app.__name__}."):
        if not info.name.endswith("queries") and info.name not in compared:
            continue
        module = import_module(info.name)
        for name, function in vars(module).items():
            is_own = (
                inspect.isfunction(function)
                and function.__module__ == module.__name__
                and name[0] != "_"
            )
            if is_own and "Engine" in (
                parameter.annotation
                for parameter in inspect.signature(function).parameters.values()
            ):
                yield function
