"""What every test gets: places of its own, and a check that nothing of it is left."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import tests.tools.quick.sitecustomize  # noqa: F401  collects garbage seldom here too
from tests.tools.observed import PLAIN_CODE, QUICK, USED, Workplace, processes_of, wait_for

os.environ.update(PLAIN_CODE, PYTHONPATH=str(QUICK))

# A property holds however busy the machine is; a fixture that examples share is one that they may share.
ALLOWED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("unhurried", deadline=None, suppress_health_check=ALLOWED)
settings.load_profile("unhurried")
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # started in the background: programs would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    """Make a folder with a database, a spool home and programs of its own."""
    return Workplace(tmp_path)


@pytest.fixture(scope="session")
def chdb_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Name the folder of ClickHouse in this process: it opens one and no other until it ends."""
    return tmp_path_factory.mktemp("chdb")


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
