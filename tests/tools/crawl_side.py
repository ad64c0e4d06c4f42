"""One side of tests.tools.crawl, in its own process: `crawl_side.py CHECKOUT FOLDER TASK N`.

It runs the code of that checkout, whichever checkout this file belongs to. Therefore it imports
`compileboard.app` alone, and the tool that makes the database.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import json
import os
import random
import re
import runpy
import sqlite3
import sys
import time
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

NOW_US = 1_795_000_000_000_000 + 4 * 86_400_000_000  # after everything in the database
BOARD, ANSWERS = "board.db", "answers.db"
# Limits on addresses with a query, for each rule: of one query, of one set of parameters, of all.
MAX_OF_QUERY, MAX_OF_PARAMETERS, MAX_OF_RULE = 4, 20, 200
MAX_OF_RUN = 8  # artifacts, compiles … of one run, on pages
MAX_OF_LIST = 3  # things of one list of the API
FORMATS = ("html", "md", "json", "csv", "parquet", "bundle")
_CHANGING = {
    "date",
    "etag",
    "content-length",
    "last-modified",
    "set-cookie",
    "x-request-id",
    "server-timing",
}
_LINK = re.compile(r'\s(?:href|src|action|data-[\w-]+)="([/?][^"#]*)')
_UNSEEN = re.compile(r"(<(script|style)\b(?![^>]*json)[^>]*>).*?(</\2>)", re.S)


def fix_clock_and_chance() -> None:
    """Make this process's clock stand still and its random ids the same each time."""
    os.urandom = random._urandom = random.Random(1).randbytes  # type: ignore[attr-defined]
    time.time_ns = lambda: NOW_US * 1000
    time.time = lambda: NOW_US / 1e6


def flatten(value: Any, path: str = "") -> Iterator[str]:
    """Write JSON as a line a value, each with its path."""
    if isinstance(value, dict | list) and value:
        for key, entry in sorted(value.items()) if isinstance(value, dict) else enumerate(value):
            yield from flatten(
                entry, f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}"
            )
    else:
        yield f"{path or '.'} = {json.dumps(value, ensure_ascii=False)}"


