"""Names of files, functions and stacks: stable, and never an absolute path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.fingerprints import config_hash, fingerprint, source_hash
from compileboard.collectors.decode.break_texts import normalise_values
from compileboard.collectors.decode.records import (
    NOTEBOOK,
    Frame,
    PathNamer,
    is_torch,
    named_stack,
    parse_frames,
    parse_traceback,
    split_resume_name,
    user_frame,
)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/u/repo/pkg/m.py", "pkg/m.py"),
        ("/home/u/repo/inner/sub/m.py", "sub/m.py"),
        (
            "/home/u/repo/.venv/lib/python3.11/site-packages/torch/nn/modules/module.py",
            "torch/nn/modules/module.py",
        ),
        ("/usr/lib/python3/dist-packages/six.py", "site-packages/six.py"),
        ("/opt/venv/lib/python3.12/site-packages/stepping/run.py", "site-packages/stepping/run.py"),
        ("/usr/lib/python3.12/json/decoder.py", "json/decoder.py"),
        ("C:\\Python311\\Lib\\json\\decoder.py", "json/decoder.py"),
        ("C:\\code\\train.py", "train.py"),
        ("/elsewhere/secret-project/train.py", "train.py"),
        ("/home/u/repository/m.py", "m.py"),
        (
            "/opt/clone/compileboard/collectors/bench/steps.py",
            "compileboard/collectors/bench/steps.py",
        ),
        ("torch/_dynamo/utils.py", "torch/_dynamo/utils.py"),
        ("./train.py", "train.py"),
        ("../up/train.py", "train.py"),
        ("<string>", "<string>"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("<eval_with_key>.17 from /tmp/x.py:3 in f", "<eval_with_key>"),
        ("/tmp/ipykernel_123/456.py", NOTEBOOK),
        ("<ipython-input-3-0abc>", NOTEBOOK),
        ("", "<unknown>"),
        ("/", "<unknown>"),
    ],
)
def test_file_name(path: str, name: str) -> None:
    assert PathNamer(["/home/u/repo/", "/home/u/repo/inner", ""]).name(path) == name


@given(
    st.text(alphabet="/\\ab.~ :<>C-", max_size=30),
    st.lists(st.text(alphabet="/ab", max_size=8), max_size=2),
)
def test_file_name_is_never_absolute(path: str, roots: list[str]) -> None:
    name = PathNamer(roots).name(path)
    assert name and not name.startswith(("/", "~/", "../"))


@pytest.mark.parametrize(
    ("code_name", "expected"),
    [
        ("torch_dynamo_resume_in_forward_at_64", ("forward", 64)),
        ("torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_3_at_9", ("f", 9)),
        ("<lambda>", ("<lambda>", None)),
        ("torch_dynamo_resume_in_x", ("torch_dynamo_resume_in_x", None)),
        (None, (None, None)),
    ],
)
def test_function_name(code_name: str | None, expected: tuple[str | None, int | None]) -> None:
    assert split_resume_name(code_name) == expected


def test_traceback_and_dicts_give_the_same_stack() -> None:
    text = 'noise\n  File "/r/a.py", line 3, in f\n    g(x)\n    ^^^^\n'
    text += '  File "/r/b.py", line 4, in torch_dynamo_resume_in_g_at_2\n'
    dicts = [
        {"filename": "/r/a.py", "line": 3, "name": "f", "loc": "  g(x)"},
        {"filename": "/r/b.py", "line": 4, "name": "torch_dynamo_resume_in_g_at_2", "loc": ""},
    ]
    named = named_stack(parse_traceback(text), PathNamer(["/r"]))
    assert named == named_stack(parse_frames(dicts), PathNamer(["/r"]))
    assert (
        named[1] == {"file": "b.py", "line": 4, "name": "g", "code": None}
        and named[0]["code"] == "g(x)"
    )


def test_metrics_stack_texts_parse() -> None:
    (frame,) = parse_frames(["Line: 109, Name: step, Filename: /srv/m, x.py", "other"])
    assert frame == Frame("/srv/m, x.py", 109, "step")


def test_users_frame_is_neither_torchs_nor_pythons() -> None:
    user = Frame("/srv/m.py", 1, "f")
    library = Frame("/usr/lib/python3.12/logging/__init__.py", 2, "getLogger")
    torchs = Frame(
        "/opt/venv/lib/python3.12/site-packages/torch/_dynamo/polyfills/__init__.py", 3, "cmp_eq"
    )
    assert user_frame([user, library, torchs]) == user
    ours = Frame("/opt/lib/python3.12/site-packages/compileboard/collectors/observe/tap.py", 4, "t")
    assert user_frame([user, torchs, ours]) == user
    assert user_frame([library, torchs]) == library and user_frame([torchs]) == torchs
    assert (
        is_torch(torchs.path)
        and not is_torch("/srv/torch_models/m.py")
        and user_frame([torchs], strict=True) is None
    )


@given(st.text())
def test_any_text_is_a_traceback_of_some_length(text: str) -> None:
    assert isinstance(parse_traceback(text), list) and isinstance(normalise_values(text), str)


def test_values_are_normalised_away() -> None:
    texts = (
        "got 3 of <class 'a.B'> at 0x7f in 'x' torch.Size([2, 3])",
        "got 14 of <class 'c.D'> at 0x8e in 'y z' torch.Size([9])",
    )
    assert len({normalise_values(text) for text in texts}) == 1


def test_hashes_are_stable_and_tell_none_from_empty() -> None:
    assert (
        config_hash("abc") == "ba7816bf8f01cfea"
        and source_hash("  a  ") == source_hash("a")
        and source_hash(" ") is None
    )
    assert fingerprint("a", None) != fingerprint("a", "") != fingerprint("a")


def test_a_path_that_torch_cut_in_a_guards_comment_is_no_other_file() -> None:
    namer = PathNamer(["/home/ann/train"])
    assert [namer.name(path) for path in ("/home/ann/train/run.py", "/train/run.py")] == [
        "run.py",
        "run.py",
    ]
    assert namer.find_path("run.py") == "/home/ann/train/run.py"
    namer.name("/other/run.py")
    assert namer.find_path("run.py") is None
