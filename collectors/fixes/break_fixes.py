"""Fixes of graph breaks, chosen by torch's registry ID and the source line."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from compileboard.collectors.fixes.fix import (
    BreakFacts,
    LineEdit,
    SuggestedFix,
    find_fix,
    list_fixes_for,
)
from compileboard.collectors.fixes.statement import (
    Statement,
    Use,
    dotted_name,
    find_statement,
    has_line_before,
    is_read,
    list_following,
    list_uses,
    shorten,
)
from compileboard.collectors.fixes.titles import name_builtin, name_skipped

_BREAKS = re.compile(
    r"\.item\(|\.tolist\(|\bprint\(|\bgraph_break\(|\blog(?:ger|ging)?\.\w+\(|\btime\.|\.numpy\("
)
_GENERIC = {
    "expression": "the call",
    "call": "the call",
    "condition": "the condition",
    "tensor": "tensor",
    "mask": "mask",
    "function": "the function",
}


@dataclass
class BreakSite:
    facts: BreakFacts
    statement: Statement | None = field(init=False)

    def __post_init__(self) -> None:
        self.statement = find_statement(self.facts)

    @cached_property
    def following(self) -> Sequence[Statement | str]:
        return list_following(self.facts, self.statement) if self.statement else []

    @cached_property
    def calls(self) -> list[ast.Call]:
        return list(self.statement.calls()) if self.statement else []

    @property
    def line(self) -> str:
        return (self.facts.source_line or (self.statement.text if self.statement else "")).strip()

    @property
    def is_in_eager_loop(self) -> bool:
        return any(part.block in ("for", "while") for part in self.facts.eager)

    @cached_property
    def hides_breaks(self) -> bool:
        """True if the loop has more such lines, so that without this break the next one moves the
        whole loop to eager.
        """
        if not self.is_in_eager_loop:
            return False
        texts = [part if isinstance(part, str) else part.text for part in self.following]
        return any(_BREAKS.search(text) for text in texts)

    def find_call(self, *names: str) -> ast.Call | None:
        for call in self.calls:
            name = dotted_name(call.func) or getattr(call.func, "attr", "")
            if any(name == wished or name.endswith("." + wished) for wished in names):
                return call
        return None

    def quote(self, node: ast.AST | None) -> str | None:
        text = self.statement.segment(node) if self.statement and node is not None else ""
        return f"`{shorten(text)}`" if text else None

    def suggest(
        self,
        fix_id: str,
        *,
        edit: LineEdit | None = None,
        settings: tuple[str, ...] | None = None,
        given: Mapping[str, str | None] | None = None,
        **names: str | None,
    ) -> SuggestedFix:
        fix = find_fix("graph_break", fix_id)
        values = {
            **_GENERIC,
            **{name: text for name, text in {**(given or {}), **names}.items() if text},
        }
        title = fix.title.format_map(values).replace(
            "Call the call ", "Make the call "
        )  # its text is unknown
        if self.hides_breaks:
            return SuggestedFix(fix, title)
        return SuggestedFix(
            fix, title, (edit,) if edit else (), fix.settings if settings is None else settings
        )

    def remove_line(self) -> LineEdit | None:
        if (
            self.statement is None
            or self.facts.file is None
            or not isinstance(self.statement.node, ast.Expr)
        ):
            return None
        if has_line_before(self.facts, self.statement):
            return LineEdit(self.facts.file, self.statement.line, self.statement.line_count, ())
        return self.statement.rewrite(self.facts.file, "pass")


Choose = Callable[[BreakSite], list[SuggestedFix]]

_ARGUMENT_TYPES = re.compile(r"\.variables\.[\w.]*?(\w+)'>")
_FUNCTION = re.compile(r"<function ([\w.<>]+) at ")
_PRINTABLE = {"TensorVariable", "ConstantVariable", "StringFormatVariable"}
_LOGGER_METHOD = re.compile(r">\.(?P<name>\w+), args")
_CAPTURED_USES: set[Use] = {"arithmetic", "returned", "size"}
_CALLED = {
    "GB0123": ("backward",),
    "GB9186": ("grad",),
}  # what a title names, of the calls of a line
_LOGGER_METHODS = ("debug", "info", "warning", "error", "critical", "exception", "log")


def suggest_break_fixes(facts: BreakFacts) -> list[SuggestedFix]:
    site = BreakSite(facts)
    choose = _CHOICES.get(facts.gb_id or "")
    fixes = choose(site) if choose is not None else _choose_by_id(site)
    if site.is_in_eager_loop:
        fixes.append(site.suggest("loop_body"))
    fixes = [fix for fix in fixes if fix.fix.gone_in is None]
    for fix in list_fixes_for("graph_break", facts.gb_id or ""):
        if fix.gone_in is not None and facts.torch_version < fix.gone_in:
            fixes.insert(0, SuggestedFix(fix, fix.title))
    known = (suggested for suggested in fixes if suggested.fix.minimum_torch <= facts.torch_version)
    return list({suggested.fix.id: suggested for suggested in known}.values())


def _choose_by_id(site: BreakSite) -> list[SuggestedFix]:
    expression = _quote_call(site, *_CALLED.get(site.facts.gb_id or "", ()))
    fixes = list_fixes_for("graph_break", site.facts.gb_id or "")
    return [site.suggest(fix.id, expression=expression) for fix in fixes] or _choose_around(site)


def _choose_around(site: BreakSite) -> list[SuggestedFix]:
    quoted = _quote_call(site) or (f"`{shorten(site.line)}`" if site.line else None)
    return [site.suggest("parts_around", expression=quoted)] if quoted else []


def _quote_call(site: BreakSite, *names: str) -> str | None:
    call = site.find_call(*names) if names else None
    call = call or next((call for call in site.calls if "." in dotted_name(call.func)), None)
    return site.quote(call or next(iter(site.calls), None))


def _choose_for_builtin(site: BreakSite) -> list[SuggestedFix]:
    name = name_builtin(site.facts)
    if name == "print":
        return _choose_for_print(site)
    if name == "breakpoint":
        return [site.suggest("breakpoint_removed", edit=site.remove_line())]
    if name == "range":
        call = site.find_call("range")
        return [
            site.suggest(
                "range_in_caller",
                expression=site.quote(call.args[-1]) if call and call.args else None,
            )
        ]
    if name == "open":
        return [site.suggest("file_in_caller")]
    if name in ("str", "repr", "format"):
        return [site.suggest("str_in_caller", expression=_quote_call(site, name))]
    return _choose_for_call(site, name or "")


def _choose_for_print(site: BreakSite) -> list[SuggestedFix]:
    expression = _quote_call(site, "print")
    if _is_in_autograd_function(site):
        return [site.suggest("function_pure", edit=site.remove_line())]
    types = set(_ARGUMENT_TYPES.findall(site.facts.context))
    in_caller = site.suggest("print_in_caller", expression=expression)
    removed = site.suggest("print_removed", expression=expression, edit=site.remove_line())
    if types - _PRINTABLE or "True" in site.facts.context.rsplit("]", 1)[-1]:
        return [removed, in_caller]
    return [site.suggest("print_reordered", expression=expression), in_caller, removed]


def _is_in_autograd_function(site: BreakSite) -> bool:
    name = (site.facts.function or "").rsplit(".", 1)[-1]
    return name in ("forward", "backward") and any(
        "autograd.Function" in line or "(ctx" in line for line in site.facts.lines
    )


def _choose_for_logger(site: BreakSite) -> list[SuggestedFix]:
    match = _LOGGER_METHOD.search(site.facts.context)
    call = site.find_call(*_LOGGER_METHODS)
    method = match["name"] if match else dotted_name(call.func).rsplit(".", 1)[-1] if call else ""
    settings: tuple[str, ...] = ()
    if method in _LOGGER_METHODS:
        settings = (
            "import logging",
            f"torch._dynamo.config.ignore_logging_functions.add(logging.Logger.{method})",
        )
    expression = _quote_call(site, method or "log")
    return [
        site.suggest("logger_in_caller", expression=expression),
        site.suggest("logger_ignored", expression=expression, settings=settings),
        site.suggest("logger_guarded", expression=expression),
    ]


def _choose_for_skipped(site: BreakSite) -> list[SuggestedFix]:
    skipped = name_skipped(site.facts) or ""
    module, _, name = skipped.rpartition(".")
    if name == "warn" and "warnings" in module:
        return [*_choose_for_warning(site), site.suggest("warning_in_caller")]
    if module == "time":
        return [site.suggest("time_in_caller")]
    if module in ("Random", "random", "_random"):
        return _choose_for_random(site, name)
    if module in ("torch.random", "torch.cuda.random") or "Generator" in skipped:
        return [site.suggest("seed_in_caller")]
    if module == "torch.serialization":
        return [site.suggest("save_in_caller", expression=_quote_call(site, name))]
    if module.split(".")[0] in ("sys", "inspect", "importlib", "gc", "traceback"):
        return [site.suggest("frame_guarded", expression=_quote_call(site, name))]
    return _choose_for_call(site, name)


def _choose_for_random(site: BreakSite, name: str) -> list[SuggestedFix]:
    expression, drawn = _quote_call(site, name), site.find_call(name)
    uses = list_uses(site.statement, drawn, site.following) if site.statement and drawn else set()
    if "branch" not in uses:
        return [site.suggest("random_torch", expression=expression)]
    if site.statement and isinstance(site.statement.node, ast.While):
        return [site.suggest("loop_body")]
    return [site.suggest("random_where", expression=expression)]


def _choose_for_warning(site: BreakSite) -> list[SuggestedFix]:
    statements = (
        "import warnings",
        "torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)",
    )
    is_plain = "warnings.warn(" in site.line and "{" not in site.line
    return [site.suggest("warning_reordered", settings=statements if is_plain else ())]


def _choose_for_call(site: BreakSite, name: str) -> list[SuggestedFix]:
    expression = _quote_call(site, *([name] if name else []))
    fix_id = "extension_in_caller" if site.facts.gb_id == "GB0007" else "call_in_caller"
    return [site.suggest(fix_id, expression=expression), *_choose_around(site)]


def _choose_for_method(site: BreakSite) -> list[SuggestedFix]:
    if "datetime." in site.facts.context:
        return [site.suggest("clock_in_caller")]
    return _choose_for_call(site, "")


def _choose_for_numpy(site: BreakSite) -> list[SuggestedFix]:
    call = next(
        (call for call in site.calls if dotted_name(call.func).startswith(("np.", "numpy."))), None
    )
    if call is None and site.facts.gb_id == "GB0087":
        return _choose_around(site)
    expression = site.quote(call)
    return [
        site.suggest(fix_id, expression=expression)
        for fix_id in ("numpy_as_torch", "numpy_custom_op")
    ]


def _choose_for_context(site: BreakSite) -> list[SuggestedFix]:
    items = getattr(site.statement.node, "items", ()) if site.statement else ()
    if "TextIOWrapper" in site.facts.context or "open(" in site.line:
        return [site.suggest("file_in_caller")]
    return [
        site.suggest(
            "context_in_caller", expression=site.quote(items[0].context_expr) if items else None
        )
    ]


def _choose_for_copy(site: BreakSite) -> list[SuggestedFix]:
    call = site.find_call("deepcopy")
    argument = call.args[0] if call and len(call.args) == 1 else None
    edit = None
    is_call_of_copy = site.facts.explanation.startswith(
        "Dynamo does not support copy.deepcopy() on tensors"
    )
    if (
        site.statement
        and site.facts.file
        and call
        and argument
        and is_call_of_copy
        and _is_tensor_copy(site, argument)
    ):
        text = site.statement.segment(argument)
        text = text if isinstance(argument, ast.Name) else f"({text})"
        edit = site.statement.replace(site.facts.file, (call, f"{text}.detach().clone()"))
    return [site.suggest("deepcopy_clone", expression=site.quote(argument), edit=edit)]


def _is_tensor_copy(site: BreakSite, argument: ast.expr) -> bool:
    if isinstance(argument, ast.BinOp):
        return True
    name = argument.id if isinstance(argument, ast.Name) else ""
    computed = rf"\b{re.escape(name)} = (?:torch\.(?!nn)|.*[-+*/@])"
    return bool(name) and any(re.search(computed, line) for line in site.facts.lines)


def _choose_for_disabled(site: BreakSite) -> list[SuggestedFix]:
    match = _FUNCTION.search(f"{site.facts.context} {site.facts.explanation}")
    name = f"`{match[1].rsplit('.', 1)[-1]}`" if match else None
    return [
        site.suggest(fix_id, function=name) for fix_id in ("disable_removed", "disable_nonstrict")
    ]


def _choose_for_item(site: BreakSite) -> list[SuggestedFix]:
    read = next((call for call in site.calls if is_read(call)), None)
    if read is None or site.statement is None:
        return _choose_for_index(site)
    tensor = read.func.value if isinstance(read.func, ast.Attribute) else read.args[0]
    call = ".item()" if isinstance(read.func, ast.Attribute) else f"{dotted_name(read.func)}()"
    names = {"expression": site.quote(tensor), "call": call}
    uses = list_uses(site.statement, read, site.following)
    captured = site.suggest(
        "item_captured", settings=None if uses <= _CAPTURED_USES else (), given=names
    )
    if "branch" in uses:
        return [
            site.suggest("item_branch", given=names),
            site.suggest("item_in_caller", given=names),
        ]
    if uses & {"size", "loop"}:
        sized = site.suggest("item_size_in_caller", given=names)
        return (
            [sized]
            if "loop" in uses
            else [captured, sized]
            if captured.settings
            else [sized, captured]
        )
    if uses <= {"returned", "logged"}:
        return [
            site.suggest("item_in_caller", given=names),
            *([captured] if "logged" not in uses else []),
        ]
    edit = _keep_tensor(site, read, tensor) if uses == {"arithmetic"} else None
    return [site.suggest("item_kept_a_tensor", edit=edit, given=names), captured]


def _keep_tensor(site: BreakSite, read: ast.Call, tensor: ast.expr) -> LineEdit | None:
    if (
        site.statement is None
        or site.facts.file is None
        or dotted_name(read.func) in ("int", "bool")
    ):
        return None
    reads = [call for call in site.calls if is_read(call)]
    if len(reads) != 1:  # `float(x.item())`
        return None
    text = site.statement.segment(tensor)
    if not isinstance(tensor, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
        text = f"({text})"
    return site.statement.replace(site.facts.file, (read, f"{text}.detach()"))


def _choose_for_index(site: BreakSite) -> list[SuggestedFix]:
    for node in site.statement.nodes() if site.statement else ():
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            bound = site.quote(node.slice.upper or node.slice.lower)
            captured = site.suggest("item_captured", expression=bound)
            return [site.suggest("slice_masked", expression=bound), captured]
    index = next(
        (
            n
            for n in (site.statement.nodes() if site.statement else ())
            if isinstance(n, ast.Subscript)
        ),
        None,
    )
    expression = site.quote(index.slice) if index else None
    return [site.suggest("item_size_in_caller", expression=expression or "the tensor")]


def _choose_for_scalar_operator(site: BreakSite) -> list[SuggestedFix]:
    if compared := site.find_call("allclose", "equal"):
        return [site.suggest("allclose_where", expression=site.quote(compared))]
    if drawn := next((call for call in site.calls if "random." in dotted_name(call.func)), None):
        return [site.suggest("numpy_random_torch", expression=site.quote(drawn))]
    if listed := site.find_call("tolist"):
        return _choose_for_list(site, listed)
    if computed := next(
        (call for call in site.calls if dotted_name(call.func).startswith(("np.", "numpy."))), None
    ):
        return [site.suggest("numpy_as_torch", expression=site.quote(computed))]
    if any(is_read(call) for call in site.calls):
        return _choose_for_item(site)
    return [site.suggest("item_captured", settings=(), expression="the number")]


def _choose_for_list(site: BreakSite, listed: ast.Call | None = None) -> list[SuggestedFix]:
    listed = listed or site.find_call("tolist")
    tensor = (
        site.quote(listed.func.value)
        if listed and isinstance(listed.func, ast.Attribute)
        else "the tensor"
    )
    in_caller = site.suggest("tolist_in_caller", expression=tensor)
    if listed is None or site.statement is None:
        return [site.suggest("tolist_indexed", expression=tensor), in_caller]
    parent: ast.AST = site.statement.parents[listed]
    element = parent if isinstance(parent, ast.Subscript) else listed
    uses = list_uses(site.statement, element, site.following)
    edit = _index_tensor(site, listed, element) if uses == {"arithmetic"} else None
    indexed = site.suggest("tolist_indexed", expression=tensor, edit=edit)
    if site.facts.gb_id == "GB0109":
        return [indexed, in_caller]
    settings = (
        () if uses & {"branch", "loop", "logged", "unknown"} and not _is_split(parent) else None
    )
    captured = site.suggest("tolist_captured", settings=settings, expression=tensor)
    return (
        [indexed, captured, in_caller]
        if isinstance(parent, ast.Subscript)
        else [captured, in_caller]
    )


def _index_tensor(site: BreakSite, listed: ast.Call, element: ast.AST) -> LineEdit | None:
    if (
        site.statement is None
        or site.facts.file is None
        or not isinstance(listed.func, ast.Attribute)
    ):
        return None
    if not isinstance(element, ast.Subscript) or isinstance(element.slice, ast.Slice):
        return None
    value, index = site.statement.segment(listed.func.value), site.statement.segment(element.slice)
    return site.statement.replace(site.facts.file, (element, f"{value}[{index}].detach()"))


def _is_split(parent: ast.AST) -> bool:
    return isinstance(parent, ast.Call) and getattr(parent.func, "attr", "") in (
        "split",
        "view",
        "reshape",
    )


def _choose_for_shape(site: BreakSite) -> list[SuggestedFix]:
    operator = site.facts.context or site.facts.explanation
    nodes = list(site.statement.nodes()) if site.statement else []
    masked = next(
        (n for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load)), None
    )
    names = (
        ("nonzero", "argwhere", "where")
        if "nonzero" in operator
        else ("unique", "unique_consecutive")
    )
    call = site.find_call(*names, "repeat_interleave", "masked_select", "bincount")
    expression = site.quote(call or masked) or "the operator"
    settings = () if _sizes_decide(site) else None
    captured = site.suggest("shape_captured", settings=settings, expression=expression)
    if "repeat_interleave" in operator:
        return [site.suggest("repeat_output_size"), captured]
    if "unique" in operator:
        return [site.suggest("unique_in_caller", expression=expression), captured]
    if call is not None and "nonzero" in operator:
        argument = (
            call.args[0]
            if call.args
            else call.func.value
            if isinstance(call.func, ast.Attribute)
            else None
        )
        tensor = site.quote(argument)
        return [
            captured,
            site.suggest("nonzero_static", tensor=tensor.strip("`") if tensor else None),
        ]
    if masked is not None and site.statement is not None:
        text = site.statement.segment
        where = site.suggest("mask_where", tensor=text(masked.value), mask=text(masked.slice))
        return [where, captured] if site.find_call("sum", "mean") else [captured, where]
    return [captured]


def _sizes_decide(site: BreakSite) -> bool:
    statement = site.statement
    if statement is None or not isinstance(statement.node, ast.Assign):
        return statement is None or isinstance(
            statement.node, ast.If | ast.While | ast.For | ast.Assert
        )
    names = {
        node.id
        for target in statement.node.targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name)
    }
    for later in site.following:
        if isinstance(later, str):
            continue
        deciding: list[ast.AST] = []
        for node in later.nodes():
            if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
                deciding.append(node.test)
            elif isinstance(node, ast.For | ast.comprehension):
                deciding.append(node.iter)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
                "tolist",
                "item",
            ):
                deciding.append(node)
        mentioned = {
            node.id for part in deciding for node in ast.walk(part) if isinstance(node, ast.Name)
        }
        if mentioned & names:
            return True
    return False


def _choose_for_branch(site: BreakSite) -> list[SuggestedFix]:
    node = site.statement.node if site.statement else None
    if isinstance(node, ast.While):
        return [site.suggest("while_in_caller"), site.suggest("while_fixed_steps")]
    if isinstance(node, ast.Assert):
        return [site.suggest("assert_constant_message", edit=_shorten_message(site, node))]
    branch = node if isinstance(node, ast.If) else None
    nodes = site.statement.nodes() if site.statement else ()
    choice = branch or next((node for node in nodes if isinstance(node, ast.IfExp)), None)
    test = getattr(choice, "test", None)
    quoted = site.quote(test)
    names = {"condition": quoted.strip("`") if quoted else None}
    fixes = [site.suggest("if_where", given=names), site.suggest("if_cond", given=names)]
    raised = site.following[0] if branch is not None and site.following else None
    if branch is not None and isinstance(raised, Statement) and isinstance(raised.node, ast.Raise):
        return [site.suggest("check_asserted", edit=_assert_instead(site, branch, raised))]
    return [*fixes, site.suggest("if_in_caller", condition=quoted)]


def _shorten_message(site: BreakSite, node: ast.Assert) -> LineEdit | None:
    if site.statement is None or site.facts.file is None or node.msg is None:
        return None
    parts = node.msg.values if isinstance(node.msg, ast.JoinedStr) else []
    text = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant)).strip(
        " :,=("
    )
    return site.statement.replace(site.facts.file, (node.msg, repr(text or "assertion failed")))


def _assert_instead(site: BreakSite, branch: ast.If, raised: Statement) -> LineEdit | None:
    statement = site.statement
    if statement is None or site.facts.file is None or not statement.text.startswith("if "):
        return None
    after = site.following[1] if len(site.following) > 1 else None
    if after is None or isinstance(after, str) or len(after.indent) >= len(raised.indent):
        return None  # more in the block than the raise, or its end is not recorded
    if after.text.startswith(("elif ", "else")) or not isinstance(
        branch.test, ast.Call | ast.Compare
    ):
        return None
    if raised.line != statement.line + statement.line_count:
        return None
    node = raised.node
    arguments = (
        node.exc.args if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) else []
    )
    constant = arguments[0] if arguments and isinstance(arguments[0], ast.Constant) else None
    text = (
        constant.value
        if constant is not None and isinstance(constant.value, str)
        else "check failed"
    )
    line = f"torch._assert_async(~({statement.segment(branch.test)}), {text!r})"
    edit = statement.rewrite(site.facts.file, line)
    if edit is None:
        return None
    return LineEdit(
        edit.file, edit.line, statement.line_count + raised.line_count, edit.replacement
    )


_CHOICES: dict[str, Choose] = {
    "GB0124": _choose_for_item,
    "GB0038": _choose_for_item,  # a slice by a tensor, until torch 2.9
    "GB0033": _choose_for_scalar_operator,
    "GB0109": _choose_for_list,
    "GB0170": _choose_for_branch,
    "GB0036": _choose_for_shape,
    "GB0059": _choose_for_builtin,
    "GB0291": _choose_for_logger,
    "GB0007": _choose_for_skipped,
    "GB0156": _choose_for_method,
    "GB0294": _choose_for_numpy,
    "GB0290": _choose_for_numpy,
    "GB0087": _choose_for_numpy,
    "GB0092": lambda site: [],  # left by an earlier break, whose fix removes it
    "GB0098": _choose_for_disabled,
    "GB0099": _choose_for_disabled,
    "GB0142": _choose_for_context,
    "GB4198": _choose_for_copy,
    "GB0179": _choose_for_copy,
    "GB0025": lambda site: [site.suggest("graph_break_removed", edit=site.remove_line())],
}
