"""Preconditions of fixes, checked on the syntax tree of the recorded function.

If the function was not completely recorded, its preconditions are unknown and the fix is not
suggested.
"""

from __future__ import annotations

import ast
import builtins
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal

from compileboard.collectors.fixes.statement import dotted_name, parse_statement

Function = ast.FunctionDef | ast.AsyncFunctionDef

NUMBERS_OF_TENSORS = {"item", "size", "dim", "numel", "tolist", "data_ptr", "element_size"}
_SAME_SHAPE = {
    "abs",
    "add",
    "ceil",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clone",
    "contiguous",
    "cos",
    "cumsum",
    "detach",
    "div",
    "exp",
    "exp2",
    "expm1",
    "flip",
    "floor",
    "gelu",
    "leaky_relu",
    "log",
    "log1p",
    "log_softmax",
    "mul",
    "neg",
    "pow",
    "reciprocal",
    "relu",
    "relu6",
    "roll",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "softmax",
    "sqrt",
    "square",
    "sub",
    "tan",
    "tanh",
    "tril",
    "triu",
    "where",
    "zeros_like",
    "ones_like",
    "masked_fill",
    "nan_to_num",
}
TENSOR_METHODS = _SAME_SHAPE | {
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "backward",
    "bmm",
    "chunk",
    "cpu",
    "cuda",
    "expand",
    "flatten",
    "gather",
    "index_select",
    "item",
    "matmul",
    "max",
    "mean",
    "min",
    "mm",
    "nonzero",
    "norm",
    "numel",
    "numpy",
    "permute",
    "prod",
    "repeat",
    "requires_grad_",
    "reshape",
    "size",
    "squeeze",
    "std",
    "sum",
    "to",
    "tolist",
    "topk",
    "transpose",
    "unbind",
    "unique",
    "unsqueeze",
    "var",
    "view",
}
# Infinite or NaN for some input, or with such a gradient.
_UNBOUNDED = {"div", "exp", "exp2", "expm1", "log", "log1p", "norm", "pow", "reciprocal"}
_UNBOUNDED |= {"rsqrt", "sqrt", "std", "tan"}
_TESTS = {"abs", "all", "any", "isfinite", "isinf", "isnan"}
_NOT_HARMLESS = (ast.Subscript, ast.NamedExpr, ast.Await, ast.Yield, ast.BoolOp, ast.IfExp)
_ARITHMETIC = (ast.Attribute, ast.BinOp, ast.Call, ast.Constant, ast.Name, ast.UnaryOp)
_ONE_NUMBER = {"amax", "amin", "item", "max", "mean", "min", "norm", "prod", "std", "sum"}
_ARRANGING = {"dict", "list", "set", "sorted", "str", "tuple"}
_MUTATIONS = {
    "add",
    "append",
    "clear",
    "discard",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "setdefault",
    "update",
    "write",
}

# Methods that keep a number of an object of Python's: a container, a meter or a progress bar.
STORING = _MUTATIONS | {"log_metric", "log_metrics", "push", "record", "set_postfix"}


