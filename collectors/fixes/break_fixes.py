"""Fixes of graph breaks, chosen by torch's registry ID and the source line."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from compileboard.collectors.contract.compile_labels import label_line
from compileboard.collectors.fixes.fix import (
    BreakFacts,
    Caller,
    LineEdit,
    StackFrame,
    SuggestedFix,
    find_fix,
    list_fixes_for,
)
from compileboard.collectors.fixes.preconditions import (
    LOGS,
    STORING,
    Function,
    Use,
    find_argument,
    find_empty_check,
    find_function,
    find_module_call,
    find_outer_call,
    is_always_run,
    is_changed_in_place,
    is_dict,
    is_harmless,
    is_known_before,
    is_made_before,
    is_plain_choice,
    is_read,
    is_tensor,
    join_bools,
    last_line,
    list_arguments,
    list_block,
    list_conditions,
    list_decisions,
    list_draws,
    list_locals,
    list_lookups,
    list_loops,
    list_names,
    list_uses,
    list_values,
    list_written,
    reads_counter,
    writes_state,
)
from compileboard.collectors.fixes.reports import (
    ReportingCall,
    changes_state,
    find_report,
    is_check,
    only_reports,
)
from compileboard.collectors.fixes.statement import (
    Statement,
    dotted_name,
    find_statement,
    parse_statement,
    shorten,
)
from compileboard.collectors.fixes.titles import is_of_ddp, join_names, name_builtin, name_skipped

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
    "calling": "Call",
    "doing": "read the number",
    "tested": "",
}


# Its caller is the function with the loop, which runs eagerly.
_IN_LOOPS_CALLER = {"loop_body", "loop_call", "range_in_caller", "while_in_caller"}


@dataclass
class BreakSite:
    """A graph break in its source. `function` is None unless all its lines were recorded."""

    facts: BreakFacts
    statement: Statement | None = field(init=False)
    function: Function | None = field(init=False)

    def __post_init__(self) -> None:
        self.statement = find_statement(self.facts)
        self.function = find_function(self.facts.lines, self.facts.first_line, self.facts.line)

    @cached_property
    def calls(self) -> list[ast.Call]:
        return list(self.statement.calls()) if self.statement else []

    @property
    def line(self) -> str:
        return (self.facts.source_line or (self.statement.text if self.statement else "")).strip()

    @property
    def is_in_eager_loop(self) -> bool:
        return any(part.block in ("for", "while") for part in self.facts.eager)

    @property
    def line_number(self) -> int:
        return self.statement.line if self.statement else self.facts.line or 0

    @cached_property
    def ways(self) -> list[list[tuple[Function, Caller]]]:
        """Return the call chains from each compiled function to the inlined one that broke; empty
        if one of them is not fully known.
        """
        ways = [_parse_way(way) for way in self.facts.callers]
        return ways if all(ways) else []

    @cached_property
    def caller(self) -> str:
        """Return "the caller", and of which function if compiled code calls the one that broke."""
        if not self.facts.is_inlined:
            return "the caller"
        compiled = self.facts.compiled
        return f"the caller of {f'`{compiled}`' if compiled else 'the compiled function'}"

    @cached_property
    def own_loop(self) -> ast.For | ast.While | None:
        loops = list_loops(self.function, self.line_number) if self.function else []
        return loops[-1] if loops else None

    @cached_property
    def around(self) -> tuple[ast.For | ast.While | None, int]:
        """Return the innermost loop around the break or the call leading to it, and the line of
        that break or call.
        """
        if self.own_loop is None:
            for function, caller in reversed(self.way_in):
                if loops := list_loops(function, caller.line):
                    # Where a loop does nothing else, the next one has the rest of the work.
                    whole = (loop for loop in reversed(loops) if len(loop.body) > 1)
                    return next(whole, loops[-1]), caller.line
        return self.own_loop, self.line_number

    @property
    def iterated(self) -> ast.expr | None:
        """Return the expression that the loop iterates over, if evaluating it breaks the graph."""
        node = self.statement.node if self.statement else None
        return node.iter if isinstance(node, ast.For) else None

    @property
    def loop(self) -> ast.For | ast.While | None:
        return self.around[0]

    @cached_property
    def way_in(self) -> list[tuple[Function, Caller]]:
        """Return the call chain from the function that torch skipped, else from the
        compiled one.
        """
        return _parse_way(self.facts.skipped) or (self.ways[0] if self.ways else [])

    @property
    def loop_statement(self) -> ast.stmt | None:
        """Return the statement in the loop's body that breaks the graph, itself or in a call."""
        loop, line = self.around
        body = loop.body if loop else []
        return next((n for n in body if n.lineno <= line <= (n.end_lineno or n.lineno)), None)

    @cached_property
    def hides_breaks(self) -> bool:
        """Return whether fixing this break would not help, because the loop would still run
        eagerly: other statements in it break too, or its condition depends on a tensor.
        """
        if not self.is_in_eager_loop or self.own_loop is None or self.iterated is not None:
            return False
        others = "\n".join(
            ast.unparse(part) for part in self.own_loop.body if part is not self.loop_statement
        )
        return isinstance(self.own_loop, ast.While) or bool(_BREAKS.search(others))

    def locate(self, node: ast.AST | None) -> tuple[Function, ast.AST] | None:
        """Return the function, and the node in it that corresponds to a part of the statement."""
        if node is None or self.function is None or self.statement is None:
            return None
        lines = range(self.statement.line, self.statement.line + self.statement.line_count)
        wanted = ast.dump(node)
        for part in ast.walk(self.function):
            if part is node or (getattr(part, "lineno", 0) in lines and ast.dump(part) == wanted):
                return self.function, part
        return None

    def find_decided(self, test: ast.AST | None) -> ast.AST | None:
        """Return the `if`, loop or assert of the function that tests an expression."""
        found = self.locate(test)
        if found is None:
            return None
        function, own = found
        return next((n for n in ast.walk(function) if getattr(n, "test", None) is own), None)

    def is_given(self, node: ast.AST | None) -> bool:
        """Return whether a value is known before the compiled call, because it depends only on the
        call's arguments. Arguments of inner functions may have been computed inside the call.
        """
        found = self.locate(node)
        if found is None or is_made_before(*found, self.line_number):
            return False
        if not self.facts.is_inlined:
            return True
        function, value = found
        return bool(self.ways) and all(
            _is_passed_in(function, value, self.line_number, way) for way in self.ways
        )

    def is_tensor(self, node: ast.AST | None) -> bool:
        found = self.locate(node)
        return found is not None and is_tensor(*found)

    def find_own(self, node: ast.AST) -> ast.AST | None:
        """Return the innermost statement that contains a part of this one, as in `if a: b()`."""
        parents = self.statement.parents if self.statement else {}
        while not isinstance(node, ast.stmt) and node in parents:
            node = parents[node]
        return node if isinstance(node, ast.stmt) else None

    def uses(self, node: ast.AST | None) -> set[Use]:
        found = self.locate(node)
        return list_uses(*found) if found else {"unknown"}

    def decisions(self, node: ast.AST | None) -> list[ast.AST]:
        found = self.locate(node)
        return list_decisions(*found) if found else []

    @cached_property
    def is_repeated(self) -> bool:
        """Return whether a loop of compiled code may reach the break more than once."""
        places = [place for way in self.ways for place in map(_place, way)]
        places += [(self.function, self.line_number)] if self.function else []
        return any(list_conditions(*place)[1] for place in places)

    @cached_property
    def tests(self) -> list[tuple[str, bool]]:
        """Return the conditions under which the break is reached, each with whether the caller
        of the compiled function knows its value.
        """
        if self.function is None:
            return []
        places = [
            *map(_place, self.ways[0] if self.ways else ()),
            (self.function, self.line_number),
        ]
        compiled = places[0][0] if self.ways or not self.facts.is_inlined else None
        return [
            (
                f"`{shorten(ast.unparse(test))}`",
                function is compiled and is_known_before(function, test),
            )
            for function, line in places
            for test in list_conditions(function, line)[0]
        ]

    def only_chooses(self, node: ast.AST | None) -> bool:
        """Return whether every decision on a value can be written with `torch.where`."""
        decisions = self.decisions(node)
        return (
            self.function is not None
            and bool(decisions)
            and all(is_plain_choice(self.function, decision) for decision in decisions)
        )

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
            "caller": "the caller" if fix_id in _IN_LOOPS_CALLER else self.caller,
        }
        title = fix.title.replace("the caller", "{caller}", 1).format_map(values)
        title = title.replace("Call the call ", "Make the call ")  # its text is unknown
        title = fix.warn(title)
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
        if self._is_one_of_several():
            return LineEdit(self.facts.file, self.statement.line, self.statement.line_count, ())
        return self.statement.rewrite(self.facts.file, "pass")

    def _is_one_of_several(self) -> bool:
        for node in ast.walk(self.function) if self.function else ():
            for name in ("body", "orelse", "finalbody"):
                body = getattr(node, name, None)
                lines = [part.lineno for part in body] if isinstance(body, list) else []
                if self.line_number in lines:
                    return len(lines) > 1
        return False


