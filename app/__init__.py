"""The dashboard, its API, its reports and the reading command line. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compileboard.app.resources import HERE, __version__, resource_folder
from compileboard.app.settings import Settings

if TYPE_CHECKING:
    from flask import Flask

__all__ = ["HERE", "__version__", "create_app", "resource_folder"]


def create_app(settings: Settings | None = None) -> Flask:
    """Make the web application. It opens no database until a request needs one."""
    from flask import Flask
    from werkzeug.middleware.proxy_fix import ProxyFix

    from compileboard.app import db
    from compileboard.app.api import routes as api
    from compileboard.app.web import (
        activity,
        alerts,
        aot,
        artifacts,
        assets,
        caches,
        compare,
        compile,
        directory,
        errors,
        feed,
        filters,
        findings,
        graph_breaks,
        guards,
        health,
        imports,
        models,
        overview,
        ranks,
        recompiles,
        reports,
        run,
        runs,
        search,
        security,
        shapes,
        stacks,
        timeline,
        traces,
        trends,
        wire,
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
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=proxy_count, x_proto=0)  # type: ignore[method-assign]
    app.url_map.strict_slashes = False
    for part in (wire, security, db, errors, filters, assets):
        part.init_app(app)
    # One line a page or API. The navigation shows an entry once its blueprint is here.
    for blueprint in (
        health.blueprint,
        overview.blueprint,
        findings.blueprint,
        feed.blueprint,
        alerts.blueprint,
        runs.blueprint,
        activity.blueprint,
        run.blueprint,
        traces.blueprint,
        compile.blueprint,
        ranks.blueprint,
        stacks.blueprint,
        shapes.blueprint,
        artifacts.blueprint,
        directory.blueprint,
        timeline.blueprint,
        graph_breaks.blueprint,
        recompiles.blueprint,
        models.blueprint,
        trends.blueprint,
        compare.blueprint,
        guards.blueprint,
        caches.blueprint,
        aot.blueprint,
        search.blueprint,
        reports.blueprint,
        imports.blueprint,
        api.blueprint,
    ):
        app.register_blueprint(blueprint)
    return app
