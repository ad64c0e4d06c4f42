"""What every test gets: places of its own, and a check that nothing of it is left."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

import tests.tools.quick.sitecustomize  # noqa: F401  collects garbage seldom here too
from compileboard.collectors.store import connection as store_connection
from compileboard.collectors.store import migrations
from compileboard.collectors.store.connection import DATABASE_VERSION, checkpoint
from tests.tools.forks import choose_start
from tests.tools.observed import PLAIN_CODE, QUICK, USED, Workplace, processes_of, wait_for

REQUIRE_ALL = "COMPILEBOARD_REQUIRE_ALL"
MIN_ROOM_BYTES = 2 << 30
TESTS = Path(__file__).parent
os.environ.update(PLAIN_CODE, PYTHONPATH=str(QUICK))
# Tests start hundreds of processes of ours: each would compile the package anew where an image
# forbids bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A property holds however busy the machine is; a fixture that examples share is one that they may
# share.
ALLOWED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("unhurried", deadline=None, suppress_health_check=ALLOWED)
settings.load_profile("unhurried")
if (
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):  # started in the background: programs would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

_migrate = migrations.migrate_connection


@cache
def _migrated() -> sqlite3.Connection:
    """Return an empty database in memory that went through every step."""
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    atexit.register(database.close)
    database.row_factory = sqlite3.Row
    _migrate(database)
    return database


def _copy_or_migrate(connection: sqlite3.Connection) -> int:
    """Migrate; a database without a table becomes a copy of one that this process migrated: 60 ms
    less each time.
    """
    if (
        connection.in_transaction
        or connection.execute("select count(*) from sqlite_schema").fetchone()[0]
    ):
        return _migrate(connection)
    _migrated().backup(connection)
    checkpoint(connection)
    return DATABASE_VERSION


# In this process: no test takes the power away, and tens of thousands of syncs wait for the disk.
store_connection.SYNCHRONOUS = "off"
migrations.migrate_connection = _copy_or_migrate  # before any module takes it by name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _leave_samples(items)
    _mix_folders(items)


def pytest_collection_finish() -> None:
    """Keep tests and imports out of collections: one takes half a second less."""
    gc.freeze()


def _leave_samples(items: Sequence[pytest.Item]) -> None:
    """Mark the cases of a `sampled(n)` test nightly, all but every nth.

    Choose n without a factor in common with the number of values that vary fastest: the cases that
    are left would all have the same one.
    """
    seen: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker:
            test = item.nodeid.partition("[")[0]
            if seen[test] % marker.args[0]:
                item.add_marker("nightly")
            seen[test] += 1


def _mix_folders(items: list[pytest.Item]) -> None:
    """Mix the folders' files, each spread over the run: browsers mostly wait, compilers compute.
    Units come last.
    """
    files: dict[str, dict[Path, None]] = {}
    for item in items:
        files.setdefault(_folder(item), {})[item.path] = None
    places = {
        path: (n + 0.5) / len(paths) for paths in files.values() for n, path in enumerate(paths)
    }
    items.sort(key=lambda item: (_folder(item) == "unit", places[item.path]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    choose_start(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """At night nothing may be skipped: `.ci/nightly` has installed what these tests need."""
    report = yield
    if report.skipped and item.get_closest_marker("nightly") and os.environ.get(REQUIRE_ALL):
        report.outcome = "failed"
        report.longrepr = f"skipped, and {REQUIRE_ALL} lets nothing be skipped: {report.longrepr}"
    return report


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    """Make a folder with a database, a spool home and programs of its own."""
    return Workplace(tmp_path)


@pytest.fixture
def migrate_to_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], None]]:
    """Return a function that adds a step to the schema, as the next release would, in this
    process.
    """

    def add_step(script: str) -> None:
        folder = tmp_path / "next_schema"
        shutil.copytree(
            migrations.FOLDER,
            folder,
            ignore=lambda _path, names: {n for n in names if n[-4:] != ".sql"},
        )
        (folder / "next.sql").write_text(script)
        monkeypatch.setattr(migrations, "FOLDER", folder)
        monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, "next"))
        for name, module in list(sys.modules.items()):
            if name.startswith("compileboard.") and hasattr(module, "DATABASE_VERSION"):
                monkeypatch.setattr(module, "DATABASE_VERSION", DATABASE_VERSION + 1)
        _migrated.cache_clear()

    yield add_step
    _migrated.cache_clear()


@pytest.fixture(scope="session")
def chdb_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Name the folder of ClickHouse in this process: it opens one and no other until it ends.

    It waits for the disk after every insert. In memory, where there is room, that is half of the
    processor's time.
    """
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < MIN_ROOM_BYTES:
        yield tmp_path_factory.mktemp("chdb")
        return
    with TemporaryDirectory(
        prefix="compileboard-chdb-", dir=memory, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the person's own spools from every test."""
    monkeypatch.setenv("COMPILEBOARD_HOME", str(tmp_path_factory.getbasetemp() / "no-home"))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail a test in which a hook swallowed an error, or that leaves a hook or a process behind.

    A connection left open is a ResourceWarning, and warnings are errors.
    """
    yield
    hooks = sys.modules.get("compileboard.collectors.observe.hooks")
    assert hooks is None or hooks.current() is None, "the test left its hooks in"
    for used in USED:
        wait_for(partial(_is_empty, used.home), 15)
        assert used.lossy or not used.losses(), f"a hook swallowed an error: {used.losses()}"
    USED.clear()


def _is_empty(home: Path) -> bool:
    return not processes_of(home)
