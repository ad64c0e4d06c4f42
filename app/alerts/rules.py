"""Alert rules: read a rules file, match incidents, and find quiet hours and digest times."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, timezone
from email.utils import parseaddr
from fnmatch import filter as keep_fitting
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from compileboard.app.alerts.queries import Delivery
from compileboard.app.incidents.model import DIRECTIONS, SUBJECTS, SeriesChange, list_metric_names

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_SPAN = re.compile(rf"({_TIME.pattern})-({_TIME.pattern})")
_DIGEST = re.compile(rf"(?:daily|weekly ({'|'.join(DAYS)})) ({_TIME.pattern})")


@dataclass(frozen=True)
class QuietHours:
    """Days and minutes of the day in which nothing is sent; a range may pass midnight.

    Units: minutes since midnight; two equal minutes are an empty range. Days: 0 is Monday.
    """

    from_minute: int = 0
    to_minute: int = 0
    days: frozenset[int] = frozenset()


NEVER_QUIET = QuietHours()


@dataclass(frozen=True)
class DigestSchedule:
    minute: int
    weekday: int | None = None


def parse_quiet(text: str) -> QuietHours | None:
    """Parse `22:00-07:00`, '' for no quiet hours; return None for anything else."""
    if not text:
        return NEVER_QUIET
    parsed = _SPAN.fullmatch(text)
    if parsed is None:
        return None
    start, end = int(parsed[2]) * 60 + int(parsed[3]), int(parsed[5]) * 60 + int(parsed[6])
    return None if start == end else QuietHours(start, end)


def parse_digest(text: str) -> DigestSchedule | None:
    """Parse `daily 08:00` or `weekly mon 08:00`; return None for anything else."""
    parsed = _DIGEST.fullmatch(text)
    if parsed is None:
        return None
    return DigestSchedule(
        int(parsed[3]) * 60 + int(parsed[4]), DAYS.index(parsed[1]) if parsed[1] else None
    )


def is_quiet(quiet: QuietHours, zone: ZoneInfo, now_us: int) -> bool:
    here = _localize(now_us, zone)
    if here.weekday() in quiet.days:
        return True
    minute = here.hour * 60 + here.minute
    if quiet.from_minute <= quiet.to_minute:
        return quiet.from_minute <= minute < quiet.to_minute
    return minute >= quiet.from_minute or minute < quiet.to_minute


def find_quiet_end(quiet: QuietHours, zone: ZoneInfo, now_us: int) -> int:
    if not is_quiet(quiet, zone, now_us):
        return now_us
    here = _localize(now_us, zone).date()
    ends = (
        _find_moment(here + timedelta(days=day), minute, zone)
        for day in range(9)
        for minute in (0, quiet.to_minute)
    )
    return min(
        (end_us for end_us in ends if end_us > now_us and not is_quiet(quiet, zone, end_us)),
        default=now_us,
    )


def find_digest_before(digest: DigestSchedule, zone: ZoneInfo, now_us: int) -> int:
    return max(due_us for due_us in _list_digests(digest, zone, now_us) if due_us <= now_us)


def find_digest_after(digest: DigestSchedule, zone: ZoneInfo, now_us: int) -> int:
    return min(due_us for due_us in _list_digests(digest, zone, now_us) if due_us > now_us)


def _list_digests(digest: DigestSchedule, zone: ZoneInfo, now_us: int) -> list[int]:
    here = _localize(now_us, zone).date()
    near = (here + timedelta(days=day) for day in range(-8, 9))
    days = (day for day in near if digest.weekday is None or day.weekday() == digest.weekday)
    return [_find_moment(day, digest.minute, zone) for day in days]


def _find_moment(day: date, minute: int, zone: ZoneInfo) -> int:
    """Return the time at which the local clock shows `minute`: the first if it occurs twice, an
    hour later if it is skipped.
    """
    here = datetime.combine(day, time(minute // 60, minute % 60), zone)
    return round(here.timestamp()) * 1_000_000


def _localize(now_us: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(now_us // 1_000_000, timezone.utc).astimezone(zone)


SECRET_KEYS = ("url_env", "secret_env", "username_env", "password_env")


@dataclass(frozen=True)
class Channel:
    """A destination of messages. Secrets are named by their environment variables and never
    stored.
    """

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
    """One rule. Filters are file name patterns (`resnet*`); without patterns everything matches."""

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
    quiet: QuietHours = NEVER_QUIET
    quiet_text: str = ""
    digest: DigestSchedule | None = None
    digest_text: str = "none"
    since_us: int | None = None


@dataclass(frozen=True)
class AlertRules:
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
    return direction in rule.direction and any(_matches_change(rule, change) for change in changes)


def _matches_change(rule: AlertRule, change: SeriesChange) -> bool:
    if change.direction not in rule.direction or (
        rule.subject and change.subject not in rule.subject
    ):
        return False
    if change.relative is not None and abs(change.relative) * 100 < rule.least_percent:
        return False
    return all(matches_any_pattern(getattr(rule, name), getattr(change, name)) for name in PATTERNS)


def matches_any_pattern(patterns: tuple[str, ...], value: str) -> bool:
    return not patterns or any(fnmatchcase(value, pattern) for pattern in patterns)


def list_due(rule: AlertRule, waiting: Sequence[Delivery], now_us: int) -> list[Delivery]:
    if is_quiet(rule.quiet, rule.zone, now_us):
        return []
    due = [delivery for delivery in waiting if delivery.due_us <= now_us]
    if rule.digest is None:
        return due
    closed_us = find_digest_before(rule.digest, rule.zone, now_us)
    # Not when it was queued: a pass at 08:00:03 queues changes noticed at night, which belong to
    # the digest of 08:00.
    return [delivery for delivery in due if delivery.noticed_us <= closed_us]


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
HOST = re.compile(r"[A-Za-z0-9.:_-]{1,253}")
_ADDRESS = re.compile(r"(\w://)([^/?#\s'\"]*)([^\s'\"]*)")
Accept = Callable[[Any], Any]  # converts a key's value, None if it is invalid


def accept_pattern(pattern: re.Pattern[str]) -> Accept:
    return lambda value: value if isinstance(value, str) and pattern.fullmatch(value) else None


def accept_nonempty(kind: type) -> Accept:
    return lambda value: value if isinstance(value, kind) and value else None


def parse_strings(value: Any) -> tuple[str, ...] | None:
    texts = [value] if isinstance(value, str) else value
    good = (
        isinstance(texts, list)
        and texts
        and all(isinstance(text, str) and 0 < len(text) <= 500 for text in texts)
    )
    return tuple(dict.fromkeys(texts)) if good else None


def accept_each(is_good: Callable[[str], object]) -> Accept:
    def accept(value: Any) -> tuple[str, ...] | None:
        texts = parse_strings(value)
        return texts if texts and all(map(is_good, texts)) else None

    return accept


def accept_one_of(known: tuple[str, ...]) -> Accept:
    return lambda value: value if isinstance(value, str) and value in known else None


def format_one_of(known: tuple[str, ...]) -> str:
    return (
        ", ".join(known[:-1]) + " or " + known[-1]
        if len(known) > 1
        else "".join(known) or "channels, of which none is"
    )


def parse_days(value: Any) -> frozenset[int] | None:
    texts = parse_strings(value)
    good = texts and set(texts) <= set(DAYS) and len(texts) < len(DAYS)
    return frozenset(map(DAYS.index, texts)) if texts and good else None


def accept_whole_up_to(maximum: int) -> Accept:
    return lambda value: value if type(value) is int and 1 <= value <= maximum else None


def parse_percent(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value < 1e9 else None


def parse_zone(value: Any) -> ZoneInfo | None:
    try:
        return ZoneInfo(value) if isinstance(value, str) and value else None
    except (
        KeyError,
        ValueError,
        OSError,
    ):  # KeyError: no such zone; the others: names that are paths
        return None


def parse_date(value: Any) -> int | None:
    if isinstance(value, datetime) or not isinstance(value, date):
        return None
    return (
        round(datetime(value.year, value.month, value.day, tzinfo=timezone.utc).timestamp())
        * 1_000_000
    )


def parse_url(value: Any) -> str | None:
    if not isinstance(value, str) or re.search(r"[\s\x00-\x20\x7f<>\"]", value):
        return None
    try:
        parts = urlsplit(value)
        good = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and not (parts.query or parts.fragment)
        )
    except ValueError:
        return None
    return value.rstrip("/") if good and "@" not in parts.netloc else None


def parse_address(value: Any) -> str | None:
    if not isinstance(value, str) or re.search(r"[\x00-\x1f\x7f]", value):
        return None
    _name, address = parseaddr(value)
    good = (
        address.isascii() and re.fullmatch(r"[^@\s<>,]+@[^@\s<>,]+", address) and "," not in value
    )
    return value if good else None


def format_invalid_value(value: object) -> str:
    """Shorten an invalid value for an error message. Of a URL only the host is shown, because a
    value may contain secrets.
    """
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list) and any(isinstance(element, (dict, list)) for element in value):
        return "a list of tables or lists"
    text = repr(value if isinstance(value, (str, int, float, bool, list)) else str(value))
    return _ADDRESS.sub(_shorten, text)[:80]


def _shorten(address: re.Match[str]) -> str:
    start, host, end = address.groups()
    return f"{start}…" if "@" in host + end else f"{start}{host}/…" if end else address[0]


EXAMPLE = """\
# Which incidents are sent to whom. Check it: compileboard alerts check --rules alerts.toml
# Secrets are never in here: *_env names the environment variable that holds one.

