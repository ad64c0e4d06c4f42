"""The addresses that a static copy includes, the important ones first.

Pages are found by following links, so new pages need no change here, except those with filters or
orders in their address.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from werkzeug.exceptions import HTTPException
from werkzeug.routing import MapAdapter

from compileboard.app.analysis.models.series import FIELDS
from compileboard.app.queries.fleet.trends import FILTERS
from compileboard.collectors.store.rollups.summaries import SET

# Parts of the dashboard that are forms, files or the machine's.
_SERVER_PARTS = frozenset(
    ("alerts", "api", "feed", "health", "imports", "reports", "search", "site", "static", "traces")
)
_SERVER_PAGES = frozenset(
    (
        "runs.confirm_delete",
        "artifacts.raw",
        "artifacts.program",
        "artifacts.diff",
        "compare.download",
        "guards.show_diff",
        "repros.download_program",
        "repros.download_archive",
        "search.show_run",
    )
)
# Graphs, generated code and guards: most of a database's bytes, and source of the program.
_PAYLOADS = frozenset(("artifacts.show", "guards.show_one", "artifacts.changes"))
# Trees of frames with their lines, and graphs as programs, which nothing takes out again.
_ALL_SOURCE = frozenset(("stacks.show", "repros.show"))
# What an address may ask for; a page that is not here may ask for the last.
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
    "repros.show": 3,
    "compile.show": 5,
    "caches.show_one": 6,
    "run.show_config": 6,
}
_RUN_PART, _PAYLOAD = 4, 7
# What people call the pages of a kind; several kinds may be one.
_WORDS = {
    "run.show": "run pages",
    "models.show_run": "results of runs",
    "models.show": "model pages",
    "compile.show": "compiles",
    "incidents.show": "incidents",
    "incidents.index": "lists of incidents",
    "graph_breaks.show": "graph breaks",
    "recompiles.show": "causes of recompiles",
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
    "directory.show": "directories of runs",
    "guards.show": "guards of runs",
    "guards.show_one": "guard trees",
    "caches.show_one": "cache lookups",
    "run.show_config": "configurations",
    "artifacts.show": "graphs and code",
    "artifacts.changes": "changes between compiles",
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
        """Return the page at a normalized address, None if it is not copied; `source` is the page
        that links to it.
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
        if endpoint == "compare.index" and not self._takes_comparison(dict(pairs), source):
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
        """Return the page of the newest run for the page of a model in a run, None for other
        addresses.
        """
        path, _mark, query = address.partition("?")
        if not path.startswith("/models/"):
            return None
        pairs = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "run"]
        return f"{path}?{urlencode(pairs)}" if pairs else path

    def _takes_comparison(self, asked: dict[str, str], source: str) -> bool:
        if not asked:
            return True
        if (
            "base" in asked and source == "compare.index"
        ):  # a proposed pair, no metric of one and not its sides swapped
            return "metric" not in asked and asked.get("new") in self.newest
        if "base" in asked:
            return source != "run.show" and "new" in asked
        return asked.get("new") in self.newest
