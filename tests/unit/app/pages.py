"""An address of every kind of page, with the things that a recorded database really has."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from compileboard.app.benchmarks import matrix as table
from compileboard.app.guards import run_queries as guards
from compileboard.app.reasons.failure_issues import FAILURES
from compileboard.app.reasons.graph_breaks import GRAPH_BREAKS
from compileboard.app.reasons.recompiles import RECOMPILES
from compileboard.app.reasons.rerecordings import RERECORDINGS
from compileboard.app.repros import queries as repros
from compileboard.app.runs import queries as runs
from compileboard.app.runs.pages import FILLS
from compileboard.collectors.contract.fingerprints import format_id
from tests.unit.app.benched import BREAK_ID, FUNCTION_ID
from tests.unit.app.repros.captured import ACCURACY_REPRO, COMPILE_REPRO
from tests.unit.app.repros.captured import RUN as REPRO_RUN


def _read_value(reader: sqlite3.Connection, sql: str) -> str:
    return str(reader.execute(sql).fetchone()[0])


def _busiest(reader: sqlite3.Connection) -> str:
    return _read_value(
        reader, "select run_id from run_totals order by compile_count desc, run_id limit 1"
    )


def _overview(_reader: sqlite3.Connection) -> list[str]:
    return ["/", "/?suite=captures", "/?suite=nothing"]


def _runs(reader: sqlite3.Connection) -> list[str]:
    sorts = [f"/runs?sort={order}{way}&limit=2" for order in runs.ORDERS for way in ("", ".asc")]
    more = [
        "q=bert",
        "tag=a=b",
        "state=failed",
        "host=gpu-box",
        "gpu=CPU",
        "commit=abc",
        "since=2020-01-01",
    ]
    activity = ["/boxes", "/activity", "/activity?subject=R1", "/views"]
    return [
        *sorts,
        *(f"/runs?{query}" for query in more),
        f"/runs/{_busiest(reader)}/delete",
        *activity,
    ]


def _run(reader: sqlite3.Connection) -> list[str]:
    page = f"/runs/{_busiest(reader)}"
    tabs = [f"{page}?tab={key}{more}" for key in FILLS for more in ("", "&view=each")]
    return [page, *tabs, f"{page}?tab=compiles&sort=time&outcome=compiled&q=forward"]


def _compile(reader: sqlite3.Connection) -> list[str]:
    keys = reader.execute("select run_id, max(id) from compiles group by outcome order by outcome")
    return [f"/runs/{run_id}/compiles/{key}" for run_id, key in keys]


def _run_cuda_graphs(reader: sqlite3.Connection) -> list[str]:
    runs = reader.execute("select distinct run_id from cudagraph_skips order by run_id")
    return [f"/runs/{run_id}/cudagraphs" for (run_id,) in runs]


def _graph_breaks(reader: sqlite3.Connection) -> list[str]:
    sorts = [
        f"/graph_breaks?sort={order}{way}" for order in GRAPH_BREAKS.orders for way in ("", ".asc")
    ]
    break_id = format_id(
        int(
            _read_value(
                reader, "select distinct_id from run_breaks order by break_count desc limit 1"
            )
        )
    )
    return [
        *sorts,
        "/graph_breaks?q=print&gb=GB0059&function=f&suite=captures",
        f"/graph_breaks/{break_id}",
    ]


def _recompiles(reader: sqlite3.Connection) -> list[str]:
    sorts = [
        f"/recompiles?sort={order}{way}" for order in RECOMPILES.orders for way in ("", ".asc")
    ]
    cause_id = format_id(
        int(
            _read_value(
                reader, "select cause_id from run_causes order by recompile_count desc limit 1"
            )
        )
    )
    return [
        *sorts,
        "/recompiles?q=x&category=tensor_size&function=f&suite=captures",
        f"/recompiles/{cause_id}",
    ]


def _compare_runs(reader: sqlite3.Connection) -> list[str]:
    sql = "select run_id from run_totals order by compile_count desc, run_id limit 2"
    base, new = (run_id for (run_id,) in reader.execute(sql))
    sides = f"base={base}&new={new}"
    firsts = "select run_id, min(id) from compiles group by run_id order by run_id limit 2"
    a, b = (f"{run_id}:{key}" for run_id, key in reader.execute(firsts))
    return [
        "/compare/compiles",
        f"/compare/compiles?a={a}",
        f"/compare/compiles?a={a}&b={b}",
        f"/compare/compiles?a={a}&b={a}",
        f"/compare?{sides}",
        f"/compare?base={base}&new={base}",
        f"/compare/report.html?{sides}",
    ]


def _health(_reader: sqlite3.Connection) -> list[str]:
    return ["/healthz", "/metrics"]


def _rerecordings(reader: sqlite3.Connection) -> list[str]:
    sorts = [
        f"/cuda_graphs?sort={name}{way}" for name in RERECORDINGS.orders for way in ("", ".asc")
    ]
    ids = reader.execute("select distinct reason_id from run_rerecordings order by 1").fetchall()
    return [
        *sorts,
        "/cuda_graphs?q=x&status=StaticInputIdxMismatch&function=f&suite=captures",
        *(f"/cuda_graphs/{format_id(reason_id)}" for (reason_id,) in ids),
    ]


def _failures(reader: sqlite3.Connection) -> list[str]:
    sorts = [f"/failures?sort={name}{way}" for name in FAILURES.orders for way in ("", ".asc")]
    ids = reader.execute("select distinct issue_id from run_issues order by 1").fetchall()
    return [
        *sorts,
        "/failures?q=x&status=open&error=RuntimeError&operation=f&function=f&suite=captures",
        *(f"/failures/{format_id(issue_id)}" for (issue_id,) in ids),
    ]


list_pages: dict[str, Callable[[sqlite3.Connection], list[str]]] = {
    "overview": _overview,
    "runs": _runs,
    "run": _run,
    "compile": _compile,
    "graph_breaks": _graph_breaks,
    "recompiles": _recompiles,
    "rerecordings": _rerecordings,
    "failures": _failures,
    "compare": _compare_runs,
    "health": _health,
    "run_cuda_graphs": _run_cuda_graphs,
}


def _guards(reader: sqlite3.Connection) -> list[str]:
    run_id = _read_value(
        reader, "select run_id from guard_sets group by run_id order by count(*) desc limit 1"
    )
    page = f"/runs/{run_id}/guards"
    sql = "select artifact_id from guard_sets where run_id = ? order by id limit 2"
    first, other = (number for (number,) in reader.execute(sql, (run_id,)))
    sorts = [f"{page}?sort={order}{way}&limit=1" for order in guards.ORDERS for way in ("", ".asc")]
    return [
        page,
        *sorts,
        f"{page}/{first}",
        f"{page}/{other}?q=x&order=largest&at=0",
        f"{page}/diff?a={first}&b={other}",
    ]


def _artifacts(reader: sqlite3.Connection) -> list[str]:
    rows = reader.execute(
        "select run_id, min(id), max(id) from artifacts group by run_id, name order by 1, 2"
    )
    spans = [(run_id, first, last) for run_id, first, last in rows]
    pages = [f"/runs/{run_id}/artifacts/{first}" for run_id, first, _last in spans]
    diffs = [f"/runs/{run_id}/artifacts/diff?a={first}&b={last}" for run_id, first, last in spans]
    keys = reader.execute("select run_id, id from compiles order by id").fetchall()
    changes = [f"/runs/{run_id}/compiles/{key}/changes" for run_id, key in keys]
    other = next(key for run_id, key in keys if run_id == spans[0][0])
    sides = [f"{run_id}:{key}" for run_id, key in keys]
    compared = [f"/compare/compiles?a={sides[0]}&b={side}" for side in sides]
    against = [f"{pages[0].rpartition('/')[0]}/diff?a={spans[0][1]}&against={other}"]
    return [
        *pages,
        *diffs,
        *changes,
        *compared,
        *against,
        *(f"/runs/{run_id}/compiles/{key}" for run_id, key in keys),
    ]


def _directory(reader: sqlite3.Connection) -> list[str]:
    page = f"/runs/{_busiest(reader)}/directory"
    queries = [
        "",
        "?outcome=compiled",
        "?outcome=broke&q=forward",
        "?artifact=dynamo_output_graph",
        "?q=nothing",
    ]
    return [page + query for query in queries]


def _caches(reader: sqlite3.Connection) -> list[str]:
    sql = (
        "select run_id, max(id) from cache_lookups where result = 'miss' group by run_id, "
        "cache order by run_id"
    )
    pages = [f"/runs/{run_id}/caches/{number}" for run_id, number in reader.execute(sql)]
    return [*pages, f"{pages[0]}?runs=before"]


def _search(reader: sqlite3.Connection) -> list[str]:
    queries = [
        "",
        "?q=torch",
        "?q=torch.ops.aten+-mm",
        "?q=forw&kind=artifact",
        "?q=size+mismatch&kind=recompile&limit=1",
    ]
    return [
        page + query
        for page in ("/search", f"/runs/{_busiest(reader)}/search")
        for query in queries
    ]


def _aot(reader: sqlite3.Connection) -> list[str]:
    runs = reader.execute("select distinct run_id from aot_graphs order by run_id").fetchall()
    return [f"/runs/{run_id}/aot{query}" for (run_id,) in runs for query in ("", "?limit=1")]


def _ranks(reader: sqlite3.Connection) -> list[str]:
    run_id = _read_value(reader, "select run_id from processes where rank = 1 limit 1")
    page = f"/runs/{run_id}/ranks"
    return [page, f"{page}?rows=all", f"{page}?start=1&column=1"]


def _stacks(reader: sqlite3.Connection) -> list[str]:
    runs_of = reader.execute(
        "select run_id, max(id) from stack_nodes group by run_id order by run_id"
    ).fetchall()
    filters = ("", "?library=shown", "?q=forward&outcome=compiled&rank=0")
    whole = [f"/runs/{run_id}/stacks{query}" for run_id, _node in runs_of for query in filters]
    return [
        *whole,
        *(f"/runs/{run_id}/stacks?library=shown&node={node}" for run_id, node in runs_of),
    ]


def _shapes(reader: sqlite3.Connection) -> list[str]:
    run_id = _read_value(reader, "select run_id from symbols order by run_id limit 1")
    page = f"/runs/{run_id}/shapes"
    return [page, f"{page}?limit=100"]


def _timeline(reader: sqlite3.Connection) -> list[str]:
    rows = reader.execute(
        "select run_id, min(first_us), max(last_us) from lanes group by run_id order by run_id"
    )
    windows = [
        (f"/runs/{run_id}/timeline", first_us, (first_us + last_us) // 2)
        for run_id, first_us, last_us in rows
    ]
    pages = [
        f"{page}{query}"
        for page, start, end in windows
        for query in ("", "?idle=1", f"?from={start}&to={end}")
    ]
    asked = [
        f"/api/v1{page}/window?from_us={start}&to_us={end}&width=9" for page, start, end in windows
    ]
    return [*pages, *asked]


def _reports(reader: sqlite3.Connection) -> list[str]:
    rows = reader.execute("select id from runs order by id").fetchall()
    return [f"/runs/{run_id}/report.{format}" for (run_id,) in rows for format in ("html", "md")]


def _models(reader: sqlite3.Connection) -> list[str]:
    sorts = [f"/models?sort={order}{way}&limit=2" for order in table.ORDERS for way in ("", ".asc")]
    run_id = _read_value(reader, "select run_id from results order by id desc limit 1")
    filters = (
        "q=e&suite=bench_models&mode=inference&dtype=float32&device=cuda&backend=inductor"
        "&status=measured"
    )
    more = [
        f"/models?run={run_id}",
        f"/models?{filters}",
        f"/runs/{run_id}/results",
        f"/models/Breaky?run={run_id}",
    ]
    asked = [
        f"/api/v1/{address}" for address in ("models", "models/Breaky", f"runs/{run_id}/results")
    ]
    asked += [
        "/api/v1/baselines",
        f"/api/v1/check?run={run_id}&baseline={run_id}",
        "/api/v1/check?baseline=previous",
    ]
    return [
        "/models",
        *sorts,
        *more,
        *asked,
        f"/runs/{run_id}/report.html",
        f"/runs/{run_id}/report.md",
    ]


def _trends(reader: sqlite3.Connection) -> list[str]:
    run_id = _read_value(reader, "select run_id from results order by id desc limit 1")
    of_set = (
        "suite=bench_models&mode=inference&dtype=float32&device=cuda&backend=inductor&branch=main"
    )
    asked = [
        f"summary?run={run_id}",
        f"summary?{of_set}",
        f"trend?{of_set}",
        "trend?model=Breaky&last=all",
    ]
    asked += [
        f"trend?break={BREAK_ID}",
        f"trend?function={FUNCTION_ID}",
        "trend?category=tensor_size&suite=bench_models",
    ]
    reports = [
        f"/trends/report.{extension}?suite=bench_models&last=9999w"
        for extension in ("html", "md", "parquet")
    ]
    return [*(f"/api/v1/{address}" for address in asked), *reports]


def _compare(reader: sqlite3.Connection) -> list[str]:
    first, last = (
        _read_value(reader, f"select {way}(run_id) from results") for way in ("min", "max")
    )
    commit = _read_value(reader, f"select git_commit from runs where id = '{first}'")
    sides = [
        f"base={first}&new={last}",
        f"base=commit:{commit[:9]}&new=branch:main",
        "base=torch:2.11.0&new=branch:main",
    ]
    pages = [f"/compare?{side}" for side in sides]
    more = [
        f"{pages[0]}&{query}"
        for query in ("metric=graphs", "sort=speedup.asc&limit=2", "anyway=1&suite=bench_models")
    ]
    files = [f"/compare/report.{format}?{sides[0]}" for format in ("html", "json", "csv", "md")]
    return [
        "/compare",
        f"/compare?new={last}",
        f"/compare?base={first}",
        *pages,
        *more,
        *files,
        "/api/v1/compare",
    ]


def _repros(_reader: sqlite3.Connection) -> list[str]:
    sorts = [
        f"/repros?sort={order}{way}&limit=1" for order in repros.ORDERS for way in ("", ".asc")
    ]
    filters = "/repros?q=relu&kind=compile&torch=2.13.0&device=cpu"
    pages = [
        "/repros",
        f"/repros/{COMPILE_REPRO}",
        f"/repros/{ACCURACY_REPRO}",
        f"/runs/{REPRO_RUN}/repros",
    ]
    return [
        filters,
        *sorts,
        *pages,
        *(f"/api/v1{page}" for page in pages),
        f"/runs/{REPRO_RUN}?tab=failures",
    ]


def _alerts(_reader: sqlite3.Connection) -> list[str]:
    return [
        "/alerts",
        "/alerts?state=sent",
        "/incidents.atom",
        "/incidents.atom?direction=worse&suite=x&status=any",
    ]


def _incidents(reader: sqlite3.Connection) -> list[str]:
    ids = [key for (key,) in reader.execute("select id from incidents order by id")]
    run_id = _read_value(reader, "select first_bad_run_id from incidents order by id limit 1")
    filters = (
        "state=any&status=open&direction=worse&suite=bench_models&model=Breaky&metric=speedup"
        "&branch=main"
    )
    queries = ["", "?limit=2", f"?run={run_id}", f"?{filters}", "?state=recovered&since=2026-01-01"]
    lists = [f"{page}{query}" for page in ("/incidents", "/api/v1/incidents") for query in queries]
    ones = [f"{page}/{key}" for page in ("/incidents", "/api/v1/incidents") for key in ids]
    return [
        *lists,
        *ones,
        "/",
        f"/runs/{run_id}",
        "/models/Breaky",
        "/trends?model=Breaky&metric=speedup",
        "/trends",
    ]


# The same of benchmark results (tests/unit/app/benched.py).
list_benched: dict[str, Callable[[sqlite3.Connection], list[str]]] = {
    "compare": _compare,
    "alerts": _alerts,
    "repros": _repros,
    "incidents": _incidents,
    "models": _models,
    "trends": _trends,
}

# The same of whole trace logs that were imported (tests/unit/app/explored.py).
list_explored: dict[str, Callable[[sqlite3.Connection], list[str]]] = {
    "guards": _guards,
    "caches": _caches,
    "aot": _aot,
    "artifacts": _artifacts,
    "directory": _directory,
    "search": _search,
    "ranks": _ranks,
    "stacks": _stacks,
    "shapes": _shapes,
    "timeline": _timeline,
    "reports": _reports,
}