base_url = "https://compileboard.example.org"   # the dashboard, for links in messages
timezone = "Europe/Berlin"                      # of quiet hours and digests

[channels.team]
kind = "slack"                                  # an incoming webhook of Slack, \
or what takes the same
url_env = "TEAM_WEBHOOK"

[channels.bot]
kind = "webhook"                                # JSON, described in docs/alerts.md
url_env = "BOT_WEBHOOK"
secret_env = "BOT_SECRET"                       # signs each message; may be left out

[channels.mail]
kind = "email"
host = "smtp.example.org"
port = 587
security = "starttls"                           # or tls, or none
username_env = "SMTP_USER"
password_env = "SMTP_PASSWORD"
from = "CompileBoard <compileboard@example.org>"
to = ["perf@example.org"]

[[rules]]
name = "slower"                                 # sent at once, except at night and weekends
channels = ["team", "bot"]
direction = "worse"                             # worse (default), better or changed, \
or a list of them
subject = "model"                               # model, suite or runs
suite = ["torchbench", "huggingface"]           # suite, model, metric, branch, hardware: patterns
model = "*"
metric = ["speedup", "passes", "compilation_*"]
branch = "main"
least_percent = 3                               # smaller changes are left out; \
a failure has no size
quiet = "22:00-07:00"
quiet_days = ["sat", "sun"]

