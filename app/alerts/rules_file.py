"""The file of alert rules: an example, and a parser that reports every mistake with its line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from compileboard.app.alerts.clock import DAYS, parse_digest, parse_quiet
from compileboard.app.alerts.rule_values import (
    NAME,
    Accept,
    format_one_of,
    one_of,
    parse_address,
    parse_addresses,
    parse_date,
    parse_days,
    parse_host,
    parse_known,
    parse_list,
    parse_metrics,
    parse_name,
    parse_percent,
    parse_table,
    parse_texts,
    parse_url,
    parse_variable,
    parse_whole,
    parse_zone,
    show,
)
from compileboard.app.alerts.rules import PATTERNS, AlertRule, Channel, Rules, RulesError
from compileboard.app.analysis.incidents.messages import list_metric_names
from compileboard.app.queries.dashboard.series_changes import DIRECTIONS, SUBJECTS

EXAMPLE = """\
# Which incidents are sent to whom. Check it: compileboard alerts check --rules alerts.toml
# Secrets are never in here: *_env names the environment variable that holds one.

base_url = "https://compileboard.example.org"   # the dashboard, for links in messages
timezone = "Europe/Berlin"                      # of quiet hours and digests

[channels.team]
kind = "slack"                                  # an incoming webhook of Slack, or what takes the same
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
direction = "worse"                             # worse (default), better or changed, or a list of them
subject = "model"                               # model, suite or runs
suite = ["torchbench", "huggingface"]           # suite, model, metric, branch, hardware: patterns
model = "*"
metric = ["speedup", "passes", "compilation_*"]
branch = "main"
least_percent = 3                               # smaller changes are left out; a failure has no size
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

KINDS = ("webhook", "slack", "email")
SECURITIES = ("starttls", "tls", "none")
PORTS = {"starttls": 587, "tls": 465, "none": 25}
MOST_BYTES = 1 << 20
HTTP_KEYS = ("kind", "url_env", "secret_env", "timeout_s")
KEYS = {
    "webhook": HTTP_KEYS,
    "slack": ("kind", "url_env", "timeout_s"),
    "email": (
        "kind",
        "host",
        "port",
        "security",
        "username_env",
        "password_env",
        "from",
        "to",
        "timeout_s",
    ),
}
_WHEN = ("quiet", "quiet_days", "timezone", "digest", "since")
RULE_KEYS = ("name", "channels", "direction", "subject", *PATTERNS, "least_percent", *_WHEN)
_SECRETS = {
    "url": "url_env",
    "secret": "secret_env",
    "password": "password_env",
    "username": "username_env",
}
_NAME_FORM = "a letter or digit, then letters, digits and . _ -, 63 at most"


class RulesTable:
    def __init__(self, where: str, values: Mapping[str, Any], mistakes: list[str]) -> None:
        self.where, self.values, self.mistakes = where, values, mistakes

    def say(self, key: str, came: object, expected: str) -> None:
        hidden = "not a name that a variable can have (it may be a secret and is not shown)"
        is_secret = key.endswith("_env")
        self.mistakes.append(
            f"{self.where}: {key} is {hidden if is_secret else show(came)}; expected {expected}"
        )

    def check_keys(self, known: Iterable[str]) -> None:
        known = tuple(known)
        for key in self.values:
            if key in known:
                continue
            if f"{key}_env" in known and key in _SECRETS:
                name = _SECRETS[key]
                self.mistakes.append(
                    f"{self.where}: {key} is given in the file, where secrets are not kept; "
                    f"expected {name}, the name "
                    "of an environment variable that holds it"
                )
            else:
                self.mistakes.append(
                    f"{self.where}: there is no key {show(key)}; expected one of {', '.join(known)}"
                )

    def get(
        self,
        key: str,
        accept: Accept,
        expected: str,
        default: Any = None,
        *,
        required: bool = False,
    ) -> Any:
        if key not in self.values:
            if required:
                self.mistakes.append(f"{self.where}: {key} is missing; expected {expected}")
            return default
        made = accept(self.values[key])
        if made is None:
            self.say(key, self.values[key], expected)
            return default
        return made


