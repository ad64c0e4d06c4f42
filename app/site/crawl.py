"""Find the pages of a copy by their links, the important ones first, and keep each as it came."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from flask.testing import FlaskClient

from compileboard.app.site.address import name_file, normalize
from compileboard.app.site.choose import Choice, Chooser, name_kind
from compileboard.app.site.folder import Stage
from compileboard.app.site.render import fetch
from compileboard.app.site.rewrite import list_links


@dataclass
class Crawled:
    """Hold what was found: the file of each address, the kinds of pages, and what is not there."""

    files: dict[str, str] = field(default_factory=dict)
    endpoints: dict[str, str] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)  # linked to and not in the copy
    beyond: Counter[str] = field(default_factory=Counter)  # kinds of pages that the limit left out
    failed: dict[str, int] = field(default_factory=dict)  # address: status


def crawl(
    client: FlaskClient, chooser: Chooser, stage: Stage, most_pages: int, say: Callable[[str], None] | None
) -> Crawled:
    """Fetch pages from the overview on, each into its file, until there are no more or `most_pages` are there.

    Raises: OSError if a file cannot be written.
    """
    found = Crawled()
    waiting: list[tuple[int, int, Choice]] = []
    seen: set[tuple[str, bool]] = set()

    def add(link: str, source: str) -> None:
        address = normalize(link)
        if (address, source in _JUDGING) in seen:
            return
        seen.add((address, source in _JUDGING))
        choice = chooser.choose(address, source)
        if choice is None:
            found.left_out.add(address)
            simpler = chooser.simplify(address)
            if simpler not in (None, address):
                add(str(simpler), source)
        elif address not in taken:
            taken.add(address)
            heapq.heappush(waiting, (choice.rank, len(seen), choice))

    taken: set[str] = set()
    add("/", "")
    while waiting:
        _rank, _place, choice = heapq.heappop(waiting)
        if len(found.files) >= most_pages:
            found.beyond[name_kind(choice.endpoint)] += 1
            continue
        status, body = fetch(client, choice.address)
        if status != 200:
            # A link to what is not recorded leads nowhere on the dashboard as well.
            (found.failed.update({choice.address: status}) if status >= 500 else found.left_out.add(choice.address))
            continue
        file = name_file(choice.address)
        stage.write(file, body)
        found.files[choice.address], found.endpoints[choice.address] = file, choice.endpoint
        for link in list_links(body.decode()):
            add(link, choice.endpoint)
        if say and len(found.files) % 10 == 0:
            say(f"{len(found.files)} pages read, {len(waiting)} known and waiting")
    found.left_out -= found.files.keys()
    return found


# Pages that lead to comparisons of everything with everything; from any other, a comparison is worth a page.
_JUDGING = frozenset(("run.show", "compare.index"))
