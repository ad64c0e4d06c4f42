"""Choice among the fixes of tensors that are read as numbers or decide what runs."""

from __future__ import annotations

import ast

from compileboard.collectors.fixes.break_sites.hints import is_read
from compileboard.collectors.fixes.break_sites.number_use import Use, list_uses
from compileboard.collectors.fixes.break_sites.site import BreakSite
from compileboard.collectors.fixes.break_sites.statement import Statement, dotted_name
from compileboard.collectors.fixes.fix import LineEdit, SuggestedFix

_CAPTURED_USES: set[Use] = {"arithmetic", "returned", "size"}


def choose_for_item(site: BreakSite) -> list[SuggestedFix]:
    """Choose for `.item()`, `float()`, `int()`, `bool()`, a slice or an index by a tensor."""
    read = next((call for call in site.calls if is_read(call)), None)
    if read is None or site.statement is None:
        return _choose_for_index(site)
    tensor = read.func.value if isinstance(read.func, ast.Attribute) else read.args[0]
    call = ".item()" if isinstance(read.func, ast.Attribute) else f"{dotted_name(read.func)}()"
    names = {"expression": site.quote(tensor), "call": call}
    uses = list_uses(site.statement, read, site.following)
    captured = site.suggest("item_captured", settings=None if uses <= _CAPTURED_USES else (), given=names)
    if "branch" in uses:
        return [site.suggest("item_branch", given=names), site.suggest("item_in_caller", given=names)]
    if uses & {"size", "loop"}:
        sized = site.suggest("item_size_in_caller", given=names)
        return [sized] if "loop" in uses else [captured, sized] if captured.settings else [sized, captured]
    if uses <= {"returned", "logged"}:
        return [site.suggest("item_in_caller", given=names), *([captured] if "logged" not in uses else [])]
    edit = _keep_tensor(site, read, tensor) if uses == {"arithmetic"} else None
    return [site.suggest("item_kept_a_tensor", edit=edit, given=names), captured]


def _keep_tensor(site: BreakSite, read: ast.Call, tensor: ast.expr) -> LineEdit | None:
    """Return the edit from `x.item()` to `x.detach()`; `int(x)` cuts and `bool(x)` compares, so they stay."""
    if site.statement is None or site.facts.file is None or dotted_name(read.func) in ("int", "bool"):
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
    index = next((n for n in (site.statement.nodes() if site.statement else ()) if isinstance(n, ast.Subscript)), None)
    expression = site.quote(index.slice) if index else None
    return [site.suggest("item_size_in_caller", expression=expression or "the tensor")]


def choose_for_scalar_operator(site: BreakSite) -> list[SuggestedFix]:
    """Choose for an operator that returns a number: tolist, allclose, equal, a random number of numpy's."""
    if compared := site.find_call("allclose", "equal"):
        return [site.suggest("allclose_where", expression=site.quote(compared))]
    if drawn := next((call for call in site.calls if "random." in dotted_name(call.func)), None):
        return [site.suggest("numpy_random_torch", expression=site.quote(drawn))]
    if listed := site.find_call("tolist"):
        return choose_for_list(site, listed)
    if computed := next((call for call in site.calls if dotted_name(call.func).startswith(("np.", "numpy."))), None):
        return [site.suggest("numpy_as_torch", expression=site.quote(computed))]
    if any(is_read(call) for call in site.calls):
        return choose_for_item(site)
    return [site.suggest("item_captured", settings=(), expression="the number")]


def choose_for_list(site: BreakSite, listed: ast.Call | None = None) -> list[SuggestedFix]:
    """Choose for `.tolist()`: integers can be captured, floats not."""
    listed = listed or site.find_call("tolist")
    tensor = site.quote(listed.func.value) if listed and isinstance(listed.func, ast.Attribute) else "the tensor"
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
    settings = () if uses & {"branch", "loop", "logged", "unknown"} and not _is_split(parent) else None
    captured = site.suggest("tolist_captured", settings=settings, expression=tensor)
    return [indexed, captured, in_caller] if isinstance(parent, ast.Subscript) else [captured, in_caller]


def _index_tensor(site: BreakSite, listed: ast.Call, element: ast.AST) -> LineEdit | None:
    """Return the edit from `x.tolist()[i]` to `x[i].detach()`."""
    if site.statement is None or site.facts.file is None or not isinstance(listed.func, ast.Attribute):
        return None
    if not isinstance(element, ast.Subscript) or isinstance(element.slice, ast.Slice):
        return None
    value, index = site.statement.segment(listed.func.value), site.statement.segment(element.slice)
    return site.statement.replace(site.facts.file, (element, f"{value}[{index}].detach()"))


def _is_split(parent: ast.AST) -> bool:
    return isinstance(parent, ast.Call) and getattr(parent.func, "attr", "") in ("split", "view", "reshape")


