"""The dashboard, its API, its reports and the reading command line. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compileboard.app.resources import HERE, __version__, resource_folder
from compileboard.app.settings import Settings

if TYPE_CHECKING:
    from flask import Flask

__all__ = ["HERE", "__version__", "create_app", "resource_folder"]


def create_app(settings: Settings | None = None) -> Flask:
    """Create the Flask application. No database is opened until a request needs one."""
    from flask import Flask
    from werkzeug.middleware.proxy_fix import ProxyFix

    from compileboard.app import db
    from compileboard.app.api import routes as api
    from compileboard.app.web import (
        access,
        assets,
        errors,
        filters,
        health,
        login,
        metrics,
        navigation,
        request_log,
        responses,
        security,
    )
    from compileboard.app.web.fleet import (
        activity,
        alerts,
        boxes,
        comparison,
        feed,
        imports,
        incidents,
        models,
        overview,
        reasons,
        reports,
        repros,
        runs,
        search,
        trends,
    )
    from compileboard.app.web.run import (
        aot,
        artifacts,
        caches,
        compiles,
        guards,
        ranks,
        run,
        shapes,
        stacks,
        timeline,
        trace_files,
    )

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
    for part in (request_log, responses, security, access, db, errors, filters, navigation, assets):
        part.init_app(app)
    # One line a page or API.
    for blueprint in (
        health.blueprint,
        metrics.blueprint,
        login.blueprint,
        overview.blueprint,
        incidents.blueprint,
        feed.blueprint,
        alerts.blueprint,
        runs.blueprint,
        activity.blueprint,
        boxes.blueprint,
        run.blueprint,
        trace_files.download_blueprint,
        compiles.blueprint,
        ranks.blueprint,
        stacks.blueprint,
        shapes.blueprint,
        artifacts.blueprint,
        trace_files.blueprint,
        timeline.blueprint,
        reasons.graph_breaks,
        reasons.recompiles,
        repros.blueprint,
        models.blueprint,
        trends.blueprint,
        comparison.blueprint,
        guards.blueprint,
        caches.blueprint,
        aot.blueprint,
        search.blueprint,
        reports.blueprint,
        imports.blueprint,
        api.blueprint,
    ):
        app.register_blueprint(blueprint)
    request_log.count_routes(app)
    return app
