"""The Compare page, and the page that compares two compiles."""

from __future__ import annotations

import time
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote, urlencode

from flask import Blueprint, Response, abort, render_template, request, url_for
from werkzeug.wrappers import Response as WerkzeugResponse

from compileboard.app.benchmarks.matrix import paginate
from compileboard.app.benchmarks.queries import list_model_choices
from compileboard.app.benchmarks.series import FIELDS
from compileboard.app.comparison.charts import chart_changes
from compileboard.app.comparison.compare import (
    ComparisonScreen,
    build_default_comparison,
    list_proposals,
)
from compileboard.app.comparison.compiles import (
    FORM,
    ComparedCompile,
    NoSuchCompile,
    compare_compiles,
    find_compile,
    list_choices,
    name_function_side,
)
from compileboard.app.comparison.model import (
    COMPARED,
    GROUPS,
    ComparedReasons,
    ModelPair,
    ModelResult,
)
from compileboard.app.comparison.queries import DISTINCT, find_distinct_ids
from compileboard.app.comparison.sides import list_side_choices
from compileboard.app.comparison.table import DEFAULT_ORDER, ComparisonHeadline, choose
from compileboard.app.compiles.charts import chart_pair
from compileboard.app.core.db import get_clock, get_engine, get_reader, get_settings, get_store
from compileboard.app.core.filters import url_with
from compileboard.app.core.labels import sum_phases
from compileboard.app.core.page import FilterError, check_limit
from compileboard.app.core.parameters import check_keys
from compileboard.app.reports.comparison_report import (
    TEMPLATE_WORDS,
    file_name,
    policy_of,
    write_comparison,
)
from compileboard.app.reports.pages import check_format, send_report
from compileboard.app.runs.shell import REPORTS

blueprint = Blueprint("compare", __name__)

SIDES = ("base", "new", "anyway", "suite")
PARAMETERS = (*SIDES, "metric", "sort", "cursor", "limit")
MAX_FUNCTIONS, MAX_UNCHANGED = 100, 200
_WORDS: dict[str, Any] = {**TEMPLATE_WORDS, "groups": GROUPS}


@blueprint.get("/compare")
def index() -> str | WerkzeugResponse:
    check_keys(request.args, PARAMETERS, noun="parameter")
    given = {key: request.args.get(key, "").strip() for key in PARAMETERS}
    is_chosen = bool(given["base"] or given["new"] or given["suite"])
    screen = _build_from_query(given) if is_chosen else None
    shared: dict[str, Any] = {
        "given": given,
        "choices": list_side_choices(get_reader(), get_engine()),
        "suites": list_model_choices(get_engine()).suites,
        "metrics": [
            *((key, f"All {label.lower()} metrics") for key, (label, _names) in GROUPS.items()),
            *((metric.name, metric.label) for metric in COMPARED),
        ],
    }
    if screen is None:
        proposals = [] if is_chosen else list_proposals(get_reader(), get_engine(), get_clock())
        return render_template("comparison/empty.html", proposals=proposals, **shared)
    return render_template("comparison/index.html", **shared, **lay_out(screen, given))


