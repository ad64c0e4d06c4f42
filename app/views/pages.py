"""The Saved views page, on which views are opened, renamed and deleted, and the form that saves
one.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlencode

from flask import (
    Blueprint,
    Flask,
    abort,
    current_app,
    g,
    redirect,
    render_template,
    request,
    url_for,
)
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from compileboard.app.core.access import get_identity, may
from compileboard.app.core.db import get_reader, writing
from compileboard.app.core.filters import is_local_path
from compileboard.app.core.page import read_id
from compileboard.app.views.queries import SavedView, get_view, list_views
from compileboard.collectors.store.saved_views import (
    ADDRESS_LIMIT,
    NAME_LIMIT,
    delete_view,
    rename_view,
    save_view,
)

blueprint = Blueprint("views", __name__)

# Blueprints without pages that people look at: files, feeds, answers for machines, logins.
NOT_PAGES = frozenset(("api", "feed", "health", "login", "metrics", "reports", "traces"))
# Parameters of one visit: the position in a list, and what was just done.
_PASSING = frozenset(("cursor", "done"))


@blueprint.get("/views")
def index() -> str:
    return render_template("views/index.html", views=list_views(get_reader()), limit=NAME_LIMIT)


@blueprint.post("/views")
def save() -> Response:
    name = request.form.get("name", "")
    try:
        address = check_address(request.form.get("address", ""))
        with writing("view.save", name.strip()[:NAME_LIMIT], address[:200]) as connection:
            save_view(connection, name, address, author=get_identity().name)
    except ValueError as error:
        abort(400, f"The view was not saved: {error}.")
    return redirect(address, 303)


@blueprint.post("/views/<view_id>")
def change(view_id: str) -> Response:
    view = get_view(get_reader(), read_id(view_id))
    if view is None:
        abort(404, f"There is no saved view number {view_id[:40]}; it may have been deleted.")
    action, name = request.form.get("action", ""), request.form.get("name", "")
    if action not in ("rename", "delete"):
        abort(400, f"action: {action[:40]!r} is neither rename nor delete.")
    detail = f"renamed to {name.strip()[:NAME_LIMIT]}" if action == "rename" else view.address[:200]
    try:
        with writing(f"view.{action}", view.name, detail) as connection:
            if action == "delete":
                delete_view(connection, view.id)
            else:
                rename_view(connection, view.id, name)
    except ValueError as error:
        abort(400, f"The view was not renamed: {error}.")
    return redirect(url_for("views.index"), 303)


def check_address(text: str) -> str:
    """Return the address of a page of this dashboard, without parameters such as `cursor` that a
    later visit must not repeat.

    Raises ValueError if it is not the address of such a page.
    """
    whole, _hash, fragment = text.partition("#")
    path, _mark, query = whole.partition("?")
    if not is_local_path(text) or len(text) > ADDRESS_LIMIT:
        raise ValueError(f"address: {text[:80]!r} is not the address of a page here")
    try:
        endpoint, _values = current_app.url_map.bind("").match(unquote(path), method="GET")
    except HTTPException:
        endpoint = "static"
    if endpoint == "static" or endpoint.partition(".")[0] in NOT_PAGES:
        raise ValueError(f"address: {path[:80]!r} is not a page of this dashboard")
    pairs = [(key, value) for key, value in parse_qsl(query) if key not in _PASSING]
    asked = f"?{urlencode(pairs)}" if pairs else ""
    return f"{path}{asked}{f'#{fragment}' if fragment else ''}"


def list_page_views() -> list[SavedView]:
    """List the saved views of the current page."""
    return list_views(get_reader(), request.path) if "store" in g and may("read") else []


def here() -> str:
    return request.full_path.rstrip("?")


def init_app(app: Flask) -> None:
    app.jinja_env.globals.update(page_views=list_page_views, here=here)
