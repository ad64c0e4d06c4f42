"""Saved views: names of pages with their filters, shared by all users of the dashboard."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.core.page import Page, decode_cursor, make_page
from compileboard.app.core.rows import find_row, list_rows
from compileboard.collectors.store.saved_views import MAX_VIEWS

VIEWS_SQL = """
select id, name, address, author, created_us
from saved_views
where (
    :path is null
    or address = :path
    or substr(address, 1, length(:path) + 1) in (:path || '?', :path || '#')
  )
  and (:after is null or name > :after)
order by name
limit :limit
"""
GET_SQL = "select id, name, address, author, created_us from saved_views where id = :id"


@dataclass(frozen=True)
class SavedView:
    """A name for a page with its filters."""

    tables = ("saved_views",)

    id: int
    name: Annotated[str, "Name that the view was saved under."]
    address: Annotated[str, "Path, query and fragment of the page: `/runs?state=failed`."]
    author: Annotated[str | None, "The login that saved it; null where none was needed."]
    created_us: int


def list_views(
    connection: sqlite3.Connection,
    path: str | None = None,
    cursor: str | None = None,
    limit: int = MAX_VIEWS,
) -> Page[SavedView]:
    """List all views, or those of one page, by name."""
    after, _id = decode_cursor(cursor, str, int) or (None, None)
    rows = list_rows(SavedView, VIEWS_SQL, connection, path=path, after=after, limit=limit + 1)
    return make_page(rows, limit, lambda view: (view.name, view.id))


def get_view(connection: sqlite3.Connection, view_id: int) -> SavedView | None:
    return find_row(SavedView, GET_SQL, connection, id=view_id)
