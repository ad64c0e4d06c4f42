"""A setting of a run is declared once: every way that it takes carries every field."""

from __future__ import annotations

import ast
import inspect
import os
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors import api
from compileboard.collectors.contract.events import RunStarted
from compileboard.collectors.contract.run_config import SERVER_SETTINGS, RunConfig
from compileboard.collectors.record.facts import describe_run
from compileboard.collectors.record.live import INJECT, child_environment
from compileboard.collectors.record.spool import read_manifest

SETTINGS = {setting.name: setting for setting in fields(RunConfig)}
# What the run's row has no column for: where it is, and by whose wish more of the environment or a
# graph was stored.
NOT_IN_THE_ROW = {
    "database",
    *SERVER_SETTINGS,
    "capture_env",
    "repro",
    "repro_inputs_bytes",
    "steps",
}
# What code cannot ask for: the program has started, and its level is light.
# The third has a variable, the last a function of its own.
NOT_IN_CODE = {"level", "stack_room", "outbox_bytes", "steps"}
SAMPLES = {
    "str": "a,b=c", "str | None": "a, b", "bool": None, "bool | None": True, "int": 7,
    "tuple[str, ...]": ("A", "B"), "dict[str, str]": {"k": "v,w"},
}  # fmt: skip


def sample(setting: Field[Any]) -> Any:
    """Return a value that is not the setting's default."""
    return not setting.default if setting.type == "bool" else SAMPLES[str(setting.type)]


def config_with(name: str) -> RunConfig:
    return replace(RunConfig(database="/t.db"), **{name: sample(SETTINGS[name])})


@pytest.mark.parametrize(
    "name", [name for name, setting in SETTINGS.items() if "variable" in setting.metadata]
)
def test_the_environment_takes_a_setting_into_the_program(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_with(name)
    for variable, value in child_environment(config, {}, "R", tmp_path).items():
        monkeypatch.setenv(variable, value)
    assert RunConfig.from_environment(os.environ) == config
    default = RunConfig.from_environment(child_environment(RunConfig(), {}, "R", tmp_path))
    assert default == RunConfig() == RunConfig.from_environment({})


@pytest.mark.parametrize("name", SETTINGS)
def test_the_manifest_takes_a_setting_into_the_recorder(name: str, tmp_path: Path) -> None:
    config = config_with(name)
    manifest = describe_run(config, {}, argv=[], cwd=None, code_folder=str(tmp_path))
    manifest = replace(manifest, name=manifest.name or manifest.run_id)
    manifest.write(tmp_path)
    read = read_manifest(tmp_path)
    assert read == manifest
    value = getattr(config, name)
    assert getattr(read, name) == (
        os.path.abspath(value) if name in ("database", "token_file") else value
    )


def test_the_runs_row_and_code_take_every_setting() -> None:
    assert SETTINGS.keys() - {field.name for field in fields(RunStarted)} == NOT_IN_THE_ROW
    for function in (api.install, api.observe):
        given = {name.replace("db", "database") for name in inspect.signature(function).parameters}
        assert given == SETTINGS.keys() - NOT_IN_CODE


def test_what_arms_the_hooks_reads_the_variable_that_is_declared() -> None:
    """It imports nothing of ours, so it has a variable's name of its own."""
    source = ast.parse((INJECT / "sitecustomize.py").read_text())
    texts = {node.value for node in ast.walk(source) if isinstance(node, ast.Constant)}
    assert SETTINGS["stack_room"].metadata["variable"] in texts