def _is_passed_in(
    function: Function, value: ast.AST, line: int, way: Sequence[tuple[Function, Caller]]
) -> bool:
    """Return whether an expression depends only on the compiled function's arguments, passed on
    unchanged by each function of the call chain.
    """
    given = {argument.arg for argument in list_arguments(function)}
    names, others = list_names(value) & given, list_names(value) - given
    if any(others & list_locals(outer) for outer, _ in way):  # of a function around this one
        return False
    is_changed = is_changed_in_place(function, names - {"self"}, before=line)
    if is_changed or is_made_before(function, value, line) or not is_harmless(value):
        return False
    if not way:
        return True
    *outer, (caller, at) = way
    calls = [
        part
        for part in ast.walk(caller)
        if isinstance(part, ast.Call)
        and part.lineno <= at.line <= (part.end_lineno or part.lineno)
        and dotted_name(part.func).rsplit(".", 1)[-1] == function.name
    ]
    passed = (
        [find_argument(function, calls[0], name) for name in names] if len(calls) == 1 else [None]
    )
    return all(part is not None and _is_passed_in(caller, part, at.line, outer) for part in passed)


def _parse_way(way: Sequence[Caller]) -> list[tuple[Function, Caller]]:
    found = [(find_function(at.lines, at.first_line, at.line), at) for at in way]
    parsed = [(function, at) for function, at in found if function is not None]
    return parsed if len(parsed) == len(way) else []


Choose = Callable[[BreakSite], list[SuggestedFix]]

_ARGUMENT_TYPES = re.compile(r"\.variables\.[\w.]*?(\w+)'>")
_FUNCTION = re.compile(r"<function ([\w.<>]+) at ")
_PRINTABLE = {"TensorVariable", "ConstantVariable", "StringFormatVariable"}
_LOGGER_METHOD = re.compile(r">\.(?P<name>\w+), args")
# What a number captured in the graph may be used for, by running each.
_CAPTURED_USES: set[Use] = {"tensor", "argument", "returned", "stored", "size"}
_CALLED = {"GB9186": ("grad",)}  # what a title names, of the calls of a line
_LOGGER_METHODS = ("debug", "info", "warning", "error", "critical", "exception", "log")
_RANDOM = ("random.", "np.random.", "numpy.random.")
_NUMPY = ("np.", "numpy.")
_LINEAR = re.compile(r"\.(?:\w*_)?(?:fc|linear|lin|proj|head|classifier|embedding)\w*$")


def suggest_break_fixes(facts: BreakFacts) -> list[SuggestedFix]:
    """Return the fixes whose preconditions hold, those without side effects first."""
    site = BreakSite(facts)
    choose = _CHOICES.get(facts.gb_id or "")
    fixes = choose(site) if choose is not None else _choose_by_id(site)
    # Compiled without a call that comes first or last, the function keeps the order of all it does.
    is_outer = any(suggested.fix.id == "rest_compiled" for suggested in fixes)
    if not is_outer and (report := _find_report(site)) is not None:
        others = (suggested for suggested in fixes if suggested.can_try or suggested.fix.changes)
        fixes = [_suggest_report_in_caller(site, report), *others]
    elif fixes and site.is_in_eager_loop:
        fixes += _choose_loop_body(site)
    if site.hides_breaks:
        fixes.insert(0, site.suggest("loop_left_out"))
    fixes = [_add_state(site, fix) for fix in fixes if fix.fix.gone_in is None]
    for fix in list_fixes_for("graph_break", facts.gb_id or ""):
        if fix.gone_in is not None and facts.torch_version < fix.gone_in:
            fixes.insert(0, SuggestedFix(fix, fix.title))
    known = (suggested for suggested in fixes if suggested.fix.minimum_torch <= facts.torch_version)
    once: dict[str, SuggestedFix] = {}
    for suggested in known:
        once.setdefault(suggested.fix.id, suggested)
    return sorted(once.values(), key=lambda suggested: suggested.fix.changes is not None)


def _add_state(site: BreakSite, suggested: SuggestedFix) -> SuggestedFix:
    """Add a warning about containers that the function writes to: the fix lets it be compiled, and
    it then guards on them.
    """
    if suggested.fix.id not in ("context_in_caller", "time_in_caller") or not site.facts.eager:
        return suggested
    functions: list[Function | None] = [function for function, _ in site.way_in] or [site.function]
    written = [name for function in functions if function for name in list_written(function)]
    if not written:
        return suggested
    names = " and ".join(f"`{name}`" for name in dict.fromkeys(written))
    title = f"{suggested.title}; look up {names} in the caller too, or each call may recompile"
    return replace(suggested, title=title)


def _find_report(site: BreakSite) -> ReportingCall | None:
    """Return the call that only reports something and breaks the graph, if it has an `if` or
    function of its own.
    """
    if site.function is None:
        return None
    if not site.facts.is_inlined:
        report = find_report(site.function, site.line_number)
        is_logged = site.facts.gb_id in ("GB0291", "GB4841")  # whose own fixes name no values
        is_own = report is not None and (report.test is not None or (is_logged and report.lacking))
        return report if is_own else None
    called = [site.function, *(function for way in site.ways for function, _ in way[1:])]
    if not site.ways or any(changes_state(function) for function in called):
        return None
    is_known = all(map(only_reports, called))
    reports = [find_report(*_place(way[0]), is_known=is_known) for way in site.ways]
    return reports[0] if all(reports) else None


