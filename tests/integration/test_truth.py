"""Everything that torch says is a row: checked against torch's own log of the same process."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.contract.categories import BY_NAME
from compileboard.collectors.decode.records import TorchRecord
from tests.tools.observed import PROGRAMS, ROOT, Workplace, torch_release
from tests.tools.trace_logs import read_trace_log

pytestmark = pytest.mark.torch
GUARDS = ROOT / "tests" / "data" / "trace" / "record_guards.py"
NOT_ON_CPU = {"unknown"}
# Until 2.6 torch has no guard on autocast; 2.5 drops what is invalidated.
OLDER = (((2, 6), {"autocast", "invalidated"}), ((2, 7), {"autocast"}))


def torch_log(folder: Path) -> list[TorchRecord]:
    (log,) = folder.glob("*.log")
    return list(read_trace_log(log, "p"))


def traced(
    tmp_path_factory: pytest.TempPathFactory, program: Path
) -> tuple[Workplace, list[TorchRecord]]:
    """Observe a program that also writes torch's own log."""
    workplace = Workplace(tmp_path_factory.mktemp("traced"))
    done = workplace.run(program, env={"TORCH_TRACE": str(workplace.folder / "trace")})
    assert done.returncode == 0, done.stderr
    return workplace, torch_log(workplace.folder / "trace")


@pytest.fixture(scope="module")
def breaks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workplace, list[TorchRecord]]:
    return traced(tmp_path_factory, PROGRAMS / "breaks.py")


@pytest.fixture(scope="module")
def guards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workplace, list[TorchRecord]]:
    return traced(tmp_path_factory, GUARDS)


@pytest.fixture(scope="module")
def tapped(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """Observe the same programs with nothing else reading torch's events."""
    workplace = Workplace(tmp_path_factory.mktemp("tapped"))
    for program in (PROGRAMS / "breaks.py", PROGRAMS / "recompiles.py"):
        assert workplace.run(program, options=("--name", program.stem)).returncode == 0
    return workplace


def count(log: list[TorchRecord], name: str) -> int:
    return sum(captured.name == name for captured in log)


BREAK_ROWS = """
    select gb_id, outcome, graph_breaks.line, functions.name as function
    from graph_breaks
    join distinct_breaks on distinct_breaks.id = distinct_id
    left join functions on functions.id = graph_breaks.function_id
    where run_id = (select id from runs where name like :name)
"""


def test_every_break_of_torchs_log_is_a_row_with_its_id(
    breaks: tuple[Workplace, list[TorchRecord]],
) -> None:
    workplace, log = breaks
    rows = workplace.rows(BREAK_ROWS, name="breaks%")
    reasons = [c.payload for c in log if c.name == "artifact:dynamo_graph_break_reason"]
    texts = Counter(event["text"] for event in workplace.events("graph_broke"))
    if torch_release() >= (2, 6):
        assert texts == Counter(reasons)
    assert len(rows) == len(texts) >= 18
    has_ids = torch_release() >= (2, 8)  # before, some reasons are no type
    assert all(row["gb_id"] for row in rows) or not has_ids
    assert len({row["gb_id"] for row in rows}) >= (10 if has_ids else 8)
    assert {row["outcome"] for row in rows} <= {"resumed", "skipped"}


def test_every_start_error_and_record_of_torchs_log_is_a_row(
    breaks: tuple[Workplace, list[TorchRecord]],
) -> None:
    workplace, log = breaks
    assert len(workplace.events("compile_started")) == count(log, "dynamo_start")
    if torch_release() >= (2, 6):
        errors = count(log, "artifact:dynamo_error")
        assert workplace.value("select count(*) from failures") == errors
    assert workplace.value("select count(*) from compilations") == count(log, "compilation_metrics")
    assert (
        workplace.value("select count(*) from compiles where outcome in ('announced', 'started')")
        == 0
    )


@pytest.mark.nightly
def test_the_tap_sees_what_the_log_sees(
    breaks: tuple[Workplace, list[TorchRecord]], tapped: Workplace
) -> None:
    workplace, _ = breaks

    def rows(where: Workplace) -> Counter[Any]:
        return Counter(tuple(row.values()) for row in where.rows(BREAK_ROWS, name="breaks%"))

    assert rows(workplace) == rows(tapped)
    answers = [
        json.loads(row["capabilities"]) for row in tapped.rows("select capabilities from processes")
    ]
    assert {answer["events"] for answer in answers} == {"ok"}
    assert {answer["metrics"] for answer in answers} == {"ok"}


def test_every_recompile_of_torchs_log_is_a_row_with_every_guard(
    guards: tuple[Workplace, list[TorchRecord]],
) -> None:
    workplace, log = guards
    payloads = [c.payload for c in log if c.name == "artifact:recompile_reasons"]
    reasons = [
        r
        for p in payloads
        for r in (json.loads(p) if isinstance(p, str) and p.startswith("[") else [p])
    ]
    assert workplace.value("select count(*) from recompiles") == len(payloads) > 50
    assert workplace.value("select count(*) from guard_failures") == len(reasons)
    assert workplace.value("select count(*) from recompiles where function_id is null") == 0


def test_each_category_is_produced_and_none_is_unknown(
    guards: tuple[Workplace, list[TorchRecord]],
) -> None:
    workplace, _ = guards
    rows = workplace.rows("select distinct category from recompile_causes")
    others = next((names for release, names in OLDER if torch_release() < release), set())
    assert {row["category"] for row in rows} == set(BY_NAME) - NOT_ON_CPU - others


def test_a_recompile_limit_carries_the_functions_name(tapped: Workplace) -> None:
    rows = tapped.rows(
        """
        select functions.name, compiles.line
        from compiles
        join functions on functions.id = function_id
        where outcome = 'recompile_limit'
        """
    )
    assert {row["name"] for row in rows} >= {"mode", "plain"}
    assert all(row["line"] for row in rows)


@pytest.mark.nightly
def test_a_users_own_trace_is_as_without_us(workplace: Workplace) -> None:
    """The same events in the same order from the same places; times, paths of the payloads and ids
    differ.
    """
    shapes = []
    for run, folder in ((workplace.plain, "plain"), (workplace.run, "observed")):
        done = run(
            PROGRAMS / "scenarios.py",
            "reset",
            "fullgraph",
            env={"TORCH_TRACE": str(workplace.folder / folder)},
        )
        assert done.returncode == 0, done.stderr
        (log,) = (workplace.folder / folder).glob("*.log")
        lines = [line for line in log.read_text().splitlines() if line[:1] == "V" and "] {" in line]
        shapes.append([(line.split("] {")[0].split()[-1], name_of(line)) for line in lines])
    assert shapes[0] == shapes[1]
    assert len(shapes[0]) > 50


def name_of(line: str) -> Any:
    record = json.loads("{" + line.split("] {", 1)[1])
    first = next(iter(record))
    return first, record[first].get("name") if isinstance(
        record[first], dict
    ) and first == "artifact" else None
