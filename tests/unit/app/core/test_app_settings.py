"""Settings: the command line, else the environment, else the default; a bad value is named."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from compileboard.app.cli.main import main
from compileboard.app.cli.serve import SERVE_SETTINGS
from compileboard.app.core.settings import (
    SETTINGS,
    Setting,
    SettingError,
    Settings,
    load_settings,
    variable_name,
)
from tests.tools.observed import ROOT


def test_defaults_are_said_once_and_agree() -> None:
    assert load_settings({}) == Settings()
    assert {setting.name: setting.default for setting in SETTINGS} == vars(Settings())
    assert [setting.name for setting in SETTINGS] == [field.name for field in fields(Settings)]


def test_the_command_line_goes_before_the_environment() -> None:
    environ = {"COMPILEBOARD_PORT": "9000", "COMPILEBOARD_DB": "env.db"}
    assert load_settings(environ, {"port": "7000", "db": None}) == Settings(port=7000, db="env.db")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_has_its_variable_and_its_line_in_the_docs(setting: Setting) -> None:
    chosen = {"reading": "tokens", "log_format": "json", "forges": "git.example.org=gitlab"}
    value = "7" if isinstance(setting.default, int) else chosen.get(setting.name, "no")
    loaded = getattr(load_settings({variable_name(setting): value}), setting.name)
    assert loaded == type(setting.default)(value)
    row = (
        rf"\| `{variable_name(setting)}` \| "
        rf"{re.escape(f'`{setting.default}`') if setting.default else 'none'} \|"
    )
    assert re.search(row, (ROOT / "docs" / "settings.md").read_text())


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("port", "x", "--port is 'x'; expected a whole number, like 8000"),
        ("port", "-1", "--port is -1; expected 0 to 65535"),
        ("page_size", "0", "--page-size is 0; expected 1 to 100000"),
        ("workers", "", "--workers is ''; expected a whole number"),
    ],
)
def test_a_bad_value_says_what_came_and_what_is_expected(
    name: str, value: str, sentence: str
) -> None:
    with pytest.raises(SettingError, match=re.escape(sentence)):
        load_settings({}, {name: value})


def test_serve_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for setting in SETTINGS:
        assert variable_name(setting) in text
        assert (f"--{setting.name.replace('_', '-')} " in text) == (setting.name in SERVE_SETTINGS)
