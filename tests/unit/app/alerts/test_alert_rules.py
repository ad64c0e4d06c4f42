"""Rules are read strictly; each mistake is a sentence that says what to write instead."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.alerts.rules import (
    EXAMPLE,
    DigestSchedule,
    QuietHours,
    RulesError,
    load_rules,
    read_rules,
)
from tests.tools.observed import ROOT

CHANNELS = '[channels.team]\nkind = "slack"\nurl_env = "TEAM"\n'
RULE = CHANNELS + '[[rules]]\nname = "slower"\nchannels = ["team"]\n'


def list_mistakes(folder: Path, text: str) -> list[str]:
    path = folder / "alerts.toml"
    path.write_text(text)
    with pytest.raises(RulesError) as caught:
        load_rules(str(path))
    return [mistake.removeprefix(f"{path}: ") for mistake in caught.value.mistakes]


def test_the_example_is_right_and_documented(tmp_path: Path) -> None:
    path = tmp_path / "alerts.toml"
    path.write_text(EXAMPLE)
    rules = load_rules(str(path))
    assert [rule.name for rule in rules.rules] == ["slower", "all-changes"]
    slower, every = rules.rules
    assert (slower.quiet, slower.zone) == (
        QuietHours(22 * 60, 7 * 60, frozenset({5, 6})),
        ZoneInfo("Europe/Berlin"),
    )
    assert (every.digest, every.direction) == (
        DigestSchedule(8 * 60),
        ("worse", "better", "changed"),
    )
    assert set(rules.channels["mail"].variables.values()) == {"SMTP_USER", "SMTP_PASSWORD"}
    assert EXAMPLE in (ROOT / "docs" / "alerts.md").read_text()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            RULE + "colour = 1\n",
            "rule 'slower': there is no key 'colour'; expected one of name, channels, direction,",
        ),
        (
            RULE + 'direction = "slower"\n',
            "rule 'slower': direction is 'slower'; expected worse, better or changed",
        ),
        (
            RULE + 'metric = "sped*"\n',
            "rule 'slower': metric is 'sped*'; expected patterns of abs_latency_ms, ",
        ),
        (
            RULE + 'quiet = "22-7"\n',
            "rule 'slower': quiet is '22-7'; expected hours as 22:00-07:00",
        ),
        (RULE + 'quiet = "08:00-08:00"\n', "rule 'slower': quiet is '08:00-08:00'; expected hours"),
        (
            RULE + 'quiet_days = ["sunday"]\n',
            "rule 'slower': quiet_days is ['sunday']; expected a list of mon, tue",
        ),
        (
            RULE + 'timezone = "Berlin"\n',
            "rule 'slower': timezone is 'Berlin'; expected a time zone's name",
        ),
        (
            RULE + 'timezone = "../../etc"\n',
            "rule 'slower': timezone is '../../etc'; expected a time zone's name",
        ),
        (
            RULE + 'digest = "daily 25:00"\n',
            "rule 'slower': digest is 'daily 25:00'; expected none, daily 08:00 or",
        ),
        (
            RULE + "least_percent = true\n",
            "rule 'slower': least_percent is True; expected a number of percent",
        ),
        (
            RULE + "least_percent = nan\n",
            "rule 'slower': least_percent is nan; expected a number of percent",
        ),
        (
            RULE + 'since = "yesterday"\n',
            "rule 'slower': since is 'yesterday'; expected a date, as 2026-11-01",
        ),
        (
            RULE.replace('["team"]', '["tema"]'),
            "rule 'slower': channels is ['tema']; expected a list of team",
        ),
        (RULE + RULE[RULE.index("[[") :], "rule 'slower': another rule has that name"),
        (
            RULE.replace("slower", "a\\nb"),
            "rule 'a\\nb': name is 'a\\nb'; expected a letter or digit",
        ),
        (CHANNELS, "rules is missing; expected tables, as [[rules]]"),
        (CHANNELS + "rules = 3", "channel 'team': there is no key 'rules'"),
        ("rules = 3\n" + CHANNELS, "rules is 3; expected tables, as [[rules]]"),
        (
            'base_url = "javascript:alert(1)"\n' + RULE,
            "base_url is 'javascript:alert(1)'; expected the dashboard's",
        ),
        (
            RULE.replace("url_env", "url"),
            "channel 'team': url is given in the file, where secrets are not kept; expected",
        ),
        (
            RULE.replace('"TEAM"', '"https://hooks"'),
            "channel 'team': url_env is not a name that a variable can have (it may be a "
            "secret and is not shown); "
            "expected the name of an environment variable, as TEAM_WEBHOOK",
        ),
        (
            RULE.replace('"slack"', '"pager"'),
            "channel 'team': kind is 'pager'; expected webhook, slack or email",
        ),
        ("rules = [", "invalid TOML: "),
    ],
)
def test_a_mistake_says_what_came_and_what_is_expected(
    tmp_path: Path, text: str, sentence: str
) -> None:
    assert any(mistake.startswith(sentence) for mistake in list_mistakes(tmp_path, text)), (
        list_mistakes(tmp_path, text)
    )


def test_every_mistake_is_said_at_once_and_no_secret_is_repeated(tmp_path: Path) -> None:
    text = (
        '[channels.mail]\nkind = "email"\nhost = "a b"\nport = 0\nfrom = "a\\nBcc: b@c"\nto = []\n'
    )
    text += (
        'password = "hunter2"\nsecurity = "none"\npassword_env = "P"\n[[rules]]\nname = '
        '"x"\nchannels = ["mail"]'
    )
    mistakes = list_mistakes(tmp_path, text)
    assert [text.split(": ")[1].split(" is ")[0] for text in mistakes] == [
        "password",
        "host",
        "port",
        "from",
        "to",
        "username_env",
        "security",
    ]
    assert "hunter2" not in "".join(mistakes)


@pytest.mark.parametrize(
    "text",
    [
        RULE.replace('"TEAM"', '"https://hooks.example.org/hunter2"'),
        '[channels]\nteam = "https://hooks.example.org/hunter2"\n' + RULE[RULE.index("[[") :],
        '[[channels]]\nkind = "slack"\nurl_env = "hunter2"\n' + RULE[RULE.index("[[") :],
        CHANNELS + '[rules]\nname = "slower"\npassword = "hunter2"\n',
        RULE.replace('["team"]', '["https://hooks.example.org/x?token=hunter2"]'),
        RULE.replace('["team"]', '[["hunter2"]]') + 'password = "hunter2"\n',
        'base_url = "https://me:hunter2@board.example.org"\n' + RULE,
        '[channels.mail]\nkind = "email"\nhost = "smtp://me:hunter2@mail"\nfrom = "a@b.c"\nto '
        '= "a@b.c"\n'
        'username_env = "hunter2!"\npassword_env = ["hunter2"]\nsecret = "hunter2"\n'
        + RULE[RULE.index("[[") :],
    ],
)
def test_a_secret_that_is_pasted_into_the_file_is_not_repeated(tmp_path: Path, text: str) -> None:
    mistakes = list_mistakes(tmp_path, text)
    assert mistakes
    assert "hunter2" not in "".join(mistakes)


def test_a_file_that_is_not_there_says_how_to_begin(tmp_path: Path) -> None:
    with pytest.raises(
        RulesError,
        match=r"cannot be read .No such file or directory.; `compileboard alerts example`",
    ):
        load_rules(str(tmp_path / "none.toml"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "kind", "to", "quiet", "x"]), children)
    ),
    max_leaves=9,
)


@given(st.dictionaries(st.sampled_from(["base_url", "timezone", "channels", "rules", "x"]), VALUES))
def test_no_document_is_read_wrongly(document: dict[str, object]) -> None:
    with pytest.raises(RulesError):
        read_rules("alerts.toml", document)