def load_rules(path: str) -> Rules:
    """Read a file of rules. Raises RulesError with every mistake in it."""
    try:
        with open(path, "rb") as file:
            body = file.read(MOST_BYTES + 1)
    except OSError as error:
        hint = "`compileboard alerts example` prints one"
        raise RulesError([f"{path}: cannot be read ({error.strerror or error}); {hint}"]) from None
    if len(body) > MOST_BYTES:
        raise RulesError([f"{path}: is longer than 1 MiB; expected a file of rules"])
    try:
        return read_rules(path, tomllib.loads(body.decode()))
    except UnicodeDecodeError as error:
        raise RulesError(
            [f"{path}: byte {error.start} is no UTF-8; expected a TOML file"]
        ) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RulesError([f"{path}: is no TOML: {str(error) or 'nested too deeply'}"]) from None


def read_rules(path: str, document: Mapping[str, Any]) -> Rules:
    """Build rules from a parsed file. Raises RulesError with every mistake in it."""
    mistakes: list[str] = []
    top = RulesTable(path, document, mistakes)
    top.check_keys(("base_url", "timezone", "channels", "rules"))
    base_url = top.get(
        "base_url", parse_url, "the dashboard's address, as https://compileboard.example.org", ""
    )
    zone = top.get("timezone", parse_zone, _ZONE_FORM, ZoneInfo("UTC"))
    channels = _read_channels(path, top, mistakes)
    rules = _read_all_rules(path, top, zone, channels, mistakes)
    if mistakes:
        raise RulesError(mistakes)
    return Rules(path, base_url, channels, rules)


def _read_channels(path: str, top: RulesTable, mistakes: list[str]) -> dict[str, Channel]:
    tables = top.get("channels", parse_table, "tables, as [channels.team]", {}, required=True)
    channels: dict[str, Channel] = {}
    for name, values in tables.items():
        where = f"{path}: channel {show(name)}"
        if not NAME.fullmatch(name):
            mistakes.append(f"{where}: the name cannot be used; expected {_NAME_FORM}")
        elif not isinstance(values, dict):
            mistakes.append(f"{where}: is no table; expected one, as [channels.{name}]")
        else:
            channel = _read_channel(name, RulesTable(where, values, mistakes))
            if channel:
                channels[name] = channel
    return channels


def _read_channel(name: str, table: RulesTable) -> Channel | None:
    kind = table.get("kind", one_of(KINDS), format_one_of(KINDS), required=True)
    if kind is None:
        return None
    table.check_keys(KEYS[kind])
    timeout_s = table.get("timeout_s", parse_whole(1, 60), "whole seconds from 1 to 60", 10)
    if kind == "email":
        return _read_email(name, table, timeout_s)
    variable = "the name of an environment variable, as TEAM_WEBHOOK"
    return Channel(
        name,
        kind,
        url_env=table.get("url_env", parse_variable, variable, "", required=True),
        secret_env=table.get("secret_env", parse_variable, variable, ""),
        timeout_s=timeout_s,
    )


def _read_email(name: str, table: RulesTable, timeout_s: int) -> Channel:
    variable = "the name of an environment variable, as SMTP_PASSWORD"
    security = table.get("security", one_of(SECURITIES), format_one_of(SECURITIES), "starttls")
    username = table.get("username_env", parse_variable, variable, "")
    password = table.get("password_env", parse_variable, variable, "")
    if ("username_env" in table.values) != ("password_env" in table.values):
        has, lacks = sorted(
            ("username_env", "password_env"), key=lambda other_name: other_name not in table.values
        )
        table.mistakes.append(
            f"{table.where}: {lacks} is missing; expected both or none, and {has} is there"
        )
    if password and security == "none":
        table.say("security", security, "starttls or tls, as a password is sent")
    address = "an address, as perf@example.org or Perf <perf@example.org>"
    return Channel(
        name,
        "email",
        timeout_s=timeout_s,
        host=table.get("host", parse_host, "a host's name, as smtp.example.org", "", required=True),
        port=table.get("port", parse_whole(1, 65535), "a port from 1 to 65535", PORTS[security]),
        security=security,
        username_env=username,
        password_env=password,
        sender=table.get("from", parse_address, address, "", required=True),
        to=table.get("to", parse_addresses, f"{address}, or a list of such", (), required=True),
    )


