"""The pages of the documents, by name, and which of them are reference."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INDEX = "docs/README.md"
PAGES = {
    "README.md": ROOT / "README.md",
    INDEX: ROOT / INDEX,
    **{path.name: path for path in sorted(DOCS.glob("*.md")) if path.name != "README.md"},
}


def list_pages(section: str) -> set[str]:
    """Return the pages that a section of docs/README.md lists: "Guides" or "Reference"."""
    text = PAGES[INDEX].read_text(encoding="utf-8").partition(f"## {section}\n")[2]
    return set(re.findall(r"\]\(([\w-]+\.md)\)", text.partition("\n## ")[0]))
