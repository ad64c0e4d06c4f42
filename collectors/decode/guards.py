"""Classify guards that are Python expressions: `k == 1`, `len(xs) == 2`, `___check_type_id(x, 94)`,
conditions on sizes.

They are parsed, never evaluated.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class GuardClassification:
    category: str
    source: str | None = None
    expected: str | None = None
    actual: str | None = None
    dim: int | None = None
    # Further details that distinguish causes: the dimension, the key, the global setting.
    symbol: str | None = None


_LOCAL = re.compile(r"L\[\s*(['\"])([^'\"\n]*)\1\s*\]")
_TYPED = re.compile(r",\s*type=(?P<type><.*>|[\w.]+)\s*$", re.DOTALL)
_STATE = re.compile(
    r"^(?P<what>___check_global_state|___check_torch_function_mode_stack|___skip_backend_check|utils_device\.CURRENT_DEVICE"
    r"|torch\.autograd\.forward_ad\._current_level|torch\._functorch\.(?:pyfunctorch|aot_autograd)\b"
    r"|___are_deterministic_algorithms_enabled|___is_grad_enabled|___is_torch_function_enabled|not "
    r"___is_grad_enabled)"
)
_KEY_AT = re.compile(
    r"^list\((?:dict\.keys\((?P<holder>.+)\)|(?P<other>.+)\.keys\(\))\)\[(?P<place>\d+)\]$"
)
_SHAPES = frozenset(("size", "stride", "storage_offset", "shape", "ndim", "dim", "numel"))
_SHAPE_CALLS = frozenset(
    ("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Mod", "FloorDiv", "CleanDiv", "Max", "Min", "PythonMod")
)
_LENGTHS = frozenset(("len", "___tuple_iterator_len", "tuple_iterator_len"))
_ITERATORS = frozenset(("___normalize_range_iter", "___normalize_count_iter"))
_MAXIMUM = 20_000  # characters; a longer guard is not worth the parser's memory


def strip_local_scope(text: str) -> str:
    return _LOCAL.sub(r"\2", text)


def classify_expression(text: str) -> GuardClassification | None:
    state = _STATE.match(text)
    if state:
        return _classify_state(state["what"])
    if text.startswith("___check_current_backend"):
        return GuardClassification("backend_mismatch")
    typed = _TYPED.search(text)
    tree = _parse(text[: typed.start()] if typed else text)
    if tree is None:
        return None
    for rule in _RULES:
        classification = rule(tree, typed["type"] if typed else None)
        if classification is not None:
            return classification
    return None


def _classify_state(what: str) -> GuardClassification:
    if "grad_enabled" in what:
        return GuardClassification("grad_mode", symbol="grad_mode")
    if "deterministic" in what:
        return GuardClassification("deterministic", symbol="deterministic_algorithms")
    names = {
        "___check_torch_function_mode_stack": "torch function modes",
        "___is_torch_function_enabled": "torch_function",
        "utils_device.CURRENT_DEVICE": "default device",
        "torch.autograd.forward_ad._current_level": "forward-mode AD level",
        "torch._functorch.pyfunctorch": "functorch transforms",
        "torch._functorch.aot_autograd": "saved tensors hooks",
    }
    return GuardClassification("global_state", symbol=names.get(what))


def _parse(text: str) -> ast.expr | None:
    if len(text) > _MAXIMUM or "\x00" in text:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _format_source(node: ast.AST) -> str:
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):
        return "<expression>"


def _called_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call):
        return _format_source(node.func)
    return None


def _is_source(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        return _format_source(node.func) in (
            "type",
            "list",
            "dict.keys",
            "super",
            "___from_numpy",
            "___get_torch_function_mode_stack_at",
        )
    return isinstance(node, ast.Name)


def _is_shape(node: ast.AST) -> bool:
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            name = (
                part.func.attr
                if isinstance(part.func, ast.Attribute)
                else getattr(part.func, "id", "")
            )
            if name in _SHAPE_CALLS or (isinstance(part.func, ast.Attribute) and name in _SHAPES):
                return True
    return False


def _join_sources(node: ast.AST) -> str | None:
    sizes = [
        p
        for p in ast.walk(node)
        if isinstance(p, ast.Subscript) and _called_name(p.value) and _is_shape(p.value)
    ]
    sources = [_format_source(p) for p in sizes]
    if not sources:
        functions = {id(p.func) for p in ast.walk(node) if isinstance(p, ast.Call)}
        nodes = [
            p
            for p in ast.walk(node)
            if _is_source(p) and id(p) not in functions and not isinstance(p, ast.Call)
        ]
        inner = {id(child) for p in nodes for child in ast.walk(p) if child is not p}
        sources = [_format_source(p) for p in nodes if id(p) not in inner]
    return ", ".join(dict.fromkeys(sources)) or None


def _classify_identity(node: ast.expr, typed: str | None) -> GuardClassification | None:
    name = _called_name(node)
    if not isinstance(node, ast.Call) or not node.args:
        return None
    source = _format_source(node.args[0])
    if name == "___check_type_id" or name == "___check_fake_script_type":
        return GuardClassification("type_change", source, expected=typed)
    if name == "___check_obj_id":
        # True, False and None are objects too: an identity guard on them is a guard on a value.
        if typed in ("<class 'bool'>", "<class 'NoneType'>") or source.endswith(".training"):
            return _value_at(node.args[0], "other_value", None)
        return GuardClassification("object_identity", source, expected=typed)
    return None


def _classify_membership(node: ast.expr, typed: str | None) -> GuardClassification | None:
    absent = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    inner = node.operand if isinstance(node, ast.UnaryOp) and absent else node
    name = _called_name(inner)
    if (
        isinstance(inner, ast.Compare)
        and isinstance(inner.ops[0], ast.In | ast.NotIn)
        and _is_source(inner.comparators[0])
    ):
        return GuardClassification(
            "dict_keys", _format_source(inner.comparators[0]), symbol=_format_source(inner.left)
        )
    if not isinstance(inner, ast.Call) or len(inner.args) < 2:
        return None
    expected = "absent" if absent else "present"
    if name == "___dict_contains":
        key, holder = _format_source(inner.args[0]), _format_source(inner.args[1])
        if holder.endswith(".__dict__"):
            return GuardClassification(
                "module_attribute",
                f"{holder.removesuffix('.__dict__')}.{key.strip(chr(39))}",
                expected,
            )
        return GuardClassification("dict_keys", holder, f"{key} {expected}", symbol=key)
    if name == "set.__contains__":
        return GuardClassification(
            "dict_keys",
            _format_source(inner.args[0]),
            f"{_format_source(inner.args[1])} {expected}",
            symbol=_format_source(inner.args[1]),
        )
    if name == "hasattr":
        attribute = _format_source(inner.args[1]).strip("'\"")
        return GuardClassification(
            "module_attribute", f"{_format_source(inner.args[0])}.{attribute}", expected
        )
    return None


def _classify_emptiness(node: ast.expr, typed: str | None) -> GuardClassification | None:
    # torch writes `not xs` for an empty list.
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and _is_source(node.operand):
        return GuardClassification("container_length", _format_source(node.operand), "0")
    return None


def _classify_nan(node: ast.expr, typed: str | None) -> GuardClassification | None:
    for part in ast.walk(node):
        name = _called_name(part)
        if (
            isinstance(part, ast.Call)
            and part.args
            and name in ("__math_isnan", "math.isnan", "__numpy_isnan")
        ):
            return _value_at(
                part.args[0], "other_value" if name == "__numpy_isnan" else "float_value", "nan"
            )
    return None


def _classify_comparison(node: ast.expr, typed: str | None) -> GuardClassification | None:
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    left, operator, right = node.left, node.ops[0], node.comparators[0]
    if isinstance(operator, ast.Is | ast.IsNot):
        if isinstance(right, ast.Constant) and right.value is None:
            classification = _value_at(
                left, "other_value", "None" if isinstance(operator, ast.Is) else "not None"
            )
            return classification if _is_source(left) else None
        return (
            GuardClassification("object_identity", _format_source(left), _format_source(right))
            if _is_source(left) and _is_source(right)
            else None
        )
    if not isinstance(operator, ast.Eq) or _is_shape(left):
        return None
    call = _called_name(left)
    if call is not None and isinstance(left, ast.Call):
        found_call = _compared_call(left, call, right)
        if found_call is not None:
            return found_call
    if not _is_source(left) or not _is_constant(right):
        return None
    keys = _KEY_AT.match(_format_source(left))
    if keys:
        return GuardClassification(
            "dict_keys",
            keys["holder"] or keys["other"],
            _format_source(right),
            symbol=keys["place"],
        )
    if isinstance(left, ast.Attribute) and left.attr == "__name__":
        return GuardClassification(
            "object_identity", _format_source(left.value), _format_source(right)
        )
    return _value_at(left, _category_of(right), _format_source(right))


def _compared_call(left: ast.Call, call: str, right: ast.expr) -> GuardClassification | None:
    inside = _format_source(left.args[0]) if left.args else None
    if call in _LENGTHS and inside:
        return GuardClassification("container_length", inside, _format_source(right))
    if call in _ITERATORS and inside:
        return GuardClassification("other_value", inside, _format_source(right))
    if call == "___dict_version" and inside:
        return GuardClassification("dict_keys", inside, symbol="version")
    if call == "list" and inside:
        if left.args and isinstance(left.args[0], ast.Call):
            inner = left.args[0]
            if isinstance(inner.func, ast.Attribute) and inner.func.attr == "keys":
                holder = (
                    _format_source(inner.args[0])
                    if inner.args
                    else _format_source(inner.func.value)
                )
                return GuardClassification("dict_keys", holder, _format_source(right))
        return (
            GuardClassification("dict_keys", inside, _format_source(right))
            if inside.endswith(".keys()")
            else None
        )
    if call.endswith((".keys",)):
        return GuardClassification("dict_keys", call.removesuffix(".keys"), _format_source(right))
    if call == "hasattr" and len(left.args) == 2:
        return _classify_membership(left, None)
    if (
        call in ("int", "float", "str", "bool", "complex", "bytes")
        and left.args
        and _is_source(left.args[0])
    ):
        return _value_at(left.args[0], _category_of(right), _format_source(right))
    if call.endswith(".data_ptr"):
        return GuardClassification("object_identity", call.removesuffix(".data_ptr"))
    return None


def _classify_shape(node: ast.expr, typed: str | None) -> GuardClassification | None:
    ordered = isinstance(node, ast.Compare) and all(
        isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.NotEq | ast.Eq) for op in node.ops
    )
    if _is_shape(node):
        return GuardClassification("symbolic_shape", _join_sources(node))
    # Conditions on a dynamic integer: 2 <= k, k != 1, k % 2 == 0, n == m. A comparison with a
    # string is not one.
    if ordered and not any(
        isinstance(p, ast.Constant) and not isinstance(p.value, int | float) for p in ast.walk(node)
    ):
        source = _join_sources(node)
        return (
            GuardClassification("symbolic_shape", source)
            if source and _is_arithmetic(node)
            else None
        )
    return None


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return all(_is_arithmetic(part) for part in (node.left, *node.comparators))
    if isinstance(node, ast.BinOp):
        return _is_arithmetic(node.left) and _is_arithmetic(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_arithmetic(node.operand)
    return _is_source(node) or (
        isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    )


def _is_constant(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(_is_constant(part) for part in node.elts)
    if isinstance(node, ast.BinOp):  # complex: (1+2j)
        return _is_constant(node.left) and _is_constant(node.right)
    if isinstance(node, ast.Call):  # device(type='cpu'), torch.Size([1, 2]), frozenset({…})
        return all(_is_constant(part) for part in (*node.args, *(k.value for k in node.keywords)))
    return isinstance(node, ast.Attribute) and _format_source(node).startswith("torch.")


def _category_of(node: ast.AST) -> str:
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(value, ast.Constant):
        for kind, category in (
            (bool, "other_value"),
            (int, "int_value"),
            (float, "float_value"),
            (str, "string_value"),
        ):
            if isinstance(value.value, kind):
                return category
    return "other_value"


def _value_at(node: ast.AST, category: str, expected: str | None) -> GuardClassification:
    root: ast.AST = node
    has_attribute = False
    while isinstance(root, ast.Attribute | ast.Subscript):
        has_attribute = has_attribute or isinstance(root, ast.Attribute)
        root = root.value
    if isinstance(root, ast.Name) and root.id == "G":
        category = "global_value"
    elif (
        has_attribute
        and "__closure__" not in _format_source(node)
        and "__defaults__" not in _format_source(node)
    ):
        category = "module_attribute"
    return GuardClassification(category, _format_source(node), expected)


_RULES: tuple[Callable[[ast.expr, str | None], GuardClassification | None], ...] = (
    _classify_identity,
    _classify_membership,
    _classify_emptiness,
    _classify_nan,
    _classify_comparison,
    _classify_shape,
)


_TENSOR = re.compile(
    r"^tensor '(?P<source>.+?)' "
    r"(?P<what>(?:Tensor )?(?:requires_grad|dtype|device|dispatch key|rank|size|stride)\b.*)$",
    re.S,
)
_MISMATCH = re.compile(
    r"^(?:Tensor )?(?P<what>requires_grad|dtype|device(?: index)?|dispatch key "
    r"set|rank|size|stride) mismatch"
    r"(?: at index (?P<dim>\d{1,4}))?\.\s*[Ee]xpected(?: device index to be)?\s+(?P<expected>.*?)"
    r"(?:, actual (?P<actual>.*?))?(?P<parameter>\. Guard failed on a parameter, .*)?$",
    re.S,
)
_CATEGORY = {
    "requires_grad": "tensor_requires_grad",
    "dtype": "tensor_dtype",
    "device": "tensor_device",
    "device index": "tensor_device",
    "dispatch key set": "dispatch_keys",
    "rank": "tensor_rank",
    "size": "tensor_size",
    "stride": "tensor_stride",
}
# C++ names of dtypes that differ from Python's in more than capitals.
_DTYPES = {
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
    "ComplexHalf": "complex32",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
# torch compares the dispatch keys first: another device shows up there, not in a device message.
_DEVICES = frozenset(
    ("CPU", "CUDA", "HIP", "XLA", "MPS", "IPU", "XPU", "HPU", "VE", "Lazy", "MTIA", "MAIA", "Meta")
)
_MESSAGE_STATE = re.compile(r"^GLOBAL_STATE changed:\s*(?P<what>.*)$", re.S)
_DUPLICATE = re.compile(
    r"^Duplicate tensors? found(?: where not expected!)?:?\s*(?P<what>.*)$", re.S
)
_MISSING = re.compile(
    r"^(?P<what>KeyError|IndexError|getattr failed|null type dict) on (?:source )?(?P<source>.+)$"
)
_ITEM = re.compile(r"^(?P<holder>.+)\[(?P<key>[^\[\]]+)\]$")
_MARKS = re.compile(
    r"_has_dynamo_dim_marking"
    r"|attr\(\(?(?P<source>[^,()]+), '_dynamo_\w+'"
    r"|(?P<holder>[^\s(]+)\._dynamo_(?:\w+_)?(?:indices|ids|bounds)\b"
    r"|\b_dynamo_(?:\w+_)?(?:indices|ids|bounds)\b"
)
# Messages whose named groups are fields of the classification, with the fields that are the same
# for each.
_MESSAGES = (
    (
        re.compile(
            r"^expected type of '(?P<source>.+?)' to be a tensor type,"
            r"\s*(?:but found a different type|(?:' ?)?but found (?P<actual>.*))?",
            re.S,
        ),
        GuardClassification("type_change", expected="a tensor"),
    ),
    (
        re.compile(r"^not a tensor - grad field is accessed (?P<source>.+)$"),
        GuardClassification("type_change", expected="a tensor"),
    ),
    (
        re.compile(r"^(?:Not a callable obj|\w+: Not a function on)\s+(?P<source>.+?)\s*$"),
        GuardClassification("type_change", expected="a function"),
    ),
    # Up to 2.4: the flag that freeing an object clears.
    (re.compile(r"^___guarded_code\.valid"), GuardClassification("invalidated")),
    (
        re.compile(r"^Cache line invalidated because\s+(?P<source>.+?)\s* got deallocated$"),
        GuardClassification("invalidated"),
    ),
    (
        re.compile(
            r"^(?:Not a weakref obj|Weakref_GetRef failed|Not a weakref)\s+(?P<source>.+?)\s*$"
        ),
        GuardClassification("invalidated"),
    ),
    (
        re.compile(
            r"^BACKEND_MATCH failure: .*?(?:Cached backend: (?P<expected>.*?)\. New backend: "
            r"(?P<actual>.*?)\. If this|$)",
            re.S,
        ),
        GuardClassification("backend_mismatch"),
    ),
    (
        re.compile(r"^len\((?P<source>.+)\) != (?P<expected>\d+)$"),
        GuardClassification("container_length"),
    ),
    (
        re.compile(r"^\"?Shape guard failed with values\b"),
        GuardClassification("symbolic_shape", symbol="compiled shape guard"),
    ),
)

_MAX_MESSAGE = 20_000  # characters


def classify_message(text: str) -> GuardClassification | None:
    for rule in _MESSAGE_RULES:
        classification = rule(text)
        if classification is not None:
            return classification
    return None


def name_dtype(name: str) -> str:
    """Return Python's name of a dtype: torch.float32 for Float."""
    name = name.strip().removeprefix("torch.")
    return f"torch.{_DTYPES.get(name, name.lower())}"