def find_function(
    lines: Sequence[str], first_line: int | None, line: int | None
) -> Function | None:
    """Return the innermost function around a line, with the line numbers of its file."""
    if first_line is None or line is None:
        return None
    around = [
        node
        for node in list_functions(lines, first_line)
        if min(part.lineno for part in (node, *node.decorator_list)) <= line
        and line <= (node.end_lineno or node.lineno)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


def list_functions(lines: Sequence[str], first_line: int = 1) -> list[Function]:
    try:
        tree = ast.parse(textwrap.dedent("\n".join(lines)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    ast.increment_lineno(tree, first_line - 1)
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def list_names(*nodes: ast.AST) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def list_arguments(function: Function) -> list[ast.arg]:
    given = function.args
    more = [part for part in (given.vararg, given.kwarg) if part]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *more]


def list_locals(function: Function) -> set[str]:
    names = (node for node in ast.walk(function) if isinstance(node, ast.Name))
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return stored | {argument.arg for argument in list_arguments(function)}


def is_made_before(function: Function, node: ast.AST, line: int) -> bool:
    """Return whether an expression uses values that the function computed before a line. Lists and
    tuples of its arguments do not count.
    """
    for name in list_names(node):
        stores = [
            part
            for part in ast.walk(function)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store) and part.id == name
        ]
        values = _list_values(function, name)
        is_arranged = len(values) == len(stores) and all(
            (_is_element(function, value) or _is_arranged(value))
            and not is_made_before(function, value, value.lineno)
            for value in values
        )
        if any(part.lineno < line for part in stores) and not is_arranged:
            return True
    return False


def _is_arranged(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and dotted_name(value.func) in _ARRANGING


def _is_element(function: Function, value: ast.expr) -> bool:
    """Return whether a value is an element of a container that was not modified before."""
    return (
        isinstance(value, ast.Subscript)
        and isinstance(value.value, ast.Name)
        and isinstance(value.slice, ast.Constant)
        and not is_changed_in_place(function, {value.value.id}, before=value.lineno)
    )


def is_tensor(function: Function, node: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
    """Return whether an expression is certainly a tensor, judged by the function alone."""
    if isinstance(node, ast.Call):
        name = dotted_name(node.func)
        if name.startswith(("torch.", "F.")):
            last = name.rsplit(".", 1)[-1]
            return last[:1].islower() and not name.startswith(("torch.nn.Module", "torch.cuda."))
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        return method in TENSOR_METHODS - NUMBERS_OF_TENSORS and not name.startswith(
            ("np.", "numpy.")
        )
    if isinstance(node, ast.BinOp):
        return is_tensor(function, node.left, seen) or is_tensor(function, node.right, seen)
    if isinstance(node, ast.UnaryOp | ast.Subscript):
        inner = node.operand if isinstance(node, ast.UnaryOp) else node.value
        return is_tensor(function, inner, seen)
    if not isinstance(node, ast.Name) or node.id in seen:
        return False
    values = _list_values(function, node.id)
    if any(isinstance(value, ast.Dict | ast.List | ast.Tuple) for value in values):
        return False
    if any(is_tensor(function, value, seen | {node.id}) for value in values):
        return True
    return not values and any(_shows_tensor(part, node.id) for part in ast.walk(function))


def list_values(function: Function, node: ast.AST) -> list[ast.expr]:
    """Return the values assigned to a name, or the expression itself."""
    if not isinstance(node, ast.Name):
        return [node] if isinstance(node, ast.expr) else []
    return _list_values(function, node.id)


def _list_values(function: Function, name: str) -> list[ast.expr]:
    return [
        part.value
        for part in ast.walk(function)
        if isinstance(part, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == name for target in part.targets)
    ]


def _shows_tensor(node: ast.AST, name: str) -> bool:
    def is_name(part: ast.AST) -> bool:
        return isinstance(part, ast.Name) and part.id == name

    if isinstance(node, ast.arg):
        annotation = dotted_name(node.annotation) if node.annotation else ""
        return node.arg == name and annotation.rsplit(".", 1)[-1] == "Tensor"
    if isinstance(node, ast.Attribute):
        return is_name(node.value) and node.attr in TENSOR_METHODS | {"shape", "device", "T"}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return is_name(node.left) or is_name(node.right)
    if isinstance(node, ast.Call) and dotted_name(node.func).startswith(("torch.", "F.")):
        is_made = dotted_name(node.func).rsplit(".", 1)[-1] in _SIZE_CALLS | {"tensor", "Tensor"}
        return not is_made and any(is_name(part) for part in node.args[:1])
    return False


def is_dict(function: Function, node: ast.AST) -> bool:
    """Return whether a name is certainly a dictionary of named values."""
    if not isinstance(node, ast.Name):
        return False
    if any(isinstance(value, ast.Dict | ast.DictComp) for value in _list_values(function, node.id)):
        return True
    for part in ast.walk(function):
        value = part.value if isinstance(part, ast.Attribute | ast.Subscript) else None
        if not isinstance(value, ast.Name) or value.id != node.id:
            continue
        if isinstance(part, ast.Attribute) and part.attr in ("items", "keys", "values"):
            return True
        if (
            isinstance(part, ast.Subscript)
            and isinstance(part.slice, ast.Constant)
            and isinstance(part.slice.value, str)
        ):
            return True
    return False


def is_changed_in_place(
    function: Function, names: set[str], after: int = 0, before: float = math.inf
) -> bool:
    """Return whether a tensor with one of the names may be modified between two lines."""
    for node in ast.walk(function):
        if not after < getattr(node, "lineno", 0) < before:
            continue
        target: ast.AST | None = None
        if isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            target = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_written = node.func.attr.endswith("_") and not node.func.attr.endswith("__")
            target = node.func.value if is_written else None
        if target is not None and list_names(target) & names:
            return True
    return False


def writes_state(function: Function, statements: Iterable[ast.AST]) -> bool:
    """Return whether statements change state that outlives the call, which guards may check."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    shared = {
        name
        for node in ast.walk(function)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    }
    return any(
        (isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in shared)
        or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _MUTATIONS
        )
        for node in nodes
    )


def list_block(function: Function, line: int) -> list[ast.stmt]:
    """Return the body of the `with`, `if` or loop that starts at a line."""
    for node in ast.walk(function):
        if isinstance(node, ast.With | ast.If | ast.For | ast.While) and node.lineno == line:
            return [*node.body, *getattr(node, "orelse", ())]
    return []


def is_plain(function: Function) -> bool:
    """Return whether a function has no decorator but `torch.compile`, and is neither a generator
    nor a coroutine.
    """
    return all("compile" in ast.unparse(part) for part in function.decorator_list) and not any(
        isinstance(part, ast.Yield | ast.YieldFrom | ast.Await) for part in ast.walk(function)
    )


def list_draws(node: ast.AST, drawn: ast.Call) -> list[ast.Call]:
    """List the calls that draw a random number from a generator, in the order in which they run."""
    generator = _name_generator(drawn)
    calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
    own = (call for call in calls if _name_generator(call) == generator)
    return sorted(own, key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0))


def _name_generator(call: ast.Call) -> str:
    name = dotted_name(call.func)
    return name.rpartition(".")[0].replace("numpy", "np") or name


def is_always_run(function: Function, evaluated: ast.expr) -> bool:
    """Return whether each call of a function that returns evaluates an expression exactly once."""
    parents = {child: part for part in ast.walk(function) for child in ast.iter_child_nodes(part)}
    returns = (part for part in ast.walk(function) if isinstance(part, ast.Return))
    if any(part.lineno < evaluated.lineno for part in returns):
        return False
    node: ast.AST = evaluated
    while node is not function and (parent := parents.get(node)) is not None:
        match parent:
            case (
                ast.If(test=first)
                | ast.IfExp(test=first)
                | ast.BoolOp(values=[first, *_])
                | ast.For(iter=first)
            ):
                if node is not first:
                    return False
            case ast.While() | ast.Try() | ast.Match() | ast.Lambda() | ast.comprehension():
                return False
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return False
            case ast.FunctionDef() | ast.AsyncFunctionDef() if parent is not function:
                return False
        node = parent
    return True


def find_outer_call(function: Function, line: int) -> ast.Call | None:
    """Return a call before or after everything else in the function, whose result is not used.
    Several calls of one function count as one.
    """
    body = [part for part in function.body if not _is_text(part)]
    at = next((n for n, part in enumerate(body) if part.lineno <= line <= last_line(part)), None)
    call = getattr(body[at], "value", None) if at is not None else None
    if at is None or not is_plain(function) or not isinstance(body[at], ast.Expr):
        return None
    name = dotted_name(call.func) if isinstance(call, ast.Call) else ""
    if not isinstance(call, ast.Call) or not name or _changes_values(name):
        return None
    before = [part for part in body[:at] if not _is_call_of(part, name)]
    after = [part for part in body[at + 1 :] if not _is_call_of(part, name)]
    ends = all(isinstance(part, ast.Return) and _is_name(part.value) for part in after)
    returns = any(isinstance(node, ast.Return) for part in before for node in ast.walk(part))
    return call if (after and not before) or (before and ends and not returns) else None


def _changes_values(name: str) -> bool:
    """Return whether a call modifies a tensor, registers a hook or runs a backward pass, so that it
    cannot be moved.
    """
    last = name.rsplit(".", 1)[-1]
    return last.startswith(("register_", "backward")) or last.endswith("_")


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _is_call_of(node: ast.stmt, name: str) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and dotted_name(call.func) == name


def _is_name(node: ast.expr | None) -> bool:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return all(part is None or isinstance(part, ast.Name | ast.Constant) for part in parts)


def find_argument(function: Function, call: ast.Call, name: str) -> ast.expr | None:
    """Return the expression that a call passes for an argument, None if unpacking may hide it or
    its default is used.
    """
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] == ["self"]:
        if name == "self":
            return call.func.value if isinstance(call.func, ast.Attribute) else call.func
        names = names[1:]
    if any(isinstance(part, ast.Starred) for part in call.args):
        return None
    for keyword in call.keywords:
        if keyword.arg in (name, None):
            return keyword.value if keyword.arg else None
    place = names.index(name) if name in names else len(call.args)
    return call.args[place] if place < len(call.args) else None


def list_loops(function: Function, line: int) -> list[ast.For | ast.While]:
    """Return the loops around a line, the outermost first."""
    return [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.For | ast.While) and node.lineno <= line <= (node.end_lineno or 0)
    ]


def list_conditions(function: Function, line: int) -> tuple[list[ast.expr], bool]:
    """Return the tests of all `if`s around the statement at a line, the outermost first, and
    whether it is in the body of a loop.
    """
    tests: list[ast.expr] = []
    is_looped, body = False, function.body
    while body:
        outer = next((part for part in body if part.lineno <= line <= last_line(part)), None)
        body = []
        for name in ("body", "orelse", "handlers", "finalbody"):
            inner = getattr(outer, name, [])
            if not isinstance(inner, list) or not any(
                part.lineno <= line <= last_line(part) for part in inner
            ):
                continue
            body = inner
            is_looped |= isinstance(outer, ast.For | ast.While) and name == "body"
            if isinstance(outer, ast.If):
                is_met = name == "body"
                tests.append(outer.test if is_met else ast.UnaryOp(ast.Not(), outer.test))
    return tests, is_looped


def is_known_before(function: Function, test: ast.expr) -> bool:
    """Return whether a test has the same value before and after a call of a function."""
    written = {
        ast.unparse(part)
        for part in ast.walk(function)
        if isinstance(getattr(part, "ctx", None), ast.Store)
    }
    read = {ast.unparse(part) for part in ast.walk(test) if isinstance(part, ast.expr)}
    names = list_names(test) - {"self"}
    return not read & written and is_harmless(test) and not is_changed_in_place(function, names)


def reads_counter(loop: ast.For | ast.While, ignored: ast.stmt | None) -> bool:
    """Return whether the body reads the counter of `range` or `enumerate` outside the ignored
    statement.
    """
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return False
    calls = (part for part in ast.walk(loop.iter) if isinstance(part, ast.Call))
    names, counter = {dotted_name(call.func) for call in calls}, loop.target
    if "enumerate" in names and isinstance(counter, ast.Tuple):
        counter = counter.elts[0]
    elif "range" not in names:
        return False
    counters = list_names(counter)
    return any(
        isinstance(part, ast.Name) and part.id in counters
        for statement in loop.body
        if statement is not ignored
        for part in ast.walk(statement)
    )


def list_written(function: Function) -> list[str]:
    """List the containers of `self` whose entries a function writes."""
    return [
        ast.unparse(part.value)
        for part in ast.walk(function)
        if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store)
        if dotted_name(part.value).startswith("self.")
    ]


def find_empty_check(function: Function, line: int) -> ast.If | None:
    """Return the `if` that skips a loop's iteration when the index made at a line is empty.

    None unless the rest of the iteration only writes rows of the index, so that an empty index
    changes nothing.
    """
    loops = list_loops(function, line)
    match [part for part in (loops[-1].body if loops else ()) if part.lineno >= line]:
        case [
            ast.Assign(targets=[ast.Name(id=name)]),
            ast.If(body=[ast.Continue()], orelse=[]) as check,
            *rest,
        ]:
            asked = (f"{name}.numel() == 0", f"len({name}) == 0", f"{name}.shape[0] == 0")
            is_empty = ast.unparse(check.test) in asked
            called = {*list_names(loops[-1].target)} if isinstance(loops[-1], ast.For) else set()
            writes = all(_writes_rows(part, name, called) for part in rest)
            return check if is_empty and rest and writes else None
    return None


def _writes_rows(node: ast.stmt, index: str, modules: set[str]) -> bool:
    """Return whether a statement computes row by row and only writes rows of an index."""
    match node:
        case ast.Assign(targets=[ast.Subscript(slice=ast.Name(id=name))], value=value):
            is_written = name == index
        case ast.AugAssign(target=ast.Subscript(slice=ast.Name(id=name)), value=value):
            is_written = name == index
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="index_add_"), args=arguments)):
            is_written = [ast.unparse(part) for part in arguments[:2]] == ["0", index]
            value = ast.Tuple(arguments[2:], ast.Load())
        case _:
            return False
    calls = [part for part in ast.walk(value) if isinstance(part, ast.Call)]
    return is_written and all(
        getattr(call.func, "attr", "") in _SAME_SHAPE
        or dotted_name(call.func) in modules
        or ast.unparse(call.func).startswith("self.")
        for call in calls
    )


def find_module_call(loop: ast.For | ast.While, line: int) -> ast.Call | None:
    """Return a call of a submodule in the loop's body that does not use the counter and is on
    another line than the break.
    """
    counters = list_names(loop.target) if isinstance(loop, ast.For) else set()
    return next(
        (
            part
            for statement in loop.body
            for part in ast.walk(statement)
            if isinstance(part, ast.Call)
            and dotted_name(part.func).startswith("self.")
            and part.lineno != line
            and not list_names(part) & counters
        ),
        None,
    )


Use = Literal[
    "tensor",
    "argument",
    "fixed",
    "returned",
    "stored",
    "logged",
    "branch",
    "size",
    "loop",
    "unknown",
]

LOGS = {"debug", "info", "warning", "error", "critical", "log", "add_scalar", "write", "format"}
_SIZE_CALLS = {"arange", "empty", "full", "new_empty", "new_ones", "new_zeros", "ones", "rand"} | {
    "randn",
    "zeros",
}
# Run with 2 and 3 for a number that is dynamic: each value was a compile of its own.
_FIXED_CALLS = {
    *("argmax", "argmin", "avg_pool1d", "avg_pool2d", "cat", "chunk", "cumprod", "cumsum"),
    *("diagonal", "flatten", "flip", "index_select", "log_softmax", "max_pool1d", "max_pool2d"),
    *("mean", "movedim", "one_hot", "permute", "pixel_shuffle", "pixel_unshuffle", "rot90"),
    *("select", "softmax", "stack", "std", "sum", "transpose", "unfold", "unsqueeze", "var"),
}
_FIXED_KEYWORDS = {"axis", "dim", "dims", "dim0", "dim1"}
_NUMBER_CALLS = {"abs", "float", "int", "max", "min", "round"}
_ITERATING = {"enumerate", "zip"}


def list_uses(function: Function, node: ast.AST, seen: frozenset[str] = frozenset()) -> set[Use]:
    """Return the uses of a number: "tensor" for arithmetic with one, "argument" for an argument of
    torch, "fixed" if torch compiles its value in, and so on.
    """
    parents = {child: part for part in ast.walk(function) for child in ast.iter_child_nodes(part)}
    use, name = _find_use(function, parents, node)
    if name is None or name in seen:
        return {use} if use else set()
    uses: set[Use] = set()
    own = set(ast.walk(node))  # what is read of a name before it is given another value
    for part in ast.walk(function):
        if part in own:
            continue
        if isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load):
            uses |= list_uses(function, part, seen | {name})
    return uses or {"unknown"}


def list_lookups(
    function: Function, node: ast.AST, seen: frozenset[str] = frozenset()
) -> list[ast.expr]:
    """List the container entries for which a number is the key or index. An element of a tensor
    does not count.
    """
    parents = {child: part for part in ast.walk(function) for child in ast.iter_child_nodes(part)}
    match parents.get(node):
        case ast.Subscript(value=container, slice=key, ctx=ast.Load()) as entry if key is node:
            return [] if is_tensor(function, container) else [entry]
        case ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]) as entry if key is node:
            return [entry]
        case ast.Assign(targets=[ast.Name(id=name)]) if name not in seen:
            loads = (part for part in ast.walk(function) if isinstance(part, ast.Name))
            read = [part for part in loads if part.id == name and isinstance(part.ctx, ast.Load)]
            more = seen | {name}
            return [entry for part in read for entry in list_lookups(function, part, more)]
    return []


def list_container_reads(
    lines: Sequence[str], name: str
) -> set[Literal["joined", "element", "unknown"]]:
    """Return how a function reads a container to which it appends: as a whole, in a loop or a join,
    or by element. Returning it is not a read.
    """
    reads: set[Literal["joined", "element", "unknown"]] = set()
    nodes = (part for function in list_functions(lines) for part in ast.walk(function))
    pairs = ((parent, child) for parent in nodes for child in ast.iter_child_nodes(parent))
    for parent, child in pairs:
        if not isinstance(getattr(child, "ctx", None), ast.Load) or ast.unparse(child) != name:
            continue
        match parent:
            case ast.Attribute(attr=attr) if attr in _MUTATIONS - {"pop", "popitem"}:
                pass
            case ast.Subscript(ctx=ast.Store()) | ast.Return() | ast.Expr():
                pass
            case ast.For() | ast.comprehension():
                reads.add("joined")
            case ast.Call(func=ast.Attribute(attr="cat" | "concat" | "stack")):
                reads.add("joined")
            case ast.Subscript():
                reads.add("element")
            case _:
                reads.add("unknown")
    return reads


def list_readings(lines: Sequence[str], name: str) -> set[Use]:
    """Return all uses of a name in a function; empty if there are none."""
    uses: set[Use] = set()
    for function in list_functions(lines):
        for node in ast.walk(function):
            match node:
                case ast.Name() | ast.Attribute() | ast.Subscript() if ast.unparse(node) == name:
                    is_read = isinstance(node.ctx, ast.Load)
                    uses |= list_uses(function, node) if is_read else {"stored"}
    return uses


def list_looped_dims(lines: Sequence[str], name: str) -> set[int]:
    """Return the dimensions of a tensor that loops run over, including negative ones."""
    dims: set[int] = set()
    for function in list_functions(lines):
        for node in ast.walk(function):
            if isinstance(node, ast.While):
                dims |= _list_sizes(function, node.test, name)
            elif isinstance(node, ast.For | ast.comprehension):
                dims |= _list_iterated(function, node.iter, name)
    return dims


def _list_iterated(
    function: Function, node: ast.expr, name: str, seen: frozenset[str] = frozenset()
) -> set[int]:
    """Return the dimensions of a tensor whose sizes determine the iterations of a loop over an
    expression.
    """
    if ast.unparse(node) == name:
        return {0}
    if isinstance(node, ast.Name):
        values = [] if node.id in seen else _list_values(function, node.id)
        more = seen | {node.id}
        return {dim for value in values for dim in _list_iterated(function, value, name, more)}
    if not isinstance(node, ast.Call):
        return set()
    called = dotted_name(node.func).rsplit(".", 1)[-1] or getattr(node.func, "attr", "")
    if called == "range":
        return {dim for part in node.args for dim in _list_sizes(function, part, name)}
    given = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    parts = [part for part in (*given, *node.args) if ast.unparse(part) != "torch"]
    if called in ("unbind", "split") and parts and ast.unparse(parts[0]) == name:
        places = [keyword.value for keyword in node.keywords if keyword.arg == "dim"]
        return {_read_int(place) for place in (places or parts[1 + (called == "split") :])} or {0}
    return {dim for part in node.args for dim in _list_iterated(function, part, name, seen)}


def _list_sizes(function: Function, node: ast.AST, name: str, is_named: bool = False) -> set[int]:
    """Return the dimensions of a tensor whose sizes an expression reads, directly or by name."""
    dims: set[int] = set()
    for part in ast.walk(node):
        match part:
            case ast.Subscript(value=ast.Attribute(value=tensor, attr="shape"), slice=place):
                dims |= {_read_int(place)} if ast.unparse(tensor) == name else set()
            case ast.Call(func=ast.Attribute(value=tensor, attr="size"), args=[place]):
                dims |= {_read_int(place)} if ast.unparse(tensor) == name else set()
            case ast.Call(func=ast.Name(id="len"), args=[tensor]):
                dims |= {0} if ast.unparse(tensor) == name else set()
            case ast.Name() if not is_named:
                for value in _list_values(function, part.id):
                    dims |= _list_sizes(function, value, name, is_named=True)
                dims |= _list_unpacked(function, part.id, name)
    return dims


def _list_unpacked(function: Function, name: str, tensor: str) -> set[int]:
    """Return the position of a name in an unpacking such as `batch, length = x.shape`."""
    return {
        place
        for part in ast.walk(function)
        if isinstance(part, ast.Assign)
        and ast.unparse(part.value) in (f"{tensor}.shape", f"{tensor}.size()")
        for target in part.targets
        if isinstance(target, ast.Tuple)
        for place, one in enumerate(target.elts)
        if isinstance(one, ast.Name) and one.id == name
    }


def _read_int(node: ast.expr) -> int:
    """Return a dimension's literal number, -1 if it is not a literal."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return -1
    return value if isinstance(value, int) else -1


def _find_use(
    function: Function, parents: dict[ast.AST, ast.AST], node: ast.AST
) -> tuple[Use | None, str | None]:
    """Return how a number is used, or the variable to which it is assigned."""
    while (parent := parents.get(node)) is not None:
        if isinstance(parent, ast.BinOp | ast.Compare):
            others = (part for part in ast.iter_child_nodes(parent) if part is not node)
            if any(isinstance(o, ast.expr) and is_tensor(function, o) for o in others):
                return "tensor", None
        if isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.Is | ast.IsNot):
            return None, None
        if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert):
            if parent.test is node:
                return "branch", None
            if not isinstance(parent, ast.IfExp):
                return "unknown", None
        elif isinstance(parent, ast.Compare | ast.BoolOp) and not _is_test(parents, parent):
            return "unknown", None
        elif isinstance(parent, ast.Call):
            use = _name_call_use(parent, is_statement=isinstance(parents.get(parent), ast.Expr))
            is_place = isinstance(node, ast.keyword) and node.arg in _FIXED_KEYWORDS
            use = "fixed" if use in ("argument", "unknown") and is_place else use
            if use is not None:
                return use, None
        elif isinstance(parent, ast.Attribute) and parent.attr == "item":
            parent = parents[parent]
        elif isinstance(parent, ast.Slice):
            return "size", None
        elif isinstance(parent, ast.Subscript):
            return ("argument" if is_tensor(function, parent.value) else "unknown"), None
        elif isinstance(parent, ast.JoinedStr | ast.FormattedValue):
            return "logged", None
        elif isinstance(parent, ast.Assign | ast.AnnAssign):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            if isinstance(targets[0], ast.Name):
                return None, targets[0].id
            return ("stored" if not isinstance(targets[0], ast.Tuple) else "unknown"), None
        elif isinstance(parent, ast.AugAssign):
            if is_tensor(function, parent.target):
                return "tensor", None
            target = parent.target
            return (None, target.id) if isinstance(target, ast.Name) else ("stored", None)
        elif isinstance(parent, ast.Return):
            return "returned", None
        elif isinstance(parent, ast.For):
            return ("stored" if _only_stores(function, parent) else "loop"), None
        elif isinstance(parent, ast.Expr):
            return None, None
        elif not isinstance(
            parent,
            ast.BinOp
            | ast.UnaryOp
            | ast.Compare
            | ast.BoolOp
            | ast.Tuple
            | ast.List
            | ast.Dict
            | ast.keyword,
        ):
            return "unknown", None
        node = parent
    return "unknown", None


def _only_stores(function: Function, loop: ast.For) -> bool:
    """Return whether a loop only writes numbers into attributes of `self` that the rest of the
    function does not read, so that it can run last.
    """
    inside = [part for statement in loop.body for part in ast.walk(statement)]
    written = {
        part.attr
        for part in inside
        if isinstance(part, ast.Attribute) and dotted_name(part) == f"self.{part.attr}"
    }
    calls = [part for part in inside if isinstance(part, ast.Call)]
    return (
        bool(written)
        and not loop.orelse
        and all(_stores_in_self(statement) for statement in loop.body)
        and all(getattr(call.func, "attr", "") in _MUTATIONS | {"get"} for call in calls)
        and not any(
            isinstance(part, ast.Attribute) and part.attr in written and part not in inside
            for part in ast.walk(function)
        )
    )


def _stores_in_self(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        targets = [getattr(statement.value, "func", statement.value)]
    else:
        targets = list(getattr(statement, "targets", (getattr(statement, "target", None),)))
    return all(
        isinstance(target, ast.Attribute | ast.Subscript)
        and ast.unparse(target).startswith("self.")
        for target in targets
    )


def _is_test(parents: dict[ast.AST, ast.AST], node: ast.AST) -> bool:
    while (parent := parents.get(node)) is not None:
        if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert):
            return parent.test is node
        if not isinstance(parent, ast.BoolOp | ast.UnaryOp | ast.Compare):
            return False
        node = parent
    return False


def _name_call_use(call: ast.Call, *, is_statement: bool) -> Use | None:
    """Return how a call uses a number, None if its result is again a number. Nothing can use the
    result of a call that is a whole statement.
    """
    name = dotted_name(call.func)
    last = name.rsplit(".", 1)[-1] if name else getattr(call.func, "attr", "")
    if name in _NUMBER_CALLS | _ITERATING or name.startswith("math."):
        return None
    if last == "range":
        return "loop"
    if last == "print" or last in LOGS:
        return "logged"
    if last in _SIZE_CALLS:
        return "size"
    if last in _MUTATIONS - {"update"}:
        return "stored" if is_statement else "unknown"
    if name.startswith("torch.nn.utils."):  # Python, which may need a number
        return "unknown"
    is_torch = name.startswith(("torch.", "F.")) or last in TENSOR_METHODS
    if last in _FIXED_CALLS and isinstance(call.func, ast.Attribute):
        return "fixed"
    return "argument" if is_torch else "unknown"


def name_argument(code: str, root: str) -> str | None:
    """Return the expression that a line of the user passes as `args[0]` or `kwargs['x']`, None if
    more than one of its calls could be the compiled one.
    """
    statement = parse_statement(code)
    own = [call for call in statement.calls() if not _is_of_torch(call)] if statement else []
    if len(own) != 1 or any(isinstance(argument, ast.Starred) for argument in own[0].args):
        return None
    passed = {f"args[{place}]": argument for place, argument in enumerate(own[0].args)}
    passed |= {f"kwargs[{keyword.arg!r}]": keyword.value for keyword in own[0].keywords}
    found = passed.get(root)
    return ast.unparse(found) if isinstance(found, ast.Name | ast.Attribute) else None


def _is_of_torch(call: ast.Call) -> bool:
    name = dotted_name(call.func)
    last = name.rsplit(".", 1)[-1] if name else getattr(call.func, "attr", "")
    is_method = isinstance(call.func, ast.Attribute) and last in TENSOR_METHODS | {"item"}
    return is_method or name.startswith(("torch.", "F.", "nn.")) or hasattr(builtins, name)


def is_read(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr == "item" and not call.args
    return dotted_name(call.func) in ("float", "int", "bool") and len(call.args) == 1


def list_decisions(function: Function, tested: ast.AST) -> list[ast.AST]:
    """List the nodes that test a value, directly or through a variable."""
    text = ast.unparse(tested)
    names = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and text in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert | ast.BoolOp)
        and (test := getattr(node, "test", node))
        and (names & list_names(test) or text in ast.unparse(test))
    ]


