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


def test_a_setting_whose_value_is_an_object_names_its_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = ModuleType("passes")
    module.__file__ = str(tmp_path / "passes.py")
    config = ModuleType("torch._inductor.config")
    wrong = type("Wrong", (), {"__module__": "passes"})
    config._config = {"a_pass": wrong(), "passes": [wrong()], "level": 2}  # type: ignore[attr-defined]
    config._default = {"a_pass": None, "passes": [], "level": 1}  # type: ignore[attr-defined]
    for name, entry in (("torch", ModuleType("torch")), ("passes", module)):
        monkeypatch.setitem(sys.modules, name, entry)
    monkeypatch.setitem(sys.modules, config.__name__, config)
    assert list_preload(None) == ("passes",)
