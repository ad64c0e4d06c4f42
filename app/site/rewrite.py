"""A page of the dashboard becomes a page among static files: links lead to files, and what needs a server goes.

The pages are ours, and autoescape writes `<` and `"` of other people's text as entities, so a tag begins where `<`
stands and an attribute ends at the next quote; the tests hold that against hostile text. A parser of all HTML in
Python reads 2 MB/s; this reads 100.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from compileboard.app.site.address import normalize, relate

LEFT_OUT = "Not in this copy"
# What leads to something that is left out and only makes sense as a button: it goes with its words.
_BUTTONS = frozenset(("button", "nav__link", "tabs__link", "panel__link"))
_ATTRIBUTES = r'((?:\s+[^\s"=<>/]+(?:="[^"]*")?)*)'
_LINK = re.compile(rf"<a\b{_ATTRIBUTES}\s*>(.*?)</a>", re.DOTALL)
_ASSET = re.compile(r'(<(?:link|script)\b[^>]*?\s(?:href|src)=")(/static/[^"]*)(")([^>]*>)')
_ELSEWHERE = re.compile(r'\s*<link\b[^>]*\shref="/(?!static/|/)[^"]*"[^>]*>')  # a feed, say
_FORM = re.compile(r"<form\b.*?</form>", re.DOTALL)
_DATA = re.compile(r'<script type="application/json"[^>]*>(.*?)</script>', re.DOTALL)
_TEXT = re.compile(r'"(/[^"\\]*(?:\\.[^"\\]*)*)"')
_RUNS = re.compile(r'"runs":\s*(\[[^\]]*\])')
_PREFIX = re.compile(r'\sdata-compile="([^"]*)"')
_HREF = re.compile(r'\shref="([^"]*)"')
_CLASS = re.compile(r'\sclass="([^"]*)"')


@dataclass
class Page:
    """Hold what rewriting one page needs: its address and file, and which file each address has."""

    address: str
    file: str
    files: Mapping[str, str]  # normalised address: file
    simplify: Callable[[str], str | None]  # an address that stands for another
    assets: set[str] = field(default_factory=set)  # filled: names below static/

    def find(self, address: str) -> str | None:
        """Return the file of an address, without entities, as this page links to it; None where the copy has none."""
        wanted, fragment = normalize(address), address.partition("#")[2]
        target = self.files.get(wanted)
        if target is None:
            simpler = self.simplify(wanted)
            target = self.files.get(simpler) if simpler else None
            if target == self.file:
                return None  # what is asked for is not here, and this page is where the reader is
        if target is None:
            return None
        link = relate(self.file, target)
        return f"{link}#{fragment}" if fragment else link


def list_links(text: str) -> list[str]:
    """List the addresses of this dashboard that a page links to, as they stand in it, each once."""
    found = (_HREF.search(it[1]) for it in _LINK.finditer(text))
    links = (html.unescape(it[1]) for it in found if it)
    return [it for it in dict.fromkeys(links) if it.startswith("/") and not it.startswith("//")]


def rewrite(text: str, page: Page) -> str:
    """Rewrite a page so that it works below any address, and from a disk."""
    text = _ELSEWHERE.sub("", _FORM.sub("", text))
    text = _LINK.sub(lambda it: _rewrite_link(it, page), text)
    files = _list_data_files(text, page)
    text = _ASSET.sub(lambda it: _rewrite_asset(it, page), text)
    if files or _DATA.search(text):
        # "<" could end the script; everything else is JSON.
        said = json.dumps(files, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        text = text.replace("</body>", f'<script type="application/json" id="site-files">{said}</script>\n</body>', 1)
    return text


def _rewrite_link(link: re.Match[str], page: Page) -> str:
    attributes, words = link[1], link[2]
    href = _HREF.search(attributes)
    if href is None or not href[1].startswith("/") or href[1].startswith("//"):
        return link[0]
    # Entities go first: the # of &#39; begins no fragment.
    file = page.find(html.unescape(href[1]))
    if file is not None:
        return f"<a{attributes[: href.start(1)]}{html.escape(file)}{attributes[href.end(1) :]}>{words}</a>"
    classes = _CLASS.search(attributes)
    if ' rel="next"' in attributes:
        return f'<span class="pager__end">{words}: {LEFT_OUT.lower()}</span>'
    if classes and _BUTTONS.intersection(classes[1].split()):
        return ""
    shown = f' class="{classes[1]}"' if classes else ""
    return f'<span{shown} title="{LEFT_OUT}">{words}</span>'


def _rewrite_asset(tag: re.Match[str], page: Page) -> str:
    name, mark, query = tag[2].removeprefix("/static/").partition("?")
    page.assets.add(name)
    rest = tag[4]
    if name.endswith(".mjs"):
        # Browsers load no module from a disk; app.site.scripts makes one script of it and what it imports.
        name, rest = f"{name.removesuffix('.mjs')}.js", rest.replace(' type="module"', " defer")
    return f"{tag[1]}{relate(page.file, f'static/{name}')}{mark}{query}{tag[3]}{rest}"


def _list_data_files(text: str, page: Page) -> dict[str, str]:
    """Map the addresses in a page's data, where a chart's points lead, to files; page.mjs follows them."""
    found: dict[str, str] = {}
    prefixes = [html.unescape(it) for it in _PREFIX.findall(text)]
    for address in page.files if prefixes else ():
        if address.startswith(tuple(prefixes)):
            found[address] = address
    for data in _DATA.findall(text):
        for it in set(_TEXT.findall(data)):
            address = json.loads(f'"{it}"')
            found[address] = address
        for runs in _RUNS.findall(data):
            found |= {f"/runs/{it}": f"/runs/{it}" for it in json.loads(runs) if isinstance(it, str)}
    links = {address: page.find(address) for address in found}
    return {address: link for address, link in links.items() if link is not None}
