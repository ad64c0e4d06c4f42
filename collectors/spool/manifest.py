"""The description in a spool folder, from which any later command can record it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.contract.spool_format import MANIFEST_NAME
from compileboard.collectors.spool.reader import is_file

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LARGEST_INTEGER = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Manifest(RunConfig):
    run_id: str
    started_us: int
    source: str = "live"  # live | bench | trial
    argv: list[str] = field(default_factory=list)
    cwd: str | None = None
    recorder_process_id: str = ""
    trace_folder: str | None = (
        None  # where torch writes its own logs: with --level full, or by the user's TORCH_TRACE
    )
    git: dict[str, Any] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    ended_us: int | None = None
    state: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    late: bool = (
        False  # made by a process that outlived its spool: its run is described and ended elsewhere
    )
    troubles: list[list[str]] = field(
        default_factory=list
    )  # [kind of collectors.rejects, what went wrong]

    def end(
        self, state: str, ended_us: int, exit_code: int | None = None, signal: str | None = None
    ) -> Manifest:
        return replace(self, state=state, ended_us=ended_us, exit_code=exit_code, signal=signal)

    def write(self, folder: Path) -> None:
        temporary = folder / f".{MANIFEST_NAME}.{os.getpid()}"
        temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")
        os.replace(temporary, folder / MANIFEST_NAME)


def read_manifest(folder: Path) -> Manifest:
    """Read a spool's manifest; invalid facts are left out and listed in its errors.

    Raises ValueError if it is missing, damaged, or names no run or target.
    """
    if not is_file(folder / MANIFEST_NAME):
        raise ValueError(f"{folder / MANIFEST_NAME} does not describe a run: it is no plain file")
    try:
        body = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{folder / MANIFEST_NAME} does not describe a run: {error}") from None
    if not isinstance(body, dict):
        raise ValueError(
            f"{folder / MANIFEST_NAME} does not describe a run: expected an object, got "
            f"{str(body)[:80]}"
        )
    values = {name: value for name, value in body.items() if name in CHECKS and CHECKS[name](value)}
    for name in ("run_id", "database"):
        if not values.get(name) and not (name == "database" and values.get("server")):
            got = repr(body.get(name))[:80]
            raise ValueError(
                f"{folder / MANIFEST_NAME} does not describe a run: its {name} is {got}"
            )
    odd = [
        ["bad_fact", f"{name}: {value!r}"[:200]]
        for name, value in body.items()
        if name not in values
    ]
    values["troubles"] = [*values.get("troubles", []), *odd]
    known = dict.fromkeys(("name", "recorder_process_id"), values["run_id"])
    lists = {
        name: tuple(value) for name, value in values.items() if TYPES[name].startswith("tuple")
    }
    return Manifest(**{**known, "started_us": _change_us(folder), **values, **lists})


def _change_us(folder: Path) -> int:
    return (folder / MANIFEST_NAME).stat().st_mtime_ns // 1000


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return type(value) is int and abs(value) <= LARGEST_INTEGER


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool, float)) or _is_integer(value)


def _maps(is_value: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(is_value, value.values()))


def _lists(is_entry: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(is_entry, value))


_BY_TYPE: dict[str, Callable[[Any], bool]] = {
    "str": _is_text,
    "str | None": lambda value: value is None or _is_text(value),
    "int": _is_integer,
    "int | None": lambda value: value is None or _is_integer(value),
    "bool": lambda value: isinstance(value, bool),
    "bool | None": lambda value: value is None or isinstance(value, bool),
    "dict[str, str]": _maps(_is_text),
    "dict[str, Any]": _maps(_is_scalar),
    "list[str]": _lists(_is_text),
    "tuple[str, ...]": _lists(_is_text),
    "list[dict[str, Any]]": _lists(_maps(_is_scalar)),
    "list[list[str]]": _lists(lambda entry: _lists(_is_text)(entry) and len(entry) == 2),
}
TYPES = {field.name: str(field.type) for field in fields(Manifest)}
CHECKS = {name: _BY_TYPE[type_name] for name, type_name in TYPES.items()}
CHECKS["run_id"] = lambda value: _is_text(value) and RUN_ID.fullmatch(value) is not None
CHECKS["git"] = lambda value: (
    _maps(_is_scalar)(value) and isinstance(value.get("dirty"), bool | None)
)
