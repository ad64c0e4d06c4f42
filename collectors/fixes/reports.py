"""Find calls that only report something, such as logging; the caller can make them instead."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from compileboard.collectors.fixes.preconditions import (
    LOGS,
    NUMBERS_OF_TENSORS,
    TENSOR_METHODS,
    Function,
    is_changed_in_place,
    is_harmless,
    is_plain,
    last_line,
    list_arguments,
    list_names,
    writes_state,
)
from compileboard.collectors.fixes.statement import dotted_name

_REPORTING = LOGS | {"print", "warn"}
_FRESH = TENSOR_METHODS - NUMBERS_OF_TENSORS
_STEPS = {"step", "zero_grad"}  # what they write to has another value later


@dataclass(frozen=True)
class ReportingCall:
    call: ast.Call
    test: ast.expr | None  # of the `if` that holds nothing else, known to the caller
    lacking: tuple[str, ...]  # values that the caller does not have
    own: frozenset[str]  # what nothing else of the function reads


def find_report(function: Function, line: int, *, is_known: bool = False) -> ReportingCall | None:
    """Return the reporting call at a line of a function; `is_known` means that the call is already
    known to report.
    """
    outer = next((n for n in function.body if n.lineno <= line <= last_line(n)), None)
    if outer is None or not is_plain(function):
        return None
    body, test = [outer], None
    if isinstance(outer, ast.If) and not outer.orelse:
        body, test = outer.body, outer.test
    own = body[-1]
    call = own.value if isinstance(own, ast.Expr) else None
    if not isinstance(call, ast.Call) or line < body[0].lineno:
        return None
    inside = set(ast.walk(outer))
    rest = [part for part in ast.walk(function) if part not in inside]
    read, read_elsewhere = set(_list_read(inside)), set(_list_read(rest))
    written = {ast.unparse(part) for part in rest if _is_stored(part)}
    names = {getattr(part.func, "attr", "") for part in rest if isinstance(part, ast.Call)}
    if (
        not all((n is own and is_known) or _is_report(n, read_elsewhere) for n in body)
        or (test is not None and (list_names(test) & written or not is_harmless(test)))
        or any(name.endswith(".grad") or ("." in name and name in written) for name in read)
        or names & _STEPS
    ):
        return None
    lacking = _list_lacking(function, outer, written)
    if lacking is None:
        return None
    return ReportingCall(call, test, lacking, own=frozenset(read - read_elsewhere))


def is_check(branch: ast.If) -> bool:
    """Return whether an `if` only reports the values it tests."""
    reports = (isinstance(part, ast.Expr) and _is_report(part, set()) for part in branch.body)
    return all(reports) and not branch.orelse and is_harmless(branch.test)


def only_reports(function: Function) -> bool:
    """Return whether a function that changes nothing also returns nothing."""
    return not any(isinstance(n, ast.Return) and n.value for n in ast.walk(function))


def changes_state(function: Function) -> bool:
    """Return whether a call of a function may change its arguments or what outlives the call."""
    arguments = {argument.arg for argument in list_arguments(function)}
    return (
        not is_plain(function)
        or writes_state(function, function.body)
        or is_changed_in_place(function, arguments)
    )


def _is_stored(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def _list_read(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names, and attributes of names, that are read."""
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield dotted_name(node)


def _is_report(node: ast.stmt, read_elsewhere: set[str]) -> bool:
    """Return whether a statement only reports, or assigns a name that nothing else reads."""
    if isinstance(node, ast.Assign):
        names = {ast.unparse(target) for target in node.targets}
        is_named = all(isinstance(target, ast.Name) for target in node.targets)
        return is_named and not names & read_elsewhere and is_harmless(node.value)
    call = node.value if isinstance(node, ast.Expr) else None
    name = dotted_name(call.func) if isinstance(call, ast.Call) else ""
    return name.rpartition(".")[2] in _REPORTING


def _list_lacking(
    function: Function, outer_statement: ast.stmt, written: set[str]
) -> tuple[str, ...] | None:
    """Return the values that a reporting call needs and the caller does not have, None if one of
    them may be modified later.
    """
    parents = {
        child: part for part in ast.walk(outer_statement) for child in ast.iter_child_nodes(part)
    }
    last = last_line(outer_statement)
    later = {
        n.id
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and n.lineno > last and _is_stored(n)
    }
    returns = [n.value for n in ast.walk(function) if isinstance(n, ast.Return)]
    returned = [
        {ast.unparse(part) for part in (value.elts if isinstance(value, ast.Tuple) else [value])}
        for value in returns
        if value
    ]
    lacking = []
    for part in ast.walk(outer_statement):
        if not isinstance(part, ast.Name) or _is_stored(part):
            continue
        value = _find_derived_value(parents, part)
        if value is part and (
            part.id in later or is_changed_in_place(function, {part.id} - {"self"}, after=last)
        ):
            return None
        is_returned = len(returned) == len(returns) and all(part.id in names for names in returned)
        if part.id in written and not (value is part and returned and is_returned):
            lacking.append(ast.unparse(value))
    return tuple(dict.fromkeys(lacking))


def _find_derived_value(parents: dict[ast.AST, ast.AST], name: ast.AST) -> ast.AST:
    """Return the largest expression around a name that only calls methods of tensors."""
    value = name
    while (
        isinstance(method := parents.get(value), ast.Attribute)
        and method.attr in _FRESH
        and isinstance(call := parents.get(method), ast.Call)
        and call.func is method
    ):
        value = call
    return value
