"""The dashboard, its API, its reports and the `compileboard` command. Never imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compileboard.app.core.resources import HERE, __version__, resource_folder
from compileboard.app.core.settings import Settings

if TYPE_CHECKING:
    from flask import Flask

__all__ = ["HERE", "__version__", "create_app", "resource_folder"]


def create_app(settings: Settings | None = None) -> Flask:
    """Create the Flask application. No database is opened until a request needs one."""
    from flask import Flask
    from werkzeug.middleware.proxy_fix import ProxyFix

    from compileboard.app.activity import pages as activity
    from compileboard.app.alerts import pages as alerts
    from compileboard.app.aot import pages as aot
    from compileboard.app.artifacts import pages as artifacts
    from compileboard.app.benchmarks import pages as models
    from compileboard.app.benchmarks import trend_pages as trends
    from compileboard.app.caches import pages as caches
    from compileboard.app.comparison import pages as comparison
    from compileboard.app.compiles import pages as compiles
    from compileboard.app.core import access, db, filters, responses
    from compileboard.app.cuda_graphs import pages as cuda_graphs
    from compileboard.app.guards import pages as guards
    from compileboard.app.imports import pages as imports
    from compileboard.app.incidents import pages as incidents
    from compileboard.app.push import pages as boxes
    from compileboard.app.ranks import pages as ranks
    from compileboard.app.reasons import pages as reasons
    from compileboard.app.reports import pages as reports
    from compileboard.app.repros import pages as repros
    from compileboard.app.runs import overview_pages as overview
    from compileboard.app.runs import pages as runs
    from compileboard.app.search import pages as search
    from compileboard.app.server import (
        api_pages,
        assets,
        errors,
        health,
        login,
        navigation,
        prometheus,
        request_log,
        run_addresses,
        security,
    )
    from compileboard.app.server import openapi as api
    from compileboard.app.shapes import pages as shapes
    from compileboard.app.stacks import pages as stacks
    from compileboard.app.steps import pages as steps
    from compileboard.app.timeline import pages as timeline
    from compileboard.app.views import pages as views

    app = Flask(
        "app",
        root_path=str(HERE),
        static_folder=str(resource_folder("static")),
        template_folder=str(resource_folder("templates")),
    )
    app.config["COMPILEBOARD"] = settings or Settings()
    app.config["MAX_CONTENT_LENGTH"] = 1 << 20
    proxy_count = app.config["COMPILEBOARD"].trusted_proxies
    if proxy_count:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=proxy_count, x_proto=1)  # type: ignore[method-assign]
    app.url_map.strict_slashes = False
    for part in (
        request_log,
        responses,
        security,
        access,
        db,
        run_addresses,
        errors,
        filters,
        navigation,
        assets,
        views,
    ):
        part.init_app(app)
    # One line a page or API.
    for blueprint in (
        health.blueprint,
        prometheus.blueprint,
        login.blueprint,
        overview.blueprint,
        incidents.blueprint,
        alerts.feed_blueprint,
        alerts.blueprint,
        runs.list_blueprint,
        activity.blueprint,
        views.blueprint,
        boxes.blueprint,
        runs.blueprint,
        artifacts.download_blueprint,
        compiles.blueprint,
        ranks.blueprint,
        stacks.blueprint,
        shapes.blueprint,
        artifacts.blueprint,
        artifacts.directory_blueprint,
        timeline.blueprint,
        reasons.graph_breaks,
        reasons.recompiles,
        reasons.rerecordings,
        reasons.failures,
        repros.blueprint,
        models.blueprint,
        trends.blueprint,
        comparison.blueprint,
        guards.blueprint,
        caches.blueprint,
        aot.blueprint,
        cuda_graphs.blueprint,
        steps.blueprint,
        search.blueprint,
        reports.blueprint,
        imports.blueprint,
        api.blueprint,
        api_pages.blueprint,
    ):
        app.register_blueprint(blueprint)
    return app
