"""Saved views: names of pages with their filters, shared by all users of the dashboard."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from compileboard.app.core.rows import make_row

VIEWS_SQL = """
select id, name, address, author, created_us
from saved_views
where :path is null
  or address = :path
  or substr(address, 1, length(:path) + 1) in (:path || '?', :path || '#')
order by name, id
limit 500
"""


@dataclass(frozen=True)
class SavedView:
    id: int
    name: str
    address: str
    author: str | None
    created_us: int

    @property
    def path(self) -> str:
        return self.address.partition("#")[0].partition("?")[0]


def list_views(connection: sqlite3.Connection, path: str | None = None) -> list[SavedView]:
    """List all views, or those of one page, by name."""
    return [make_row(SavedView, row) for row in connection.execute(VIEWS_SQL, {"path": path})]


def get_view(connection: sqlite3.Connection, view_id: int) -> SavedView | None:
    return next((view for view in list_views(connection) if view.id == view_id), None)
