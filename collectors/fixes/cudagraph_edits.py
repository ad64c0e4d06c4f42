"""Edit a program to fix its CUDA graphs: at the call of the compiled function, or in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from compileboard.collectors.fixes.fix import LineEdit

_BINDS_CLOSELY = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


@dataclass(frozen=True)
class SourceFile:
    """A parsed source file."""

    file: str
    text: str
    tree: ast.Module = field(compare=False)

    @classmethod
    def parse(cls, file: str, text: str) -> SourceFile | None:
        try:
            return cls(file, text, ast.parse(text))
        except (SyntaxError, ValueError):
            return None

    @property
    def has_torch(self) -> bool:
        names = (
            name for node in self.tree.body if isinstance(node, ast.Import) for name in node.names
        )
        return any(name.name == "torch" and name.asname is None for name in names)

    def find_call(self, line: int, function: str | None) -> ast.Call | None:
        """Return the call of a compiled function on a line, None unless there is exactly one."""
        names = {*_list_compiled(self.tree), (function or "").rpartition(".")[2]}
        calls = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call)
            and node.lineno <= line <= (node.end_lineno or node.lineno)
            and ast.unparse(node.func) in names
        ]
        return calls[0] if len(calls) == 1 else None

    def find_statement(self, inner: ast.expr) -> ast.stmt:
        around = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.stmt) and any(part is inner for part in ast.walk(node))
        ]
        return max(around, key=lambda node: (node.lineno, node.col_offset))

    def edit(
        self, insertions: list[tuple[int, int, str]], before: Mapping[int, str]
    ) -> tuple[LineEdit, ...]:
        """Return edits that insert text at places (line, byte), and lines before others."""
        lines = self.text.splitlines()
        edits = []
        for number in sorted({line for line, _, _ in insertions} | {*before}):
            changed = lines[number - 1].encode()
            for line, column, text in sorted(insertions, reverse=True):
                if line == number:
                    changed = changed[:column] + text.encode() + changed[column:]
            replaced = [changed.decode()]
            if number in before:
                indent = lines[number - 1][: -len(lines[number - 1].lstrip())]
                replaced.insert(0, f"{indent}{before[number]}")
            edits.append(LineEdit(self.file, number, 1, tuple(replaced)))
        return tuple(edits)

    def begins_line(self, statement: ast.stmt) -> bool:
        line = self.text.splitlines()[statement.lineno - 1].encode()
        return not line[: statement.col_offset].strip()


def _list_compiled(tree: ast.Module) -> Iterator[str]:
    """Yield the names to which results of `torch.compile` are assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = node.value.func
            made = made.func if isinstance(made, ast.Call) else made
            if ast.unparse(made) == "torch.compile":
                yield from (ast.unparse(target) for target in node.targets)


def clone_result(
    source: SourceFile, call: ast.Call, *, marks_step: bool = False
) -> tuple[LineEdit, ...]:
    """Clone the result of a call; with `marks_step`, begin a step before its statement."""
    statement = source.find_statement(call)
    if marks_step and not (source.has_torch and source.begins_line(statement)):
        return ()
    mark = {statement.lineno: "torch.compiler.cudagraph_mark_step_begin()"} if marks_step else {}
    end = call.end_lineno or call.lineno, call.end_col_offset or 0, ".clone()"
    return source.edit([end], mark)


def clone_argument(source: SourceFile, call: ast.Call) -> tuple[LineEdit, ...]:
    """Clone the argument. There is no edit for several arguments, because any of them may be at
    another address.
    """
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    if len(values) != 1 or isinstance(values[0], ast.Starred):
        return ()
    (value,) = values
    end = value.end_lineno or value.lineno, value.end_col_offset or 0
    if isinstance(value, _BINDS_CLOSELY):
        return source.edit([(*end, ".clone()")], {})
    return source.edit([(value.lineno, value.col_offset, "("), (*end, ").clone()")], {})


def mark_static(
    source: SourceFile, call: ast.Call, changed: ast.expr, function: ast.FunctionDef | None
) -> tuple[LineEdit, ...]:
    """Mark the tensor that a compiled function changes, before the call that passes it."""
    passed = _find_passed(call, changed, function)
    statement = source.find_statement(call)
    if not isinstance(passed, (ast.Name, ast.Attribute)) or not source.has_torch:
        return ()
    if not source.begins_line(statement):
        return ()
    mark = f"torch._dynamo.mark_static_address({ast.unparse(passed)})"
    return source.edit([], {statement.lineno: mark})


def _find_passed(
    call: ast.Call, changed: ast.expr, function: ast.FunctionDef | None
) -> ast.expr | None:
    if not isinstance(changed, ast.Name) or function is None:
        return None
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if changed.id not in names:
        return None
    by_name = {keyword.arg: keyword.value for keyword in call.keywords}
    place = names.index(changed.id)
    return call.args[place] if place < len(call.args) else by_name.get(changed.id)


def find_change(source: SourceFile, line: int) -> ast.expr | None:
    """Return the object that a line changes in place: `x` for `x += 1`, `x[0] = 1`, `x.add_(1)`."""
    statement = _find_line(source, line)
    if isinstance(statement, ast.AugAssign):
        changed: ast.expr = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        changed = statement.targets[0]
        if not isinstance(changed, ast.Subscript):
            return None
    elif (call := _read_method(statement)) is not None:
        changed = call
    else:
        return None
    while isinstance(changed, ast.Subscript):
        changed = changed.value
    return changed


def return_change(source: SourceFile, line: int) -> tuple[LineEdit, ...]:
    """Create a new tensor instead of changing one: `x = x + 1` for `x += 1`."""
    statement = _find_line(source, line)
    made: ast.expr
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        name = statement.target.id
        made = ast.BinOp(ast.Name(name), statement.op, statement.value)
    elif isinstance(statement, ast.Expr) and isinstance(_read_method(statement), ast.Name):
        method = statement.value
        assert isinstance(method, ast.Call) and isinstance(method.func, ast.Attribute)
        name = ast.unparse(method.func.value)
        called = ast.Attribute(method.func.value, method.func.attr.rstrip("_"))
        made = ast.Call(called, method.args, method.keywords)
    else:
        return ()
    if statement.end_lineno != statement.lineno or not source.begins_line(statement):
        return ()
    text = source.text.splitlines()[line - 1]
    indent = text[: -len(text.lstrip())]
    return (LineEdit(source.file, line, 1, (f"{indent}{name} = {ast.unparse(made)}",)),)


def _read_method(statement: ast.stmt | None) -> ast.expr | None:
    """Return the tensor of a statement that calls an in-place method such as `add_`."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        name = call.func.attr
        if name.endswith("_") and not name.startswith("_"):
            return call.func.value
    return None


def _find_line(source: SourceFile, line: int) -> ast.stmt | None:
    found = [
        node for node in ast.walk(source.tree) if isinstance(node, ast.stmt) and node.lineno == line
    ]
    return found[0] if len(found) == 1 else None


def find_function(source: SourceFile, line: int) -> ast.FunctionDef | None:
    around = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)