def is_plain_choice(function: Function, node: ast.AST) -> bool:
    """Return whether `torch.where` can replace an `if` that chooses between two tensors.

    Both must be known and have the same shape. There may be no side effects, no `and`, `or` or
    `not` except of one-element bools, and no possible NaN in the gradient of the other side.
    """
    if not isinstance(node, ast.If | ast.IfExp) or any(
        isinstance(part, ast.BoolOp | ast.Not | ast.In | ast.NotIn | ast.Is | ast.IsNot)
        for part in ast.walk(join_bools(node.test))
    ):
        return False
    sides = _list_sides(function, node)
    if sides is None or any(_may_be_nan(part) for side in sides for part in ast.walk(side)):
        return False
    # A name in both is the same tensor, wherever its shape comes from.
    common = frozenset(list_names(sides[0]) & list_names(sides[1]))
    shapes = [_find_shape(function, side, common) for side in sides]
    return shapes[0] is not None and shapes[0] == shapes[1]


def _may_be_nan(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Pow):
        number = node.right.value if isinstance(node.right, ast.Constant) else None
        is_whole = isinstance(number, int) and number > 0
        return not (is_whole or (isinstance(node.op, ast.Div) and isinstance(number, float)))
    name = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
    return name in _UNBOUNDED


def is_single_bool(node: ast.AST) -> bool:
    """Return whether an expression is a one-element bool tensor without side effects."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        return is_single_bool(node.left) and is_single_bool(node.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return is_single_bool(node.operand)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    of_torch = dotted_name(node.func.value) == "torch"
    tested = node.args[0] if of_torch and node.args else node.func.value
    return (
        node.func.attr in ("all", "any")
        and len(node.args) == of_torch
        and not node.keywords
        and not any(isinstance(part, _NOT_HARMLESS) for part in ast.walk(tested))
        and all(
            getattr(part.func, "attr", "") in _TESTS
            for part in ast.walk(tested)
            if isinstance(part, ast.Call)
        )
    )


def is_harmless(node: ast.AST) -> bool:
    """Return whether an expression only calls functions that compute with tensors and numbers."""
    calls = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
    return all(
        (
            getattr(called, "attr", "") in TENSOR_METHODS | _TESTS
            and "rand" not in ast.unparse(called)
        )
        or dotted_name(called) in _NUMBER_CALLS | {"bool", "len"}
        for called in calls
    )


def join_bools(test: ast.expr) -> ast.expr:
    """Replace `and`, `or` and `not` of one-element bool tensors by `&`, `|` and `~`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        operand = join_bools(test.operand)
        return ast.UnaryOp(ast.Invert(), operand) if is_single_bool(operand) else test
    if not isinstance(test, ast.BoolOp):
        return test
    joined, *others = [join_bools(value) for value in test.values]
    operator = ast.BitAnd() if isinstance(test.op, ast.And) else ast.BitOr()
    for other in others:
        joined = ast.BinOp(joined, operator, other)
    return joined if is_single_bool(joined) else test


