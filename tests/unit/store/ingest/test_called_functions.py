from __future__ import annotations

import sqlite3

from compileboard.collectors.contract.events import CompileStarted, Frame, GraphBroke
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.run_causes import load_causes, load_recorded_run
from tests.unit.store.ingest.test_ingest import start, store  # noqa: F401  a fixture

FILE = "net.py"


def _forwards(*lines: int) -> list[Frame]:
    return [{"file": FILE, "line": line, "name": "forward", "code": None} for line in lines]


def compiled(number: int, function: str, line: int, *calls: int) -> CompileStarted:
    names = {"function": function, "file": FILE, "line": line, "stack": _forwards(*calls, line)}
    return CompileStarted("p", number, number, f"{number}/0", number, 0, **names)


def test_a_skipped_function_s_line_is_none_of_another_of_its_name(
    store: sqlite3.Connection,  # noqa: F811
) -> None:
    # torch leaves out the stack of a break the function that called a module: Net.forward, line 22.
    broke = {"reason": "r", "fingerprint": "f", "function": "timer", "outcome": "skipped"}
    stack: list[Frame] = [*_forwards(12), {"file": FILE, "line": 3, "name": "timer", "code": None}]
    events = [
        compiled(1, "Net.forward", 20),
        GraphBroke("p", 2, 2, "1/0", 1, 0, file=FILE, line=3, stack=stack, **broke),
        compiled(3, "Block.forward", 10, 22),
    ]
    Ingestor(store).ingest("R", [start(), *events])
    (occurrence,) = load_recorded_run(store, "R").occurrences
    assert occurrence.frame_line == 22


def test_what_a_skipped_function_called_is_no_function_of_its_name(
    store: sqlite3.Connection,  # noqa: F811
) -> None:
    broke = {"reason": "r", "fingerprint": "f", "function": "Block.forward", "outcome": "skipped"}
    events = [
        compiled(1, "Net.forward", 20),
        GraphBroke("p", 2, 2, "1/0", 1, 0, file=FILE, line=12, stack=_forwards(22, 12), **broke),
        compiled(3, "Block.forward", 10, 22),
        compiled(4, "Scorer.forward", 40),
        compiled(5, "Head.forward", 60, 42),
    ]
    Ingestor(store).ingest("R", [start(), *events])
    (cause,) = load_causes(store, "R")
    assert cause.eager_function == "Net.forward"
    assert [part.function for part in cause.resumed] == ["Block.forward"]


def test_the_recompile_limit_is_of_the_code_after_the_break_that_reached_it(
    store: sqlite3.Connection,  # noqa: F811
) -> None:
    names = {"function": "f", "file": FILE, "line": 12, "stack": _forwards(12)}
    first = CompileStarted("p", 1, 1, "1/0", 1, 0, resumed_at=12, **names)
    Ingestor(store).ingest("R", [start(), first, CompileStarted("p", 2, 2, "1/1", 1, 1, **names)])
    store.execute("update compiles set outcome = 'recompile_limit' where compile_id = '1/1'")
    assert [row.resumed_at for row in load_recorded_run(store, "R").compiles] == [12, 12]
