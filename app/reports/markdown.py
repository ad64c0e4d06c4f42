"""Reports as Markdown: templates, and filters that keep recorded text from being markup."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from compileboard.app.core import format
from compileboard.app.core.resources import __version__, resource_folder
from compileboard.collectors.fixes.statement import mark_part

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_TABLE_ROWS = 10
_LONGEST = 200
_SPAN = "\ue000"  # private use: a placeholder for code while its surroundings are escaped
_APART = "\u200b"  # zero-width: invisible, and keeps @name, #12 and http:// from becoming links
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_SPECIAL = re.compile(r"([\\`*_\[\]|~$#>])")


def prose(text: str | None, longest: int = _LONGEST) -> str:
    """Return text on one line as plain words: no markup, link or mention."""
    flat = _flatten(text, longest)
    if not flat:
        return f"_{format.NOT_RECORDED}_"
    flat = _SPECIAL.sub(r"\\\1", flat.replace("&", "&amp;").replace("<", "&lt;"))
    flat = re.sub(r"(@|\\#|://|\bwww(?=\.)|\bGH(?=-\d))", rf"\1{_APART}", flat)
    return re.sub(r"^(\d+)([.)]\s)", r"\1\\\2", re.sub(r"^([-+=])", r"\\\1", flat))


def ticked(text: str | None, longest: int = 2 * _LONGEST) -> str:
    """Return a title as prose; text in backticks is code."""
    spans: list[str] = []

    def keep(match: re.Match[str]) -> str:
        spans.append(code(match[1], longest))
        return _SPAN

    plain = re.sub("`([^`]+)`", keep, (text or "").replace(_SPAN, ""))
    return re.sub(_SPAN, lambda _match: spans.pop(0), prose(plain, longest))


def code(text: str | None, longest: int = _LONGEST) -> str:
    """Return code on one line in enough backticks; pipes are escaped for tables."""
    flat = _flatten(text, longest)
    if not flat:
        return f"_{format.NOT_RECORDED}_"
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    space = " " if flat.startswith("`") or flat.endswith("`") or len(fence) > 1 else ""
    # A table cell ends at a pipe even inside backticks, and a backslash before it stays visible.
    return f"{fence}{space}{flat}{space}{fence}".replace("\\|", "\\\u200b|").replace("|", "\\|")


def _flatten(text: str | None, longest: int) -> str:
    flat = " ".join(_CONTROL.sub(" ", text or "").split())
    return flat if len(flat) <= longest else flat[: longest - 1].rstrip() + "…"


@lru_cache(maxsize=1)
def _make_environment() -> Environment:
    # Imported here because most commands that import this module print no Markdown.
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(str(resource_folder("templates"))),
        autoescape=False,  # noqa: S701  `prose` and `code` escape for Markdown
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        prose=prose,
        ticked=ticked,
        part=mark_part,
        code=code,
        count=format.format_count,
        duration=format.format_duration,
        number=format.format_number,
        percent=format.format_percent,
        plural=format.format_plural,
        ratio=format.format_ratio,
        time=format.format_time,
    )
    environment.globals["version"] = __version__
    return environment


def render_markdown(template: str, **values: Any) -> str:
    """Render a template below `templates/reports`, with one blank line between its parts."""
    text = _make_environment().get_template(f"reports/{template}").render(values)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"