[[rules]]
name = "all-changes"                            # once a day, improvements too
channels = ["mail"]
direction = ["worse", "better", "changed"]
digest = "daily 08:00"                          # or weekly mon 08:00, or none
"""


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = {  # Each kind with its description.
    "webhook": "webhook, JSON",
    "slack": "webhook, Slack's form",
    "email": "e-mail",
}
SECURITIES = ("starttls", "tls", "none")
PORTS = {"starttls": 587, "tls": 465, "none": 25}
MAX_BYTES = 1 << 20
_NAME_FORM = "a letter or digit, then letters, digits and . _ -, 63 at most"
_MAIL_FORM = "an address, as perf@example.org or Perf <perf@example.org>"
_PATTERN_FORM = "a pattern as resnet*, or a list of such"


@dataclass(frozen=True)
class KeySpec:
    """A key of a table: its parser, the values it accepts in words, and its default."""

    accept: Accept
    expected: str
    default: Any = None
    is_required: bool = False


def _name_variable(example: str, *, is_required: bool = False) -> KeySpec:
    return KeySpec(
        accept_pattern(VARIABLE),
        f"the name of an environment variable, as {example}",
        "",
        is_required,
    )


ZONE = KeySpec(parse_zone, "a time zone's name, as Europe/Berlin or UTC")
TOP_KEYS = {
    "base_url": KeySpec(
        parse_url, "the dashboard's address, as https://compileboard.example.org", ""
    ),
    "timezone": ZONE,
    "channels": KeySpec(accept_nonempty(dict), "tables, as [channels.team]", {}, is_required=True),
    "rules": KeySpec(accept_nonempty(list), "tables, as [[rules]]", [], is_required=True),
}
KIND = KeySpec(accept_one_of(tuple(KINDS)), format_one_of(tuple(KINDS)), is_required=True)
TIMEOUT = KeySpec(accept_whole_up_to(60), "whole seconds from 1 to 60", 10)
WEBHOOK = _name_variable("TEAM_WEBHOOK", is_required=True)
CHANNEL_KEYS = {
    "webhook": {
        "kind": KIND,
        "url_env": WEBHOOK,
        "secret_env": _name_variable("TEAM_WEBHOOK"),
        "timeout_s": TIMEOUT,
    },
    "slack": {"kind": KIND, "url_env": WEBHOOK, "timeout_s": TIMEOUT},
    "email": {
        "kind": KIND,
        "host": KeySpec(
            accept_pattern(HOST), "a host's name, as smtp.example.org", "", is_required=True
        ),
        "port": KeySpec(accept_whole_up_to(65535), "a port from 1 to 65535"),
        "security": KeySpec(accept_one_of(SECURITIES), format_one_of(SECURITIES), "starttls"),
        "username_env": _name_variable("SMTP_PASSWORD"),
        "password_env": _name_variable("SMTP_PASSWORD"),
        "from": KeySpec(parse_address, _MAIL_FORM, "", is_required=True),
        "to": KeySpec(
            accept_each(parse_address), f"{_MAIL_FORM}, or a list of such", (), is_required=True
        ),
        "timeout_s": TIMEOUT,
    },
}


def _list_rule_keys(channels: tuple[str, ...]) -> dict[str, KeySpec]:
    metrics = list_metric_names()
    patterns = {name: KeySpec(parse_strings, _PATTERN_FORM, ()) for name in PATTERNS}
    return {
        "name": KeySpec(accept_pattern(NAME), _NAME_FORM, "", is_required=True),
        "channels": KeySpec(
            accept_each(channels.__contains__),
            f"a list of {format_one_of(channels)}",
            (),
            is_required=True,
        ),
        "direction": KeySpec(
            accept_each(DIRECTIONS.__contains__), format_one_of(DIRECTIONS), ("worse",)
        ),
        "subject": KeySpec(accept_each(SUBJECTS.__contains__), format_one_of(SUBJECTS), ()),
        **patterns,
        "metric": KeySpec(
            accept_each(lambda text: keep_fitting(metrics, text)),
            f"patterns of {', '.join(metrics)}",
            (),
        ),
        "least_percent": KeySpec(parse_percent, "a number of percent, 0 or more", 0.0),
        "quiet": KeySpec(
            lambda given: parse_quiet(given) if isinstance(given, str) else None,
            "hours as 22:00-07:00, from one to another",
            NEVER_QUIET,
        ),
        "quiet_days": KeySpec(parse_days, f"a list of {', '.join(DAYS)}, six at most", frozenset()),
        "timezone": ZONE,
        "digest": KeySpec(
            lambda given: given if _is_digest(given) else None,
            "none, daily 08:00 or weekly mon 08:00",
            "none",
        ),
        "since": KeySpec(parse_date, "a date, as 2026-11-01"),
    }


class RulesTable:
    def __init__(self, where: str, values: Mapping[str, Any], mistakes: list[str]) -> None:
        self.where, self.values, self.mistakes = where, values, mistakes

    def add_mistake(self, key: str, came: object, expected: str) -> None:
        hidden = "not a name that a variable can have (it may be a secret and is not shown)"
        is_secret = key.endswith("_env")
        shown = hidden if is_secret else format_invalid_value(came)
        self.mistakes.append(f"{self.where}: {key} is {shown}; expected {expected}")

    def read(self, keys: Mapping[str, KeySpec]) -> dict[str, Any]:
        """Return each key's value; unknown keys and invalid values are added to `mistakes`."""
        for key in self.values:
            if f"{key}_env" in keys:
                self.mistakes.append(
                    f"{self.where}: {key} is given in the file, where secrets are not kept; "
                    f"expected {key}_env, the name of an environment variable that holds it"
                )
            elif key not in keys:
                self.mistakes.append(
                    f"{self.where}: there is no key {format_invalid_value(key)}; "
                    f"expected one of {', '.join(keys)}"
                )
        return {name: self.get(name, key) for name, key in keys.items()}

    def get(self, name: str, key: KeySpec) -> Any:
        if name not in self.values:
            if key.is_required:
                self.mistakes.append(f"{self.where}: {name} is missing; expected {key.expected}")
            return key.default
        made = key.accept(self.values[name])
        if made is None:
            self.add_mistake(name, self.values[name], key.expected)
            return key.default
        return made


