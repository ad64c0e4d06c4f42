"""The HTML report opened from disk: it draws, makes no request and runs no foreign script."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compileboard.app.cli.main import main
from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.migrations import migrate
from tests.unit.app.benched import RUNS as BENCHED
from tests.unit.app.benched import bench_suite
from tests.unit.app.explored import explore
from tests.unit.app.hostile import BAD, record_hostile_run
from tests.unit.app.hostile import RUN as HOSTILE
from tests.unit.app.recorded import RUN, record_run

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write both runs' reports beside each other."""
    folder = tmp_path_factory.mktemp("reports")
    database = folder / "compileboard.db"
    migrate(database)
    with closing(open_writer(database)) as store:
        record_run(store)
        record_hostile_run(store)
        bench_suite(store)
        checkpoint(store)
    compared = ["--compare", BENCHED[0], BENCHED[2]]
    reports = {RUN: ["--run", RUN], HOSTILE: ["--run", HOSTILE], "comparison": compared}
    reports["suite"] = ["--suite", "bench_models", "--last", "9999w"]
    for name, what in reports.items():
        where = ["--db", str(database), "--output", str(folder / f"{name}.html")]
        assert main(["export", *what, "--format", "html", *where]) == 0
    return folder


def read_pages(pdf: bytes) -> list[bytes]:
    """Find the pages of a PDF of Chromium's: each is an object of its own."""
    return re.findall(rb"/Type\s*/Page\b", pdf)


@pytest.fixture
def from_disk(browser: Any, reports: Path) -> Iterator[Open]:
    """Open a report offline in a tab that forgives nothing: no console message, no error, no
    dialog, no request.
    """
    wrong: list[str] = []
    contexts = []

    def show(run: str, **options: Any) -> Any:
        context = browser.new_context(
            **({"viewport": {"width": 1280, "height": 900}, "offline": True} | options)
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        address = (reports / f"{run}.html").as_uri()
        page.on(
            "request",
            lambda request: (
                None if request.url in (address, "data:,") else wrong.append(request.url)
            ),
        )
        page.goto(address)
        return page

    yield show
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("run", [RUN, HOSTILE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_report_draws_its_bars_and_fits(from_disk: Open, run: str, scheme: str, width: int) -> None:
    page = from_disk(run, color_scheme=scheme, viewport={"width": width, "height": 900})
    page.locator(".bars .split rect").first.wait_for(state="attached")
    assert (
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        <= 0
    )


def test_report_shows_hostile_text_as_text(from_disk: Open) -> None:
    page = from_disk(HOSTILE)
    assert page.locator("h1").inner_text() == BAD
    assert page.locator("img, iframe").count() == 0
    assert page.locator("a[href*='evil'], .bars a").count() == 0
    assert page.locator("script").count() == 1


def test_report_reads_without_javascript(from_disk: Open) -> None:
    page = from_disk(RUN, java_script_enabled=False)
    assert page.locator(".bars__row").count() == 4


def test_report_prints_on_white_paper(from_disk: Open) -> None:
    page = from_disk(RUN, color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(24, 32, 44)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("getComputedStyle(document.body).color") != "rgb(24, 32, 44)"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("report", [RUN, "comparison", "suite"])
def test_report_as_pdf_has_pages_and_no_cut_chart(from_disk: Open, report: str) -> None:
    page = from_disk(report, color_scheme="dark")
    if report != RUN:
        page.locator("[data-drawn]").first.wait_for()
    assert len(read_pages(page.pdf())) > 1
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    widths = page.eval_on_selector_all(
        ".js-plotly-plot", "all => all.map((it) => [it.clientWidth, it.layout.font.color])"
    )
    drawn = page.eval_on_selector_all(
        ".main-svg:first-child", "all => all.map((it) => it.clientWidth)"
    )
    assert all(abs(width - 650) < 40 and color == "rgb(86, 97, 115)" for width, color in widths)
    assert bool(widths) == (report != RUN)
    assert drawn == [width for width, _color in widths]
    hidden = page.locator(".report__toc, .zooms, .twin, main button")
    assert not any(element.is_visible() for element in hidden.all())


def test_report_with_texts_leads_from_the_directory_to_one(from_disk: Open, reports: Path) -> None:
    database = reports / "explored.db"
    explore(database)
    with closing(open_writer(database)) as store:
        checkpoint(store)
        run = store.execute("select id from runs where name = 'zoo_recompiles'").fetchone()["id"]
    where = ["--db", str(database), "--output", str(reports / f"{run}.html")]
    assert main(["export", "--run", run, "--format", "html", "--payloads", *where]) == 0
    page = from_disk(run)
    words = page.locator("details.text pre").filter(has_text="async_compile").first
    assert not words.is_visible()
    page.locator("#directory").get_by_role("link", name="inductor_output_code").first.click()
    page.locator("details.text[open] pre:target").wait_for()
    assert "async_compile" in page.locator("pre:target").inner_text()
    assert page.locator("#timeline svg rect").first.is_visible()
    assert (
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        <= 0
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_suite_report_draws_every_chart_and_zooms_them_together(
    from_disk: Open, scheme: str, width: int
) -> None:
    page = from_disk("suite", color_scheme=scheme, viewport={"width": width, "height": 900})
    count = page.locator("[data-chart]").count()
    page.wait_for_function(
        "count => document.querySelectorAll('[data-drawn]').length === count", arg=count
    )
    assert count >= 6
    assert (
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        <= 0
    )
    ranges = (
        "[...document.querySelectorAll('[data-drawn]')].map((it) => String(it.layout.xaxis.range))"
    )
    before = page.evaluate(ranges)
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_function(
        f"before => new Set({ranges}).size === 1 && {ranges}[0] !== before", arg=before[0]
    )
    leads = (
        "[...document.querySelectorAll('[data-drawn]')].some((it) => it.data.some((trace) => "
        "trace.customdata))"
    )
    assert page.evaluate(leads) is False  # there is no run's page beside a file
