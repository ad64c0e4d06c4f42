"""No secret is kept: by its name, by its shape, in a URL, a header, a shell line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.secrets import (
    WITHHELD,
    scrub_argv,
    scrub_environment,
    scrub_text,
    scrub_values,
)

SECRET = "hunter2-Xyzzy"
NAMES = st.sampled_from(
    ["token", "api-key", "api_key", "password", "secret", "auth-token", "HF_TOKEN", "access_key"]
)
# What a secret may hold and a shell word can.
VALUES = st.text("abcdefghijkmnopqrstuvwxyzABCDEFG0123456789+/=_.~", min_size=8, max_size=40).map(
    lambda v: "Zq9" + v
)


@given(
    NAMES,
    VALUES,
    st.sampled_from(
        ["--{0} {1}", "--{0}={1}", "-{0} {1}", "{0}={1}", "--train.{0}={1}", "{0}:{1}"]
    ),
)
def test_a_named_secret_on_the_command_line_is_withheld(name: str, value: str, shape: str) -> None:
    words = ["python", "train.py", *shape.format(name, value).split(" "), "--lr", "3"]
    scrubbed = scrub_argv(words)
    assert value not in " ".join(scrubbed)
    assert scrubbed[:2] == ["python", "train.py"]
    assert scrubbed[-2:] == ["--lr", "3"]


@given(NAMES, VALUES)
def test_a_secret_inside_a_shell_line_is_withheld(name: str, value: str) -> None:
    line = (
        f"cd x && {name.replace('-', '_').upper()}={value} python train.py --{name} {value} --lr 3"
    )
    (scrubbed,) = scrub_argv([line])
    assert value not in scrubbed
    assert "python train.py" in scrubbed


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{SECRET}@git.example.com/x.git",
        f"git+ssh://{SECRET}@git.example.com/x.git",
        f"https://example.com/x?access_token={SECRET}&page=2",
        f"Authorization: Bearer {SECRET}",
        f"-H 'X-Api-Key: {SECRET}'",
        f"Cookie: session={SECRET}",
        "ghp_abcdefghijklmnopqrstuvwxyz0123",
        "hf_abcdefghijklmnopqrst",
        f"cb_0123456789_{'0f' * 24}",  # ours
        "sk-abcdefghijklmnopqrst",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln",
        "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_a_secret_by_shape_is_withheld(text: str) -> None:
    scrubbed = scrub_text(text)
    assert WITHHELD in scrubbed
    assert SECRET not in scrubbed
    for piece in ("abcdefghij", "ABCDEFGHIJ", "eyJ", "\nabc"):
        assert piece not in scrubbed


def test_the_environment_keeps_what_was_asked_for_and_no_secret() -> None:
    environment = scrub_environment(
        {
            "TORCH_LOGS": "recompiles",
            "TORCH_TOKEN": SECRET,
            "HOME": "/h",
            "MY_URL": f"https://u:{SECRET}@h/",
            "K": "v",
        },
        ("MY_URL", "K"),
    )
    assert environment == {
        "TORCH_LOGS": "recompiles",
        "TORCH_TOKEN": WITHHELD,
        "MY_URL": f"https://{WITHHELD}@h/",
        "K": "v",
    }


@given(st.text(max_size=200))
def test_scrubbing_twice_changes_nothing_more(text: str) -> None:
    once = scrub_text(text)
    assert scrub_text(once) == once


def test_a_tag_is_kept_unless_its_key_or_shape_says_that_it_is_secret() -> None:
    values = scrub_values(
        {"hf_token": SECRET, "model": "bert", "remote": f"https://u:{SECRET}@h/", "key": "dim"}
    )
    assert values == {
        "hf_token": WITHHELD,
        "model": "bert",
        "remote": f"https://{WITHHELD}@h/",
        "key": "dim",
    }


@pytest.mark.parametrize(
    "words",
    [
        ["--token-file", "/run/secrets/t"],
        ["--token_path=/x"],
        ["--credentials-dir", "/x"],
        ["API_KEY_FILE=/x"],
        ["--private-key.path", "/x"],
        ["--key", "dim"],
        ["--key=dim"],
        ["train --token-file /run/t --lr 3"],
    ],
)
def test_where_a_secret_lies_is_no_secret(words: list[str]) -> None:
    assert scrub_argv(words) == words


def test_ordinary_arguments_stay() -> None:
    words = [
        "python",
        "-m",
        "train",
        "--max-tokens",
        "128",
        "--tokenizer",
        "bert",
        "key.py",
        "--lr=3",
        "a=b",
        "x:y",
    ]
    assert scrub_argv(words) == words
