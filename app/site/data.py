"""The JSON of the API's main lists beside the pages, for scripts: what the addresses would answer, as files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from urllib.parse import urlencode

import orjson
from flask.testing import FlaskClient

from compileboard.app.analysis.model_history import label_fields
from compileboard.app.queries.trend_filter import address_set
from compileboard.app.queries.trends import list_sets
from compileboard.app.reports.source import clean_row
from compileboard.app.site.address import name_file, normalize
from compileboard.app.site.folder import Stage
from compileboard.app.site.render import fetch

FOLDER = "data"
_API = "/api/v1"
_MOST_SETS = 60
# Name, address and what it has. An address that this dashboard does not answer has no file.
_LISTS = (
    ("overview", "/overview", "sums over all runs, as the overview has them"),
    ("runs", "/runs?limit=1000", "the newest runs, up to 1000"),
    ("models", "/models?limit=1000", "the newest result of each model, up to 1000"),
    ("findings", "/findings?limit=1000", "regressions and what else was found, up to 1000"),
    ("graph_breaks", "/graph_breaks?limit=1000", "distinct graph breaks, up to 1000"),
    ("recompiles", "/recompiles?limit=1000", "causes of recompiles, up to 1000"),
)


def write_data(
    client: FlaskClient, reader: sqlite3.Connection, stage: Stage, *, source: bool
) -> list[tuple[str, str, str]]:
    """Write the files; return the name, the file and the meaning of each.

    Raises: OSError if a file cannot be written.
    """
    written = []
    for name, address, meaning in (*_LISTS, *_list_sets(reader)):
        status, body = fetch(client, _API + address)
        if status == 200:
            file = f"{FOLDER}/{name}.json"
            stage.write(file, body if source else orjson.dumps(clean_row(orjson.loads(body))))
            written.append((name, file, meaning))
    return written


def _list_sets(reader: sqlite3.Connection) -> Iterator[tuple[str, str, str]]:
    """Yield summary and trend of each suite and way of measuring it."""
    for it in list_sets(reader)[:_MOST_SETS]:
        query = urlencode(address_set(it))
        # The name of a page with this query, without what is around it.
        name = name_file(normalize(f"/trend?{query}")).split("/")[1]
        said = f"{it.suite}: {label_fields(it.fields)}"
        yield f"trend-{name}", f"/trend?{query}", f"metrics of {said}, run by run"
        yield f"summary-{name}", f"/summary?{query}", f"summary of {said}"
