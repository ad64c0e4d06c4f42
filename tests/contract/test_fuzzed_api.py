"""Made-up values for the whole OpenAPI document: no answer is 500, nothing without a scope.

`make fuzz` sends more of them.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as values

from compileboard.app import create_app
from compileboard.app.core.access import list_scopes
from compileboard.app.core.settings import Settings
from compileboard.app.server.openapi import OPERATIONS, PREFIX, write_path
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.tokens import SCOPES, create_token, expand_scopes
from tests.unit.app.benched import bench_suite
from tests.unit.app.deleted import delete_and_audit
from tests.unit.app.recorded import RUN, record_run
from tests.unit.app.series_changes import keep_one_of_each

EXAMPLES = int(os.environ.get("COMPILEBOARD_FUZZ_EXAMPLES", "8"))
SENDERS = ("admin", "admin", "admin", *SCOPES, "", "none")  # without a token, with a forged one
FORGED = "cb_0123456789_" + "0" * 48
NEEDED = {
    (operation.method, write_path(PREFIX + operation.path)): list_scopes(
        operation.view, operation.method
    )
    for operation in OPERATIONS
}


class App:
    """The application that the document is of."""

    app: Any = None


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Serve a database with one of everything as schemathesis asks for it; return a token of each
    scope.
    """
    path = tmp_path_factory.mktemp("store") / "runs.db"
    migrate(path)
    with closing(open_writer(path)) as writer:
        record_run(writer)
        bench_suite(writer)
        keep_one_of_each(writer)
        delete_and_audit(writer)
        made = {scope: create_token(writer, scope, (scope,), created_by="me") for scope in SCOPES}
    App.app = create_app(Settings(db=str(path), reading="tokens"))
    yield made
    for thread in threading.enumerate():
        if thread.name in ("import", "audit"):
            thread.join()


def list_operations() -> list[Any]:
    document = schemathesis.openapi.from_dict(
        create_app().test_client().get(f"{PREFIX}/openapi.json").json
    )
    return [result.ok() for result in document.get_all_operations()]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("operation", list_operations(), ids=lambda operation: operation.label)
def test_made_up_values_are_answered_in_words(operation: Any, tokens: dict[str, str]) -> None:
    needed = NEEDED.get((operation.method.upper(), operation.path), ("read",))
    statuses: Counter[int] = Counter()

    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )
    @given(operation.as_strategy(), values.sampled_from(["", RUN]), values.sampled_from(SENDERS))
    def ask(case: Any, run_id: str, scope: str) -> None:
        if run_id and "run_id" in case.path_parameters:
            case.path_parameters["run_id"] = run_id
        secret = tokens.get(scope, FORGED if scope else None)
        case.headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        answer = case.call(app=App.app)
        statuses[answer.status_code] += 1
        may = not expand_scopes([scope]).isdisjoint(needed)
        expected = (
            {401} if scope not in SCOPES else {403} if not may else {*range(200, 500)} - {401}
        )
        assert answer.status_code in expected, (answer.status_code, answer.text[:300])

    ask()
    assert set(statuses) - {401, 403}, "nothing got past the token"