def load_rules(path: str) -> AlertRules:
    """Read a file of rules. Raises RulesError with every mistake in it."""
    try:
        with open(path, "rb") as file:
            body = file.read(MAX_BYTES + 1)
    except OSError as error:
        hint = "`compileboard alerts example` prints one"
        raise RulesError([f"{path}: cannot be read ({error.strerror or error}); {hint}"]) from None
    if len(body) > MAX_BYTES:
        raise RulesError([f"{path}: larger than 1 MiB; expected a file of alert rules"])
    try:
        return read_rules(path, tomllib.loads(body.decode()))
    except UnicodeDecodeError as error:
        raise RulesError(
            [f"{path}: byte {error.start} is not UTF-8; expected a TOML file"]
        ) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RulesError([f"{path}: invalid TOML: {str(error) or 'nested too deeply'}"]) from None


def read_rules(path: str, document: Mapping[str, Any]) -> AlertRules:
    """Build rules from a parsed file. Raises RulesError with every mistake in it."""
    mistakes: list[str] = []
    top = RulesTable(path, document, mistakes)
    values = top.read(TOP_KEYS)
    channels = _read_channels(path, values["channels"], mistakes)
    named = document.get("channels")
    known = tuple(named) if isinstance(named, dict) else ()
    zone = values["timezone"] or ZoneInfo("UTC")
    rules = _read_all_rules(path, values["rules"], zone, known, mistakes)
    if mistakes:
        raise RulesError(mistakes)
    return AlertRules(path, values["base_url"], channels, rules)