def _place(call: tuple[Function, Caller]) -> tuple[Function, int]:
    return call[0], call[1].line


def _suggest_report_in_caller(site: BreakSite, report: ReportingCall) -> SuggestedFix:
    lacking = " and ".join(f"`{shorten(text)}`" for text in report.lacking)
    names = {
        "calling": f"Return {lacking}, and call" if lacking else "Call",
        "expression": f"`{shorten(ast.unparse(report.call))}`",
        "tested": f", if `{shorten(ast.unparse(report.test))}`" if report.test else "",
    }
    return replace(site.suggest("report_in_caller", given=names), frees=report.own)


def _name_returned(site: BreakSite, values: Sequence[str]) -> tuple[str, str]:
    """Return what the compiled function must return so that its caller can do something as often
    as it is done now, and the words that say how often: ", once for each entry".
    """
    values = list(dict.fromkeys(values))
    if site.is_repeated:
        each = "entry" if values else "time that the loop reaches it"
        listed = f"a list of every {join_names(values)} of the loop" if values else ""
        return listed, f", once for each {each}"
    unknown = [test for test, is_known in site.tests if not is_known]
    tested = " and ".join(test for test, _ in site.tests)
    return join_names([*values, *unknown]), f", if {tested}" if tested else ""


def _name_report(site: BreakSite, call: ast.Call | None) -> dict[str, str]:
    """Return the blanks of a title that moves a call out of a loop or an `if` into the caller;
    empty for a call that is made once.
    """
    if call is None or not (site.is_repeated or site.tests):
        return {}
    reported: list[str] = []
    for given in (*call.args, *(keyword.value for keyword in call.keywords)):
        parts = given.values if isinstance(given, ast.JoinedStr) else [given]
        values = (part.value if isinstance(part, ast.FormattedValue) else part for part in parts)
        reported += [
            f"`{shorten(ast.unparse(value))}`"
            for value in values
            if not isinstance(value, ast.Constant)
        ]
    returned, tested = _name_returned(site, reported)
    return {"calling": f"Return {returned}, and call" if returned else "Call", "tested": tested}


def suggest_library_fixes(facts: BreakFacts, *, is_call_compiled: bool) -> list[SuggestedFix]:
    """Suggest fixes for a break inside a package, which the user cannot edit: settings, a newer
    torch, and changes of the user's call.
    """
    fixes = [
        replace(suggested, edits=())
        for suggested in suggest_break_fixes(facts)
        if suggested.settings or suggested.fix.gone_in
    ]
    if facts.call is None or facts.file is None:
        return fixes
    names = {
        "place": f"`{facts.call.place}`",
        "broken": f"`{label_line(facts.file, facts.line)}`",
        "expression": _quote_users_call(facts.call),
        "function": f"`{facts.eager[0].function}`" if facts.eager else "",
    }
    fix_ids = ["library_call"]
    if is_call_compiled:
        fix_ids.append("library_outside")
    elif facts.eager:
        fix_ids.append("library_parts")
    if facts.eager:  # to leave it out costs nothing: it is eager already
        fix_ids.reverse()
    for fix_id in fix_ids:
        fix = find_fix("graph_break", fix_id)
        fixes.append(SuggestedFix(fix, fix.title.format_map(names)))
    return fixes


def _quote_users_call(call: StackFrame) -> str:
    statement = parse_statement(call.code or "")
    calls = list(statement.calls()) if statement else []
    return f"`{shorten(statement.segment(calls[0]))}`" if statement and calls else "the call"


def reads_for_branch(facts: BreakFacts) -> bool:
    site = BreakSite(facts)
    return any("branch" in site.uses(call) for call in site.calls if is_read(call))


def _choose_by_id(site: BreakSite) -> list[SuggestedFix]:
    expression = _quote_call(site, *_CALLED.get(site.facts.gb_id or "", ()))
    fixes = list_fixes_for("graph_break", site.facts.gb_id or "")
    return [site.suggest(fix.id, expression=expression) for fix in fixes] or _choose_around(site)


def _choose_loop_body(site: BreakSite, quoted: str | None = None) -> list[SuggestedFix]:
    """Suggest compiling the loop's body, or nothing if the rest of the body reads the loop's
    counter: as an argument of a compiled function, it would cause recompiles.
    """
    calling = site.loop_statement if site.loop is not site.own_loop else None
    if site.loop is not None and calling is not None:
        own = (part for part in ast.walk(calling) if isinstance(part, ast.Call))
        calls = (part for part in own if part.lineno <= site.around[1] <= (part.end_lineno or 0))
        quoted = f"`{ast.unparse(next(calls, calling))}`"
        if len(site.loop.body) == 1:  # what it calls is compiled on its own already
            return [site.suggest("loop_left_out")] if isinstance(calling, ast.Expr) else []
    expression = quoted or site.quote(site.iterated) or _quote_call(site) or "what breaks"
    loop, line = site.around
    if loop is not None and reads_counter(loop, site.loop_statement):
        called = find_module_call(loop, line)
        names = {"expression": expression, "call": f"`{ast.unparse(called)}`" if called else None}
        return [site.suggest("loop_call", given=names)] if called else []
    body = site.suggest("loop_body", expression=expression)
    if site.iterated is None or quoted:
        return [body]
    return [replace(body, title=f"{body.title}. Pass it tensors: each new number would recompile")]


def _choose_around(site: BreakSite, quoted: str | None = None) -> list[SuggestedFix]:
    if outside := _choose_for_step(site) or _choose_outside(site):
        return outside
    statement = site.loop_statement
    inner = statement.body if isinstance(statement, ast.For) else [statement]
    is_alone = site.iterated is not None or all(isinstance(part, ast.Expr) for part in inner)
    if is_alone and site.is_in_eager_loop and (loop := _choose_loop_body(site)):
        return loop
    quoted = quoted or _quote_call(site) or (f"`{shorten(site.line)}`" if site.line else None)
    return [site.suggest("parts_around", expression=quoted)] if quoted else []


def _choose_for_step(site: BreakSite) -> list[SuggestedFix]:
    """Suggest compiling only the loss if a whole training step breaks: the optimizer runs after
    the backward pass.
    """
    called = site.find_call("backward", "zero_grad", "step")
    parts = ast.walk(site.function) if site.function else ()
    names = {dotted_name(part.func) for part in parts if isinstance(part, ast.Call)}
    optimizers = {name.rpartition(".")[0] for name in names if name.endswith(".zero_grad")}
    steps = {name.rpartition(".")[0] for name in names if name.endswith(".step")}
    is_step = optimizers & steps and any(name.endswith(".backward") for name in names)
    looped = site.quote(site.iterated)
    expression = f"the loop over {looped}" if looped else site.quote(called)
    return [site.suggest("step_outside", expression=expression)] if expression and is_step else []


def _choose_for_backward(site: BreakSite) -> list[SuggestedFix]:
    expression = _quote_call(site, "backward")
    return _choose_for_step(site) or [
        site.suggest(fix_id, expression=expression)
        for fix_id in ("backward_in_caller", "backward_traced")
    ]


