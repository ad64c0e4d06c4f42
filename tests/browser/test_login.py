"""Log in and out in a browser: what one may not do is not offered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.tokens import create_token

pytestmark = pytest.mark.browser


def test_a_reader_logs_in_sees_no_buttons_and_logs_out(
    open_tab: Callable[..., Page], address: str, database: Path
) -> None:
    with closing(open_writer(database)) as writer:
        secret = create_token(writer, "Ann Reader", ("read",), created_by="me")
    tab = open_tab(allow="401")
    run = f"{address}/runs?limit=1"
    tab.goto(f"{address}/login?next=/runs?limit=1")
    tab.locator("[name=token]").fill("cb_wrong")
    tab.get_by_role("button", name="Log in").click()
    expect(tab.get_by_role("alert")).to_contain_text("Unknown token")
    tab.locator("[name=token]").fill(secret)
    tab.get_by_role("button", name="Log in").click()
    tab.wait_for_url(run)
    expect(tab.locator(".login__name")).to_have_text("Ann Reader")
    tab.locator("main tbody a[href^='/runs/']").first.click()
    tab.wait_for_url("**/runs/*")
    expect(tab.locator("[method=post]")).to_have_count(1)  # Log out
    tab.get_by_role("button", name="Log out").click()
    tab.wait_for_url(f"{address}/login")
    tab.goto(run)  # on this machine anyone may do all
    tab.locator("main tbody a[href^='/runs/']").first.click()
    tab.wait_for_url("**/runs/*")
    expect(tab.locator("[method=post]")).to_have_count(2)  # pin, edit
    assert tab.context.cookies() == []
