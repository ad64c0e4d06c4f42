"""Pages, answers and commands across runs are the same over a file and beside ClickHouse."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.app.cli.main import main
from compileboard.app.core import address
from compileboard.app.core.address import ClickHouseAddress
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.store import open_store
from compileboard.app.incidents.queries import load_changes, load_incidents
from compileboard.app.incidents.update import update_incidents
from compileboard.app.notebook.board import Board
from compileboard.app.search import model as search
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.search import KINDS
from tests.unit.app.benched import RUNS
from tests.unit.app.clickhouse.both_stores import BothStores, make_both, make_single_file
from tests.unit.app.clickhouse.databases import open_database
from tests.unit.app.core.broad_board import NOW_US
from tests.unit.app.pages import list_benched, list_pages
from tests.unit.app.repros.captured import COMPILE_REPRO

pytestmark = pytest.mark.clickhouse

# Of the server, or of words alone: nothing of it crosses runs. Search has a test of its own.
NOT_ACROSS = re.compile(
    r"/(static|login|imports|reference|search|healthz|readyz|metrics)\b|/api/v1/(imports.*|search|suggestions|openapi.json)?$"
)
MORE = (
    *(
        "runs?limit=20",
        "runs?q=bert&sort=compiles",
        "overview",
        "overview?suite=captures",
        "matrix",
    ),
    *(
        "graph_breaks?limit=20",
        "graph_breaks/trends",
        "recompiles?limit=20",
        "recompiles/trends",
        "cuda_graphs?limit=20",
        "cuda_graphs/trends",
        "failures?limit=20",
        "failures/trends",
        "models/mlp",
    ),
    *("audit", "deleted_runs", "streams", "tokens", "views", "baselines/none"),
)
PAGES = (
    f"/repros/{COMPILE_REPRO}/program.py",
    f"/repros/{COMPILE_REPRO}/archive.tar.gz",
    "/models?view=matrix",
    "/trends?suite=builtin",
    "/runs?pinned=only",
    "/imports/none",
)


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, chdb_folder: Path, broad: Path
) -> Iterator[BothStores]:
    folder = tmp_path_factory.mktemp("both")
    make_single_file(folder / "single.db", broad)
    in_process = ClickHouseAddress(
        None, None, "default", str(open_database(chdb_folder).database), str(chdb_folder)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(address, "make_in_process_address", lambda _folder: in_process)
        patch.setattr("compileboard.app.core.db.read_clock", partial(RecorderClock, NOW_US))
        yield make_both(folder / "single.db", folder / "folder")


@pytest.fixture(scope="module")
def clients(both: BothStores) -> tuple[FlaskClient, FlaskClient]:
    return both.open_clients()


@pytest.fixture(scope="module")
def reader(both: BothStores) -> Iterator[sqlite3.Connection]:
    with closing(open_reader(both.single)) as connection:
        yield connection


def list_addresses(reader: sqlite3.Connection) -> list[str]:
    """List addresses of every kind across runs, of the sorts of a list one."""
    kinds: list[Callable[[sqlite3.Connection], list[str]]] = [
        *list_pages.values(),
        *list_benched.values(),
    ]
    listed = [page for kind in kinds for page in kind(reader)]
    reasons = [
        page
        for page in listed
        if re.match(r"/(graph_breaks|recompiles|cuda_graphs|failures)/", page)
    ]
    api = [f"/api/v1{page}{more}" for page in reasons for more in ("", "/runs")]
    api += [f"/api/v1{page}" for page in listed if re.match("/compare/compiles.+&b=", page)]
    sorted_by = [page for page in listed if "sort=" in page]
    pages = [page for page in listed if page not in sorted_by or page in sorted_by[::9]]
    return list(dict.fromkeys((*pages, *api, *PAGES, *(f"/api/v1/{more}" for more in MORE))))


def test_every_address_across_runs_gives_the_same(
    both: BothStores, clients: tuple[FlaskClient, FlaskClient], reader: sqlite3.Connection
) -> None:
    routes = clients[0].application.url_map
    known = {str(rule) for rule in routes.iter_rules() if "GET" in (rule.methods or ())}
    across = {rule for rule in known if "<run_id>" not in rule and not NOT_ACROSS.match(rule)}
    visited = set()
    for page in list_addresses(reader):
        rule, _values = routes.bind("localhost").match(page.partition("?")[0], return_rule=True)
        visited.add(str(rule))
        if str(rule) in across:
            expected, answer = (client.get(page) for client in clients)
            assert answer.status_code == expected.status_code < 500, page
            assert both.clean(answer) == both.clean(expected), page
    assert across - visited == set(), "no page of these was compared"


def find_texts(client: FlaskClient, words: str) -> dict[str, tuple[int, list[str]]]:
    """Return how many texts of each kind are counted, and all that are listed."""
    texts: dict[str, tuple[int, list[str]]] = {}
    for kind in KINDS:
        cursor, hits = "", []
        while cursor is not None:
            answer = client.get(f"/api/v1/search?q={words}&kind={kind}&limit=100{cursor}").json[
                "data"
            ]
            assert (answer["unsearched_run_count"], answer["pending_run_count"]) == (0, 0)
            groups = {group["kind"]: group for group in answer["groups"]}
            hits += [repr(hit) for hit in groups.get(kind, {"hits": []})["hits"]]
            cursor = f"&cursor={groups[kind]['next']}" if groups.get(kind, {}).get("next") else None
        texts |= {kind: (groups[kind]["count"], sorted(hits))} if hits else {}
    return texts


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words",
    [
        "torch",
        "forward+-torch",
        *(
            pytest.param(words, marks=pytest.mark.nightly)
            for words in ("forward", "size+mismatch", "relu")
        ),
    ],
)
def test_search_finds_the_same(
    clients: tuple[FlaskClient, FlaskClient], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it looks into every file. Their order is another: what is on the board comes first."""
    monkeypatch.setattr(search, "MAX_FILES", 1_000)
    monkeypatch.setattr(search, "MAX_SECONDS", 60)
    expected, texts = (find_texts(client, words) for client in clients)
    assert texts == expected and texts


