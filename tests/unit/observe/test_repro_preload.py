"""What a repro must load first: a module by its name, a file where its module has another one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from compileboard.collectors.observe.repro.preload import list_preload


@pytest.mark.parametrize(
    ("name", "file", "listed"),
    [
        ("nets", "nets.py", "nets"),
        ("local_nets", "nets.py", "nets.py"),
        ("pack", "pack/__init__.py", "pack"),
    ],
)
def test_a_module_of_another_name_than_its_file_is_named_by_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, file: str, listed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType(name)
    module.__file__ = str(tmp_path / file)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setitem(sys.modules, name, module)

    def backend() -> None:
        """Stand for a backend of that module."""

    backend.__module__ = name
    assert listed in list_preload(None, backend)