def _list_sides(function: Function, node: ast.If | ast.IfExp) -> tuple[ast.expr, ast.expr] | None:
    if isinstance(node, ast.IfExp):
        return node.body, node.orelse
    *before, first = node.body
    if len(node.orelse) > 1 or not all(_is_own_number(function, node, part) for part in before):
        return None
    other = node.orelse[0] if node.orelse else _find_next(function, node)
    if isinstance(first, ast.Return) and isinstance(other, ast.Return):
        return (first.value, other.value) if first.value and other.value else None
    written = _find_assigned(first)
    if written is None:
        return None
    if not node.orelse:
        return written[1], ast.Name(written[0], ast.Load())
    second = _find_assigned(node.orelse[0])
    return (written[1], second[1]) if second is not None and second[0] == written[0] else None


def _is_own_number(function: Function, branch: ast.If, node: ast.stmt) -> bool:
    """Return whether a statement assigns a number to a name used only in its branch."""
    assigned = _find_assigned(node) if isinstance(node, ast.Assign) else None
    if assigned is None:
        return False
    name, value = assigned
    parts = list(ast.walk(value))
    own = [part for statement in branch.body for part in ast.walk(statement)]
    return (
        all(
            dotted_name(part.func) in ("torch.finfo", "torch.iinfo", "len")
            for part in parts
            if isinstance(part, ast.Call)
        )
        and all(isinstance(part, _ARITHMETIC) for part in parts if isinstance(part, ast.expr))
        and not any(isinstance(part, ast.Div | ast.FloorDiv | ast.Mod | ast.Pow) for part in parts)
        and not any(
            isinstance(part, ast.Name) and part.id == name and part not in own
            for part in ast.walk(function)
        )
    )


