"""Everything of a log is shown as it stands in it, and nothing else: `check_logs` counts with a
reader of its own.

Of the whole captures: `python -m tests.unit.app.runs.check_logs tests/data`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.make_db import DATA
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.runs.check_logs import Comparison, check_log, find_logs
from tests.unit.logs.test_log_loader import record

pytestmark = on_both_engines

LOGS = [path for folder in ("trace", "explored") for path in sorted((DATA / folder).glob("*.xz"))]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "path", [path for path in LOGS if ".json" not in path.name], ids=lambda path: path.name
)
def test_everything_of_a_log_is_shown_as_it_stands_in_it(path: Path) -> None:
    comparison = Comparison()
    for label, log in find_logs(path):
        check_log(log, label, comparison)
    assert comparison.compared.total() > 0 and comparison.unequal == {}


def test_a_records_envelope_says_which_compile_it_is_of() -> None:
    at = {"frame_id": 3, "frame_compile_id": 1, "attempt": 0}
    span = {
        "name": "dynamo",
        "ts": 1.7e15,
        "args": {"compile_id": "0/0"},
        "ph": "i",
        "cat": "x",
        "tid": 0,
        "pid": 0,
    }
    parts = [
        record(
            {
                "compilation_metrics": {
                    "compile_id": "0/0",
                    "start_time_us": 1_700_000_000_000_000,
                },
                **at,
            }
        ),
        record({"chromium_event": {}, **at}, json.dumps(span)),
        record({"chromium_event": {}, **at}, json.dumps(span, indent="\t").replace("\t", "")),
    ]
    comparison = Comparison()
    check_log("".join(parts).encode(), "made", comparison)
    assert comparison.unequal == {} and comparison.compared["timeline events"] == 2
