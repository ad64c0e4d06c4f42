"""Every setting of the dashboard.

A value comes from the command line, else from the environment (COMPILEBOARD_ and the name in
capitals), else the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, get_type_hints

from compileboard.app.core.forge import parse_forges
from compileboard.collectors.contract.run_config import STALE_AFTER_S


@dataclass(frozen=True)
class Settings:
    db: Annotated[
        str, "The database file, or a clickhouse:// address. A missing or empty one is created."
    ] = "compileboard.db"
    host: Annotated[str, "The address to listen on."] = "127.0.0.1"
    port: Annotated[int, "The port to listen on; 0 picks a free one."] = 8000
    workers: Annotated[
        int, "Server processes. One is right for a team; each has its own threads."
    ] = 1
    threads: Annotated[int, "Requests that one worker answers at once."] = 8
    allow_host: Annotated[
        str, "Host names, separated by commas, that a browser may use; needed beyond this machine."
    ] = ""
    reading: Annotated[str, "Who may read: open (whoever reaches the server) or tokens."] = "open"
    trusted_proxies: Annotated[
        int, "Reverse proxies in front, whose X-Forwarded-For and -Proto are believed."
    ] = 0
    identity_header: Annotated[
        str, "Header in which a trusted proxy names the person that it let in."
    ] = ""
    identity_scopes: Annotated[str, "Scope of each such person, as ann=admin,*=read."] = "*=read"
    identity_secret_file: Annotated[
        str, "File of the secret that the proxy proves itself with."
    ] = ""
    stale_after_s: Annotated[
        int, "Seconds without a heartbeat after which a running run shows as interrupted?."
    ] = STALE_AFTER_S
    forges: Annotated[
        str, "Forges beside the public ones, as git.example.org=gitlab, separated by commas."
    ] = ""
    refresh_s: Annotated[int, "Seconds between two refreshes of a running run's page."] = 3
    page_size: Annotated[int, "Rows on one page of a list."] = 50
    trend_runs: Annotated[int, "Newest runs in the overview's charts and rankings."] = 1000
    follow: Annotated[
        str, "Whether to update incidents and send alerts while serving: yes or no."
    ] = "yes"
    prune_after_days: Annotated[
        int, "Days after which the detail of a run is deleted while serving; 0 never."
    ] = 0
    seal_after_s: Annotated[
        int, "Seconds after its last change until a run that ended is sealed, beside ClickHouse."
    ] = 600
    read_only: Annotated[
        str, "Whether to write nothing at all, for a copy or a read-only disk: yes or no."
    ] = "no"
    log_format: Annotated[str, "A line a request on stderr: none, text or json."] = "none"
    stop_s: Annotated[int, "Seconds that requests under way may take when the server stops."] = 30
    uploads: Annotated[str, "Whether trace logs may be sent to the dashboard: yes or no."] = "yes"
    upload_mib: Annotated[int, "Most MiB of one upload, as sent; eight times that unpacked."] = 512
    alerts: Annotated[str, "File of alert rules; see `compileboard alerts example`."] = ""
    push_rate_mib: Annotated[
        int, "MiB (unpacked) that one token pushes in a minute, to one server process."
    ] = 1024
    push_queue: Annotated[
        int, "Most requests of machines that wait to be stored, of one server process."
    ] = 32


class Setting(NamedTuple):
    name: str
    default: str | int
    help: str


SETTINGS = tuple(
    Setting(name, getattr(Settings, name), hint.__metadata__[0])
    for name, hint in get_type_hints(Settings, include_extras=True).items()
)
_RANGES = {
    "port": (0, 65535),
    "trusted_proxies": (0, 10),
    "prune_after_days": (0, 100_000),
    "seal_after_s": (0, 31_536_000),
}


class SettingError(ValueError):
    """A setting has an invalid value."""


def variable_name(setting: Setting) -> str:
    return f"COMPILEBOARD_{setting.name.upper()}"


def load_settings(environ: Mapping[str, str], options: Mapping[str, Any] | None = None) -> Settings:
    """Combine values from the command line (None if not given), the environment and the defaults.

    Raises SettingError if a value has the wrong type or is out of range.
    """
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        value = (options or {}).get(setting.name)
        origin = f"--{setting.name.replace('_', '-')}"
        if value is None:
            value = environ.get(variable_name(setting))
            origin = variable_name(setting)
        if value is not None:
            values[setting.name] = _convert_setting(setting, value, origin)
    return Settings(**values)


def _convert_setting(setting: Setting, value: Any, origin: str) -> str | int:
    if setting.default in ("yes", "no") and value not in ("yes", "no"):
        raise SettingError(f"{origin} is {value!r}; expected yes or no")
    if setting.name == "reading" and value not in ("open", "tokens"):
        raise SettingError(f"{origin} is {value!r}; expected open or tokens")
    if setting.name == "log_format" and value not in ("none", "text", "json"):
        raise SettingError(f"{origin} is {value!r}; expected none, text or json")
    if setting.name == "forges":
        try:
            parse_forges(value)
        except ValueError as error:
            raise SettingError(f"{origin}: {error}") from None
    if isinstance(setting.default, str):
        return str(value)
    try:
        number = int(value)
    except ValueError:
        raise SettingError(
            f"{origin} is {value!r}; expected a whole number, like {setting.default}"
        ) from None
    low, high = _RANGES.get(setting.name, (1, 100_000))
    if not low <= number <= high:
        raise SettingError(f"{origin} is {number}; expected {low} to {high}")
    return number
