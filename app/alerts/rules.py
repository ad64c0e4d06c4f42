"""Alert rules: which incidents go to which channels, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from zoneinfo import ZoneInfo

from compileboard.app.alerts.clock import NEVER_QUIET, Digest, Quiet, find_digest_before, is_quiet
from compileboard.app.queries.dashboard.alerts import Delivery
from compileboard.app.queries.dashboard.series_changes import SeriesChange

SECRET_KEYS = ("url_env", "secret_env", "username_env", "password_env")


@dataclass(frozen=True)
class Channel:
    """Where messages go. Secrets are named by their environment variables and never stored."""

    name: str
    kind: str  # webhook | slack | email
    url_env: str = ""
    secret_env: str = ""
    timeout_s: int = 10
    host: str = ""
    port: int = 0
    security: str = "starttls"
    username_env: str = ""
    password_env: str = ""
    sender: str = ""
    to: tuple[str, ...] = ()

    @property
    def variables(self) -> Mapping[str, str]:
        return {key: name for key in SECRET_KEYS if (name := getattr(self, key))}

    def list_unset(self, environ: Mapping[str, str]) -> list[str]:
        return [key for key, name in self.variables.items() if not environ.get(name)]

    def describe_unset(self, environ: Mapping[str, str]) -> str:
        keys = self.list_unset(environ)
        verb = "names a variable that is" if len(keys) == 1 else "name variables that are"
        return f"{', '.join(keys)} {verb} not set" if keys else ""


@dataclass(frozen=True)
class AlertRule:
    """One rule. Filters are file name patterns (`resnet*`); an empty one matches everything."""

    name: str
    channels: tuple[str, ...]
    zone: ZoneInfo
    direction: tuple[str, ...] = ("worse",)
    subject: tuple[str, ...] = ()
    suite: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    metric: tuple[str, ...] = ()
    branch: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()
    least_percent: float = 0.0
    quiet: Quiet = NEVER_QUIET
    quiet_text: str = ""
    digest: Digest | None = None
    digest_text: str = "none"
    since_us: int | None = None


@dataclass(frozen=True)
class Rules:
    path: str
    base_url: str
    channels: Mapping[str, Channel]
    rules: tuple[AlertRule, ...]


class RulesError(ValueError):
    """An alert rules file cannot be used; `mistakes` has a sentence for each mistake."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(mistakes))


PATTERNS = ("suite", "model", "metric", "branch", "hardware")


def matches(rule: AlertRule, direction: str, changes: Iterable[SeriesChange]) -> bool:
    return direction in rule.direction and any(_fits_change(rule, change) for change in changes)


def _fits_change(rule: AlertRule, change: SeriesChange) -> bool:
    if change.direction not in rule.direction or (
        rule.subject and change.subject not in rule.subject
    ):
        return False
    if change.relative is not None and abs(change.relative) * 100 < rule.least_percent:
        return False
    return all(fits(getattr(rule, name), getattr(change, name)) for name in PATTERNS)


def fits(patterns: tuple[str, ...], value: str) -> bool:
    return not patterns or any(fnmatchcase(value, pattern) for pattern in patterns)


def list_due(rule: AlertRule, waiting: Sequence[Delivery], now_us: int) -> list[Delivery]:
    if is_quiet(rule.quiet, rule.zone, now_us):
        return []
    due = [delivery for delivery in waiting if delivery.due_us <= now_us]
    if rule.digest is None:
        return due
    closed_us = find_digest_before(rule.digest, rule.zone, now_us)
    # Not when it was queued: a pass at 08:00:03 queues what was noticed at night, and it is the
    # digest's of 08:00.
    return [delivery for delivery in due if delivery.noticed_us <= closed_us]