def _find_next(function: Function, node: ast.stmt) -> ast.stmt | None:
    for parent in ast.walk(function):
        for name in ("body", "orelse"):
            body = getattr(parent, name, ())
            if isinstance(body, list) and node in body[:-1]:
                following: ast.stmt = body[body.index(node) + 1]
                return following
    return None


def _find_assigned(node: ast.stmt) -> tuple[str, ast.expr] | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AugAssign):
        target = node.target
        value = ast.BinOp(ast.Name(getattr(target, "id", ""), ast.Load()), node.op, node.value)
    else:
        return None
    return (target.id, value) if isinstance(target, ast.Name) else None


def _find_shape(
    function: Function, node: ast.AST, seen: frozenset[str] = frozenset()
) -> str | None:
    """Return the name of the tensor whose shape an expression has, "" for a number, else None."""
    if isinstance(node, ast.Constant):
        return "" if isinstance(node.value, int | float) else None
    if isinstance(node, ast.UnaryOp):
        return _find_shape(function, node.operand, seen)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.MatMult):
            return None
        shapes = {_find_shape(function, part, seen) for part in (node.left, node.right)} - {""}
        return shapes.pop() if len(shapes) == 1 else None if shapes else ""
    if isinstance(node, ast.IfExp):
        shapes = {_find_shape(function, part, seen) for part in (node.body, node.orelse)}
        return shapes.pop() if len(shapes) == 1 else None
    if isinstance(node, ast.Call):
        name = dotted_name(node.func)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else name
        if method in _NUMBER_CALLS | _ONE_NUMBER and len(node.args) == (method in _NUMBER_CALLS):
            return ""
        if name.startswith(("torch.", "F.")) and node.args:
            base: ast.AST = node.args[0]
        elif isinstance(node.func, ast.Attribute):
            base, name = node.func.value, node.func.attr
        else:
            return None
        is_kept = name.rsplit(".", 1)[-1] in _SAME_SHAPE - {"where"}
        return _find_shape(function, base, seen) if is_kept else None
    if not isinstance(node, ast.Name):
        return None
    values = [] if node.id in seen else _list_values(function, node.id)
    shapes = {_find_shape(function, value, seen | {node.id}) for value in values} - {node.id}
    return node.id if not shapes else shapes.pop() if len(shapes) == 1 else None
