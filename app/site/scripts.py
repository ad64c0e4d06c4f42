"""Scripts of a static copy: each module with all that it imports as one plain script, which browsers run from a disk.

The modules are ours and small: they import names from their neighbours on a line of their own and export functions and
constants where they are declared. Chromium and Firefox load no module from file://, whatever the page says.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\./[\w.-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)


class ScriptError(ValueError):
    """Say which module cannot be made a plain script, and why."""


def bundle(folder: Path, name: str) -> str:
    """Write a module and what it imports as one script that leaves no name behind.

    Raises: ScriptError if a module imports or exports in a way that this does not read.
    """
    parts: dict[str, str] = {}
    _add(folder, name, parts)
    return '"use strict";\n(() => {\n' + "".join(parts.values()) + f"return {_variable(name)};\n}})();\n"


def _add(folder: Path, name: str, parts: dict[str, str]) -> None:
    if name in parts:
        return
    text = (folder / name).read_text(encoding="utf-8")
    for _names, other in _IMPORT.findall(text):
        _add(folder, posixpath.normpath(posixpath.join(posixpath.dirname(name), other)), parts)

    def take(line: re.Match[str]) -> str:
        other = posixpath.normpath(posixpath.join(posixpath.dirname(name), line[2]))
        return f"const {{{line[1].replace(' as ', ': ')}}} = {_variable(other)};\n"

    exported = _EXPORT.findall(text)
    body = re.sub(r"^export (?=(?:async|function|const|let|class) )", "", _IMPORT.sub(take, text), flags=re.MULTILINE)
    left = re.search(r"^\s*(?:import|export)\b.*|\bimport\(.*|\bimport\.meta\b.*", body, re.MULTILINE)
    if left:
        raise ScriptError(f"{name}: {left[0].strip()!r} is not an import or export that a plain script can have")
    parts[name] = f"const {_variable(name)} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();\n"


def _variable(name: str) -> str:
    return "m_" + re.sub(r"\W", "_", name)
