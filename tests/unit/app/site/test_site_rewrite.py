"""A page among static files: its links, what is removed, and other people's text."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markupsafe import escape

from compileboard.app.core.resources import resource_folder
from compileboard.app.site.crawl import (
    SitePage,
    list_links,
    name_file,
    normalize,
    relative_link,
    rewrite_links,
)
from compileboard.app.site.site_export import ScriptError, bundle

KNOWN = ("/", "/runs", "/runs/A", "/runs/A?tab=breaks", "/models/x?suite=s")


def _rewrite(text: str, address: str = "/runs/A", simplify: dict[str, str] | None = None) -> str:
    files = {other_address: name_file(other_address) for other_address in KNOWN}
    return rewrite_links(text, SitePage(address, files[address], files, (simplify or {}).get))


def test_link_to_a_page_of_the_copy_leads_to_its_file() -> None:
    made = _rewrite(
        '<a class="tabs__link" href="/runs/A?tab=breaks#b1" aria-current="page">Breaks</a>', "/runs"
    )
    tab = name_file("/runs/A?tab=breaks").removeprefix("runs/")
    assert made == f'<a class="tabs__link" href="{tab}#b1" aria-current="page">Breaks</a>'
    assert (
        _rewrite('<a href="/">Up</a>', "/runs/A?tab=breaks")
        == '<a href="../../../index.html">Up</a>'
    )


@given(
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40),
    st.sampled_from(["", "#top"]),
)
@example("'=1", "")
@example("a&#39;b&amp;c#d?e", "#top")
def test_link_of_any_name_leads_to_its_file(name: str, fragment: str) -> None:
    # As url_for writes a name into an address, and autoescape the address into a page.
    path, query = quote(name, safe="!$&'()*+,:;=@~"), quote(name, safe="/:!'()*,;@~")
    address = f"/breaks/{path}?suite={query}"
    file = name_file(normalize(address))
    page = SitePage("/runs", "runs/index.html", {normalize(address): file}, {}.get)
    made = rewrite_links(f'<a href="{escape(address + fragment)}">x</a>', page)
    leads_to = html.escape(relative_link("runs/index.html", file) + fragment)
    assert made == f'<a href="{leads_to}">x</a>'


@pytest.mark.parametrize(
    ("link", "becomes"),
    [
        (
            '<a class="tag" href="/runs?tag=a">a</a>',
            '<span class="tag" title="Not in this site">a</span>',
        ),
        ('<a class="button" href="/runs/A/report.csv" download>CSV</a>', ""),
        ('<a class="nav__link" href="/search">Search</a>', ""),
        ('<a class="button" rel="next" href="/runs?cursor=1">More runs</a>', None),
        ('<a href="https://example.org/a?b">out</a>', '<a href="https://example.org/a?b">out</a>'),
        ('<a href="#breaks">here</a>', '<a href="#breaks">here</a>'),
    ],
)
def test_what_is_left_out_becomes_text_or_goes(link: str, becomes: str | None) -> None:
    expected = (
        '<span class="pager__end">More runs: not in this site</span>'
        if becomes is None
        else becomes
    )
    assert _rewrite(link) == expected


def test_forms_and_feeds_go_whole() -> None:
    assert (
        _rewrite('a<link rel="alternate" type="application/atom+xml" href="/incidents.atom">b')
        == "ab"
    )
    assert _rewrite('a<form method="post" action="/x">\n<button>Pin</button></form>b') == "ab"


def test_an_address_may_stand_for_another_but_not_for_the_page_itself() -> None:
    stands = {"/models/x?run=A&suite=s": "/models/x?suite=s"}
    link = '<a href="/models/x?suite=s&amp;run=A">x</a>'
    assert 'href="../../models/x/suite-s' in _rewrite(link, "/runs/A", stands)
    assert "<span" in _rewrite(link, "/models/x?suite=s", stands)


def test_scripts_and_styles_are_found_without_a_server() -> None:
    made = _rewrite(
        '<link rel="stylesheet" href="/static/css/app.css?v=1"><script '
        'src="/static/js/a.mjs?v=2" type="module">'
    )
    assert 'href="../../static/css/app.css?v=1"' in made
    assert 'src="../../static/js/a.js?v=2" defer>' in made


def test_points_of_charts_lead_to_files() -> None:
    data = {
        "customdata": ["/runs/A?tab=breaks", "/etc/passwd"],
        "runs": ["A", "B"],
        "text": '</script>"/runs"',
    }
    body = json.dumps(data).replace("<", "\\u003c").replace("&", "\\u0026")
    made = _rewrite(f'<script type="application/json" id="d">{body}</script></body>')
    (matches,) = re.findall(r'id="site-files">(.*?)</script>', made)
    assert json.loads(matches) == {
        "/runs/A": "index.html",
        "/runs/A?tab=breaks": json.loads(matches)["/runs/A?tab=breaks"],
    }
    assert body in made


def test_links_of_a_page_are_its_own_alone() -> None:
    text = (
        '<a href="/runs?a=1&amp;b=2">x</a><a href="//evil/x">y</a><a '
        'href="/runs?a=1&amp;b=2">z</a>&lt;a href="/no"&gt;'
    )
    assert list_links(text) == ["/runs?a=1&b=2"]


@pytest.mark.parametrize(
    "path", sorted((resource_folder("static") / "js").glob("*.mjs")), ids=lambda path: path.name
)
def test_every_module_becomes_a_plain_script(path: Path) -> None:
    made = bundle(resource_folder("static"), f"js/{path.name}")
    assert not re.search(r"^\s*(?:import|export)\b", made, re.MULTILINE)


def test_a_module_that_cannot_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.mjs").write_text('export default 1;\nimport x from "./b.mjs";\n')
    with pytest.raises(ScriptError, match="export default 1;"):
        bundle(tmp_path, "a.mjs")