def _read_all_rules(
    path: str, top: RulesTable, zone: ZoneInfo, channels: Mapping[str, Channel], mistakes: list[str]
) -> tuple[AlertRule, ...]:
    tables = top.get("rules", parse_list, "tables, as [[rules]]", [], required=True)
    named = top.values.get("channels")
    known = tuple(named) if isinstance(named, dict) else tuple(channels)
    rules: list[AlertRule] = []
    for number, values in enumerate(tables, 1):
        if not isinstance(values, dict):
            mistakes.append(f"{path}: rule {number} is no table; expected one, as [[rules]]")
            continue
        where = (
            f"{path}: rule {show(values['name'])}" if "name" in values else f"{path}: rule {number}"
        )
        rule = _read_rule(RulesTable(where, values, mistakes), zone, known)
        if rule.name and any(other_rule.name == rule.name for other_rule in rules):
            mistakes.append(f"{where}: another rule has that name; expected each name once")
        rules.append(rule)
    return tuple(rules)


def _read_rule(table: RulesTable, zone: ZoneInfo, known: tuple[str, ...]) -> AlertRule:
    table.check_keys(RULE_KEYS)
    zone = table.get("timezone", parse_zone, _ZONE_FORM, zone)
    days = frozenset(
        table.get("quiet_days", parse_days, f"a list of {', '.join(DAYS)}, six at most", ())
    )
    quiet = table.get(
        "quiet",
        lambda given: parse_quiet(given, days) if isinstance(given, str) else None,
        _QUIET_FORM,
    )
    digest = table.get(
        "digest", lambda given: given if _is_digest(given) else None, _DIGEST_FORM, "none"
    )
    words = "a pattern as resnet*, or a list of such"
    return AlertRule(
        name=table.get("name", parse_name, _NAME_FORM, "", required=True),
        channels=table.get(
            "channels", parse_known(known), f"a list of {format_one_of(known)}", (), required=True
        ),
        zone=zone,
        direction=table.get(
            "direction", parse_known(DIRECTIONS), format_one_of(DIRECTIONS), ("worse",)
        ),
        subject=table.get("subject", parse_known(SUBJECTS), format_one_of(SUBJECTS), ()),
        **{name: table.get(name, parse_texts, words, ()) for name in PATTERNS if name != "metric"},
        metric=table.get(
            "metric", parse_metrics, f"patterns of {', '.join(list_metric_names())}", ()
        ),
        least_percent=table.get(
            "least_percent", parse_percent, "a number of percent, 0 or more", 0.0
        ),
        quiet=quiet or parse_quiet("", days),  # type: ignore[arg-type]
        quiet_text=_format_quiet(table.values.get("quiet"), days),
        digest=parse_digest(digest),
        digest_text=digest,
        since_us=table.get("since", parse_date, "a date, as 2026-11-01"),
    )


_ZONE_FORM = "a time zone's name, as Europe/Berlin or UTC"
_QUIET_FORM = "hours as 22:00-07:00, from one to another"
_DIGEST_FORM = "none, daily 08:00 or weekly mon 08:00"


def _format_quiet(hours: object, days: frozenset[int]) -> str:
    return " and ".join(
        filter(None, [str(hours or ""), ", ".join(DAYS[day] for day in sorted(days))])
    )


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and (value == "none" or parse_digest(value) is not None)
