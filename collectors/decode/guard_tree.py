"""Parse the guards of one compile into a tree: managers with guards as leaves.

Source: GuardManagerWrapper.__str__ in torch/_dynamo/guards.py of 2.5 to 2.13; the flat list is
`dynamo_guards` of 2.4.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from compileboard.collectors.contract.records import PRIVATE
from compileboard.collectors.decode.recompile_reasons import find_frame, split_verbose
from compileboard.collectors.decode.records import parse_frames, user_frame

# A real model's tree is some 40 levels deep; recursion over deeper ones must not fail.
MAXIMUM_DEPTH = 200
_HEADING = "TREE_GUARD_MANAGER:"
_LATENCY = re.compile(r"\nGuard latency = (\d{1,15}(?:\.\d{1,9})?) us\s*\Z")
_LINE = re.compile(r"^((?:\| )*)\+- (\w+)(?:: (.*)| .*)?$", re.ASCII | re.MULTILINE)
_WORD = re.compile(r"(\w+)(?:: |\Z)", re.ASCII)
_ROOT = re.compile(r"(?<!\w)[LG]\[(?:'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\")\]")
_COMMENT_MAXIMUM = 4_000  # torch omits a user's line beyond 1,024 characters
_ROOT_COUNT = 20
AMBIENT = "global state"
NOT_RECORDED = "not recorded"


@dataclass(frozen=True, slots=True)
class GuardNode:
    """One line of torch's tree: a manager (where a value is found), a guard (what is checked) or
    other text.

    A guard has its manager's source; `remark` is torch's comment. A guard that relates several
    sources has no code here, because torch prints it elsewhere.
    """

    kind: Annotated[Literal["manager", "guard", "text"], "What the line is."]
    guard_type: Annotated[str | None, "torch's name of its kind."]
    source: Annotated[str | None, "Where the value is found."] = None
    accessor: Annotated[str | None, "How it is reached from the line above."] = None
    value_type: Annotated[str | None, "The value's type."] = None
    code: Annotated[str | None, "What is checked."] = None
    user_line: Annotated[str | None, "Source of that line; null with `--no-source`."] = None
    file: Annotated[str | None, "Its file: path in the repository, or module path."] = None
    line: Annotated[int | None, "Line number."] = None
    function: Annotated[str | None, "Qualified name of the function."] = None
    hint: Annotated[str | None, "torch's hint."] = None
    remark: Annotated[str | None, "torch's remark on the line."] = None
    children: tuple[GuardNode, ...] = field(default=(), repr=False, metadata=PRIVATE)


@dataclass(frozen=True, slots=True)
class GuardTree:
    """The guards of one compile. Guards outside the root (shapes, aliasing) are checked last.

    `latency_us` is torch's measurement of the whole set; single guards are not timed.
    """

    nodes: tuple[GuardNode, ...] = field(repr=False)
    latency_us: float | None = None


def parse_guards(text: str) -> GuardTree | None:
    if text[:100].lstrip().startswith("["):
        return _parse_list(text)
    start = text.find(_HEADING)
    if start < 0:
        return None
    match = _LATENCY.search(text, max(start, len(text) - 200))
    body = text[start + len(_HEADING) : match.start() if match else len(text)]
    entries = list(_split_lines(body))
    comments: dict[str, tuple[Any, ...]] = {}
    sources: list[str | None] = []
    read: list[tuple[int, dict[str, Any]]] = []
    for depth, entry in entries:
        # If a line is lost or wrongly indented, it goes below the last open one.
        depth = min(depth, len(sources), MAXIMUM_DEPTH)
        del sources[depth:]
        fields = _read_entry(entry, sources[-1] if sources else None, comments)
        sources.append(fields.get("source"))
        read.append((depth, fields))
    return GuardTree(_build_nodes(read), float(match[1]) if match else None)


def walk(tree: GuardTree) -> Iterator[tuple[int, GuardNode]]:
    stack = [(0, node) for node in reversed(tree.nodes)]
    while stack:
        depth, node = stack.pop()
        yield depth, node
        if node.children:
            stack.extend((depth + 1, child) for child in reversed(node.children))


def is_check(node: GuardNode) -> bool:
    return node.kind == "guard" and node.code is not None


def find_root(node: GuardNode) -> str:
    """Return the input or global that a guard checks: L['x'], G['scale'], or torch's global
    state.
    """
    return _root_of(node.source or node.code or "")


def summarize_guards(tree: GuardTree) -> dict[str, Any]:
    """Count guards by type and by root source; kept even if payloads are not stored.

    A guard is one condition as torch prints it; a few guards print several.
    """
    kinds, roots = Counter[str](), Counter[str]()
    manager_count, deepest = 0, 0
    for depth, node in walk(tree):
        deepest = max(deepest, depth + 1)
        if is_check(node):
            kinds[node.guard_type or NOT_RECORDED] += 1
            roots[find_root(node)] += 1
        else:
            manager_count += node.kind == "manager"
    return _make_summary(kinds, roots, manager_count, deepest, tree.latency_us)


def _make_summary(
    kinds: Counter[str],
    roots: Counter[str],
    manager_count: int,
    deepest: int,
    latency_us: float | None,
) -> dict[str, Any]:
    return {
        "guard_count": kinds.total(),
        "manager_count": manager_count,
        "latency_us": latency_us,
        "depth": deepest,
        "kinds": dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
        "roots": [
            list(item)
            for item in sorted(roots.items(), key=lambda item: (-item[1], item[0]))[:_ROOT_COUNT]
        ],
        "root_count": len(roots),
    }


def count_guards(text: str) -> dict[str, Any] | None:
    """Return the same as summarize_guards from the text, several times faster; None if it is not a
    tree.
    """
    start = text.find(_HEADING)
    if start < 0 or text[:100].lstrip().startswith("["):
        tree = parse_guards(text)
        return summarize_guards(tree) if tree is not None else None
    match = _LATENCY.search(text, max(start, len(text) - 200))
    kinds, roots = Counter[str](), Counter[str]()
    manager_count, deepest = 0, 0
    above: list[str | None] = []  # the root of each open line's source; None without a source
    for indent, name, rest in _LINE.findall(text, start, match.start() if match else len(text)):
        depth = min(len(indent) // 2, len(above), MAXIMUM_DEPTH)
        del above[depth:]
        root = above[-1] if above else None
        deepest = max(deepest, depth + 1)
        if name.endswith("Manager"):
            manager_count += 1
            if name != "KeyValueManager":
                root = _manager_root(rest)
        elif rest:
            kinds[name] += 1
            roots[_root_of(split_verbose(rest)[0]) if root is None else root] += 1
        above.append(root)
    return _make_summary(kinds, roots, manager_count, deepest, float(match[1]) if match else None)


def _manager_root(rest: str) -> str | None:
    start = rest.find("source=")
    if start < 0:
        return None
    end = rest.find(", accessed_by=", start)
    source = rest[start + len("source=") : end if end >= 0 else len(rest)]
    return _root_of(source) if source else None


def _root_of(text: str) -> str:
    match = _ROOT.search(text)
    return match[0] if match else AMBIENT


def _split_lines(body: str) -> Iterator[tuple[int, str]]:
    depth, parts = 0, [""]
    for line in body.split("\n"):
        bare = line.lstrip("| ")
        indent = len(line) - len(bare)
        if bare.startswith("+- ") and line[:indent] == "| " * (indent // 2):
            if entry := "\n".join(parts).strip():
                yield depth, entry
            depth, parts = indent // 2, [bare[3:]]
        else:
            parts.append(line)
    if entry := "\n".join(parts).strip():
        yield depth, entry


def _read_entry(
    entry: str, source: str | None, comments: dict[str, tuple[Any, ...]]
) -> dict[str, Any]:
    word = _WORD.match(entry)
    if word is None:
        # "KeyValueManager pair at index=0" is the one manager without a source.
        name, _, rest = entry.partition(" ")
        if name == "KeyValueManager":
            return {"kind": "manager", "guard_type": name, "source": source, "accessor": rest}
        return {"kind": "text", "guard_type": None, "source": source, "code": entry}
    name, rest = word[1], entry[word.end() :]
    if name.endswith("Manager"):
        return {"kind": "manager", "guard_type": name, **_read_manager(rest)}
    if not rest:
        return {"kind": "guard", "guard_type": name, "source": source}
    return {"kind": "guard", "guard_type": name, "source": source, **_read_check(rest, comments)}


def _read_manager(rest: str) -> dict[str, Any]:
    start = rest.find("source=")
    if start < 0:
        return {"code": rest or None}
    rest = rest[start + len("source=") :]
    safe = rest.rfind(", tag_safe=(")
    rest = rest[:safe] if safe >= 0 else rest
    # A key may be any text, even "<class 'a'>"; torch's own words come last.
    kind_at = rest.rfind(", type=")
    value_type = rest[kind_at + len(", type=") :] if kind_at >= 0 else None
    rest = rest[:kind_at] if kind_at >= 0 else rest
    source, mark, accessor = rest.partition(", accessed_by=")
    return {"source": source, "accessor": accessor if mark else None, "value_type": value_type}


def _read_check(text: str, comments: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    code, comment, hint = split_verbose(text)
    # One line of the user brings many guards: it is parsed once.
    if comment not in comments:
        comments[comment] = _read_comment(comment)
    user_line, file, line, function, remark = comments[comment]
    return {
        "code": code,
        "user_line": user_line,
        "file": file,
        "line": line,
        "function": function,
        "remark": remark,
        "hint": hint,
    }


def _read_comment(
    comment: str,
) -> tuple[str | None, str | None, int | None, str | None, str | None]:
    frame = find_frame(comment) if 0 < len(comment) <= _COMMENT_MAXIMUM else None
    if frame is None:
        return None, None, None, None, comment or None
    after = comment.rfind(f" in {frame.name} (")
    remark = comment[after + len(f" in {frame.name} (") :].rstrip(")") if after >= 0 else None
    return frame.code, frame.path, frame.line, frame.name, remark


def _build_nodes(read: list[tuple[int, dict[str, Any]]]) -> tuple[GuardNode, ...]:
    waiting: list[list[GuardNode]] = [[]]
    for depth, fields in reversed(read):
        while len(waiting) <= depth + 1:
            waiting.append([])
        children = waiting[depth + 1]
        waiting[depth].append(
            GuardNode(**fields, children=tuple(reversed(children)) if children else ())
        )
        del waiting[depth + 1 :]
    return tuple(reversed(waiting[0]))


def _parse_list(text: str) -> GuardTree | None:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return None
    nodes = []
    for entry in entries if isinstance(entries, list) else ():
        code = entry.get("code") if isinstance(entry, dict) else None
        if not isinstance(code, str):
            continue
        frame = user_frame(
            parse_frames(entry.get("user_stack")) or parse_frames(entry.get("stack"))
        )
        file = frame.path if frame and frame.path != "<unknown>" else None
        nodes.append(
            GuardNode(
                "guard",
                None,
                code=code,
                user_line=frame.code if frame else None,
                file=file,
                line=frame.line if frame else None,
                function=frame.name if frame else None,
            )
        )
    return GuardTree(tuple(nodes)) if nodes or entries == [] else None
