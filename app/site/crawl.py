"""Fetch the dashboard's pages without a server, in one transaction."""

from __future__ import annotations

import hashlib
import heapq
import html
import json
import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import orjson
from flask import Flask, before_render_template, g
from flask.testing import FlaskClient
from jinja2 import Template
from werkzeug.exceptions import HTTPException
from werkzeug.routing import MapAdapter

from compileboard.app import create_app
from compileboard.app.benchmarks.series import FIELDS, label_fields
from compileboard.app.benchmarks.trend_queries import FILTERS, list_sets, model_set_parameters
from compileboard.app.core.address import parse_address
from compileboard.app.core.engine import Engine
from compileboard.app.core.settings import Settings
from compileboard.app.core.store import Store
from compileboard.app.reports.redaction import clean_row
from compileboard.app.site.folder import Stage
from compileboard.collectors.store.rollups import SET

PAGE = "index.html"
# Folders and files beside the pages; no page name begins with one.
BESIDE = frozenset(("static", "data"))
_PLAIN = re.compile(r"[a-z0-9](?:[a-z0-9_.-]{0,58}[a-z0-9_-])?")
_RUN_ID = re.compile(r"[0-9A-Z]{26}")  # a ULID stays readable; one in small letters does not
_SMALL_RUN_ID = re.compile(r"[0-9a-z]{26}")
# Windows reserves these names for devices, with any extension.
_DEVICES = frozenset(
    ("con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(10)))
)
_MAX_CHARACTERS = 180  # per path: Windows ends at 260 including the folder
_HASH = 16


def normalize(address: str) -> str:
    """Return the canonical form of an address, without its fragment."""
    # Not urlsplit, which takes a name after a second slash for a host, and rejects one with a
    # bracket.
    path, _mark, asked = address.partition("#")[0].partition("?")
    path = "/" + quote(unquote(path), safe="/:@!$&'()*+,;=~-._").lstrip("/")
    query = urlencode(sorted(parse_qsl(asked, keep_blank_values=True), key=lambda pair: pair[0]))
    return f"{path}?{query}" if query else path


def name_file(address: str) -> str:
    """Return the path of a normalized address's file in the site's folder."""
    path, _mark, query = address.partition("?")
    segments = [unquote(part) for part in path.split("/")[1:]] if path != "/" else []
    names = [
        _name_segment(segment, first=position == 0) for position, segment in enumerate(segments)
    ]
    if query:
        names.append(
            _shorten("?", "-".join(value for pair in parse_qsl(query) for value in pair), query)
        )
    name = "/".join((*names, PAGE))
    if len(name) > _MAX_CHARACTERS:
        kind = names[0] if len(names[0]) < 40 else "long"
        name = "/".join((kind, _shorten("//", segments[-1], address), PAGE))
    return name


def relative_link(source: str, target: str) -> str:
    return quote(posixpath.relpath(target, posixpath.dirname(source) or "."), safe="/~=+,@")


def _name_segment(segment: str, *, first: bool) -> str:
    if _RUN_ID.fullmatch(segment):
        return segment
    plain = _PLAIN.fullmatch(segment) and not _SMALL_RUN_ID.fullmatch(segment)
    if (
        plain
        and segment != PAGE
        and segment.partition(".")[0] not in _DEVICES
        and not (first and segment in BESIDE)
    ):
        return segment
    return _shorten("/", segment, segment)


def _shorten(kind: str, shown: str, whole: str) -> str:
    readable = re.sub(r"[^a-z0-9]+", "-", shown.lower()[:200]).strip("-")[:40].strip("-") or "x"
    digest = hashlib.sha256(f"{kind}{whole}".encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{readable}~{digest}"


LEFT_OUT = "Not in this site"
# Buttons whose target is left out: removed with their label.
_BUTTONS = frozenset(("button", "nav__link", "tabs__link", "panel__link"))
_ATTRIBUTES = r'((?:\s+[^\s"=<>/]+(?:="[^"]*")?)*)'
_LINK = re.compile(rf"<a\b{_ATTRIBUTES}\s*>(.*?)</a>", re.DOTALL)
_ASSET = re.compile(r'(<(?:link|script)\b[^>]*?\s(?:href|src)=")(/static/[^"]*)(")([^>]*>)')
_ELSEWHERE = re.compile(r'\s*<link\b[^>]*\shref="/(?!static/|/)[^"]*"[^>]*>')  # such as a feed
_FORM = re.compile(r"<form\b.*?</form>", re.DOTALL)
_DATA = re.compile(r'<script type="application/json"[^>]*>(.*?)</script>', re.DOTALL)
_TEXT = re.compile(r'"(/[^"\\]*(?:\\.[^"\\]*)*)"')
_RUNS = re.compile(r'"runs":\s*(\[[^\]]*\])')
_PREFIX = re.compile(r'\sdata-compile="([^"]*)"')
_HREF = re.compile(r'\shref="([^"]*)"')
_CLASS = re.compile(r'\sclass="([^"]*)"')


@dataclass
class SitePage:
    address: str
    file: str
    files: Mapping[str, str]  # normalized address: file
    simplify: Callable[[str], str | None]  # replaces an address by an equivalent one
    assets: set[str] = field(default_factory=set)  # filled here: names below static/

    def find_link(self, address: str) -> str | None:
        """Return the link from this page to an unescaped address, None if the copy lacks
        that page.
        """
        normalized, fragment = normalize(address), address.partition("#")[2]
        target = self.files.get(normalized)
        if target is None:
            simpler = self.simplify(normalized)
            target = self.files.get(simpler) if simpler else None
            if target == self.file:
                return None  # its target is missing, and the reader is on this page
        if target is None:
            return None
        link = relative_link(self.file, target)
        return f"{link}#{fragment}" if fragment else link


def list_links(text: str) -> list[str]:
    matches = (_HREF.search(match[1]) for match in _LINK.finditer(text))
    links = (html.unescape(match[1]) for match in matches if match)
    return [
        link for link in dict.fromkeys(links) if link.startswith("/") and not link.startswith("//")
    ]


def rewrite_links(text: str, page: SitePage) -> str:
    text = _ELSEWHERE.sub("", _FORM.sub("", text))
    text = _LINK.sub(lambda match: _rewrite_link(match, page), text)
    files = _list_data_files(text, page)
    text = _ASSET.sub(lambda match: _rewrite_asset(match, page), text)
    if files or _DATA.search(text):
        # "<" could end the script; everything else is JSON.
        data = json.dumps(files, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        text = text.replace(
            "</body>",
            f'<script type="application/json" id="site-files">{data}</script>\n</body>',
            1,
        )
    return text


def _rewrite_link(link: re.Match[str], page: SitePage) -> str:
    attributes, words = link[1], link[2]
    href = _HREF.search(attributes)
    if href is None or not href[1].startswith("/") or href[1].startswith("//"):
        return link[0]
    # Entities first: the # of &#39; does not begin a fragment.
    file = page.find_link(html.unescape(href[1]))
    if file is not None:
        before, after = attributes[: href.start(1)], attributes[href.end(1) :]
        return f"<a{before}{html.escape(file)}{after}>{words}</a>"
    classes = _CLASS.search(attributes)
    if ' rel="next"' in attributes:
        return f'<span class="pager__end">{words}: {LEFT_OUT.lower()}</span>'
    if classes and _BUTTONS.intersection(classes[1].split()):
        return ""
    shown = f' class="{classes[1]}"' if classes else ""
    return f'<span{shown} title="{LEFT_OUT}">{words}</span>'


def _rewrite_asset(tag: re.Match[str], page: SitePage) -> str:
    name, mark, query = tag[2].removeprefix("/static/").partition("?")
    page.assets.add(name)
    rest = tag[4]
    if name.endswith(".mjs"):
        # Browsers load no module from a disk; app.site.scripts makes one script of it and its
        # imports.
        name, rest = f"{name.removesuffix('.mjs')}.js", rest.replace(' type="module"', " defer")
    return f"{tag[1]}{relative_link(page.file, f'static/{name}')}{mark}{query}{tag[3]}{rest}"


def _list_data_files(text: str, page: SitePage) -> dict[str, str]:
    targets: dict[str, str] = {}
    prefixes = [html.unescape(match) for match in _PREFIX.findall(text)]
    for address in page.files if prefixes else ():
        if address.startswith(tuple(prefixes)):
            targets[address] = address
    for data in _DATA.findall(text):
        for match in set(_TEXT.findall(data)):
            address = json.loads(f'"{match}"')
            targets[address] = address
        for runs in _RUNS.findall(data):
            targets |= {
                f"/runs/{run_id}": f"/runs/{run_id}"
                for run_id in json.loads(runs)
                if isinstance(run_id, str)
            }
    links = {address: page.find_link(address) for address in targets}
    return {address: link for address, link in links.items() if link is not None}


# Parts of the dashboard that are forms, files or about the machine.
_SERVER_PARTS = frozenset(
    (
        "alerts",
        "api",
        "feed",
        "health",
        "imports",
        "reports",
        "search",
        "site",
        "static",
        "traces",
        "views",
    )
)
_SERVER_PAGES = frozenset(
    (
        "runs.confirm_delete",
        "artifacts.raw",
        "artifacts.program",
        "artifacts.diff",
        "compare.compiles",
        "compare.download",
        "guards.show_diff",
        "repros.download_program",
        "repros.download_archive",
        "search.show_run",
    )
)
# Graphs, generated code and guards: most of a database's bytes, and source of the program.
_PAYLOADS = frozenset(
    ("artifacts.show", "guards.show_one", "artifacts.changes", "artifacts.provenance")
)
# Frame trees with their lines, and graphs as programs, from which source cannot be removed.
_ALL_SOURCE = frozenset(("stacks.show", "repros.show"))
# Parameters of copied pages; only links to missing pages may have the last.
_KEYS: dict[str, frozenset[str]] = {
    "overview.index": frozenset(FILTERS),
    "incidents.index": frozenset(("suite", "cursor", "state", "status", "direction")),
    "runs.index": frozenset(("suite", "cursor")),
    "run.show": frozenset(("tab", "view", "cursor")),
    "models.index": frozenset((*SET, "cursor", "view")),
    "models.show": frozenset(FIELDS),
    "trends.index": frozenset((*FILTERS, "metric", "model", "function", "break", "category")),
    "compare.index": frozenset(("base", "new", "metric")),
}
_OTHER_KEYS = frozenset(("cursor", "suite"))
_RANKS = {
    "overview.index": 0,
    "runs.index": 0,
    "models.index": 0,
    "trends.index": 1,
    "compare.index": 1,
    "run.show": 2,
    "models.show": 3,
    "graph_breaks.show": 3,
    "recompiles.show": 3,
    "rerecordings.show": 3,
    "failures.show": 3,
    "repros.show": 3,
    "compile.show": 5,
    "caches.show_one": 6,
    "run.show_config": 6,
}
_RUN_PART, _PAYLOAD = 4, 7
# Names for kinds of pages; several kinds may share one.
_WORDS = {
    "run.show": "run pages",
    "models.show_run": "results of runs",
    "models.show": "model pages",
    "compile.show": "compiles",
    "incidents.show": "incidents",
    "incidents.index": "lists of incidents",
    "graph_breaks.show": "graph breaks",
    "recompiles.show": "causes of recompiles",
    "rerecordings.show": "reasons of CUDA graphs",
    "failures.show": "failures across runs",
    "repros.show": "repros",
    "repros.show_run": "repros of runs",
    "compare.index": "comparisons",
    "trends.index": "trends",
    "overview.index": "overviews of suites",
    "timeline.show": "timelines",
    "stacks.show": "stacks of runs",
    "shapes.show": "shapes of runs",
    "ranks.show": "ranks of runs",
    "aot.show": "AOT graphs of runs",
    "cuda_graphs.show": "CUDA graphs of runs",
    "steps.show": "steps of runs",
    "directory.show": "directories of runs",
    "guards.show": "guards of runs",
    "guards.show_one": "guard trees",
    "caches.show_one": "cache lookups",
    "run.show_config": "configurations",
    "artifacts.show": "graphs and code",
    "artifacts.changes": "changes between compiles",
    "artifacts.provenance": "sources beside kernels",
}


def name_kind(endpoint: str) -> str:
    return _WORDS.get(endpoint, "other lists" if endpoint.endswith(".index") else "other pages")


@dataclass(frozen=True)
class SelectedPage:
    address: str
    endpoint: str
    rank: int


@dataclass
class PageSelector:
    adapter: MapAdapter
    runs: Collection[str]
    newest: Collection[str]
    payloads: bool = False
    source: bool = True

    def choose(self, address: str, source: str = "") -> SelectedPage | None:
        """Return the page at a normalized address, None if it is not copied; `source` is the
        linking page.
        """
        path, _mark, query = address.partition("?")
        try:
            endpoint, arguments = self.adapter.match(path, method="GET")
        except HTTPException:
            return None
        if endpoint.partition(".")[0] in _SERVER_PARTS or endpoint in _SERVER_PAGES:
            return None
        if (endpoint in _PAYLOADS and not self.payloads) or (
            endpoint in _ALL_SOURCE and not self.source
        ):
            return None
        if "run_id" in arguments and arguments["run_id"] not in self.runs:
            return None
        pairs = parse_qsl(query, keep_blank_values=True)
        if not {key for key, _value in pairs} <= _KEYS.get(endpoint, _OTHER_KEYS):
            return None
        if endpoint == "compare.index" and not self._includes_comparison(dict(pairs), source):
            return None
        if (
            endpoint == "trends.index"
            and len({key for key, _ in pairs} & {"model", "function", "break"}) > 1
        ):
            return None
        other = _PAYLOAD if endpoint in _PAYLOADS else _RUN_PART if "run_id" in arguments else 0
        # A page with a query is one of many; the plain one comes first.
        return SelectedPage(address, endpoint, _RANKS.get(endpoint, other) * 2 + bool(query))

    def simplify(self, address: str) -> str | None:
        """Replace the address of a model's page in an older run by that of the newest run. None for
        other addresses.
        """
        path, _mark, query = address.partition("?")
        if not path.startswith("/models/"):
            return None
        pairs = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "run"]
        return f"{path}?{urlencode(pairs)}" if pairs else path

    def _includes_comparison(self, asked: dict[str, str], source: str) -> bool:
        if not asked:
            return True
        if (
            "base" in asked and source == "compare.index"
        ):  # a proposed pair, without a metric and not swapped
            return "metric" not in asked and asked.get("new") in self.newest
        if "base" in asked:
            return source != "run.show" and "new" in asked
        return asked.get("new") in self.newest


# Flask's variables in every page; templates find addresses there.
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
    # The database's folder must not be published.
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
class CrawlResult:
    files: dict[str, str] = field(default_factory=dict)
    endpoints: dict[str, str] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)  # linked, but not in the copy
    beyond: Counter[str] = field(default_factory=Counter)  # kinds of pages that the limit left out
    failed: dict[str, int] = field(default_factory=dict)  # address: status


def crawl(
    client: FlaskClient,
    chooser: PageSelector,
    stage: Stage,
    max_pages: int,
    print_line: Callable[[str], None] | None,
) -> CrawlResult:
    """Fetch pages starting at the overview, each into its file, up to `max_pages`.

    Raises OSError if a file cannot be written.
    """
    crawled = CrawlResult()
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
        if len(crawled.files) >= max_pages:
            crawled.beyond[name_kind(choice.endpoint)] += 1
            continue
        status, body = fetch(client, choice.address)
        if status != 200:
            # A link to something unrecorded leads nowhere on the dashboard either.
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


# These pages link to comparisons of everything with everything; from any other, a comparison is
# worth a page.
_JUDGING = frozenset(("run.show", "compare.index"))


FOLDER = "data"
_API = "/api/v1"
_MAX_SETS = 60
# Name, address and contents. An address that this dashboard does not answer has no file.
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
    (
        "cuda_graphs",
        "/cuda_graphs?limit=1000",
        "reasons why CUDA graphs were recorded again, up to 1000",
    ),
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
    for model_set in list_sets(engine)[:_MAX_SETS]:
        query = urlencode(model_set_parameters(model_set))
        # The page's name with this query, without its frame.
        file_name = name_file(normalize(f"/trend?{query}")).split("/")[1]
        name = f"{model_set.suite}: {label_fields(model_set.fields)}"
        yield f"trend-{file_name}", f"/trend?{query}", f"metrics of {name}, run by run"
        yield f"summary-{file_name}", f"/summary?{query}", f"summary of {name}"