@blueprint.get("/compare/report.<format>")
def download(format: str) -> Response:
    check_keys(request.args, SIDES, noun="parameter")
    check_format(format)
    screen = _build_from_query({key: request.args.get(key, "").strip() for key in SIDES})
    if screen is None:
        abort(404, "There is nothing to compare with: name both sides, base and new.")
    body = b"".join(write_comparison(screen, format, time.time_ns() // 1000))
    name = file_name(screen.comparison, format)
    return send_report(body, format, name, policy_of(screen.comparison) if format == "html" else "")


@blueprint.get("/compare/compiles")
def compiles() -> str:
    check_keys(request.args, ("a", "b"), noun="parameter")
    a, b = (_find_compile(name) for name in ("a", "b"))
    if a is None and b is not None:
        a, b = b, None
    store = get_store()
    comparison = compare_compiles(store, a, b) if a and b else None
    pair = (comparison.a, comparison.b) if comparison else ()
    return render_template(
        "comparison/compiles.html",
        a=a,
        b=b,
        comparison=comparison,
        choices=list_choices(store, a, b) if a else None,
        chart=chart_pair([side.compile for side in pair], [side.run.id for side in pair])
        if any(sum_phases(side.compile.phases) for side in pair)
        else None,
        has_charts=comparison is not None,
        side_of=name_function_side,
        form_hint=FORM,
    )


def _find_compile(name: str) -> ComparedCompile | None:
    text = request.args.get(name, "").strip()
    try:
        return find_compile(get_store(), name, text) if text else None
    except NoSuchCompile as error:
        abort(404, str(error))


def _build_from_query(query: dict[str, str]) -> ComparisonScreen | None:
    return build_default_comparison(
        get_store(),
        get_clock(),
        query["base"],
        query["new"],
        anyway=_read_anyway(),
        suite=query["suite"],
    )


def lay_out(screen: ComparisonScreen, query: dict[str, str]) -> dict[str, Any]:
    comparison = screen.comparison
    sort = query["sort"] or DEFAULT_ORDER
    choice = choose(comparison, query["metric"] or None, sort, only_changes=True)
    changed = set(map(id, choice.rows))
    unchanged = [pair for pair in comparison.pairs if id(pair) not in changed]
    limit = check_limit(query["limit"] or None, get_settings().page_size)
    entry_address = partial(_entry_url, url_for("models.index"))

    def model_address(pair: ModelPair) -> str:
        return entry_address(pair.new if pair.new.run_id else pair.base)

    chart = (
        chart_changes(choice.metrics[0], comparison.pairs, model_address)
        if choice.metrics
        else None
    )
    run_ids = [run.id for side in (comparison.base, comparison.new) for run in side.runs]
    is_pair = len(comparison.base.runs) == len(comparison.new.runs) == 1

    def pair_address(function_id: int) -> str:
        a, b = (name_function_side(run_id, function_id) for run_id in run_ids)
        return url_for("compare.compiles", a=a, b=b)

    asked: dict[str, Any] = {"base": comparison.base.asked, "new": comparison.new.asked}
    asked |= {key: query[key] for key in ("anyway", "suite") if query[key]}
    return {
        "comparison": comparison,
        "choice": choice,
        "sort": sort,
        "summary": screen.summary,
        "unchanged": unchanged[:MAX_UNCHANGED],
        "unchanged_count": len(unchanged),
        "listing": paginate(choice.rows, query["cursor"] or None, limit),
        "chart": chart,
        "has_charts": chart is not None,
        "tiles": [
            (tile.label, tile.value, tile.note, _link_tile(tile)) for tile in screen.headlines
        ],
        "describe": screen.describe,
        "model_address": model_address,
        "entry_address": entry_address,
        "asked": asked,
        "saves": [
            (label, url_for("compare.download", format=key, **asked)) for key, label in REPORTS
        ],
        "swapped": asked | {"base": comparison.new.asked, "new": comparison.base.asked},
        "ids": {name: _find_ids(name, getattr(comparison, name)) for name in DISTINCT},
        "most_functions": MAX_FUNCTIONS,
        "pair_address": pair_address if is_pair else None,
        **_WORDS,
    }


def _link_tile(tile: ComparisonHeadline) -> str | None:
    if not tile.anchor:
        return None
    return (url_with(metric=tile.metric, sort=None) if tile.metric else "") + f"#{tile.anchor}"


def _find_ids(table: str, diff: ComparedReasons) -> dict[str, str]:
    return find_distinct_ids(get_engine(), table, [change.fingerprint for change in diff.changes])


def _entry_url(models: str, entry: ModelResult) -> str:
    """Return the address of a result, or of a baseline's model.

    A chart has one address per model, and `url_for` takes 0.1 ms for so many parameters.
    """
    here = f"{models}/{quote(entry.model)}"
    if not entry.run_id:
        return here
    return f"{here}?{_write_query(entry.run_id, *(entry.series.get(name) for name in FIELDS))}"


@lru_cache(maxsize=256)
def _write_query(run_id: str, *series: Any) -> str:
    values = {name: "" if value is None else value for name, value in zip(FIELDS, series)}
    return urlencode(values | {"dynamic": "yes" if values["dynamic"] else "no", "run": run_id})


def _read_anyway() -> bool:
    given = request.args.get("anyway", "")
    if given not in ("", "1"):
        raise FilterError(f"anyway: {given[:40]!r} is not 1, the one value that it has")
    return given == "1"
