"""Export the dashboard as a static site: pages, data, and scripts that run from file://.

Chromium and Firefox load no module from file://, so our modules are bundled as plain scripts. A
module must import names from neighbouring modules on a separate line, and export functions and
constants at their declaration.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flask import render_template
from flask.testing import FlaskClient

from compileboard.app.core.engine import Engine
from compileboard.app.core.resources import __version__, resource_folder
from compileboard.app.core.settings import Settings
from compileboard.app.core.store import Store
from compileboard.app.runs.queries import count_runs, list_runs
from compileboard.app.site.crawl import (
    FOLDER,
    CrawlResult,
    PageSelector,
    SitePage,
    bind,
    crawl,
    fetch,
    make_copying_app,
    name_file,
    rewrite_links,
    write_data,
)
from compileboard.app.site.folder import FolderError, Stage, publish, read_written_files, staging

_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\./[\w.-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)


class ScriptError(ValueError):
    """A module cannot be bundled."""


def bundle(folder: Path, name: str) -> str:
    """Return a module and its imports as one script that defines no global name.

    Raises ScriptError for an import or export in an unsupported form.
    """
    parts: dict[str, str] = {}
    _bundle_module(folder, name, parts)
    return (
        '"use strict";\n(() => {\n'
        + "".join(parts.values())
        + f"return {_variable_name(name)};\n}})();\n"
    )


def _bundle_module(folder: Path, name: str, parts: dict[str, str]) -> None:
    if name in parts:
        return
    text = (folder / name).read_text(encoding="utf-8")
    for _names, other in _IMPORT.findall(text):
        _bundle_module(
            folder, posixpath.normpath(posixpath.join(posixpath.dirname(name), other)), parts
        )

    def take(line: re.Match[str]) -> str:
        other = posixpath.normpath(posixpath.join(posixpath.dirname(name), line[2]))
        return f"const {{{line[1].replace(' as ', ': ')}}} = {_variable_name(other)};\n"

    exported = _EXPORT.findall(text)
    body = re.sub(
        r"^export (?=(?:async|function|const|let|class) )",
        "",
        _IMPORT.sub(take, text),
        flags=re.MULTILINE,
    )
    left = re.search(
        r"^\s*(?:import|export)\b.*|\bimport\(.*|\bimport\.meta\b.*", body, re.MULTILINE
    )
    if left:
        raise ScriptError(
            f"{name}: {left[0].strip()!r} is not an import or export that a plain script can have"
        )
    parts[name] = (
        f"const {_variable_name(name)} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} "
        f"}};\n}})();\n"
    )


def _variable_name(name: str) -> str:
    return "m_" + re.sub(r"\W", "_", name)


ABOUT, MISSING = "/copy", "/404"
INDEX = f"{FOLDER}/index.json"
# Files beside a folder of static files; a page names the rest itself.
_LICENCES = ("vendor/README.md", "vendor/plotly/LICENSE", "vendor/plotly/VERSION")
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)


@dataclass(frozen=True)
class ExportOptions:
    folder: str
    runs: int
    pages: int
    payloads: bool
    source: bool
    now_us: int


@dataclass
class ExportReport:
    run_count: int
    total_run_count: int
    source: bool
    pages: dict[str, tuple[str, str]] = field(default_factory=dict)  # address: title and file
    beyond: Counter[str] = field(default_factory=Counter)  # page counts by kind name
    data: list[tuple[str, str, str]] = field(default_factory=list)  # name, file and contents
    failed: dict[str, int] = field(default_factory=dict)
    left_out_count: int = 0
    stale_count: int = 0
    size_bytes: int = 0

    def describe(self, folder: str) -> list[str]:
        sentences = [
            f"{len(self.pages)} pages of {self.run_count} of {self.total_run_count} runs, "
            f"{self.size_bytes / 1e6:.1f} MB, written to {folder}"
        ]
        if self.stale_count:
            sentences.append(f"{self.stale_count} files of an earlier copy were taken away")
        if self.beyond:
            what = ", ".join(f"{kind}: {count}" for kind, count in self.beyond.most_common())
            sentences.append(f"left out: {sum(self.beyond.values())} pages beyond --pages ({what})")
        sentences += [
            f"failed: {address} answered {status}; links to it are text"
            for address, status in self.failed.items()
        ]
        return sentences


def export_site(
    store: Store,
    settings: Settings,
    options: ExportOptions,
    print_line: Callable[[str], None] | None,
) -> ExportReport:
    """Write a copy of the dashboard from one snapshot of the database.

    Raises FolderError if the folder cannot be used, OSError if a file cannot be written.
    """
    folder = Path(options.folder)
    app = make_copying_app(store, settings, options.now_us, source=options.source)
    engine = store.engine
    runs = list_runs(engine, limit=options.runs, pinned_first=False).rows
    newest = list({(run.suite, run.name): run.id for run in reversed(runs)}.values())
    chooser = PageSelector(
        bind(app), {run.id for run in runs}, newest, options.payloads, options.source
    )
    written = ExportReport(len(runs), count_runs(engine), options.source)
    app.add_url_rule(
        ABOUT, "site.about", lambda: render_template("site/about.html", written=written)
    )
    app.add_url_rule(MISSING, "site.missing", lambda: render_template("site/missing.html"))
    read_written_files(folder)  # reports an unusable marker before the work
    with staging(folder) as stage:
        client = app.test_client()
        crawled = crawl(client, chooser, stage, options.pages, print_line)
        if "/" not in crawled.files:
            raise FolderError(
                "the overview could not be made, so nothing was written; `serve` shows why"
            )
        names = _finish(client, engine, stage, crawled, chooser, written, print_line)
        written.stale_count = publish(folder, stage, names)
    if print_line:
        print_line("")
    return written


def _finish(
    client: FlaskClient,
    engine: Engine,
    stage: Stage,
    crawled: CrawlResult,
    chooser: PageSelector,
    written: ExportReport,
    print_line: Callable[[str], None] | None,
) -> set[str]:
    written.beyond, written.failed = crawled.beyond, crawled.failed
    written.left_out_count = len(crawled.left_out - {ABOUT})
    written.data = write_data(client, engine, stage, source=written.source)
    files = crawled.files | {ABOUT: name_file(ABOUT)}
    assets: set[str] = set()
    for number, (address, file) in enumerate(crawled.files.items()):
        body = (stage.path / file).read_text(encoding="utf-8")
        page = SitePage(address, file, files, chooser.simplify, assets)
        stage.write(file, rewrite_links(body, page).encode())
        written.pages[address] = (_read_title(body), file)
        if print_line and number % 50 == 0:
            print_line(f"{number} of {len(files)} pages written")
    names = {*crawled.files.values(), *(file for _name, file, _meaning in written.data)}
    beside = (
        files
        | {f"/{file}": file for file in names if file.startswith("data/")}
        | {"/data/index.json": INDEX}
    )
    names |= _write_beside(
        client, stage, written, SitePage(ABOUT, files[ABOUT], beside, chooser.simplify, assets)
    )
    names |= _copy_assets(stage, assets)
    written.size_bytes = sum((stage.path / name).stat().st_size for name in names)
    return names


def _write_beside(
    client: FlaskClient, stage: Stage, written: ExportReport, about: SitePage
) -> set[str]:
    index = {
        "compileboard": __version__,
        "runs": written.run_count,
        "runs_in_the_database": written.total_run_count,
        "pages": [
            {"address": address, "title": title, "file": file}
            for address, (title, file) in written.pages.items()
        ],
        "data": [
            {"name": name, "file": file, "meaning": meaning} for name, file, meaning in written.data
        ],
    }
    _status, missing = fetch(client, MISSING)
    bodies = {
        about.file: rewrite_links(fetch(client, ABOUT)[1].decode(), about).encode(),
        "404.html": missing,
        INDEX: json.dumps(index, ensure_ascii=False, indent=1).encode(),
        ".nojekyll": b"",  # GitHub omits names that begin with an underscore
    }
    for name, body in bodies.items():
        stage.write(name, body)
    return set(bodies)


def _copy_assets(stage: Stage, assets: set[str]) -> set[str]:
    folder, names = resource_folder("static"), set()
    for name in sorted({*assets, *_LICENCES}):
        if name.endswith(".mjs"):
            body = bundle(folder, name).encode()
            name = f"{name.removesuffix('.mjs')}.js"
        else:
            body = (folder / name).read_bytes()
        stage.write(f"static/{name}", body)
        names.add(f"static/{name}")
    return names


def _read_title(body: str) -> str:
    match = _TITLE.search(body)
    return html.unescape(match[1]).removesuffix(" · CompileBoard") if match else ""