def test_some_runs_are_sealed_and_others_are_not(both: BothStores) -> None:
    with closing(open_reader(both.folder / "board.db")) as board:
        results = [run_id for (run_id,) in board.execute("select distinct run_id from results")]
    assert len(both.sealed) > 30 and len(results) > 10
    assert not set(results) & set(both.sealed)


@pytest.fixture(scope="module")
def detected(both: BothStores) -> BothStores:
    """Both stores with incidents of all their runs: each published its runs at another time."""
    for db in (str(both.single), both.address):
        update_incidents(db, everything=True, now_us=NOW_US)
    return both


def test_detection_gives_the_same_incidents(detected: BothStores) -> None:
    stored = []
    for db, path in (
        (str(detected.single), detected.single),
        (detected.address, detected.folder / "board.db"),
    ):
        assert update_incidents(db).run_count == 0, "nothing is new then"
        with closing(open_reader(path)) as board:
            stored.append((load_incidents(board), load_changes(board)))
    assert stored[0] == stored[1] and len(stored[0][0]) > 3


@pytest.mark.parametrize(
    "words",
    [
        "export --run latest --format json --output -",
        f"export --compare {RUNS[0]} {RUNS[2]} --format md --output -",
        "export --suite bench_models --last 9999w --format csv --output -",
        f"check --run {RUNS[2]} --baseline {RUNS[0]} --rule accuracy",
        f"baseline save kept --run {RUNS[1]}",
        "incidents list --all",
        "incidents update",
    ],
)
def test_a_command_says_the_same(
    detected: BothStores, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for db in (str(detected.single), detected.address):
        code = main([*words.split(), "--db", db])
        out, err = capsys.readouterr()
        told.append((code, re.sub(r'"written_at": ?"[^"]*"', "", out), err))
    assert told[0] == told[1] and told[0][1]


def test_a_notebook_reads_the_same(both: BothStores) -> None:
    with Board(str(both.single)) as single, Board(both.address) as folder:
        for name in ("runs", "models", "graph_breaks", "recompiles"):
            assert getattr(single, name)().equals(getattr(folder, name)()), name
        expected, answer = (
            board.compiles(limit=200, run=both.sealed[0]) for board in (single, folder)
        )
        assert answer.equals(expected)


def test_of_many_runs_few_files_are_open(both: BothStores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compileboard.app.core.store.MAX_OPEN", 2)
    with closing(open_store(both.address)) as store:
        first, second, _third = map(store.open_run, both.sealed[:3])
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            first.execute("select 1")
        assert store.open_run(both.sealed[1]) is second
        assert store.open_run(both.sealed[0]).execute("select id from main.runs").fetchall()