def read_parquet(body: bytes) -> Iterator[str]:
    """Write a Parquet file as its schema and its rows."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(io.BytesIO(body))
    yield from (f"{field.name}: {field.type}" for field in table.schema)
    yield from map(repr, table.to_pylist())


def to_text(body: bytes, kind: str) -> str:
    """Write a body as lines that can be compared; HTML without scripts and styles, a tag a line."""
    if kind == "application/json" and body:
        return "\n".join(flatten(json.loads(body)))
    if body[:4] == b"PAR1":
        return "\n".join(read_parquet(body))
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"{len(body)} bytes, sha256 {hashlib.sha256(body).hexdigest()}"
    if kind == "text/html" or kind.endswith("xml"):
        text = (
            re.sub(r"\s+", " ", _UNSEEN.sub(r"\1\3", text)).replace("<", "\n<").replace(" \n", "\n")
        )
        text = re.sub(r',(?="|&#34;)', "\n,", text)  # a figure's JSON, a name a line
    return re.sub(r"([?&]v=|#sha256-|sha256-)[\w+/=-]+", r"\1", text)


class Answers:
    """What one checkout answers, kept in a database for the comparison."""

    def __init__(self, folder: Path, client: Any) -> None:
        self.client = client
        self.store = sqlite3.connect(folder / ANSWERS)
        self.store.execute(
            "create table answers (address text primary key, kind, status, ms real, text)"
        )

    def keep(self, address: str, kind: str, status: int, text: str, ms: float = 0) -> None:
        """Keep an answer."""
        packed = zlib.compress(text.encode("utf-8", "surrogatepass"), 1)
        self.store.execute(
            "insert or ignore into answers values (?, ?, ?, ?, ?)",
            (address, kind, status, ms, packed),
        )

    def ask(self, address: str, kind: str = "", label: str = "") -> tuple[str, bytes]:
        """Keep the answer of an address; return its content type if it is 200, and its body."""
        began = time.process_time()
        try:
            response = self.client.get(address, headers={"Host": "localhost"})
            status, mimetype, body = (
                response.status_code,
                response.mimetype or "",
                response.get_data(),
            )
            headers = sorted(
                (name, value) for name, value in response.headers if name.lower() not in _CHANGING
            )
        except Exception as error:  # an answer breaks off when its rows are read
            status, mimetype, body, headers = 0, "", repr(error).encode(), []
        ms = (time.process_time() - began) * 1000
        shown = b"" if address.startswith("/static/") else body
        if address.startswith("/metrics") and mimetype == "text/plain":
            shown = b"\n".join(line for line in body.splitlines() if line.startswith(b"#"))
        text = (
            to_text(b"\n".join(f"{name}: {value}".encode() for name, value in headers), "") + "\n"
        )
        kind = kind or {"text/html": "page", "application/json": "JSON"}.get(mimetype, "file")
        self.keep(label + address, kind, status, text + to_text(shown, mimetype), ms)
        return (mimetype if status == 200 else ""), body


class Crawler:
    """Follows links from the overview on, breadth first, and asks for every page they lead to."""

    def __init__(self, app: Any, answers: Answers) -> None:
        self.answers, self.rules = answers, app.url_map.bind("localhost")
        self.known: set[str] = set()
        self.counts: Counter[object] = Counter()
        self.waiting: deque[str] = deque()

    def find_rule(self, path: str) -> str:
        """Return the rule of an address's path, or nothing."""
        from werkzeug.exceptions import HTTPException

        try:
            return str(self.rules.match(path, method="GET", return_rule=True)[0].rule)
        except HTTPException:
            return ""

    def add(self, link: str) -> None:
        """Put an address into the queue, unless there are enough like it."""
        parts = urlsplit(link)
        pairs = sorted(
            pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "v"
        )
        address = quote(parts.path, safe="/%:@!$&'()*+,;=~") + (
            f"?{urlencode(pairs)}" if pairs else ""
        )
        if address in self.known:
            return
        self.known.add(address)
        rule = self.find_rule(parts.path)
        if pairs:
            names = tuple(name for name, _value in pairs)
            like = {
                (rule, *pairs): MAX_OF_QUERY,
                (rule, *names): MAX_OF_PARAMETERS,
                (rule, "?"): MAX_OF_RULE,
            }
            if any(self.counts[key] >= most for key, most in like.items()):
                return
            self.counts.update(like.keys())
        if len(parts.path.split("/")) > 3 and "<run_id>" in rule and rule.count("<") > 1:
            run_part = (rule, parts.path.split("/")[2])
            if self.counts[run_part] >= MAX_OF_RUN:
                return
            self.counts[run_part] += 1
        self.waiting.append(address)

    def crawl(self, begin: Iterable[str], max_pages: int) -> None:
        """Ask for the addresses and all that they link to, `max_pages` at most."""
        for address in begin:
            self.add(address)
        while self.waiting and max_pages > 0:
            address = self.waiting.popleft()
            max_pages -= not address.startswith("/static/")
            mimetype, body = self.answers.ask(address)
            if mimetype in ("text/html", "application/atom+xml") and "/report." not in address:
                for link in _LINK.findall(body.decode()):
                    self.add(urljoin(address, html.unescape(link)))

    def ask_wrongly(self) -> None:
        """Ask for each kind of page with invalid parameters, and for things that do not exist."""
        plain = {
            self.find_rule(address): address for address in sorted(self.known) if "?" not in address
        }
        for rule, address in sorted(plain.items()):
            for query in (
                "?sort=nonsense",
                "?cursor=!",
                "?limit=0",
                "?since=never",
                "?tab=x",
                "?nonsense=1",
            ):
                if "static" not in rule:
                    self.answers.ask(address + query, "mistake")
            if "<" in rule:
                self.answers.ask(re.sub(r"<[^>]*>", "0", rule), "mistake")
        self.answers.ask("/nothing/here", "mistake")


