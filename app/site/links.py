"""Links of a static site: the file of an address, and addresses rewritten in HTML.

File names are the same in every export, valid on every file system, and unique even
case-insensitively. Addresses contain names of models, suites and branches; whatever is not such a
name becomes a readable prefix and a hash.
"""

from __future__ import annotations

import hashlib
import html
import json
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode

PAGE = "index.html"
# Folders and files beside the pages; no page has a name that begins with one.
BESIDE = frozenset(("static", "data"))
_PLAIN = re.compile(r"[a-z0-9](?:[a-z0-9_.-]{0,58}[a-z0-9_-])?")
_RUN_ID = re.compile(r"[0-9A-Z]{26}")  # a ULID stays readable; the same in small letters does not
_SMALL_RUN_ID = re.compile(r"[0-9a-z]{26}")
# Names that Windows gives to devices, with any ending.
_DEVICES = frozenset(
    ("con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(10)))
)
_MOST_CHARACTERS = 180  # of a whole name: Windows ends at 260 with the folder above
_HASH = 16


def normalize(address: str) -> str:
    """Return the canonical form of an address, without its fragment."""
    # Not urlsplit: to it a name behind a second slash is a host, and one with a bracket an error.
    path, _mark, asked = address.partition("#")[0].partition("?")
    path = "/" + quote(unquote(path), safe="/:@!$&'()*+,;=~-._").lstrip("/")
    query = urlencode(sorted(parse_qsl(asked, keep_blank_values=True), key=lambda pair: pair[0]))
    return f"{path}?{query}" if query else path


def name_file(address: str) -> str:
    """Return the file of a normalized address, relative to the site's folder."""
    path, _mark, query = address.partition("?")
    segments = [unquote(part) for part in path.split("/")[1:]] if path != "/" else []
    names = [_name(segment, first=position == 0) for position, segment in enumerate(segments)]
    if query:
        names.append(
            _shorten("?", "-".join(value for pair in parse_qsl(query) for value in pair), query)
        )
    name = "/".join((*names, PAGE))
    if len(name) > _MOST_CHARACTERS:
        kind = names[0] if len(names[0]) < 40 else "long"
        name = "/".join((kind, _shorten("//", segments[-1], address), PAGE))
    return name


def relate(source: str, target: str) -> str:
    return quote(posixpath.relpath(target, posixpath.dirname(source) or "."), safe="/~=+,@")


def _name(segment: str, *, first: bool) -> str:
    if _RUN_ID.fullmatch(segment):
        return segment
    plain = _PLAIN.fullmatch(segment) and not _SMALL_RUN_ID.fullmatch(segment)
    if (
        plain
        and segment != PAGE
        and segment.partition(".")[0] not in _DEVICES
        and not (first and segment in BESIDE)
    ):
        return segment
    return _shorten("/", segment, segment)


def _shorten(kind: str, shown: str, whole: str) -> str:
    readable = re.sub(r"[^a-z0-9]+", "-", shown.lower()[:200]).strip("-")[:40].strip("-") or "x"
    digest = hashlib.sha256(f"{kind}{whole}".encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{readable}~{digest}"


LEFT_OUT = "Not in this site"
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
class SitePage:
    address: str
    file: str
    files: Mapping[str, str]  # normalised address: file
    simplify: Callable[[str], str | None]  # an address that stands for another
    assets: set[str] = field(default_factory=set)  # filled: names below static/

    def find(self, address: str) -> str | None:
        """Return the link from this page to an unescaped address, None if the copy does not have
        it.
        """
        normalized, fragment = normalize(address), address.partition("#")[2]
        target = self.files.get(normalized)
        if target is None:
            simpler = self.simplify(normalized)
            target = self.files.get(simpler) if simpler else None
            if target == self.file:
                return None  # what is asked for is not here, and this page is where the reader is
        if target is None:
            return None
        link = relate(self.file, target)
        return f"{link}#{fragment}" if fragment else link


def list_links(text: str) -> list[str]:
    matches = (_HREF.search(match[1]) for match in _LINK.finditer(text))
    links = (html.unescape(match[1]) for match in matches if match)
    return [
        link for link in dict.fromkeys(links) if link.startswith("/") and not link.startswith("//")
    ]


def rewrite(text: str, page: SitePage) -> str:
    text = _ELSEWHERE.sub("", _FORM.sub("", text))
    text = _LINK.sub(lambda match: _rewrite_link(match, page), text)
    files = _list_data_files(text, page)
    text = _ASSET.sub(lambda match: _rewrite_asset(match, page), text)
    if files or _DATA.search(text):
        # "<" could end the script; everything else is JSON.
        data = json.dumps(files, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        text = text.replace(
            "</body>",
            f'<script type="application/json" id="site-files">{data}</script>\n</body>',
            1,
        )
    return text


def _rewrite_link(link: re.Match[str], page: SitePage) -> str:
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


def _rewrite_asset(tag: re.Match[str], page: SitePage) -> str:
    name, mark, query = tag[2].removeprefix("/static/").partition("?")
    page.assets.add(name)
    rest = tag[4]
    if name.endswith(".mjs"):
        # Browsers load no module from a disk; app.site.scripts makes one script of it and what it
        # imports.
        name, rest = f"{name.removesuffix('.mjs')}.js", rest.replace(' type="module"', " defer")
    return f"{tag[1]}{relate(page.file, f'static/{name}')}{mark}{query}{tag[3]}{rest}"


def _list_data_files(text: str, page: SitePage) -> dict[str, str]:
    targets: dict[str, str] = {}
    prefixes = [html.unescape(match) for match in _PREFIX.findall(text)]
    for address in page.files if prefixes else ():
        if address.startswith(tuple(prefixes)):
            targets[address] = address
    for data in _DATA.findall(text):
        for match in set(_TEXT.findall(data)):
            address = json.loads(f'"{match}"')
            targets[address] = address
        for runs in _RUNS.findall(data):
            targets |= {
                f"/runs/{run_id}": f"/runs/{run_id}"
                for run_id in json.loads(runs)
                if isinstance(run_id, str)
            }
    links = {address: page.find(address) for address in targets}
    return {address: link for address, link in links.items() if link is not None}
