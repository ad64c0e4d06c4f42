"""Coloured lines: nothing lost or unescaped, lines whole, comments found, contrast."""

from __future__ import annotations

import io
import re
import tokenize
from html import unescape
from itertools import product

import pytest
from flask import Flask, render_template_string
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.artifacts import text as code
from compileboard.app.artifacts.text import LANGUAGES, highlight, indent_json
from tests.tools.observed import ROOT
from tests.unit.app.artifacts.recorded_texts import artifacts

TAG = re.compile(r"</?span[^>]*>")
SPAN = re.compile(r'<span class="([a-z])">([^<]*)</span>')
PIECES = [
    "'",
    '"',
    "'''",
    '"""',
    "\\",
    "\n",
    "#",
    "/*",
    "*/",
    "//",
    "<b>",
    "&amp;",
    "r",
    "def ",
    "@x",
    "import a",
    " ",
    "\r",
    "1e",
    "é",
]
hostile = st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join))


def _plain(lines: list[code.Markup]) -> str:
    return "\n".join(unescape(TAG.sub("", line)) for line in lines)


def _spans(name: str, language: str, kind: str) -> list[str]:
    return [
        unescape(match[2])
        for line in highlight(artifacts()[name], language)
        for match in SPAN.finditer(line)
        if match[1] == kind
    ]


@given(hostile, st.sampled_from(LANGUAGES))
def test_highlight_keeps_every_character_and_closes_every_line(text: str, language: str) -> None:
    lines = highlight(text, language)
    shown = (
        text.replace("\r\n", "\n").replace("\r", "\n").translate(code._PICTURES).removesuffix("\n")
    )
    assert _plain(lines) == shown
    for line in lines:
        assert "<" not in SPAN.sub("", line)
        assert "\n" not in line


@pytest.mark.parametrize("name", artifacts())
def test_highlight_keeps_recorded_artifacts(name: str) -> None:
    text = artifacts()[name]
    for language in LANGUAGES:
        assert _plain(highlight(text, language)) == text.removesuffix("\n")


def test_highlight_finds_the_comments_that_python_finds() -> None:
    text = artifacts()["inductor_output_code"]
    pythons = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    ours = _spans("inductor_output_code", "python", "c")
    assert len(pythons) > 100
    assert [span for span in ours if span in set(pythons)] == pythons


def test_a_kernel_in_a_string_is_read_as_code() -> None:
    assert "@triton.jit" in _spans("inductor_output_code", "python", "d")
    assert (
        "triton_poi_fused_add_0" in artifacts()["inductor_output_code"]
        or "tl" in artifacts()["inductor_output_code"]
    )
    kernel = highlight(
        (
            "k = async_compile.triton('k', '''\nimport triton\n@triton.jit\ndef k(x):\n    return "
            "1\n''')"
        ),
        "python",
    )
    assert kernel[3] == '<span class="k">def</span> <span class="f">k</span>(x):'
    assert kernel[5] == "<span class=\"s\">'''</span>)"


def test_a_cpp_kernel_in_a_raw_string_is_read_as_cpp() -> None:
    types = _spans("inductor_output_code_cpp", "python", "t")
    assert {"float", "int64_t"} <= set(types)
    assert any(
        span.strip().startswith("#pragma omp")
        for span in _spans("inductor_output_code_cpp", "python", "d")
    )


def test_a_graph_shows_types_operators_and_the_users_line() -> None:
    assert '"f32[s27, 8, 512][512, 512*s27, 1]cuda:1"' in _spans(
        "aot_joint_graph_dynamic", "graph", "t"
    )
    assert '"Sym(s27)"' in _spans("aot_joint_graph_dynamic", "graph", "t")
    assert "torch.ops.aten.mm.default" in _spans("aot_joint_graph_dynamic", "graph", "f")
    assert "return x + s.f(x)" in _spans("aot_joint_graph_dynamic", "graph", "u")
    assert ";  view_1 = primals_4 = None" in _spans("aot_joint_graph_dynamic", "graph", "x")


def test_a_string_over_lines_is_closed_and_opened_again() -> None:
    lines = highlight('x = """one\ntwo"""', "python")
    assert lines == [
        'x = <span class="s">&quot;&quot;&quot;one</span>'.replace("&quot;", '"'),
        '<span class="s">two"""</span>',
    ]


def test_a_big_text_is_plain_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "COLOUR_LIMIT_CHARS", 5)
    lines = highlight("if a < b: c", "python")
    assert lines == ["if a &lt; b: c"]
    assert lines.plain_because == "Shown without colours: 11 characters are more than 5."
    assert highlight("if a < b: c", "text").plain_because == ""


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(
        ValueError, match="language: 'rust' is not one of python, graph, cpp, json, text"
    ):
        highlight("", "rust")


def test_json_is_laid_out_and_broken_json_is_kept() -> None:
    shown = indent_json(artifacts()["triton_kernel_info"])
    assert '\n    "autotune_cache_state": "miss",' in shown
    assert (
        '<span class="f">"autotune_cache_state"</span>: <span class="s">"miss"</span>,'
        in highlight(shown, "json")[2]
    )
    assert indent_json('{"cut off": ') == '{"cut off": '


def test_the_box_has_a_link_a_line(shared_app: Flask) -> None:
    template = (
        '{% import "_macros/code.html" as code with context %}{{ code.box(lines, "joint", '
        '"Joint graph") }}'
    )
    with shared_app.test_request_context():
        html = render_template_string(template, lines=highlight("<b>\n" * 250, "text"))
    assert html.count('class="ln"') == html.count("<code>&lt;b&gt;</code>") == 250
    assert 'id="L250"><a class="no" href="#L250" tabindex="-1">250</a>' in html
    assert html.count("source__part--whole") == 2
    assert "250 lines" in html


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
def test_colours_of_code_can_be_read(side: int) -> None:
    """WCAG 2 AA: 4.5 to 1 for text, on every ground that code stands on."""
    css = (ROOT / "static/css/tokens.css").read_text()
    matches = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)
    tokens = {name: values[side] for name, *values in matches}
    inks = [token for token in tokens if token.startswith("code-")] + ["ink-soft"]
    pairs = [
        *product(inks, ("card", "accent-soft")),
        *product(["ink"], [token for token in tokens if token.startswith("diff-")]),
    ]
    assert len(pairs) == 14
    assert {pair for pair in pairs if _contrast(tokens[pair[0]], tokens[pair[1]]) < 4.5} == set()


def _contrast(first: str, other: str) -> float:
    low, high = sorted((_luminance(first), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
