"""Every setting of the dashboard, in one place.

A value comes from the command line, else from the environment (COMPILEBOARD_ and the name in capitals), else from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Setting(NamedTuple):
    """One setting of the dashboard; the type of its default is the type of its value."""

    name: str
    default: str | int
    help: str


SETTINGS = (
    Setting("db", "compileboard.db", "The database file. A missing or empty one is created."),
    Setting("host", "127.0.0.1", "The address to listen on. Anyone who reaches it can read every run."),
    Setting("port", 8000, "The port to listen on; 0 picks a free one."),
    Setting("workers", 1, "Server processes. One is right for a team; each has its own threads."),
    Setting("threads", 8, "Requests that one worker answers at the same time."),
    Setting("allow_host", "", "Host names, separated by commas, that a browser may use; needed beyond this machine."),
    Setting("allow_writes", "no", "Whether others than this machine may change something: yes or no."),
    Setting("trusted_proxies", 0, "Proxies in front whose X-Forwarded-For is believed, for the audit log."),
    Setting("stale_after_s", 30, "Seconds without a heartbeat after which a running run shows as interrupted?."),
    Setting("refresh_s", 3, "Seconds between two refreshes of a running run's page."),
    Setting("page_size", 50, "Rows on one page of a list."),
    Setting("trend_runs", 1000, "Newest runs that the overview's charts and rankings look at."),
    Setting("follow", "yes", "Whether findings are looked for, and alerts sent, while it serves: yes or no."),
    Setting("uploads", "yes", "Whether trace logs may be sent to the dashboard: yes or no."),
    Setting("upload_mib", 512, "MiB that one upload may have, as it is sent."),
    Setting("upload_unpacked_mib", 4096, "MiB that may come out of one upload's archives and compressed logs."),
    Setting("upload_ratio", 1000, "How many times its own size may come out of a file; real logs reach 180."),
    Setting("upload_entries", 20_000, "Entries that an upload's archives may have."),
    Setting("upload_records", 1_000_000, "Records that may come of one upload."),
    Setting("upload_rows", 2_000_000, "Rows that the import of an upload may write."),
    Setting("upload_slice_s", 20, "Seconds after which the import of an upload makes way for those that wait."),
    Setting("upload_memory_mib", 1024, "MiB of address space that an import of an upload may use."),
    Setting("upload_timeout_s", 900, "Seconds that an import of an upload may take."),
    Setting("alerts", "", "The file of rules that says which findings are told to whom; see `alerts example`."),
    Setting("upload_queue", 8, "Uploads that may wait for their import."),
)


@dataclass(frozen=True)
class Settings:
    """One value for each of SETTINGS."""

    db: str = "compileboard.db"
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int = 8
    allow_host: str = ""
    allow_writes: str = "no"
    trusted_proxies: int = 0
    stale_after_s: int = 30
    refresh_s: int = 3
    page_size: int = 50
    trend_runs: int = 1000
    follow: str = "yes"
    uploads: str = "yes"
    upload_mib: int = 512
    upload_unpacked_mib: int = 4096
    upload_ratio: int = 1000
    upload_entries: int = 20_000
    upload_records: int = 1_000_000
    upload_rows: int = 2_000_000
    upload_slice_s: int = 20
    upload_memory_mib: int = 1024
    upload_timeout_s: int = 900
    alerts: str = ""
    upload_queue: int = 8


_RANGES = {"port": (0, 65535), "trusted_proxies": (0, 10), "upload_records": (1, 10**9), "upload_rows": (1, 10**9)}


class SettingError(ValueError):
    """Which setting has a value that cannot be used, and what is expected."""


def variable_name(setting: Setting) -> str:
    """Name the environment variable of a setting."""
    return f"COMPILEBOARD_{setting.name.upper()}"


def load_settings(environ: Mapping[str, str], given: Mapping[str, Any] | None = None) -> Settings:
    """Join the command line's values (None where not given), the environment's and the defaults.

    Raises: SettingError if a value is not of its setting's type or out of range.
    """
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        value = (given or {}).get(setting.name)
        origin = f"--{setting.name.replace('_', '-')}"
        if value is None:
            value = environ.get(variable_name(setting))
            origin = variable_name(setting)
        if value is not None:
            values[setting.name] = _convert(setting, value, origin)
    return Settings(**values)


def _convert(setting: Setting, value: Any, origin: str) -> str | int:
    if setting.default in ("yes", "no") and value not in ("yes", "no"):
        raise SettingError(f"{origin} is {value!r}; expected yes or no")
    if isinstance(setting.default, str):
        return str(value)
    try:
        number = int(value)
    except ValueError:
        raise SettingError(f"{origin} is {value!r}; expected a whole number, like {setting.default}") from None
    low, high = _RANGES.get(setting.name, (1, 100_000))
    if not low <= number <= high:
        raise SettingError(f"{origin} is {number}; expected {low} to {high}")
    return number
