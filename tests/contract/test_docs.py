"""The documents keep up with commands, options, settings, pages, dependencies and links."""

import ast
import inspect
import pkgutil
import re
from operator import attrgetter
from pathlib import Path

import click
import pytest
import tomllib

import compileboard
from compileboard.app import create_app
from compileboard.app.cli.main import dashboard
from compileboard.app.core.settings import SETTINGS, variable_name
from compileboard.collectors.cli.main import collect
from compileboard.collectors.pytest_plugin import CompileBoard
from tests.tools.documents import INDEX, PAGES, list_pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
MAX_WORDS_OF_A_PAGE = 1200
NOT_READ_THROUGH = {"api.md", "frames.md", "benchmarks.md"}  # looked up: two are generated


def list_commands(group, name=None):
    """Return a group's commands with their names, those of the groups in it too."""
    context = click.Context(group, info_name=name)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        yield word, command
        if isinstance(command, click.Group):
            yield from list_commands(command, word)


def list_programs(page):
    return re.findall(r"^```python\n(.+?)^```", DOCS[page], re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("group", "pages"),
    [
        (
            collect,
            (
                "collector.md",
                "import.md",
                "push.md",
                "bench.md",
                "bench-method.md",
                "bench-flags.md",
                "bench-export.md",
                "experiments.md",
                "ranks.md",
                "try.md",
                "repro.md",
                "repro-cause.md",
                "repro-reference.md",
                "recorded.md",
                "github-action.md",
            ),
        ),
        (
            dashboard,
            (
                "dashboard.md",
                "settings.md",
                "check.md",
                "reports.md",
                "site.md",
                "incidents.md",
                "alerts.md",
                "access.md",
                "operate.md",
            ),
        ),
    ],
)
def test_every_command_and_option_is_documented_and_has_help(group, pages):
    text, missing = "".join(DOCS[page] for page in pages), []
    for name, command in list_commands(group):
        shown = [param for param in command.params if not getattr(param, "hidden", False)]
        options = [flag for param in command.params for flag in param.opts if flag.startswith("--")]
        missing += [word for word in [name, *options] if word not in text]
        assert command.help and all(param.help for param in shown), name
    assert missing == []


@pytest.mark.parametrize("group", [collect, dashboard])
def test_help_is_made_of_sentences(group):
    texts = [entry.help for entry in group.entries.values()]
    for _name, command in list_commands(group):
        texts += [
            command.help,
            *(param.help for param in command.params if not getattr(param, "hidden", False)),
        ]
    assert len(texts) > 50
    assert [text for text in texts if not re.fullmatch(r"[A-Z].*\.", text.strip(), re.S)] == []


def test_every_setting_is_documented():
    assert [s.name for s in SETTINGS if variable_name(s) not in DOCS["settings.md"]] == []


def test_every_page_and_address_is_documented():
    text = DOCS["pages.md"] + DOCS["api.md"]
    rules = {
        re.sub(r"<(?:\w+:)?\w+>", "<>", rule.rule) for rule in create_app().url_map.iter_rules()
    }
    named = re.sub(r"[<{][\w:]+[>}]", "<>", text)
    known = set(re.findall(r"[`\"](?:(?:GET|HEAD|PATCH|POST|PUT) )?(/[^`\"\s?]*)", named))
    assert sorted(rule for rule in rules - known if not rule.startswith("/static/")) == []


def test_every_direct_dependency_is_justified_and_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {
        re.split(r"[<>=]", d)[0]
        for extra in project["optional-dependencies"].values()
        for d in extra
    }
    pins = {
        line.split("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    assert {name for name in names if name not in DOCS["dependencies.md"]} == set()
    assert {name for name in names if name.lower() not in pins} == set()


def test_every_page_is_listed_once_as_guide_or_reference():
    guides, reference = list_pages("Guides"), list_pages("Reference")
    assert guides & reference == set()
    assert guides | reference == set(PAGES) - {"README.md", INDEX}


@pytest.mark.parametrize("page", sorted(set(DOCS) - NOT_READ_THROUGH))
def test_a_page_is_short_enough_to_read(page):
    assert len(DOCS[page].split()) <= MAX_WORDS_OF_A_PAGE


@pytest.mark.parametrize("page", sorted(DOCS))
def test_links_between_documents_lead_somewhere(page):
    folder = ROOT if page == "README.md" else ROOT / "docs"
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", DOCS[page])]
    assert [
        link for link in links if link and "://" not in link and not (folder / link).exists()
    ] == []


def list_anchors(text: str) -> set[str]:
    """Return the addresses of a page's headings, as GitHub makes them, and those it gives
    itself.
    """
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = [
        re.sub(r"[^\w\- ]", "", heading.lower())
        for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    ]
    return {heading.replace(" ", "-") for heading in headings} | set(
        re.findall(r'<a id="([^"]+)"', text)
    )


@pytest.mark.parametrize("page", sorted(DOCS))
def test_links_to_headings_lead_somewhere(page):
    links = re.findall(r"\]\((?:([\w-]+\.md))?#([^)\s]+)\)", DOCS[page])
    assert [link for link in links if link[1] not in list_anchors(DOCS[link[0] or page])] == []


@pytest.mark.parametrize("page", sorted(DOCS))
def test_files_that_a_page_names_exist(page):
    tops = "app|benchmarks|collectors|compileboard|deploy|examples|static|templates|tests"
    named = re.findall(rf"`((?:{tops})/[\w./-]+)`", DOCS[page])
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", sorted(DOCS))
def test_python_names_that_a_page_gives_exist(page):
    for name in re.findall(r"`((?:app|collectors)(?:\.\w+)+)[`(]", DOCS[page]):
        assert pkgutil.resolve_name(f"compileboard.{name}"), name


@pytest.mark.parametrize("page", sorted(name for name in DOCS if list_programs(name)))
def test_python_examples_import_and_call_what_there_is(page):
    for text in list_programs(page):
        nodes = list(ast.walk(ast.parse(text)))
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                exec(ast.unparse(node), {})
        is_fixture = any(isinstance(node, ast.arg) and node.arg == "compileboard" for node in nodes)
        home = CompileBoard if is_fixture else compileboard
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            root, _, name = ast.unparse(call.func).partition(".")
            if root == "compileboard":
                signature = inspect.signature(attrgetter(name)(home))
                signature.bind_partial(**{part.arg: None for part in call.keywords})


def test_every_benchmark_the_documents_name_exists():
    named = set(re.findall(r"python -m benchmarks\.([\w.]+\w)", "\n".join(DOCS.values())))
    assert {
        name
        for name in named
        if not any(
            (ROOT / "benchmarks" / f"{name.replace('.', '/')}{ending}").exists()
            for ending in (".py", "/__main__.py")
        )
    } == set()
    assert named, "docs/benchmarks.md names the commands that make its figures"
