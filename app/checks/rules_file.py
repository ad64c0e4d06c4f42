"""The rules file of a check: options of `compileboard check` as TOML."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

# What a check asks for; which runs it compares and where it writes are the caller's.
KEYS = (
    *("rule", "suite", "mode", "dtype", "device", "backend", "batch-size", "world-size", "model"),
    *("flaky", "no-known-flaky", "threshold", "threshold-scale", "metric", "fail-on-improvement"),
    *("noise-margin", "tolerance", "allow-improvement", "allow-environment-change"),
)


def load_rules(path: str, parameters: Mapping[str, click.Parameter]) -> dict[str, Any]:
    """Raises ValueError with the file and the key if it cannot be read or has an unknown option."""
    # Python 3.10 has it not.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}; expected TOML"
        ) from None
    values = {}
    for key, value in document.items():
        if key not in KEYS:
            raise ValueError(
                f"{path}: there is no rule option {key[:80]!r}; known: {', '.join(KEYS)}"
            )
        parameter = parameters[f"--{key}"]
        values[str(parameter.name)] = _read_value(value, parameter, f"{path}: {key}")
    return values


def _read_value(value: object, parameter: click.Parameter, name: str) -> Any:
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise ValueError(f"{name} is {str(value)[:80]!r}; expected true or false")
        return value
    values = value if isinstance(value, list) and parameter.multiple else [value]
    if not all(
        isinstance(entry, (str, int, float)) and not isinstance(entry, bool) for entry in values
    ):
        expected = (
            "a text, a number or a list of them" if parameter.multiple else "a text or a number"
        )
        raise ValueError(f"{name} is {str(value)[:80]!r}; expected {expected}")
    texts = [str(entry) for entry in values]
    return texts if parameter.multiple else texts[0]
