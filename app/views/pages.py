"""The Saved views page, on which views are opened, renamed and deleted, the form that saves one,
and their API.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
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
from compileboard.app.core.api import NoBody, PageQuery, operation, read_body, refuse
from compileboard.app.core.db import get_reader, writing
from compileboard.app.core.filters import is_local_path
from compileboard.app.core.page import FilterError, Page, read_id
from compileboard.app.core.schema import Keywords
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
    views = list_views(get_reader()).rows
    return render_template("views/index.html", views=views, limit=NAME_LIMIT)


@blueprint.post("/views")
def save() -> Response:
    try:
        view = _save(request.form.get("name", ""), request.form.get("address", ""))
    except ValueError as error:
        abort(400, f"The view was not saved: {error}.")
    return redirect(view.address, 303)


@blueprint.post("/views/<view_id>")
def change(view_id: str) -> Response:
    view = find_view(view_id)
    action, name = request.form.get("action", ""), request.form.get("name", "")
    if action not in ("rename", "delete"):
        abort(400, f"action: {action[:40]!r} is neither rename nor delete.")
    try:
        _delete(view) if action == "delete" else _rename(view, name)
    except ValueError as error:
        abort(400, f"The view was not renamed: {error}.")
    return redirect(url_for("views.index"), 303)


@dataclass(frozen=True)
class NewView:
    """A view to save."""

    name: Annotated[
        str,
        Keywords(maxLength=NAME_LIMIT, examples=["Failed runs"]),
        "Its name; no other view may have it.",
    ]
    address: Annotated[
        str,
        Keywords(maxLength=ADDRESS_LIMIT, examples=["/runs?state=failed"]),
        "The address of a page of this dashboard, from the slash on: `/runs?state=failed`.",
    ]


@dataclass(frozen=True)
class NewName:
    """Another name for a view."""

    name: Annotated[
        str,
        Keywords(maxLength=NAME_LIMIT, examples=["Runs that failed"]),
        "Its new name; no other view may have it.",
    ]


@operation("/views")
def list_saved(page: PageQuery) -> Page[SavedView]:
    """List the saved views, by name."""
    return list_views(get_reader(), None, page.cursor, page.limit)


@operation("/views", method="POST", status=201, body=NewView)
def create() -> SavedView:
    """Save a view of a page with its filters."""
    body = read_body(NewView, '{"name": "Failed runs", "address": "/runs?state=failed"}')
    try:
        return _save(body.name, body.address)
    except ValueError as error:
        raise FilterError(str(error)) from None


@operation("/views/<view_id>/rename", method="POST", body=NewName)
def rename(view_id: str) -> SavedView:
    """Rename a saved view."""
    body, view = read_body(NewName, '{"name": "Failed runs"}'), find_view(view_id)
    try:
        _rename(view, body.name)
    except ValueError as error:
        raise FilterError(str(error)) from None
    return find_view(view_id)


@operation("/views/<view_id>/delete", method="POST", body=NoBody)
def delete(view_id: str) -> SavedView:
    """Delete a saved view, and return it as it was."""
    view = find_view(view_id)
    _delete(view)
    return view


def find_view(view_id: str) -> SavedView:
    """Return a saved view, or abort with 404."""
    view = get_view(get_reader(), read_id(view_id))
    return view or refuse(
        f"There is no saved view number {view_id[:40]}; it may have been deleted."
    )


def _save(name: str, address: str) -> SavedView:
    address = check_address(address)
    with writing("view.save", name.strip()[:NAME_LIMIT], address[:200]) as connection:
        view_id = save_view(connection, name, address, author=get_identity().name)
    return find_view(str(view_id))


def _rename(view: SavedView, name: str) -> None:
    detail = f"renamed to {name.strip()[:NAME_LIMIT]}"
    with writing("view.rename", view.name, detail) as connection:
        rename_view(connection, view.id, name)


def _delete(view: SavedView) -> None:
    with writing("view.delete", view.name, view.address[:200]) as connection:
        delete_view(connection, view.id)


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


def list_page_views() -> tuple[SavedView, ...]:
    """List the saved views of the current page."""
    return list_views(get_reader(), request.path).rows if "store" in g and may("read") else ()


def here() -> str:
    return request.full_path.rstrip("?")


def init_app(app: Flask) -> None:
    app.jinja_env.globals.update(page_views=list_page_views, here=here)
