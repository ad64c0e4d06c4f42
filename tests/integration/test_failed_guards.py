"""What varied between calls of a recompiled function, recorded from real guards."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.store.run_causes import load_causes
from tests.tools.observed import Workplace, torch_release

pytestmark = pytest.mark.torch
HEAD = """
import torch


class Once:  # a descriptor of the user's own, as functools.cached_property is
    def __get__(self, holder, owner):
        if not torch.compiler.is_compiling():
            print("run outside of compiled code")
        return 1


class Settings:  # as a configuration of transformers
    def __init__(self):
        self.power = 2

    def __getattribute__(self, name):
        return super().__getattribute__(name)


class Scorer(torch.nn.Module):
    once = Once()

    def __init__(self):
        super().__init__()
        self.calls, self.mode = 0, "a"
        self.settings = Settings()

    @property
    def scale(self):
        if not torch.compiler.is_compiling():
            print("run outside of compiled code")
        return 2

    def forward(self, x, parts):
        self.calls += 1
        if self.mode == "a":
            x = x + 1
        for part in parts:
            x = x * part
        return x * self.calls * self.scale * self.once * self.settings.power


scorer = Scorer()
compiled = torch.compile(scorer, backend="eager", dynamic=False)
"""
# Torch before 2.7 does not trace a descriptor or a `__getattribute__` of the user's own.
PLAIN_HEAD = HEAD.replace(" * self.once * self.settings.power", "")
TOGETHER = """
for call in range(4):
    scorer.mode = "ab"[call % 2]
    compiled(torch.ones(2), [1.0])
"""
PLAIN = """
for call in range(4):
    scorer.calls = 0
    with torch.set_grad_enabled(call < 2):
        compiled(torch.ones(2 + call % 2), [1.0] * (1 + call // 2))
"""
LIBRARY = """
import torch

cell = torch.nn.GRUCell(2, 2)
optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
run = torch.compile(cell, backend="eager", dynamic=False)
step = torch.compile(optimizer.step, backend="eager")
for size in (2, 3, 4):
    run(torch.ones(size, 2)).sum().backward()
    optimizer.param_groups[0]["lr"] = 0.1 * size
    step()
"""
GROWING = """
import torch

scales = {"a": 2.0}


def scale(x):
    for factor in scales.values():
        x = x * factor
    return x


compiled = torch.compile(scale, backend="eager", dynamic=False)
for size in (2, 3):
    compiled(torch.ones(size))
    scales["b"] = 3.0
"""
ENUM = """
import enum

import torch

Phase = enum.Enum("Phase", ["TRAIN", "TEST"])
compiled = torch.compile(lambda x, phase: x * phase.value, backend="eager")
for phase in Phase:
    compiled(torch.ones(2), phase)
"""


def _load(workplace: Workplace) -> list[Cause]:
    with closing(sqlite3.connect(workplace.database)) as connection:
        connection.row_factory = sqlite3.Row
        (run_id,) = (row["run_id"] for row in connection.execute("select run_id from run_totals"))
        return load_causes(connection, run_id)


def test_a_source_that_saves_nothing_alone_does_not_lead(workplace: Workplace) -> None:
    assert workplace.run(workplace.write(PLAIN_HEAD + TOGETHER)).returncode == 0
    first, second = _load(workplace)
    assert first.sources == ("self.calls",) and first.event_count == 2
    assert second.title == "self.calls and self.mode change together"
    assert first.variation is not None and second.variation is None
    assert (first.beyond, second.beyond) == (None, first.number)
    saved = {source.source: source.saved_alone for source in first.variation.sources}
    assert saved == {"self.calls": 2, "self.mode": 0}
    assert first.variation.sentence == (
        "If self.calls stayed the same, 2 of 3 recompiles would not happen, and 0/1 would be the "
        "last one; with self.mode too, the function would never be recompiled."
    )


def test_every_failed_guard_is_recorded_and_no_property_of_the_user_is_run(
    workplace: Workplace,
) -> None:
    head = HEAD if torch_release() >= (2, 6) else PLAIN_HEAD
    assert workplace.run(workplace.write(head + PLAIN)).stdout == ""
    variation = _load(workplace)[0].variation
    assert variation is not None and variation.is_whole
    assert {source.source for source in variation.sources} == {"x", "parts", "grad_mode"}
    sizes = next(source for source in variation.sources if source.source == "x")
    assert [seen.value for seen in sizes.values] == ["2", "3", "2", "3"]


def test_a_dictionary_that_grew_is_seen_behind_what_failed_first(workplace: Workplace) -> None:
    assert workplace.run(workplace.write(GROWING)).returncode == 0
    (cause,) = _load(workplace)
    assert cause.variation is not None
    saved = {source.source: source.saved_alone for source in cause.variation.sources}
    assert saved == {"x": 0, "G['scales']": 0}


def test_the_users_source_is_kept_beside_it(workplace: Workplace) -> None:
    assert workplace.run(workplace.write(PLAIN_HEAD + TOGETHER)).returncode == 0
    assert all(cause.code is not None for cause in _load(workplace))


def test_guards_behind_a_weak_reference_and_in_modules_of_torch_are_read(
    workplace: Workplace,
) -> None:
    assert workplace.run(workplace.write(LIBRARY)).returncode == 0
    variations = [cause.variation for cause in _load(workplace) if cause.variation]
    assert any("SGD" in each.function for each in variations if each.function)
    assert all(each.is_whole for each in variations)


def test_members_of_an_enum_have_their_names_and_nothing_is_to_be_saved(
    workplace: Workplace,
) -> None:
    assert workplace.run(workplace.write(ENUM)).returncode == 0
    (cause,) = _load(workplace)
    assert cause.title == "phase changes: Phase.TRAIN → Phase.TEST" and cause.is_expected
