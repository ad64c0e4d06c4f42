"""`--only path:…`: what it names, read without torch, and what is said of a file that cannot be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.bench import model
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.suites.user import OnlyError, OnlyTarget, parse_only, read_only

MARKED = """
from compileboard.collectors.bench import model
from beside import SIZE

print("this is no answer")

@model
def small(batch_size): ...

@model(name="Big one", batch_size=SIZE, trains=False)
def big(batch_size): ...

def plain(batch_size): ...

class Net: ...
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("SIZE = 3\n")
    path = tmp_path / "my, models: v2.py"
    path.write_text(MARKED)
    return path


def test_a_class_is_named_as_upstream_does(file: Path) -> None:
    for text in (f"path:{file},class:Net", f"class:Net,path:{file}"):
        [ref] = parse_only(text)
        assert (ref.suite, ref.name, ref.only) == ("local", "Net", f"path:{file},class:Net")


def test_a_relative_path_begins_in_the_current_folder(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent.parent)
    relative = file.relative_to(file.parent.parent)
    assert parse_only(f"path:{relative},class:Net") == parse_only(f"path:{file},class:Net")


def test_a_file_alone_is_all_its_marked_functions(file: Path) -> None:
    small, big = parse_only(f"path:{file}", suite="mine")
    assert (small.suite, small.name, small.batch_size, small.trains) == ("mine", "small", 8, True)
    assert (big.name, big.batch_size, big.trains) == ("Big one", 3, False)
    assert parse_only(big.only, suite="mine") == [big]


@given(st.text(st.characters(blacklist_categories=["Cs"])), st.sampled_from(["class", "model"]))
def test_a_path_comes_back_with_whatever_it_holds(path: str, kind: str) -> None:
    asked = OnlyTarget(f"/{path}.py", kind, "Net")
    assert read_only(asked.text) == asked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("klass:Net", "there is no file in it; expected path:FILE.py,class:Name"),
        ("path:,class:Net", "the path is empty"),
        ("path:/no/such.py,class:Net", "/no/such.py does not exist; expected a Python file"),
        ("path:/tmp,class:Net", "/tmp is a folder; expected a Python file"),
        ("path:/no/such.py,klass:Net", "cannot be read; expected path:FILE.py,class:Name"),
        ("path:/no/such.py,class:my net", "'my net' is not the name of a class"),
        ("path:/no/such.py,model:", "the model has no name"),
        ("path:/no/\0.py,class:Net", "expected a Python file"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(text: str, message: str) -> None:
    with pytest.raises(OnlyError) as refused:
        parse_only(text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x = 1\n1 / 0", ["cannot be imported: ZeroDivisionError: division by zero", "line 2"]),
        ("def broken(:", ["cannot be imported: SyntaxError", "line 1"]),
        ("import sys\nsys.exit(3)", ["cannot be imported: SystemExit: 3"]),
        ("import os\nos.abort()", ["the process was killed by SIGABRT"]),
        (
            "import os, sys\nprint('so far', file=sys.stderr, flush=True)\nos._exit(4)",
            ["exit code 4", "so far"],
        ),
        ("x = 1", ["marks no function with @compileboard.bench.model", "class:Name"]),
        (
            (
                "from compileboard.collectors.bench import model\n@model\ndef a(n): "
                "...\n@model(name='a')\ndef b(n): ..."
            ),
            ["two functions are marked as 'a'"],
        ),
    ],
)
def test_a_file_that_cannot_be_asked_says_why(
    tmp_path: Path, body: str, message: list[str]
) -> None:
    (tmp_path / "nets.py").write_text(body)
    with pytest.raises(OnlyError) as refused:
        parse_only(f"path:{tmp_path / 'nets.py'}")
    assert all(words in str(refused.value) for words in message), str(refused.value)
    assert "user_list.py" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama", "Llama:8b", "Llama, tuned", "two\nlines", " "]
)
def test_a_name_that_only_cannot_name_again_is_refused_where_it_is_given(name: str) -> None:
    with pytest.raises(ValueError, match="a name has no slash, colon or comma"):
        model(name=name)
    model(name="meta-llama--Llama 3.1 (8b)")


def test_a_class_that_the_file_lacks_is_answered_with_those_it_has(file: Path) -> None:
    with pytest.raises(OnlyError, match="has no class 'Nett'; its classes are Net"):
        parse_only(f"path:{file},class:Nett")


@pytest.mark.parametrize(
    "body",
    ["from beside import *", "globals()['Ne' + 'tt'] = type('Nett', (), {})"],
)
def test_a_class_may_be_of_another_module_or_made_by_the_file(tmp_path: Path, body: str) -> None:
    (tmp_path / "beside.py").write_text("class Nett: ...\n")
    (tmp_path / "nets.py").write_text(body)
    assert [ref.name for ref in parse_only(f"path:{tmp_path / 'nets.py'},class:Nett")] == ["Nett"]


def test_a_file_that_never_ends_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compileboard.collectors.bench.suites.user.LIST_TIMEOUT_S", 0.5)
    (tmp_path / "nets.py").write_text("while True: pass\n")
    with pytest.raises(
        OnlyError, match=r"was not imported within 0\.5 s; does it compute something"
    ):
        parse_only(f"path:{tmp_path / 'nets.py'}")


def test_a_name_that_is_not_marked_is_answered_with_those_that_are(file: Path) -> None:
    with pytest.raises(OnlyError, match=r"no function marked as 'plain'; there are small, Big one"):
        parse_only(f"path:{file},model:plain")


def test_asking_a_file_imports_nothing_here(file: Path) -> None:
    refs: list[ModelRef] = parse_only(f"path:{file}")
    assert len(refs) == 2 and "beside" not in sys.modules and str(file.parent) not in sys.path