class Api:
    """Asks for every GET operation of the OpenAPI document with each of its parameters."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.paths = {
            path: [part for part in methods["get"]["parameters"] if part["in"] == "query"]
            for path, methods in json.loads(answers.ask("/api/v1/openapi.json")[1])["paths"].items()
            if "get" in methods and not path.endswith("openapi.json")
        }

    def ask(self, address: str) -> dict[str, Any]:
        """Ask for an address; return the answer, empty if it is none."""
        mimetype, body = self.answers.ask(address, "JSON")
        return dict(json.loads(body)) if mimetype == "application/json" else {}

    def list_runs(self) -> list[str]:
        """List the ids of all runs."""
        return [row["id"] for row in self.ask("/api/v1/runs?limit=1000").get("data", ())]

    def ask_all(self, max_runs: int) -> None:
        """Ask for the operations across runs, then for those of each run."""
        for path, parameters in self.paths.items():
            if "{" not in path:
                self.ask_operation(path, path, parameters, all_values=True)
        for number, run_id in enumerate(self.list_runs()[:max_runs]):
            for path, parameters in self.paths.items():
                address = path.replace("{run_id}", run_id)
                if "{run_id}" in path and "{" not in address:
                    self.ask_operation(path, address, parameters, all_values=number % 8 == 0)

    def ask_twins(self, crawler: Crawler) -> None:
        """Ask for the API's answer to each page that has one, such as a configuration's."""
        for address in sorted(crawler.known):
            if "?" not in address and crawler.find_rule(f"/api/v1{address}"):
                self.ask(f"/api/v1{address}")

    def ask_operation(
        self, path: str, address: str, parameters: list[dict[str, Any]], *, all_values: bool
    ) -> None:
        """Ask for one operation without and with each parameter, then for some of what it lists."""
        answer = self.ask(address)
        rows = [row for row in _list(answer.get("data")) if isinstance(row, dict)]
        for part in parameters:
            name, kind = part["name"], part["schema"].get("type")
            if name == "cursor":
                continue
            seen = next((row[name] for row in rows if isinstance(row.get(name), str | int)), None)
            usual = (
                "1"
                if kind == "integer" or name == "limit"
                else str(seen if seen is not None else "x")
            )
            values = part["schema"].get("enum") or [usual]
            for value in values if all_values else values[:1]:
                page = self.ask(f"{address}?{urlencode({name: value})}")
                if name == "limit" and page.get("next"):
                    self.ask(f"{address}?{urlencode({'limit': 1, 'cursor': page['next']})}")
        for deeper in self.paths:
            match = re.fullmatch(re.escape(path) + r"/\{(\w+)\}", deeper)
            for row in rows[:: max(1, len(rows) // MAX_OF_LIST)][:MAX_OF_LIST] if match else ():
                key = next(
                    (
                        row[name]
                        for name in (match[1], "artifact_id", "id", "model", "name")
                        if row.get(name)
                    ),
                    None,
                )
                below = [
                    (path_, parts)
                    for path_, parts in self.paths.items()
                    if path_.startswith(deeper)
                ]
                for path_, parts in below if key is not None and path != "/api/v1/runs" else ():
                    self.ask_operation(
                        path_,
                        f"{address}/{quote(str(key))}{path_[len(deeper) :]}",
                        parts,
                        all_values=True,
                    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def ask_reports(answers: Answers, run_ids: list[str]) -> None:
    """Ask for each run's report in every format; for some runs, with every table and all texts."""
    for number, run_id in enumerate(run_ids):
        page = f"/runs/{run_id}/report"
        _kind, refusal = answers.ask(f"{page}.csv?table=-")
        tables = re.findall(
            r"\w+", html.unescape(refusal.decode()).partition("is not one of ")[2].partition("<")[0]
        )
        for format in FORMATS:
            answers.ask(f"{page}.{format}", "report")
        for table in tables if number % 8 == 0 else ():
            answers.ask(f"{page}.csv?table={table}", "report")
            answers.ask(f"{page}.parquet?table={table}", "report")
        answers.ask(
            f"{page}.html?payloads=yes" if number % 8 == 0 else f"{page}.md?source=0", "report"
        )


def call(module: str, *words: str) -> tuple[int, str]:
    """Run a command line in this process; return its exit code and what it printed."""
    output = io.StringIO()
    sys.argv, code = [module, *words], 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return code, output.getvalue()


