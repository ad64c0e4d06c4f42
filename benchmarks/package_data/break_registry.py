"""Write collectors/decode/break_registry.json from a torch's own registry.

    python benchmarks/package_data/break_registry.py [path/to/graph_break_registry.json]

Without a path it takes the registry of the torch that this Python has. Run it when a newer torch is
out.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[2] / "collectors" / "decode" / "break_registry.json"


def find_registry() -> Path:
    """Find the registry of the torch in this environment, without importing it."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("no torch here: give the path of a graph_break_registry.json")
    return Path(spec.submodule_search_locations[0]) / "_dynamo" / "graph_break_registry.json"


def compact(registry: dict[str, list[dict[str, Any]]], torch_version: str) -> dict[str, Any]:
    """Return the newest wording of each id; a hint is written once and pointed to."""
    hints: dict[str, int] = {}
    breaks = []
    older: dict[str, list[str]] = {}
    for gb_id, variants in sorted(registry.items()):
        newest = variants[0]
        places = [hints.setdefault(hint, len(hints)) for hint in newest["Hints"]]
        breaks.append([gb_id, newest["Gb_type"], newest["Explanation"], places])
        for variant in variants[1:]:
            if variant["Gb_type"] != newest["Gb_type"]:
                older.setdefault(variant["Gb_type"], []).append(gb_id)
    return {"torch": torch_version, "hints": list(hints), "breaks": breaks, "older_types": older}


def main() -> None:
    """Read the registry, write the table, say how large it is."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else find_registry()
    version = source.parents[1] / "version.py"
    names: dict[str, Any] = {}
    if version.exists():
        exec(version.read_text(encoding="utf-8"), names)
    table = compact(
        json.loads(source.read_text(encoding="utf-8")), str(names.get("__version__", "unknown"))
    )
    text = json.dumps(table, ensure_ascii=True, separators=(",", ":"))
    TARGET.write_text(text.replace('],["GB', '],\n["GB') + "\n", encoding="utf-8")
    print(
        f"{TARGET.name}: {len(table['breaks'])} ids of torch {table['torch']}, "
        f"{TARGET.stat().st_size} bytes"
    )


if __name__ == "__main__":
    main()
