"""Addresses as file names: every one its own, safe everywhere, and links between files that lead
where they say.
"""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote, urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compileboard.app.site.crawl import PAGE, name_file, normalize, relative_link

TEXT = st.text(max_size=60).map(lambda value: value.encode("utf-8", "replace").decode())
QUERIES = st.lists(st.tuples(TEXT, TEXT), max_size=3)


@st.composite
def addresses(draw: st.DrawFn) -> str:
    path = "/".join(("", *draw(st.lists(TEXT, min_size=1, max_size=4))))
    query = urlencode(draw(QUERIES))
    return normalize(re.sub("[?#%]", "", path).replace("//", "/") + (f"?{query}" if query else ""))


@given(st.lists(addresses(), max_size=12))
@example(
    [
        "/models/ResNet",
        "/models/resnet",
        "/models/RESNET",
        "/models/resnet?a=1",
        "/models/resnet/a-1",
    ]
)
@example(["/models/index.html", "/models", "/models/a/index.html", "/models/a"])
def test_no_two_addresses_share_a_file_or_stand_in_each_others_way(addresses: list[str]) -> None:
    names = {address: name_file(address).lower() for address in addresses}
    assert len(set(names.values())) == len(set(addresses))
    folders = {str(posixpath.dirname(name)) for name in names.values()}
    assert not folders & set(names.values())


@given(addresses())
@example(normalize("/models/../../etc/passwd"))
@example(normalize("/models/con.txt?tab=a\\b:c*"))
@example(normalize("/static/js/page.mjs"))
@example(normalize("/models/" + "/".join("deep" for _ in range(80))))
def test_name_is_a_file_name_on_every_system(address: str) -> None:
    name = name_file(address)
    assert len(name) <= 180 and name.endswith(PAGE)
    for part in name.split("/"):
        assert re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z_.~-]*", part) and not part.endswith(".")
        assert part.split(".")[0] not in ("con", "prn", "aux", "nul", "com1", "lpt1")
    assert name.split("/")[0] not in ("static", "data")
    assert name_file(address) == name


@given(addresses(), addresses())
@example(normalize("//[x"), normalize("/models//[::1"))
def test_link_leads_from_one_file_to_the_other(source: str, target: str) -> None:
    here, there = name_file(source), name_file(target)
    link = relative_link(here, there)
    assert not link.startswith("/") and ":" not in link
    assert posixpath.normpath(posixpath.join(posixpath.dirname(here), unquote(link))) == there


@pytest.mark.parametrize(
    ("address", "file"),
    [
        ("/", "index.html"),
        ("/runs/01M7YMPNHJVG5P2CHEV7SS5DK2", "runs/01M7YMPNHJVG5P2CHEV7SS5DK2/index.html"),
        ("/runs/01M7YMPNHJVG5P2CHEV7SS5DK2?tab=breaks", None),
        ("/models/swin_base.ms_in1k", "models/swin_base.ms_in1k/index.html"),
    ],
)
def test_plain_addresses_keep_their_names(address: str, file: str | None) -> None:
    expected = file or "runs/01M7YMPNHJVG5P2CHEV7SS5DK2/tab-breaks~3919fdef1d073e78/index.html"
    assert name_file(normalize(address)) == expected


def test_the_same_question_in_another_order_is_the_same_address() -> None:
    assert normalize("/trends?suite=a+b&metric=x#chart") == normalize(
        "/trends?metric=x&suite=a%20b"
    )
    assert normalize("/models/a%41") == normalize("/models/aA")