def _classify_tensor(text: str) -> GuardClassification | None:
    tensor = _TENSOR.match(text)
    match = _MISMATCH.match(tensor["what"]) if tensor else None
    if tensor is None or match is None:
        return None
    expected, actual = match["expected"].strip(), match["actual"]
    dim = int(match["dim"]) if match["dim"] else None
    if match["what"] == "requires_grad":
        # torch names only the expected flag: requires_grad=0.
        flags = {"requires_grad=0": "False", "requires_grad=1": "True"}
        expected = flags.get(expected, expected)
        actual = {"False": "True", "True": "False"}.get(expected, actual)
    if match["what"] == "dtype":
        expected, actual = name_dtype(expected), actual and name_dtype(actual)
    if match["what"] == "dispatch key set" and actual:
        was, now = _list_devices(expected), _list_devices(actual)
        if was and now and was != now:
            return GuardClassification(
                "tensor_device", tensor["source"], ", ".join(was), ", ".join(now)
            )
    return GuardClassification(
        _CATEGORY[match["what"]],
        tensor["source"],
        expected,
        actual.strip() if actual else None,
        dim=dim,
        symbol=str(dim) if dim is not None else None,
    )


def _list_devices(keys: str) -> list[str]:
    return sorted({key.lower() for key in re.findall(r"\w+", keys) if key in _DEVICES})


