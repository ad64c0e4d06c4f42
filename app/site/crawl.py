"""Fetch the dashboard's pages without a server, in one transaction."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import orjson
from flask import Flask, before_render_template, g
from flask.testing import FlaskClient
from jinja2 import Template
from werkzeug.routing import MapAdapter

from compileboard.app import create_app
from compileboard.app.analysis.models.series import label_fields
from compileboard.app.engines.address import parse_address
from compileboard.app.engines.store import Store
from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fleet.trends import address_set, list_sets
from compileboard.app.reports.redaction import clean_row
from compileboard.app.settings import Settings
from compileboard.app.site.folder import Stage
from compileboard.app.site.links import list_links, name_file, normalize
from compileboard.app.site.selection import PageSelector, SelectedPage, name_kind

# What Flask puts into every page; templates look at addresses there.
_FLASKS = frozenset(("g", "request", "session", "config"))


@dataclass(frozen=True)
class SiteCopy:
    database: str
    written_us: int


def make_copying_app(
    store: Store, settings: Settings, written_us: int, *, source: bool = True
) -> Flask:
    address = parse_address(settings.db)
    name = os.path.basename(address.folder or address.board)
    # The folder that a database lies in is the exporting machine's alone.
    own = {
        "host": "127.0.0.1",
        "allow_host": "",
        "trusted_proxies": 0,
        "identity_header": "",
        "reading": "open",
    }
    app = create_app(replace(settings, db=name, uploads="no", **own))  # type: ignore[arg-type]
    app.jinja_env.globals["site_copy"] = SiteCopy(name, written_us)

    def lend() -> None:
        g.store = store

    app.before_request(lend)
    # Called before app.db's own, which would close it.
    app.teardown_appcontext(lambda _error: g.pop("store", None))
    if not source:
        before_render_template.connect(_redact, app)
    return app


def _redact(_app: Flask, template: Template, context: dict[str, Any]) -> None:
    context.update(
        clean_row({name: value for name, value in context.items() if name not in _FLASKS})
    )


def bind(app: Flask) -> MapAdapter:
    return app.url_map.bind("localhost")


def fetch(client: FlaskClient, address: str) -> tuple[int, bytes]:
    answer = client.get(address, headers={"Host": "localhost"})
    return answer.status_code, answer.get_data()


@dataclass
class Crawled:
    files: dict[str, str] = field(default_factory=dict)
    endpoints: dict[str, str] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)  # linked to and not in the copy
    beyond: Counter[str] = field(default_factory=Counter)  # kinds of pages that the limit left out
    failed: dict[str, int] = field(default_factory=dict)  # address: status


def crawl(
    client: FlaskClient,
    chooser: PageSelector,
    stage: Stage,
    most_pages: int,
    print_line: Callable[[str], None] | None,
) -> Crawled:
    """Fetch pages starting at the overview, each into its file, up to `most_pages`.

    Raises OSError if a file cannot be written.
    """
    crawled = Crawled()
    waiting: list[tuple[int, int, SelectedPage]] = []
    seen: set[tuple[str, bool]] = set()

    def add(link: str, source: str) -> None:
        address = normalize(link)
        if (address, source in _JUDGING) in seen:
            return
        seen.add((address, source in _JUDGING))
        choice = chooser.choose(address, source)
        if choice is None:
            crawled.left_out.add(address)
            simpler = chooser.simplify(address)
            if simpler not in (None, address):
                add(str(simpler), source)
        elif address not in taken:
            taken.add(address)
            heapq.heappush(waiting, (choice.rank, len(seen), choice))

    taken: set[str] = set()
    add("/", "")
    while waiting:
        _rank, _place, choice = heapq.heappop(waiting)
        if len(crawled.files) >= most_pages:
            crawled.beyond[name_kind(choice.endpoint)] += 1
            continue
        status, body = fetch(client, choice.address)
        if status != 200:
            # A link to what is not recorded leads nowhere on the dashboard as well.
            (
                crawled.failed.update({choice.address: status})
                if status >= 500
                else crawled.left_out.add(choice.address)
            )
            continue
        file = name_file(choice.address)
        stage.write(file, body)
        crawled.files[choice.address], crawled.endpoints[choice.address] = file, choice.endpoint
        for link in list_links(body.decode()):
            add(link, choice.endpoint)
        if print_line and len(crawled.files) % 10 == 0:
            print_line(f"{len(crawled.files)} pages read, {len(waiting)} known and waiting")
    crawled.left_out -= crawled.files.keys()
    return crawled


# Pages that lead to comparisons of everything with everything; from any other, a comparison is
# worth a page.
_JUDGING = frozenset(("run.show", "compare.index"))


FOLDER = "data"
_API = "/api/v1"
_MOST_SETS = 60
# Name, address and what it has. An address that this dashboard does not answer has no file.
_LISTS = (
    ("overview", "/overview", "sums over all runs, as the overview has them"),
    ("runs", "/runs?limit=1000", "the newest runs, up to 1000"),
    ("models", "/models?limit=1000", "the newest result of each model, up to 1000"),
    (
        "incidents",
        "/incidents?state=any&status=any&limit=1000",
        "incidents with their changes, up to 1000",
    ),
    ("graph_breaks", "/graph_breaks?limit=1000", "distinct graph breaks, up to 1000"),
    ("recompiles", "/recompiles?limit=1000", "causes of recompiles, up to 1000"),
    ("repros", "/repros?limit=1000", "failures that left a graph, up to 1000"),
)


def write_data(
    client: FlaskClient, engine: Engine, stage: Stage, *, source: bool
) -> list[tuple[str, str, str]]:
    written = []
    for name, address, meaning in (*_LISTS, *_list_sets(engine)):
        status, body = fetch(client, _API + address)
        if status == 200:
            file = f"{FOLDER}/{name}.json"
            stage.write(file, body if source else orjson.dumps(clean_row(orjson.loads(body))))
            written.append((name, file, meaning))
    return written


def _list_sets(engine: Engine) -> Iterator[tuple[str, str, str]]:
    for model_set in list_sets(engine)[:_MOST_SETS]:
        query = urlencode(address_set(model_set))
        # The name of a page with this query, without what is around it.
        file_name = name_file(normalize(f"/trend?{query}")).split("/")[1]
        name = f"{model_set.suite}: {label_fields(model_set.fields)}"
        yield f"trend-{file_name}", f"/trend?{query}", f"metrics of {name}, run by run"
        yield f"summary-{file_name}", f"/summary?{query}", f"summary of {name}"