def choose_for_shape(site: BreakSite) -> list[SuggestedFix]:
    """Choose for an operator whose output's size depends on the data."""
    operator = site.facts.context or site.facts.explanation
    nodes = list(site.statement.nodes()) if site.statement else []
    masked = next((n for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load)), None)
    names = ("nonzero", "argwhere", "where") if "nonzero" in operator else ("unique", "unique_consecutive")
    call = site.find_call(*names, "repeat_interleave", "masked_select", "bincount")
    expression = site.quote(call or masked) or "the operator"
    settings = () if _sizes_decide(site) else None
    captured = site.suggest("shape_captured", settings=settings, expression=expression)
    if "repeat_interleave" in operator:
        return [site.suggest("repeat_output_size"), captured]
    if "unique" in operator:
        return [site.suggest("unique_in_caller", expression=expression), captured]
    if call is not None and "nonzero" in operator:
        argument = call.args[0] if call.args else call.func.value if isinstance(call.func, ast.Attribute) else None
        tensor = site.quote(argument)
        return [captured, site.suggest("nonzero_static", tensor=tensor.strip("`") if tensor else None)]
    if masked is not None and site.statement is not None:
        text = site.statement.segment
        where = site.suggest("mask_where", tensor=text(masked.value), mask=text(masked.slice))
        return [where, captured] if site.find_call("sum", "mean") else [captured, where]
    return [captured]


def _sizes_decide(site: BreakSite) -> bool:
    """Return True if later code branches or loops on what the operator returned: no setting captures that."""
    statement = site.statement
    if statement is None or not isinstance(statement.node, ast.Assign):
        return statement is None or isinstance(statement.node, ast.If | ast.While | ast.For | ast.Assert)
    names = {node.id for target in statement.node.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    for later in site.following:
        if isinstance(later, str):
            continue
        deciding: list[ast.AST] = []
        for node in later.nodes():
            if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
                deciding.append(node.test)
            elif isinstance(node, ast.For | ast.comprehension):
                deciding.append(node.iter)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("tolist", "item"):
                deciding.append(node)
        mentioned = {node.id for part in deciding for node in ast.walk(part) if isinstance(node, ast.Name)}
        if mentioned & names:
            return True
    return False


def choose_for_branch(site: BreakSite) -> list[SuggestedFix]:
    """Choose for `if`, `while`, `assert` and conditional expressions on a tensor."""
    node = site.statement.node if site.statement else None
    if isinstance(node, ast.While):
        return [site.suggest("while_in_caller"), site.suggest("while_fixed_steps")]
    if isinstance(node, ast.Assert):
        return [site.suggest("assert_constant_message", edit=_shorten_message(site, node))]
    branch = node if isinstance(node, ast.If) else None
    choice = branch or next((n for n in (site.statement.nodes() if site.statement else ()) if _is_choice(n)), None)
    test = getattr(choice, "test", None)
    quoted = site.quote(test)
    names = {"condition": quoted.strip("`") if quoted else None}
    fixes = [site.suggest("if_where", given=names), site.suggest("if_cond", given=names)]
    raised = site.following[0] if branch is not None and site.following else None
    if branch is not None and isinstance(raised, Statement) and isinstance(raised.node, ast.Raise):
        return [site.suggest("check_asserted", edit=_assert_instead(site, branch, raised))]
    return [*fixes, site.suggest("if_in_caller", condition=quoted)]


def _is_choice(node: ast.AST) -> bool:
    return isinstance(node, ast.IfExp)


def _shorten_message(site: BreakSite, node: ast.Assert) -> LineEdit | None:
    """Return the edit that leaves of an assert's message what is constant."""
    if site.statement is None or site.facts.file is None or node.msg is None:
        return None
    parts = node.msg.values if isinstance(node.msg, ast.JoinedStr) else []
    text = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant)).strip(" :,=(")
    return site.statement.replace(site.facts.file, (node.msg, repr(text or "assertion failed")))


def _assert_instead(site: BreakSite, branch: ast.If, raised: Statement) -> LineEdit | None:
    """Return the edit from `if test: raise Error("text")` to an assertion on the device."""
    statement = site.statement
    if statement is None or site.facts.file is None or not statement.text.startswith("if "):
        return None
    after = site.following[1] if len(site.following) > 1 else None
    if after is None or isinstance(after, str) or len(after.indent) >= len(raised.indent):
        return None  # more in the block than the raise, or its end is not recorded
    if after.text.startswith(("elif ", "else")) or not isinstance(branch.test, ast.Call | ast.Compare):
        return None
    if raised.line != statement.line + statement.line_count:
        return None
    node = raised.node
    arguments = node.exc.args if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) else []
    constant = arguments[0] if arguments and isinstance(arguments[0], ast.Constant) else None
    text = constant.value if constant is not None and isinstance(constant.value, str) else "check failed"
    line = f"torch._assert_async(~({statement.segment(branch.test)}), {text!r})"
    edit = statement.rewrite(site.facts.file, line)
    if edit is None:
        return None
    return LineEdit(edit.file, edit.line, statement.line_count + raised.line_count, edit.replacement)
