"""The sections of a page, which screen readers list by name."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter

import pytest
from flask.testing import FlaskClient

from tests.unit.app.pages import list_explored

LABEL = re.compile(r'<section[^>]* aria-label="([^"]*)"')
HEADING = r'<(h[23])[^>]* id="{}"[^>]*>(.*?)</\1>'


@pytest.mark.parametrize("kind", list_explored)
def test_no_two_sections_of_a_page_have_one_name(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection, kind: str
) -> None:
    for address in list_explored[kind](explored_reader):
        text = explored_client.get(address).text
        headings = re.findall(r'<section[^>]* aria-labelledby="([^"]*)"', text)
        titles = [
            match[2]
            for key in headings
            if (match := re.search(HEADING.format(key), text, re.DOTALL))
        ]
        names = Counter(
            LABEL.findall(text) + [re.sub(r"<[^>]*>", "", title).strip() for title in titles]
        )
        assert [name for name, count in names.items() if count > 1] == [], address