def _read_channels(path: str, tables: Mapping[str, Any], mistakes: list[str]) -> dict[str, Channel]:
    channels: dict[str, Channel] = {}
    for name, values in tables.items():
        where = f"{path}: channel {format_invalid_value(name)}"
        if not NAME.fullmatch(name):
            mistakes.append(f"{where}: the name cannot be used; expected {_NAME_FORM}")
        elif not isinstance(values, dict):
            mistakes.append(f"{where}: is not a table; expected [channels.{name}]")
        else:
            channel = _read_channel(name, RulesTable(where, values, mistakes))
            if channel:
                channels[name] = channel
    return channels


def _read_channel(name: str, table: RulesTable) -> Channel | None:
    kind = table.get("kind", KIND)
    if kind is None:
        return None
    values = table.read(CHANNEL_KEYS[kind])
    if kind == "email":
        values["sender"] = values.pop("from")
        values["port"] = values["port"] or PORTS[values["security"]]
        has = [key for key in ("username_env", "password_env") if key in table.values]
        if len(has) == 1:
            lacks = "password_env" if has == ["username_env"] else "username_env"
            table.mistakes.append(
                f"{table.where}: {lacks} is missing; expected both or none, and {has[0]} is there"
            )
        if values["password_env"] and values["security"] == "none":
            table.add_mistake("security", "none", "starttls or tls, as a password is sent")
    return Channel(name, **values)


def _read_all_rules(
    path: str,
    tables: Iterable[Any],
    zone: ZoneInfo,
    channels: tuple[str, ...],
    mistakes: list[str],
) -> tuple[AlertRule, ...]:
    keys = _list_rule_keys(channels)
    rules: list[AlertRule] = []
    for number, values in enumerate(tables, 1):
        if not isinstance(values, dict):
            mistakes.append(f"{path}: rule {number} is not a table; expected [[rules]]")
            continue
        where = (
            f"{path}: rule {format_invalid_value(values['name'])}"
            if "name" in values
            else f"{path}: rule {number}"
        )
        rule = _read_rule(RulesTable(where, values, mistakes), keys, zone)
        if rule.name and any(other_rule.name == rule.name for other_rule in rules):
            mistakes.append(f"{where}: another rule has that name; expected each name once")
        rules.append(rule)
    return tuple(rules)


def _read_rule(table: RulesTable, keys: Mapping[str, KeySpec], zone: ZoneInfo) -> AlertRule:
    values = table.read(keys)
    days, digest = values.pop("quiet_days"), values.pop("digest")
    quiet = replace(values.pop("quiet"), days=days)
    return AlertRule(
        zone=values.pop("timezone") or zone,
        since_us=values.pop("since"),
        quiet=quiet,
        quiet_text=_format_quiet(table.values.get("quiet"), days),
        digest=parse_digest(digest),
        digest_text=digest,
        **values,
    )


def _format_quiet(hours: object, days: frozenset[int]) -> str:
    return " and ".join(
        filter(None, [str(hours or ""), ", ".join(DAYS[day] for day in sorted(days))])
    )


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and (value == "none" or parse_digest(value) is not None)