def _classify_plain(text: str) -> GuardClassification | None:
    for pattern, classification in _MESSAGES:
        match = pattern.match(text)
        if match:
            fields: dict[str, Any] = match.groupdict()
            return replace(classification, **fields)
    return None


def _global_state(text: str) -> GuardClassification | None:
    match = _MESSAGE_STATE.match(text)
    if not match:
        return None
    names = match["what"].split()
    if not names:
        return GuardClassification("global_state")
    # torch lists every changed setting, in a fixed order; the first names the cause.
    first, symbol = names[0], " ".join(sorted(names))
    if first == "grad_mode":
        return GuardClassification("grad_mode", symbol=symbol)
    if first.startswith("autocast"):
        return GuardClassification("autocast", symbol=symbol)
    if first.startswith("deterministic_algorithms"):
        return GuardClassification("deterministic", symbol=symbol)
    return GuardClassification("global_state", symbol=symbol)


def _classify_duplicate(text: str) -> GuardClassification | None:
    match = _DUPLICATE.match(text)
    if not match:
        return None
    sources = re.findall(r"['\"]([^'\"]+)['\"]", match["what"])
    return GuardClassification("tensor_aliasing", ", ".join(sources) or None)


def _classify_missing(text: str) -> GuardClassification | None:
    match = _MISSING.match(text)
    if not match:
        return None
    kinds = {"KeyError": "dict_keys", "IndexError": "container_length"}
    category, source = kinds.get(match["what"], "module_attribute"), match["source"].strip()
    item = _ITEM.match(source)
    if item and item["holder"] == "G":
        return GuardClassification("global_value", source, actual="missing")
    if item and category != "module_attribute":
        return GuardClassification(
            category, item["holder"], actual=f"{item['key']} missing", symbol=item["key"]
        )
    return GuardClassification(category, source, actual="missing")


def _classify_marks(text: str) -> GuardClassification | None:
    # mark_dynamic or a similar function was called on this tensor and not on the compiled one, or
    # for other dimensions. The search takes quadratic time in a text without spaces, but such
    # messages are short.
    match = _MARKS.search(text) if "_dynamo_" in text and len(text) < _MAX_MESSAGE else None
    if not match:
        return None
    return GuardClassification(
        "symbolic_shape", match["source"] or match["holder"], symbol="dimension marks"
    )


_MESSAGE_RULES: tuple[Callable[[str], GuardClassification | None], ...] = (
    _classify_tensor,
    _global_state,
    _classify_duplicate,
    _classify_missing,
    _classify_plain,
    _classify_marks,
)
