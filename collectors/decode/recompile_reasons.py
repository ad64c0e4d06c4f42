"""Parse recompile reasons into guard failures.

Source: torch/_dynamo/guards.py (get_guard_fail_reason_helper, get_verbose_code_part) of 2.4 to
2.13.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from compileboard.collectors.contract.events import GuardFailure
from compileboard.collectors.contract.fingerprints import fingerprint
from compileboard.collectors.decode.guards import (
    GuardClassification,
    classify_expression,
    classify_message,
    strip_local_scope,
)
from compileboard.collectors.decode.records import Frame, PathNamer, parse_traceback, user_frame

_ENTRY = re.compile(r"^(?P<entry>!?\d+(?:/\d+)*): ")
_USER_STACK = "\nUser stack trace:\n"
_HINT = "(HINT: "
_STRING_OR_MARK = re.compile(
    r"'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\"|['\"]|  #(?= |$)", re.DOTALL
)
_COMMENT_PLACE = re.compile(
    (
        r"^(?:(?P<code>.*?)# )?\(?(?P<path>[^#\s][^#]*?):(?P<line>\d{1,9}) in "
        r"(?P<name>[^\s()]+)\)?\s*$"
    ),
    re.DOTALL,
)
# Dynamo's position after the user's line: "(_dynamo/variables/tensor.py:2606 in evaluate_expr)", or
# its reason for the guard.
_AFTERWARDS = re.compile(
    r"\s\((?:user code shown is first use|_[a-z]+/|unknown source)[^\n]*\)\s*$"
)
_INTERNAL = re.compile(
    r"^(?:_dynamo|_functorch|_subclasses|_inductor|_higher_order_ops|utils|fx|nn|torch)/"
)
_DEVICE_KEYS = {"meta": "Meta", "lazy": "Lazy"}  # other devices' keys are in capitals
_AT_INDEX = re.compile(r" at index (\d{1,4})\b")
# Dynamo's names for objects contain an id or a counter of this process.
_MADE_UP = re.compile(r"(?<=_)\d+(?=_c\d+)|0x[0-9a-fA-F]+|\d{6,}|(?<=_c)\d+\b")


def parse_reasons(payload: Any, namer: PathNamer | None = None) -> list[GuardFailure]:
    """Parse a recompile_reasons payload, newest cache entry first. It is a text, a list of texts,
    or such a list as JSON.
    """
    return [parse_reason(text, namer) for text in reason_texts(payload)]


# How a tensor's guard prints its expectation, and the dispatch keys that represent a device.
_CHECKED_TENSOR = re.compile(
    r"DispatchKeySet\((?P<keys>[^)]*)\), (?P<dtype>torch\.\w+), device=\w+, "
    r"requires_grad=(?P<requires_grad>True|False), size=\[(?P<size>[^\]]*)\], "
    r"stride=\[(?P<stride>[^\]]*)\]"
)


def parse_failed(entries: Any, guards: list[GuardFailure]) -> tuple[list[GuardFailure], list[str]]:
    """Return every failed guard of every cache entry, as the hook read them, and the entries that
    it could not read completely.

    torch's own reason of an entry is included, because it names the global setting that changed. A
    guard's comment has only the end of its path, so it does not identify a file.
    """
    own = {guard.cache_entry: guard for guard in guards}
    failed: dict[tuple[str | None, str, str | None, str | None], GuardFailure] = {}
    unread = []
    for entry in entries if isinstance(entries, list) else ():
        match entry:
            case [str() | None as compile_id, bool(is_whole), list(found)]:
                first = own.get(compile_id)
            case _:
                continue
        if not is_whole:
            unread.append(str(compile_id))
        read = [failure for guard in found for failure in _parse_found(guard)]
        for failure in [first, *read] if first else read:
            dim = _AT_INDEX.search(failure.reason)
            key = (compile_id, failure.category, failure.source, dim[1] if dim else None)
            known = failed.get(key, replace(failure, cache_entry=compile_id))
            expected, actual = failure.expected or known.expected, known.actual or failure.actual
            failed[key] = replace(known, expected=expected, actual=actual)
    return list(failed.values()), unread


def _parse_found(found: Any) -> list[GuardFailure]:
    match found:
        case ["TENSOR_MATCH", str(source), str(text), seen]:
            texts = _list_mismatches(strip_local_scope(source), text, seen)
            return [parse_reason(text) for text in texts]
        case [str(kind), str(source), str(text), seen] if kind != "GLOBAL_STATE":
            failure = parse_reason(text)
            source = failure.source or strip_local_scope(source)
            reason = strip_local_scope(failure.reason)
            return [
                replace(
                    failure,
                    reason=reason,
                    source=source or None,
                    expected=_get_text(seen, "held") or failure.expected,
                    actual=failure.actual or _seen_value(failure, seen),
                )
            ]
    return []


def _seen_value(failure: GuardFailure, seen: Any) -> str | None:
    if isinstance(seen, dict) and failure.category == "container_length":
        return str(seen.get("length"))
    if isinstance(seen, dict):
        return _get_text(seen, "seen") or str(seen.get("type"))
    return seen if isinstance(seen, str) else None


def _get_text(seen: Any, name: str) -> str | None:
    part = seen.get(name) if isinstance(seen, dict) else None
    return part if isinstance(part, str) else None


def _list_mismatches(source: str, text: str, seen: Any) -> list[str]:
    """Describe, in torch's wording, all sizes in which a tensor differs from its guard, and a
    stride that they do not explain. torch itself reports only the first difference.
    """
    expected = _CHECKED_TENSOR.search(text)
    if not isinstance(seen, dict) or "size" not in seen or expected is None:
        actual = seen.get("type") if isinstance(seen, dict) else seen
        return [f"expected type of '{source}' to be a tensor type, but found {actual}"]
    device = str(seen.get("device")).partition(":")[0]
    device = _DEVICE_KEYS.get(device, device.upper())
    if device not in expected["keys"]:
        difference = f"expected {expected['keys']}, actual {device}"
        return [f"tensor '{source}' dispatch key set mismatch. {difference}"]
    if seen.get("dtype") != expected["dtype"]:
        difference = f"expected {expected['dtype']}, actual {seen.get('dtype')}"
        return [f"tensor '{source}' dtype mismatch. {difference}"]
    if str(seen.get("requires_grad")) != expected["requires_grad"]:
        flag = int(expected["requires_grad"] == "True")
        return [f"tensor '{source}' requires_grad mismatch. expected requires_grad={flag}"]
    for name in ("size", "stride"):
        wanted, actual = _split(expected[name]), seen.get(name)
        if not isinstance(actual, list):
            continue
        if len(wanted) != len(actual):
            return [
                f"tensor '{source}' rank mismatch. expected {len(wanted)}, actual {len(actual)}"
            ]
        different = [
            f"tensor '{source}' {name} mismatch at index {dim}. expected {want}, actual {got}"
            for dim, (want, got) in enumerate(zip(wanted, actual, strict=True))
            if want not in ("None", str(got))
        ]
        if different:
            dim = _find_other_layout(expected, seen) if name == "size" else None
            if dim is not None:
                want, got = _split(expected["stride"])[dim], seen["stride"][dim]
                text = f"stride mismatch at index {dim}. expected {want}, actual {got}"
                different.append(f"tensor '{source}' {text}")
            return different
    return [f"tensor '{source}' dispatch key set mismatch. expected {expected['keys']}"]


def _split(numbers: str) -> list[str]:
    return numbers.replace(" ", "").split(",")


def _find_other_layout(expected: re.Match[str], seen: dict[str, Any]) -> int | None:
    """Return a dimension whose stride differs even for equal sizes, as in a slice or a transposed
    tensor. None if a size is dynamic.
    """
    wanted, actual = (
        _list_gaps(_split(str(sizes).strip("[]")), _split(str(strides).strip("[]")))
        for sizes, strides in (
            (expected["size"], expected["stride"]),
            (seen.get("size"), seen.get("stride")),
        )
    )
    if [*map(bool, wanted)] != [*map(bool, actual)]:
        return None  # a dimension of 1 has any stride
    return next((dim for dim, gap in enumerate(wanted) if gap != actual[dim]), None)


def _list_gaps(sizes: Sequence[str], strides: Sequence[str]) -> list[tuple[int, float] | None]:
    """Return, for each dimension, its position counted from the innermost, and its stride divided
    by the size of the dimensions inside it (1.0 if dense).
    """
    if len(sizes) != len(strides) or not all(map(str.isdecimal, (*sizes, *strides))):
        return []
    gaps: list[tuple[int, float] | None] = [None] * len(sizes)
    within = 1
    ordered = sorted((int(stride), dim) for dim, stride in enumerate(strides) if int(stride))
    several = [(stride, dim) for stride, dim in ordered if int(sizes[dim]) > 1]
    for place, (stride, dim) in enumerate(several):
        gaps[dim] = place, stride / within
        within = stride * int(sizes[dim])
    return gaps


def parse_reason(text: str, namer: PathNamer | None = None) -> GuardFailure:
    entry = _ENTRY.match(text)
    body = text[entry.end() :] if entry else text
    body, _, stack = body.partition(_USER_STACK)
    code, comment, hint = split_verbose(body)
    guard = classify(code, f"{hint or ''} {comment}")
    frame = find_frame(comment, stack)
    named = None
    if frame is not None:
        named = (namer or PathNamer()).name(frame.path)
    return GuardFailure(
        cache_entry=entry["entry"] if entry else None,
        reason=code,
        category=guard.category,
        source=guard.source,
        expected=guard.expected,
        actual=guard.actual,
        file=named,
        line=frame.line if frame else None,
        source_line=frame.code if frame else None,
        fingerprint=_guard_fingerprint(guard, code),
    )


def classify(code: str, hint: str = "") -> GuardClassification:
    stripped = strip_local_scope(code.strip())
    if not stripped:  # no guard failed: a newer torch says so
        return GuardClassification("backend_mismatch")
    guard = classify_message(stripped) or classify_expression(stripped)
    if guard is None:
        return GuardClassification("unknown")
    if "allow_unspec_int_on_nn_module" in hint and guard.category in (
        "int_value",
        "module_attribute",
    ):
        return replace(guard, category="module_attribute")
    return guard


def reason_texts(payload: Any) -> list[str]:
    if isinstance(payload, str):
        if payload.lstrip().startswith("["):
            try:
                read = json.loads(payload)
            except (ValueError, RecursionError):
                return [payload]
            return reason_texts(read) if isinstance(read, list) else [payload]
        return [payload] if payload.strip() else []
    if isinstance(payload, list | tuple):
        return [entry for entry in payload if isinstance(entry, str) and entry.strip()]
    return []


def split_verbose(text: str) -> tuple[str, str, str | None]:
    """Split "k == 1      # x = x * k  # f.py:83 in forward (HINT: …)" into code, comment and
    hint.
    """
    hint, start = None, text.find(_HINT)
    if start >= 0 and (ending := text.rstrip()).endswith(")"):
        text, hint = text[:start], ending[start + len(_HINT) : -1]
    code, comment = _split_comment(text)
    return code, comment, hint


def _split_comment(body: str) -> tuple[str, str]:
    for token in _STRING_OR_MARK.finditer(body):
        if token[0] == "  #":
            return body[: token.start()].strip(), body[token.end() :].strip()
        if len(token[0]) == 1:
            # An apostrophe in torch's own words does not open a string.
            code, mark, comment = body.partition("  # ")
            return (code.strip(), comment.strip()) if mark else (body.strip(), "")
    return body.strip(), ""


def find_frame(comment: str, stack: str = "") -> Frame | None:
    frames = parse_traceback(stack) if stack else []
    frame = user_frame(frames)
    if frame is not None:
        return frame
    if comment.endswith(")"):
        comment = _AFTERWARDS.sub("", comment)
    match = _COMMENT_PLACE.match(comment) if comment else None
    if match is None:
        return None
    path = match["path"].strip().lstrip("(")
    if not match["code"] and (_INTERNAL.match(path) or path.startswith("unknown")):
        return None
    # torch cuts the prefix that the path shares with its own, letter by letter; the rest is not a
    # usable name.
    if not re.match(r"^(?:/|[A-Za-z]:|<)", path) and "ipykernel_" not in path:
        path = path.rsplit("/", 1)[-1]
    return Frame(path, int(match["line"]), match["name"], (match["code"] or "").strip() or None)


def _guard_fingerprint(guard: GuardClassification, code: str) -> str:
    source = (
        guard.source
        if guard.source is not None or guard.symbol
        else (code if guard.category == "unknown" else "")
    )
    return fingerprint("guard", guard.category, _MADE_UP.sub("N", source or ""), guard.symbol)
