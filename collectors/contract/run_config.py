"""A run's settings, declared once for command, hooks, manifest and database.

This module is imported in the observed process, so it needs only the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any

REPRO_VARIABLE = "COMPILEBOARD_REPRO"
SERVER_SETTINGS = (
    "server",
    "token_file",
    "insecure",
    "outbox_bytes",
)  # target of a run without a database
# A recorder sends a heartbeat every few seconds; without one for longer, it has ended
STALE_AFTER_S = 30


MAX_STEPS = 10_000


def parse_steps(text: str) -> tuple[int, int | None]:
    """Return how many steps to time, and how many to skip first (None: all until nothing
    compiles).
    """
    count, _, after = text.partition("@")
    if not count.isdecimal() or not 1 <= int(count) <= MAX_STEPS:
        raise ValueError(f"a number of steps from 1 to {MAX_STEPS:,}, and @M for after M steps")
    if "@" in text and not after.isdecimal():
        raise ValueError(f"{after!r} after @ is not a number of steps")
    return int(count), int(after) if "@" in text else None


def passed_on(variable: str, default: Any) -> Any:
    return field(default=default, metadata={"variable": variable})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Settings of one run, as in `run`, `bench`, `install()` and `observe()`.

    A flag's variable is "1" if it differs from the default, else empty.
    """

    name: str = ""  # name of the run; runs of one name are compared over time
    suite: str | None = None  # group of the run: "nightly"
    tags: dict[str, str] = field(default_factory=dict)  # labels to find it by
    database: str = passed_on("COMPILEBOARD_DB", "")
    server: str = passed_on(
        "COMPILEBOARD_SERVER", ""
    )  # instead of a database: the server's address
    token_file: str = passed_on(
        "COMPILEBOARD_TOKEN_FILE", ""
    )  # the file with its token; the token itself is never stored
    insecure: bool = passed_on(
        "COMPILEBOARD_INSECURE", default=False
    )  # a token may be sent over http:// to another machine
    outbox_bytes: int = passed_on(
        "COMPILEBOARD_OUTBOX_SIZE", 2 << 30
    )  # Limit on data waiting on this machine for its server.
    level: str = passed_on(
        "COMPILEBOARD_LEVEL", "light"
    )  # light | full: also torch's own trace log
    keep_source: bool = passed_on("COMPILEBOARD_NO_SOURCE", default=True)
    capture_env: tuple[str, ...] = passed_on(
        "COMPILEBOARD_CAPTURE_ENV", ()
    )  # environment variables to store
    repro: tuple[str, ...] = passed_on(REPRO_VARIABLE, ())  # "crash" | "accuracy": also captured
    repro_inputs_bytes: int = passed_on(
        "COMPILEBOARD_REPRO_INPUTS", 0
    )  # Limit on a repro's input values; 0 keeps none.
    steps: str = passed_on("COMPILEBOARD_STEPS", "")  # "40@100": time 40, after 100
    stack_room: bool | None = passed_on(
        "COMPILEBOARD_STACK_ROOM", None
    )  # None: the collector does not start the program

    def to_environment(self) -> dict[str, str]:
        return {
            variable: _to_text(setting, getattr(self, setting.name))
            for variable, setting in _passed_on()
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RunConfig:
        present = [
            (variable, setting) for variable, setting in _passed_on() if variable in environment
        ]
        return cls(
            **{
                setting.name: _from_text(setting, environment[variable])
                for variable, setting in present
            }
        )


def _passed_on() -> list[tuple[str, Field[Any]]]:
    return [
        (field.metadata["variable"], field)
        for field in fields(RunConfig)
        if "variable" in field.metadata
    ]


def _is_flag(setting: Field[Any]) -> bool:
    return str(setting.type).startswith("bool")


def _to_text(setting: Field[Any], value: Any) -> str:
    if _is_flag(setting):
        return "1" if value is (not setting.default) else ""
    return ",".join(value) if isinstance(value, tuple) else str(value or "")


def _from_text(setting: Field[Any], text: str) -> Any:
    if _is_flag(setting):
        return (not setting.default) if text == "1" else setting.default
    if isinstance(setting.default, tuple):
        return tuple(filter(None, text.split(",")))
    if isinstance(setting.default, int):
        return int(text) if text.isdigit() else setting.default
    return text or setting.default


def is_device_known(source: str, torch_version: str | None) -> bool:
    """Return whether a run without a recorded GPU is known to have used a CPU. A trace log may come
    from a GPU without saying so.
    """
    return source != "import" or (torch_version or "").endswith("+cpu")


def describe_uncompiled(
    state: str, torch_version: str | None, disabling: Sequence[str] = ()
) -> str:
    """Return why an observed program compiled nothing. `state` is how it ended, `disabling` what
    turned torch.compile off.
    """
    if disabling:
        return f"nothing was compiled: compiling is turned off by {' and '.join(disabling)}"
    if torch_version:
        return (
            "nothing was compiled although torch was loaded: no compiled function was called, "
            "or torch.compile was turned off while it ran"
        )
    if state != "finished":  # it had no chance to
        return "the program ended before it loaded torch.compile"
    return (
        "nothing was compiled: no process that could be observed began to compile a function. "
        "Either the program calls none that is compiled, or one that torch leaves out: a generator "
        "(compile what a pass of it calls). Or it ran where the hooks do not reach: python -I, -S "
        "or -E, a container, another machine"
    )
