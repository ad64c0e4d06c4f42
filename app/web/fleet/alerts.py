"""The Alerts page."""

from __future__ import annotations

import os

from flask import Blueprint, render_template, request

from compileboard.app.alerts.labels import STATE_WORDS
from compileboard.app.alerts.rules_file import EXAMPLE
from compileboard.app.db import get_clock, get_reader, get_settings
from compileboard.app.queries.dashboard.alerts import STATES
from compileboard.app.queries.fleet.trends import read_choice
from compileboard.app.queries.page import check_limit
from compileboard.app.queries.parameters import check_keys
from compileboard.app.screens.dashboard.alerts import build_alerts

blueprint = Blueprint("alerts", __name__)


@blueprint.get("/alerts")
def index() -> str:
    args, settings = request.args, get_settings()
    check_keys(args, ("state", "cursor", "limit"))
    state = read_choice(args, "state", ("", *STATES), "") or None
    limit_count = check_limit(args.get("limit"), settings.page_size)
    now_us = get_clock().now_us
    return render_template(
        "alerts/index.html",
        screen=build_alerts(
            get_reader(),
            settings.alerts,
            os.environ,
            state,
            args.get("cursor"),
            limit_count,
            now_us,
        ),
        path=settings.alerts,
        state=state,
        states=STATES,
        state_words=STATE_WORDS,
        example=EXAMPLE,
    )
