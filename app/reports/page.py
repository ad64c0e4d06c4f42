"""The parts of an HTML report: templates, inlined files, and a matching Content-Security-Policy."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import lru_cache

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from compileboard.app.resources import resource_folder
from compileboard.app.screens.template_names import TEMPLATE_FILTERS, TEMPLATE_NAMES

STYLES = ("css/tokens.css", "css/app.css", "css/parts.css", "css/report.css", "css/print.css")
# For what comes from torch's own logs; other reports are as small as they were.
EXPLORED_STYLES = ("css/artifacts.css", "css/explore.css", "css/report-explored.css")
BENCH_STYLES = ("css/results.css",)
TREND_STYLES = ("css/trends.css",)
PLOTLY = "vendor/plotly/plotly-basic.min.js"
# Each a script of its own, which sees no name of another. Charts of one axis, which zoom together,
# need one more.
MODULES = ("js/charts.mjs", "js/print.mjs")
LINKED_MODULES = (*MODULES, "js/trends.mjs")


@lru_cache(maxsize=1)
def make_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(str(resource_folder("templates"))),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(TEMPLATE_FILTERS)
    environment.globals.update(TEMPLATE_NAMES)
    # |tojson escapes < > & ' for us, and json.dumps every character beyond ASCII, U+2028 and U+2029
    # among them.
    environment.policies["json.dumps_kwargs"] = {}
    return environment


@lru_cache(maxsize=16)
def read_static(names: Sequence[str]) -> Markup:
    """Return static files for inlining into a page.

    Raises ValueError if one of them could close the element that it is put into.
    """
    folder = resource_folder("static")
    text = "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
    for end in ("</script", "</style", "<!--", "\r"):
        if end in text:
            raise ValueError(f"{names} cannot be inlined: there is {end!r} inside")
    return Markup(text)  # noqa: S704  our own files


@lru_cache(maxsize=1)
def read_plotly() -> bytes:
    return read_static((PLOTLY,)).encode()


def hash_script(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def list_scripts(charted: bool, linked: bool = False) -> tuple[tuple[str, Markup], ...]:
    names = LINKED_MODULES if linked else MODULES if charted else ("js/print.mjs",)
    modules = tuple(("module", read_static((name,))) for name in names)
    return (("text/javascript", read_static((PLOTLY,))), *modules) if charted else modules


@lru_cache(maxsize=4)
def make_policy(charted: bool, linked: bool = False) -> str:
    scripts = " ".join(hash_script(text) for _type, text in list_scripts(charted, linked))
    parts = (
        "default-src 'none'",
        f"script-src {scripts}",
        "style-src 'unsafe-inline'",
        "img-src data:",
    )
    return "; ".join((*parts, "base-uri 'none'", "form-action 'none'"))
