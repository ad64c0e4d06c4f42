"""A small program's causes: its source around them, and a module in torch's wrapper frame."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from compileboard.collectors.store.run_causes import (
    list_source_lines,
    load_causes,
    load_recorded_run,
)
from tests.tools.observed import Workplace

pytestmark = pytest.mark.torch
PROGRAM = """
import torch


def step(x):
    y = x.sin()
    if y.sum() > 0:
        print("positive")
    return y * 2


net = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4)), backend="eager")
compiled = torch.compile(step, backend="eager")
for size in (3, 5):
    compiled(torch.ones(size))
    net(torch.ones(size, 4))
"""


def _read(workplace: Workplace) -> sqlite3.Connection:
    connection = sqlite3.connect(workplace.database)
    connection.row_factory = sqlite3.Row
    return connection


def test_causes_name_the_users_lines(workplace: Workplace) -> None:
    assert workplace.run(workplace.write(PROGRAM)).returncode == 0
    with closing(_read(workplace)) as connection:
        (run,) = connection.execute("select run_id, compile_us from run_totals").fetchall()
        causes = load_causes(connection, run["run_id"])
        outermost = connection.execute("select name from stack_nodes where depth = 0").fetchall()
    assert sum(cause.saved_us or 0 for cause in causes) <= run["compile_us"]
    assert [row["name"] for row in outermost] == ["<module>"] * len(outermost) != []
    by_kind = {cause.kind: cause for cause in causes}
    branch, size = by_kind["graph_break"], by_kind["recompile"]
    assert (branch.title, branch.line) == ("`if` on a tensor, then `print` call", 7)
    assert branch.code is not None and '        print("positive")' in branch.code.lines
    assert any(part.recompile_keys for part in branch.resumed)
    assert size.title.endswith("changes: 3 → 5") and size.place_count == 2
    assert len(causes) == 2
    functions = {cause.function for cause in causes}
    assert not any("wrap_inline" in (name or "") for name in functions)


def test_no_source_is_read_where_it_is_to_be_redacted(workplace: Workplace) -> None:
    assert workplace.run(workplace.write(PROGRAM), options=("--no-source",)).returncode == 0
    with closing(_read(workplace)) as connection:
        (run_id,) = (row["run_id"] for row in connection.execute("select run_id from run_totals"))
        assert list_source_lines(connection, run_id) == []
        assert all(cause.code is None for cause in load_causes(connection, run_id))


HOOKED = """
import torch

seen = []


def note(mod, given, y):
    keep(y)


def keep(y):
    seen.append(y)
    torch._dynamo.graph_break()


net = torch.nn.Sequential(torch.nn.Tanh())
net[0].register_forward_hook(note)
run = torch.compile(net, backend="eager")
for n in range(3):
    run(torch.full((2,), float(n)))
"""


def test_what_a_hook_calls_has_torch_for_a_caller(workplace: Workplace) -> None:
    plain = HOOKED.replace("net[0].register_forward_hook(note)", "net[0].forward = keep")
    for program in (HOOKED, plain):
        assert workplace.run(workplace.write(program)).returncode == 0
        with closing(_read(workplace)) as connection:
            run_id = connection.execute("select max(id) from runs").fetchone()[0]
            compiles = load_recorded_run(connection, run_id).compiles
        found = {row.is_in_hook for row in compiles if row.function == "keep" and row.is_recompile}
        assert found == {program == HOOKED}