def _choose_for_requires_grad(site: BreakSite) -> list[SuggestedFix]:
    """Suggest setting it in the caller if the tensor is an argument and every call sets it."""
    call = site.find_call("requires_grad_")
    base = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if base is None or site.function is None or not site.is_given(base):
        return _choose_around(site)
    asked = f"not {ast.unparse(base)}.requires_grad"

    def is_own(part: ast.stmt) -> bool:
        return isinstance(part, ast.Expr) and part.lineno == site.line_number

    bodies, parts = [site.function.body], ast.walk(site.function)
    if any(isinstance(n, ast.Return) and n.lineno < site.line_number for n in parts):
        return _choose_around(site)
    bodies += [
        n.body for n in site.function.body if isinstance(n, ast.If) and ast.unparse(n.test) == asked
    ]
    if not any(is_own(part) for body in bodies for part in body):
        return _choose_around(site)
    return [site.suggest("requires_grad_of_input", expression=site.quote(call))]


def _choose_outside(site: BreakSite) -> list[SuggestedFix]:
    """Suggest moving out a call that comes before or after everything else in the function."""
    compiled = [way[0] for way in site.ways]
    places = [(function, at.function, at.line) for function, at in compiled]
    if not site.facts.is_inlined and site.function is not None:
        places = [(site.function, site.facts.function or site.function.name, site.line_number)]
    if _is_in_autograd_function(site):
        return []
    found = [(find_outer_call(function, line), name) for function, name, line in places]
    if not found:
        return []
    call, function = found[0]
    if call is None or not all(outer for outer, _ in found):
        return []
    quoted = f"`{dotted_name(call.func)}({'…' * bool(call.args or call.keywords)})`"
    names = {"function": f"`{function}`", "expression": quoted}
    own = {name for _, name, _ in places} | {site.facts.function}
    eager = (part.function for part in site.facts.eager if part.function not in own)
    return [site.suggest("rest_compiled", given=names, place=f"`{next(eager, function)}`")]


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
    has_keywords = "True" in site.facts.context.rsplit("]", 1)[-1]
    reordered = site.suggest("print_reordered", expression=expression)
    names = {
        "calling": "Return what is printed, and call",
        **_name_report(site, site.find_call("print")),
    }
    fixes = [
        site.suggest("print_in_caller", given=names, expression=expression),
        site.suggest("print_removed", expression=expression, edit=site.remove_line()),
    ]
    is_kept = not types - _PRINTABLE and not has_keywords and _is_reorderable(site, "print")
    return [reordered, *fixes] if is_kept else fixes


def _is_reorderable(site: BreakSite, name: str) -> bool:
    """Return whether a line prints the same text if torch prints it after the graph.

    Prints in inlined functions and comprehensions are lost, and a tensor that is modified is
    printed with its later value.
    """
    found = site.locate(site.find_call(name))
    if found is None or site.facts.is_inlined:
        return False
    function, call = found
    names = list_names(call) | {part.id for part in _list_sources(function, call)}
    comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
    return not is_changed_in_place(function, names) and not any(
        isinstance(node, comprehensions) and call in ast.walk(node) for node in ast.walk(function)
    )


