"""What changed for good: the list of findings, and one finding with what people say of it."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, abort, make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from compileboard.app.analysis import finding_cells, finding_words
from compileboard.app.analysis.finding_groups import SHOWN, group_findings
from compileboard.app.db import get_reader, get_settings, writing
from compileboard.app.queries.finding_filter import FILTERS, read_finding_filter
from compileboard.app.queries.findings import (
    HANDLINGS,
    KINDS,
    STATES,
    SUBJECTS,
    Finding,
    count_findings,
    count_range_others,
    count_ranges,
    get_detection,
    get_finding,
    list_finding_choices,
    list_finding_words,
    list_findings,
)
from compileboard.app.queries.models import list_bench_runs
from compileboard.app.queries.page import check_limit
from compileboard.app.web.finding_series import chart_series, link_finding
from compileboard.collectors.store.findings import TEXT_LIMIT, WHO_LIMIT, say_of_finding

blueprint = Blueprint("findings", __name__)
_MORE = ("subject", "branch", "hardware", "run", "since", "until")
_OFFERED = {
    "states": (("", "suspected or confirmed"), *STATES, ("any", "any, withdrawn too")),
    "handlings": (("", "open or acknowledged"), *HANDLINGS, ("any", "any, ignored too")),
    "kinds": (*KINDS[:-1], (KINDS[-1], "no longer measured")),
    "subjects": tuple(zip(SUBJECTS, ("models", "suites", "observed runs"))),
}


@blueprint.get("/findings")
def index() -> str:
    """List findings, grouped by the commits or runs that they came with."""
    reader, settings = get_reader(), get_settings()
    wanted = read_finding_filter(request.args)
    limit = check_limit(request.args.get("limit"), settings.page_size)
    page = list_findings(reader, wanted, request.args.get("cursor"), limit)
    counted = count_ranges(reader, wanted, [it.first_run_id for it in page.rows])
    counts = count_findings(reader)
    return render_template(
        "findings.html",
        groups=group_findings(page.rows, counted),
        shown=SHOWN,
        next=page.next,
        counts=counts,
        detection=get_detection(reader),
        has_runs=bool(counts.finding_count or list_bench_runs(reader)),
        given={key: request.args.get(key, "") for key in FILTERS},
        filtered=any(request.args.get(key) for key in FILTERS),
        more_given=any(request.args.get(key) for key in _MORE),
        choices=list_finding_choices(reader),
        words=finding_words,
        cells=finding_cells,
        **_OFFERED,
    )


@blueprint.get("/findings/<finding_id>")
def show(finding_id: str) -> str:
    """Show one finding: what changed, between which commits, what may have caused it, what people said."""
    return _render(_find(finding_id))


@blueprint.post("/findings/<finding_id>")
def say(finding_id: str) -> Response:
    """Keep what a person does with a finding, or says of it; what cannot be kept comes back with what was typed."""
    typed = {key: request.form.get(key, "") for key in ("action", "who", "text", "range")}
    try:
        with writing(f"finding.{typed['action'][:20]}", finding_id, f"by {typed['who'][:WHO_LIMIT]}") as connection:
            found = say_of_finding(
                connection,
                finding_id,
                typed["action"],
                who=typed["who"],
                text=typed["text"],
                whole_range=typed["range"] == "yes",
            )
    except ValueError as error:
        return make_response(_render(_find(finding_id), typed, str(error)), 400)
    if not found:
        _refuse(finding_id)
    return redirect(url_for("findings.show", finding_id=finding_id, _anchor="said"), 303)


def _find(finding_id: str) -> Finding:
    return get_finding(get_reader(), finding_id) or _refuse(finding_id)


def _refuse(finding_id: str) -> Any:
    abort(404, f"There is no finding {finding_id[:80]}; what was never confirmed goes when later runs do not show it.")


def _render(it: Finding, typed: dict[str, str] | None = None, problem: str | None = None) -> str:
    reader = get_reader()
    drawn = chart_series(reader, it)
    return render_template(
        "findings_one.html",
        it=it,
        metric=finding_words.find_metric_of(it),
        words=finding_words,
        cells=finding_cells,
        said=list_finding_words(reader, it.id),
        typed=typed or {"action": "", "who": "", "text": "", "range": ""},
        problem=problem,
        limits={"who": WHO_LIMIT, "text": TEXT_LIMIT},
        has_charts=drawn is not None,
        drawn=drawn,
        links=link_finding(it),
        others=count_range_others(reader, it),
    )