def ask_help(answers: Answers, module: str, *words: str) -> None:
    """Keep the help of a command and of the commands below it."""
    code, text = call(module, *words, "--help")
    answers.keep(" ".join(("python -m", module, *words, "--help")), "help", code, text)
    for name in re.findall(
        r"^  ([a-z][\w-]*)(?: |$)", text.partition("Commands:\n")[2].partition("\n\n")[0], re.M
    ):
        ask_help(answers, module, *words, name)


def keep_site(answers: Answers, folder: Path, max_pages: int) -> None:
    """Keep the files of the static site."""
    code, text = call(
        "compileboard.app",
        "export",
        "--site",
        "site",
        "--db",
        BOARD,
        "--runs",
        "12",
        "--pages",
        str(max_pages),
    )
    answers.keep("export --site", "site", code, text)
    kinds = {".html": "text/html", ".json": "application/json"}
    for path in sorted(path for path in (folder / "site").rglob("*") if path.is_file()):
        answers.keep(
            str(path.relative_to(folder)),
            "site",
            0,
            to_text(path.read_bytes(), kinds.get(path.suffix, "")),
        )


def ask_everything(create_app: Any, settings: Any, folder: Path, max_pages: int) -> None:
    """Ask this checkout for all that it answers; print what it was never asked for."""
    app = create_app(settings(db=BOARD, alerts="alerts.toml"))
    answers = Answers(folder, app.test_client())
    crawler, api = Crawler(app, answers), Api(answers)
    crawler.crawl(("/", "/incidents.atom"), max_pages)
    for address in ("/metrics", "/healthz", "/readyz", "/login"):
        answers.ask(address)
    crawler.ask_wrongly()
    api.ask_all(max_pages)
    api.ask_twins(crawler)
    ask_reports(answers, api.list_runs()[:max_pages])
    for module in ("compileboard.app", "compileboard.collectors"):
        ask_help(answers, module)
    keep_site(answers, folder, min(250, max_pages))
    answers.client = create_app(settings(db=BOARD, reading="tokens")).test_client()
    for address in ("/", "/login", "/login?next=/runs", "/api/v1/runs", "/metrics"):
        answers.ask(address, "login", "with tokens: ")
    rules = {str(rule.rule) for rule in app.url_map.iter_rules() if "GET" in (rule.methods or ())}
    asked = {
        crawler.find_rule(urlsplit(row[0]).path)
        for row in answers.store.execute("select address from answers")
    }
    answers.store.commit()
    print(*sorted(rules - asked))


def time_addresses(create_app: Any, settings: Any) -> None:
    """Answer each address of stdin with the CPU time in ms that it took."""
    client = create_app(settings(db=BOARD, alerts="alerts.toml")).test_client()
    for line in sys.stdin:
        began = time.process_time()
        client.get(line.strip(), headers={"Host": "localhost"}).get_data()
        print((time.process_time() - began) * 1000, flush=True)


def build(checkout: Path, folder: Path) -> None:
    """Make the database with the checkout's own tool, or else with the one beside this."""
    own = checkout / "tests" / "tools" / "make_full_db.py"
    tool = own if own.exists() else Path(__file__).with_name("make_full_db.py")
    runpy.run_path(str(tool))["make_full_db"](folder)


def main(checkout: Path, folder: Path, task: str, max_pages: int) -> int:
    """Do one task; return 3 if the checkout cannot open the folder's database."""
    sys.path[0] = str(checkout)
    fix_clock_and_chance()
    os.chdir(folder)
    import compileboard.app as dashboard

    assert checkout in Path(dashboard.__file__ or "").resolve().parents, (
        f"{dashboard.__file__} is not of {checkout}"
    )
    if task == "build":
        build(checkout, folder)
    elif task == "time":
        time_addresses(dashboard.create_app, dashboard.Settings)
    elif (
        dashboard.create_app(dashboard.Settings(db=BOARD)).test_client().get("/").status_code == 503
    ):
        return 3
    else:
        ask_everything(dashboard.create_app, dashboard.Settings, folder, max_pages)
    return 0


if __name__ == "__main__":
    sys.exit(
        main(
            Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3], int(sys.argv[4])
        )
    )