def _list_sources(function: Function, call: ast.AST) -> Iterator[ast.Name]:
    """Yield the names whose values are read for the arguments of a call, one step back."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and list_names(*node.targets) & list_names(call):
            yield from (part for part in ast.walk(node.value) if isinstance(part, ast.Name))


def _is_in_autograd_function(site: BreakSite) -> bool:
    arguments = list_arguments(site.function) if site.function else []
    name = (site.facts.function or "").rsplit(".", 1)[-1]
    return name in ("forward", "backward") and any(
        argument.arg == "ctx" for argument in arguments[:1]
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
        site.suggest("logger_in_caller", given=_name_report(site, call), expression=expression),
        site.suggest("logger_ignored", expression=expression, settings=settings),
        site.suggest("logger_guarded", expression=expression),
    ]


def _choose_for_skipped(site: BreakSite) -> list[SuggestedFix]:
    skipped = name_skipped(site.facts) or ""
    module, _, name = skipped.rpartition(".")
    if is_of_ddp(site.facts):
        return _choose_for_ddp(site)
    if module.startswith("torch.optim.") and name == "step":
        return _choose_for_optimizer(site)
    if name == "warn" and "warnings" in module:
        return _choose_for_warning(site)
    if module == "time":
        return [site.suggest("time_in_caller")]
    if module in ("Random", "random", "_random", "random.Random"):
        return _choose_for_random(site, site.find_call(name))
    if module in ("torch.random", "torch.cuda.random") or "Generator" in skipped:
        return [site.suggest("seed_in_caller")]
    if module == "torch.serialization":
        return [site.suggest("save_in_caller", expression=_quote_call(site, name))]
    if module.split(".")[0] in ("sys", "inspect", "importlib", "gc", "traceback"):
        return [site.suggest("frame_guarded", expression=_quote_call(site, name))]
    return _choose_for_call(site, name)


def _choose_for_random(site: BreakSite, drawn: ast.Call | None) -> list[SuggestedFix]:
    expression = f"`{shorten(ast.unparse(drawn))}`" if drawn else _quote_call(site)
    fix_id = "numpy_random_torch" if site.facts.gb_id == "GB0033" else "random_torch"
    if site.loop is not None:  # as many numbers as passes, each in a bool of its own
        bodies = _choose_loop_body(site, expression)
        if drawn and len(list_draws(site.loop, drawn)) > 1:
            bodies = [_warn_of_order(body) for body in bodies]
        return bodies or _choose_around(site)
    in_caller = _draw_in_caller(site, "random_in_caller", drawn)
    if "branch" not in site.uses(drawn):
        return [in_caller, site.suggest(fix_id, expression=expression)]
    if site.only_chooses(drawn):
        return [in_caller, site.suggest("random_where", expression=expression)]
    return [in_caller]


def _draw_in_caller(site: BreakSite, fix_id: str, drawn: ast.Call | None) -> SuggestedFix:
    """Suggest drawing all random numbers of the generator in the caller, if each call of the
    compiled function draws each of them once. Otherwise their order may change.
    """
    own = site.function
    draws = list_draws(own, drawn) if own and drawn else []
    places = [(own, call) for call in draws if own]
    for function, caller in site.ways[0] if site.ways else []:
        draws += list_draws(function, drawn) if drawn else []
        calls = (part for part in ast.walk(function) if isinstance(part, ast.Call))
        places += [(function, call) for call in calls if call.lineno == caller.line]
    is_kept = all(is_always_run(*place) for place in places)
    if len(draws) > 1:
        is_kept &= not site.facts.is_inlined and not any(
            is_made_before(function, call, call.lineno)
            or re.search("seed|state", ast.unparse(call))
            for function, call in places
        )
    quoted = [f"`{shorten(ast.unparse(call))}`" for call in (draws if is_kept else [drawn]) if call]
    names = f"{join_names(quoted)}, in this order," if len(quoted) > 1 else "".join(quoted)
    suggested = site.suggest(fix_id, expression=names or _quote_call(site))
    return suggested if is_kept else _warn_of_order(suggested)


def _warn_of_order(suggested: SuggestedFix) -> SuggestedFix:
    order = "the order of the draws, and with it the values, unless all are drawn as before"
    fix = replace(suggested.fix, changes=order)
    return replace(suggested, fix=fix, title=fix.warn(suggested.title))


def _choose_for_warning(site: BreakSite) -> list[SuggestedFix]:
    call = site.find_call("warn")
    statements = (
        "import warnings",
        "torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)",
    )
    is_constant = (
        call is not None
        and len(call.args) == 1
        and isinstance(call.args[0], ast.Constant)
        and all(keyword.arg == "stacklevel" for keyword in call.keywords)
    )
    in_caller = site.suggest("warning_in_caller")
    if not is_constant or not _is_reorderable(site, "warn"):
        return [in_caller]
    return [in_caller, site.suggest("warning_reordered", settings=statements)]


def _choose_for_call(site: BreakSite, name: str) -> list[SuggestedFix]:
    """Suggest making the call in the caller if its arguments are known there."""
    call = site.find_call(name) if name else None
    call = call or next((call for call in site.calls if "." in dotted_name(call.func)), None)
    call = call or next(iter(site.calls), None)
    around = _choose_around(site)
    is_known = not site.facts.is_inlined and site.is_given(call)
    if call is not None and site.function is not None and not is_known:
        return around
    fix_id = "extension_in_caller" if site.facts.gb_id == "GB0007" else "call_in_caller"
    return [site.suggest(fix_id, expression=_quote_call(site, *([name] if name else []))), *around]


def _choose_for_exception(site: BreakSite) -> list[SuggestedFix]:
    """Suggest a fix for an exception that the program raises. Another exception may be Dynamo's
    own, from an operation that it cannot trace.
    """
    nodes = list(site.statement.nodes()) if site.statement else []
    if any(isinstance(part, ast.Raise | ast.Assert) for part in nodes):
        return [site.suggest("exception_leaves")]
    if address := site.find_call("data_ptr"):
        decided = (part for part in nodes if isinstance(part, ast.If | ast.IfExp))
        test = next((part.test for part in decided if address in ast.walk(part.test)), None)
        if site.facts.is_inlined and (helper := _quote_helper(site)):
            return [site.suggest("call_in_caller", expression=helper)]
        if test is not None and not site.facts.is_inlined:
            return _choose_if_in_caller(site, test)
    return _choose_around(site)


def _quote_helper(site: BreakSite) -> str | None:
    """Return the calls of the inlined function if its caller is compiled, makes them outside loops,
    and knows their arguments.
    """
    if site.function is None or [len(way) for way in site.ways] != [1]:
        return None
    ((caller, _),) = site.ways[0]
    calls = [
        part
        for part in ast.walk(caller)
        if isinstance(part, ast.Call)
        and dotted_name(part.func).rpartition(".")[2] == site.function.name
    ]
    given = {argument.arg for argument in list_arguments(caller)}
    are_known = all(
        is_always_run(caller, call)
        and isinstance(argument, ast.Name)
        and argument.id in given
        and not is_made_before(caller, argument, call.lineno)
        and not is_changed_in_place(caller, {argument.id}, before=call.lineno)
        for call in calls
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
    )
    quoted = dict.fromkeys(f"`{shorten(ast.unparse(call))}`" for call in calls)
    return join_names(list(quoted)) if calls and are_known else None


def _choose_for_ddp(site: BreakSite) -> list[SuggestedFix]:
    return [site.suggest("ddp_compiled_inside" if site.facts.eager else "ddp_own_code")]


def _choose_for_method(site: BreakSite) -> list[SuggestedFix]:
    if is_of_ddp(site.facts):
        return _choose_for_ddp(site)
    if "datetime." in site.facts.context and not site.facts.is_inlined:
        return [site.suggest("clock_in_caller")]
    return _choose_for_call(site, "")


def _find_numpy(site: BreakSite) -> ast.Call | None:
    return next((call for call in site.calls if dotted_name(call.func).startswith(_NUMPY)), None)


def _choose_for_numpy(site: BreakSite) -> list[SuggestedFix]:
    call = _find_numpy(site)
    if call is None and site.facts.gb_id == "GB0087":
        return _choose_around(site)
    if call is not None and dotted_name(call.func).startswith(_RANDOM):
        return _choose_for_random(site, call)
    return [
        site.suggest(fix_id, expression=site.quote(call))
        for fix_id in ("numpy_as_torch", "numpy_custom_op")
    ]


def _choose_for_context(site: BreakSite) -> list[SuggestedFix]:
    items = getattr(site.statement.node, "items", ()) if site.statement else ()
    if "TextIOWrapper" in site.facts.context or "open(" in site.line:
        return [site.suggest("file_in_caller")]
    expression = site.quote(items[0].context_expr) if items else None
    block = list_block(site.function, site.line_number) if site.function else []
    is_seeded = any("seed(" in ast.unparse(part) for part in block)  # which breaks, too
    if site.function and block and (is_seeded or writes_state(site.function, block)):
        return [site.suggest("block_in_caller", expression=expression)]
    return [site.suggest("context_in_caller", expression=expression)]


def _choose_for_copy(site: BreakSite) -> list[SuggestedFix]:
    call = site.find_call("deepcopy")
    argument = call.args[0] if call and len(call.args) == 1 else None
    names = {"expression": site.quote(argument)}
    fixes = []
    found = site.locate(argument)
    if found is not None and is_dict(*found):
        fixes = [site.suggest("deepcopy_items", given=names)]
    elif site.is_tensor(argument) or _is_computed(site, argument):
        edit = _clone_instead(site, call, argument) if not site.is_given(argument) else None
        fixes = [site.suggest("deepcopy_clone", given=names, edit=edit)]
    if site.is_given(argument):
        fixes.insert(0, site.suggest("deepcopy_in_caller", given=names))
    return fixes or _choose_around(site)


def _is_computed(site: BreakSite, argument: ast.expr | None) -> bool:
    """Return whether the copied value was computed from tensors. torch can copy numbers."""
    values = list_values(site.function, argument) if site.function and argument else []
    return bool(values) and all(isinstance(value, ast.BinOp) for value in values)


def _clone_instead(
    site: BreakSite, call: ast.Call | None, argument: ast.expr | None
) -> LineEdit | None:
    if site.statement is None or site.facts.file is None or call is None or argument is None:
        return None
    text = site.statement.segment(argument)
    text = text if isinstance(argument, ast.Name) else f"({text})"
    return site.statement.replace(site.facts.file, (call, f"{text}.detach().clone()"))


def _choose_for_disabled(site: BreakSite) -> list[SuggestedFix]:
    match = _FUNCTION.search(f"{site.facts.context} {site.facts.explanation}")
    name = f"`{match[1].rsplit('.', 1)[-1]}`" if match else None
    return [
        site.suggest(fix_id, function=name) for fix_id in ("disable_removed", "disable_nonstrict")
    ]


def _choose_for_item(site: BreakSite) -> list[SuggestedFix]:
    read = next((call for call in site.calls if is_read(call)), None)
    if read is None:
        return _choose_for_index(site)
    tensor = read.func.value if isinstance(read.func, ast.Attribute) else read.args[0]
    call = ".item()" if isinstance(read.func, ast.Attribute) else f"{dotted_name(read.func)}()"
    names = {"expression": site.quote(tensor), "call": call}
    uses = site.uses(read)
    captured = site.suggest("item_captured", given=names)
    outside = _read_in_caller(site, read, tensor, call)
    given = [site.suggest("item_size_in_caller", given=names)] if site.is_given(tensor) else []
    if looked_up := _choose_for_lookup(site, read):
        return looked_up
    if any(isinstance(decision, ast.While) for decision in site.decisions(read)):
        return [site.suggest("while_in_caller")]
    if "branch" in uses:
        chosen = [site.suggest("item_branch", given=names)] if site.only_chooses(read) else []
        return [*chosen, *given, *_choose_if_in_caller(site, read)]
    if "loop" in uses:
        return [site.suggest("range_in_caller", given=names), *given]
    if (hook := _quote_hook(site)) and "stored" in uses:
        return _choose_around(site, hook)
    node = site.find_own(read)
    is_moved = (
        not site.facts.is_inlined and isinstance(node, ast.Expr) and _only_store(site, [node])
    )
    if _is_used_only_after_call(site, uses):
        return [outside, *([captured] if "logged" not in uses else [])]
    if is_moved:  # captured, what it is kept in would be guarded: it recompiled at each call
        return [outside]
    if uses <= _CAPTURED_USES:
        edit = _keep_tensor(site, read, tensor) if uses == {"tensor"} else None
        kept = [site.suggest("item_kept_a_tensor", edit=edit, given=names)] if edit else []
        return [*kept, captured, *given]
    if given:
        return [*given, replace(captured, settings=())]
    is_needed_inside = site.function is not None and bool(uses & {"unknown", "fixed"})
    return (
        _choose_around(site) if site.facts.is_inlined or is_needed_inside else [outside, captured]
    )


def _choose_for_lookup(site: BreakSite, read: ast.Call) -> list[SuggestedFix]:
    found = site.locate(read)
    if found is None or not (lookups := list_lookups(*found)):
        return []
    containers = ((part, next(ast.iter_child_nodes(part))) for part in lookups)
    if not all(
        site.is_given(part) and not is_made_before(found[0], container, part.lineno)
        for part, container in containers
    ):
        return _choose_around(site)
    quoted = dict.fromkeys(f"`{shorten(ast.unparse(part))}`" for part in lookups)
    return [site.suggest("lookup_in_caller", expression=join_names(list(quoted)))]


def _read_in_caller(site: BreakSite, read: ast.Call, tensor: ast.expr, call: str) -> SuggestedFix:
    """Suggest reading the number in the caller. What only stores or reports it moves with it: the
    whole line, which may read more numbers, or the calls that take its variable.
    """
    node = site.find_own(read)
    name = next(iter(_list_assigned(node)), None)
    is_stored = site.uses(read) == {"stored"}
    is_whole = (is_stored and isinstance(node, ast.Assign | ast.AugAssign | ast.Expr)) or (
        isinstance(node, ast.Expr) and _only_store(site, [node])
    )
    is_added_up = isinstance(node, ast.AugAssign) and site.is_repeated
    if (name is None and is_whole) or is_added_up:
        reads = [part for part in site.calls if is_read(part)]
        tensors = [getattr(part.func, "value", None) or part.args[0] for part in reads]
        quoted = [text for text in dict.fromkeys(map(site.quote, tensors)) if text]
        doing = f"{'call' if isinstance(node, ast.Expr) else 'run'} {site.quote(node)}"
        computed = _list_computed(site, [node], tensors, name)
        return _suggest_after_call(site, [*quoted, *computed], doing)
    moved = _list_calls_with(site.function, name) if site.function and name else []
    if not _only_store(site, moved):
        return _suggest_after_call(site, [site.quote(tensor) or "the tensor"], f"call `{call}`")
    calls = [f"`{shorten(ast.unparse(part))}`" for part in moved]
    computed = _list_computed(site, moved, [tensor], name)
    values = [site.quote(tensor) or "the tensor", *computed]
    return _suggest_after_call(site, values, f"call {join_names([f'`{call}`', *calls])}")


def _suggest_after_call(site: BreakSite, values: Sequence[str], doing: str) -> SuggestedFix:
    returned, tested = _name_returned(site, values)
    return site.suggest("item_in_caller", expression=returned, doing=doing, tested=tested)


def _only_store(site: BreakSite, statements: Sequence[ast.AST]) -> bool:
    """Return whether statements only store or report, in what nothing else of the function uses."""
    calls = [getattr(statement, "value", None) for statement in statements]
    owners: list[str] = []
    for call in calls:
        called = call.func if isinstance(call, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in STORING | LOGS:
            owners.append(ast.unparse(called.value))
        elif not isinstance(called, ast.Name) or called.id != "print":
            return False

    def count(node: ast.AST, owner: str) -> int:
        parts = (part for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute))
        return sum(ast.unparse(part) == owner for part in parts)

    own = [(owner, sum(count(one, owner) for one in statements)) for owner in owners]
    function = site.function
    return bool(calls) and function is not None and all(count(function, o) == n for o, n in own)


def _list_calls_with(function: Function, name: str) -> list[ast.Expr]:
    """List the calls that take a variable, beside its assignment; empty if it has another use or
    value.
    """
    names = [part for part in ast.walk(function) if isinstance(part, ast.Name) and part.id == name]
    loads = {part for part in names if isinstance(part.ctx, ast.Load)}
    blocks = (getattr(part, "body", None) for part in ast.walk(function))
    lists = (block for block in blocks if isinstance(block, list))
    own = (block for block in lists if any(name in _list_assigned(part) for part in block))
    calls = [part for part in next(own, []) if isinstance(part, ast.Expr)]
    found = [part for part in calls if loads & {*ast.walk(part)}]
    inside = {node for part in found for node in ast.walk(part)}
    return found if loads <= inside and len(names) - len(loads) == 1 else []


def _list_assigned(statement: ast.AST | None) -> list[str]:
    targets = getattr(statement, "targets", (getattr(statement, "target", None),))
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _list_computed(
    site: BreakSite,
    statements: Sequence[ast.AST | None],
    tensors: Sequence[ast.expr],
    number: str | None,
) -> list[str]:
    """Quote the variables of statements that the function computed before, other than tensors and
    the number read of one.
    """
    if site.function is None:
        return []
    names = {name for part in statements if part for name in list_names(part)}
    names -= {*list_names(*tensors), number}
    line = max((getattr(part, "lineno", 0) for part in statements), default=0)
    line = max(line, site.line_number)
    made = [
        name for name in names if is_made_before(site.function, ast.Name(name, ast.Load()), line)
    ]
    return [f"`{name}`" for name in sorted(made)]


def _is_used_only_after_call(site: BreakSite, uses: set[Use]) -> bool:
    """Return whether a number is only needed after the compiled call."""
    leaves: set[Use] = {"returned", "logged"}
    return uses <= leaves or (not site.facts.is_inlined and uses <= leaves | {"stored"})


def _quote_hook(site: BreakSite) -> str | None:
    """Return the call that registers the hook that breaks. Its side effects break the graph again,
    so no setting helps.
    """
    for way in site.ways:
        for function, caller in way:
            for part in ast.walk(function):
                if not isinstance(part, ast.Call) or part.lineno != caller.line:
                    continue
                if dotted_name(part.func).endswith(".register_hook"):
                    return f"`{ast.unparse(part)}`"
    return None


def _keep_tensor(site: BreakSite, read: ast.Call, tensor: ast.expr) -> LineEdit | None:
    statement = site.statement
    if (
        statement is None
        or site.function is None
        or site.facts.file is None
        or dotted_name(read.func) in ("int", "bool")
    ):
        return None
    if len([call for call in site.calls if is_read(call)]) != 1:  # `float(x.item())`
        return None
    targets = getattr(statement.node, "targets", ())
    if is_changed_in_place(site.function, list_names(*targets)):
        return None
    text = statement.segment(tensor)
    if not isinstance(tensor, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
        text = f"({text})"
    # A name or a part of it may be written to later, which the number did not follow.
    copied = "" if isinstance(tensor, ast.Call | ast.BinOp) else ".clone()"
    return statement.replace(site.facts.file, (read, f"{text}.detach(){copied}"))


def _choose_for_index(site: BreakSite) -> list[SuggestedFix]:
    index = next(
        (
            n
            for n in (site.statement.nodes() if site.statement else ())
            if isinstance(n, ast.Subscript)
        ),
        None,
    )
    if index is not None and isinstance(index.slice, ast.Slice):
        bound = site.quote(index.slice.upper or index.slice.lower)
        captured = site.suggest("item_captured", expression=bound)
        return [captured, site.suggest("slice_masked", expression=bound)]
    if index is not None and site.is_given(index.slice):
        return [site.suggest("item_size_in_caller", expression=site.quote(index.slice))]
    return _choose_around(site)


def _choose_for_scalar_operator(site: BreakSite) -> list[SuggestedFix]:
    if compared := site.find_call("allclose", "equal"):
        if site.only_chooses(compared):
            return [site.suggest("allclose_where", expression=site.quote(compared))]
        return _choose_if_in_caller(site, compared)
    drawn = next((call for call in site.calls if "random." in dotted_name(call.func)), None)
    if drawn:
        return _choose_for_random(site, drawn)
    if drawn := _find_drawn(site, site.statement.node if site.statement else None):
        return [_draw_in_caller(site, "random_number_in_caller", drawn)]
    if listed := site.find_call("tolist"):
        return _choose_for_list(site, listed)
    if computed := _find_numpy(site):
        quoted = site.quote(computed)
        uses = site.uses(computed)
        captured = site.suggest("item_captured", expression=quoted)
        as_torch = site.suggest("numpy_as_torch", expression=quoted)
        return [captured, as_torch] if uses <= _CAPTURED_USES else [as_torch]
    if any(is_read(call) for call in site.calls):
        return _choose_for_item(site)
    return _choose_around(site)


def _choose_for_list(site: BreakSite, listed: ast.Call | None = None) -> list[SuggestedFix]:
    listed = listed or site.find_call("tolist")
    base = listed.func.value if listed and isinstance(listed.func, ast.Attribute) else None
    tensor = site.quote(base) or "the tensor"
    in_caller = site.suggest("tolist_in_caller", expression=tensor)
    if listed is None or site.statement is None:
        return [in_caller]
    parent: ast.AST = site.statement.parents[listed]
    is_element = isinstance(parent, ast.Subscript) and not isinstance(parent.slice, ast.Slice)
    uses = site.uses(parent if is_element else listed)
    indexed = site.suggest("tolist_indexed", expression=tensor)
    if is_element and uses == {"tensor"} and isinstance(parent, ast.Subscript):
        edit = _index_tensor(site, parent, base)
        indexed = site.suggest("tolist_indexed", expression=tensor, edit=edit)
    captured = site.suggest("tolist_captured", expression=tensor)
    is_integer = site.facts.gb_id != "GB0109"
    left = (
        [_suggest_after_call(site, [tensor], "call `.tolist()`")]
        if _is_used_only_after_call(site, uses)
        else []
    )
    is_captured = is_integer and uses <= _CAPTURED_USES and not _splits_for_attention(site)
    fixes = [
        *(left if "stored" in uses else []),
        *([indexed] if is_element and uses <= {"tensor", "argument"} else []),
        *([captured] if is_captured else []),
        *([in_caller] if site.is_given(base) else left),
    ]
    fixes = fixes or _choose_around(site)
    return [*fixes, indexed] if is_element and not uses & {"branch", "loop", "size"} else fixes


def _splits_for_attention(site: BreakSite) -> bool:
    """Return whether sizes may reach an attention layer, which branches on them."""
    calls = (part for part in ast.walk(site.function or ast.Pass()) if isinstance(part, ast.Call))
    names = {dotted_name(call.func).rpartition(".")[2] for call in calls}
    return {"split", "scaled_dot_product_attention"} <= names


def _index_tensor(
    site: BreakSite, element: ast.Subscript, base: ast.expr | None
) -> LineEdit | None:
    if site.statement is None or site.facts.file is None or base is None:
        return None
    value, index = site.statement.segment(base), site.statement.segment(element.slice)
    return site.statement.replace(site.facts.file, (element, f"{value}[{index}].detach().clone()"))


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
    in_caller = site.suggest("unique_in_caller", expression=expression)
    if _sizes_decide(site, call or masked):
        if site.is_in_eager_loop and (body := _choose_loop_body(site, expression)):
            return [*body, *_choose_for_empty(site, expression)]
        given = [in_caller] if call is not None and site.is_given(call) else []
        return [site.suggest("shape_in_caller", expression=expression), *given]
    captured = site.suggest("shape_captured", expression=expression)
    if "repeat_interleave" in operator:
        return [captured, site.suggest("repeat_output_size")]
    if call is None and masked is not None and _is_given_to_module(site, masked):
        return [*_choose_around(site), captured]
    if call is not None:
        return [captured, *([in_caller] if site.is_given(call) else [])]
    if masked is not None and site.statement is not None and site.find_call("sum"):
        text = site.statement.segment
        where = site.suggest("mask_where", tensor=text(masked.value), mask=text(masked.slice))
        return [captured, where]
    return [captured]


def _choose_for_empty(site: BreakSite, expression: str) -> list[SuggestedFix]:
    check = find_empty_check(site.function, site.line_number) if site.function else None
    if check is None or site.facts.file is None:
        return []
    count = last_line(check) - check.lineno + 1
    edit = LineEdit(site.facts.file, check.lineno, count, ())
    condition = f"`if {ast.unparse(check.test)}`"
    names = {"expression": expression, "condition": condition}
    settings = ("torch._dynamo.config.capture_dynamic_output_shape_ops = True",)
    return [site.suggest("empty_captured", edit=edit, settings=settings, given=names)]


def _is_given_to_module(site: BreakSite, node: ast.AST) -> bool:
    """Return whether a node, or the name to which it is assigned, is an argument of a submodule
    that may branch on its size, as BatchNorm and attention do. A linear layer does not.
    """
    parent = site.statement.parents[node] if site.statement else None
    if isinstance(parent, ast.Call) and dotted_name(parent.func).startswith("self."):
        return True
    parts = list(ast.walk(site.function)) if site.function else []
    targets = parent.targets if isinstance(parent, ast.Assign) else ()
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    modules = {
        ast.unparse(part.target)
        for part in parts
        if isinstance(part, ast.For) and "self." in ast.unparse(part.iter)
    }
    calls = [
        part for part in parts if isinstance(part, ast.Call) and part.lineno > site.line_number
    ]
    return any(
        (called in modules or called.startswith("self."))
        and not _LINEAR.search(called)
        and any(isinstance(given, ast.Name) and given.id in names for given in call.args)
        for call in calls
        if (called := ast.unparse(call.func))
    )


def _sizes_decide(site: BreakSite, node: ast.AST | None) -> bool:
    """Return whether Python code needs the size, for an `if` or a loop over the tensor."""
    found = site.locate(node)
    if found is None or site.function is None:
        return True
    text = ast.unparse(found[1])
    names = {
        name
        for part in ast.walk(site.function)
        if isinstance(part, ast.Assign) and text in ast.unparse(part.value)
        for name in list_names(*part.targets)
    }
    for part in ast.walk(site.function):
        asked: ast.AST | None = None
        if isinstance(part, ast.For | ast.comprehension):
            asked = part.iter
        elif isinstance(part, ast.Call) and getattr(part.func, "attr", "") in ("tolist", "item"):
            asked = part
        if asked is not None and (list_names(asked) & names or text in ast.unparse(asked)):
            return True
    return bool(site.decisions(node))


def _choose_for_branch(site: BreakSite) -> list[SuggestedFix]:
    node = site.statement.node if site.statement else None
    nodes = list(site.statement.nodes()) if site.statement else []
    choice = (
        node
        if isinstance(node, ast.If | ast.While | ast.Assert)
        else next((part for part in nodes if isinstance(part, ast.IfExp)), None)
    )
    test = getattr(choice, "test", None)
    quoted = site.quote(test)
    joined = join_bools(test) if isinstance(test, ast.expr) else None
    written = ast.unparse(joined) if joined is not None and joined is not test else quoted
    names = {"condition": written.strip("`") if written else None}
    if choice is None and (edit := _join_bools(site)):
        return [site.suggest("bools_joined", edit=edit)]
    if (drawn := _find_drawn(site, test)) is not None:
        return _choose_for_random(site, drawn)
    if isinstance(node, ast.While):
        return [site.suggest("while_in_caller"), site.suggest("while_fixed_steps")]
    if isinstance(node, ast.Assert):
        edit = _shorten_message(site, node)
        return [
            site.suggest("check_in_caller", condition=quoted),
            site.suggest("assert_constant_message", edit=edit),
        ]
    raised = _find_raise(site)
    if raised is not None:
        edit = _assert_instead(site, raised)
        return [
            site.suggest("check_in_caller", condition=quoted),
            *([site.suggest("check_asserted", edit=edit)] if edit else []),
        ]
    decided = site.find_decided(test)
    if isinstance(decided, ast.If) and test is not None and is_check(decided):
        return [site.suggest("check_after_call", condition=quoted)]
    outside = _choose_if_in_caller(site, test)
    if site.function and decided and is_plain_choice(site.function, decided):
        return [
            site.suggest("if_where", given=names),
            site.suggest("if_cond", given=names),
            *outside,
        ]
    return outside


def _join_bools(site: BreakSite) -> LineEdit | None:
    """Return an edit that replaces `and` or `or` of one-element bool tensors by operators."""
    if site.statement is None or site.facts.file is None:
        return None
    for part in site.statement.nodes():
        if isinstance(part, ast.BoolOp) and (joined := join_bools(part)) is not part:
            return site.statement.replace(site.facts.file, (part, ast.unparse(joined)))
    return None


def _choose_if_in_caller(site: BreakSite, test: ast.AST | None) -> list[SuggestedFix]:
    """Suggest testing the condition in the caller, only if it depends on arguments alone."""
    if site.is_in_eager_loop:
        return _choose_loop_body(site, site.quote(test)) or _choose_around(site, site.quote(test))
    if not site.is_given(test):
        return _choose_around(site, site.quote(test))
    return [site.suggest("if_in_caller", condition=site.quote(test))]


def _find_drawn(site: BreakSite, test: ast.AST | None) -> ast.Call | None:
    """Return the call that drew the random number tested here, directly or through a variable."""
    for name in ast.walk(test) if test is not None else ():
        for value in list_values(site.function, name) if site.function else [name]:
            if isinstance(value, ast.Call) and dotted_name(value.func).startswith(_RANDOM):
                return value
    return None


def _shorten_message(site: BreakSite, node: ast.Assert) -> LineEdit | None:
    if site.statement is None or site.facts.file is None or node.msg is None:
        return None
    parts = node.msg.values if isinstance(node.msg, ast.JoinedStr) else []
    text = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant)).strip(
        " :,=("
    )
    return site.statement.replace(site.facts.file, (node.msg, repr(text or "assertion failed")))


def _find_raise(site: BreakSite) -> ast.Raise | None:
    """Return the `raise` of an `if` whose body is only this statement."""
    for node in ast.walk(site.function) if site.function else ():
        if isinstance(node, ast.If) and node.lineno == site.line_number and not node.orelse:
            (first, *more) = node.body
            return first if isinstance(first, ast.Raise) and not more else None
    return None


def _assert_instead(site: BreakSite, raised: ast.Raise) -> LineEdit | None:
    statement = site.statement
    if statement is None or site.facts.file is None or not statement.text.startswith("if "):
        return None
    branch = statement.node
    if not isinstance(branch, ast.If) or not isinstance(branch.test, ast.Call | ast.Compare):
        return None
    if raised.lineno != statement.line + statement.line_count:
        return None
    arguments = raised.exc.args if isinstance(raised.exc, ast.Call) else []
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
    count = (raised.end_lineno or raised.lineno) - statement.line + 1
    return LineEdit(edit.file, edit.line, count, edit.replacement)


def _choose_for_graph_break(site: BreakSite) -> list[SuggestedFix]:
    if not site.find_call("graph_break"):
        return _choose_for_optimizer(site) if site.find_call("step") else _choose_around(site)
    return [site.suggest("graph_break_removed", edit=site.remove_line())]


def _choose_for_optimizer(site: BreakSite) -> list[SuggestedFix]:
    return _choose_for_step(site) or [site.suggest("optimizer_own")]


def _choose_for_query(site: BreakSite) -> list[SuggestedFix]:
    """Suggest reading the number in the caller, only if compiled code does not use it: as an
    argument it is guarded, and each change causes a recompile.
    """
    if isinstance(site.statement.node if site.statement else None, ast.With):
        return _choose_for_context(site)
    call = next((call for call in site.calls if dotted_name(call.func).startswith("torch.")), None)
    if call is None or not site.uses(call) <= {"returned", "logged"}:
        return _choose_around(site)
    return [site.suggest("device_query_in_caller", expression=site.quote(call))]


_CHOICES: dict[str, Choose] = {
    "GB0008": _choose_around,
    "GB0088": _choose_for_exception,
    "GB0123": _choose_for_backward,
    "GB0125": _choose_for_requires_grad,
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
    "GB0208": _choose_for_query,
    "GB0025": _choose_for_graph_break,
}
