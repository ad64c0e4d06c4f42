"""Which fix a graph break gets, by its id and the user's line, and the edits of that line."""

from __future__ import annotations

import ast
import textwrap
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.fixes.break_fixes import suggest_break_fixes
from compileboard.collectors.fixes.causes import list_hint_warnings
from compileboard.collectors.fixes.fix import (
    BreakFacts,
    Caller,
    EagerFunction,
    SourceLines,
    list_fixes,
)
from compileboard.collectors.fixes.statement import find_block, find_whole, mark_part, shorten
from compileboard.collectors.fixes.titles import label_break, title_breaks


def facts_of(gb_id: str, program: str, line: int, **more: object) -> BreakFacts:
    lines = tuple(textwrap.dedent(program).strip("\n").split("\n"))
    facts = {
        "file": "train.py",
        "line": line,
        "source_line": lines[line - 1].strip(),
        "first_line": 1,
        "lines": lines,
    }
    return BreakFacts(gb_id=gb_id, **{**facts, **more})  # type: ignore[arg-type]


def first_replacement(facts: BreakFacts) -> tuple[str, ...]:
    edits = suggest_break_fixes(facts)[0].edits
    return edits[0].replacement if edits else ()


def test_a_number_that_is_computed_with_stays_a_tensor() -> None:
    program = """
        def forward(self, x):
            t = self.temperature.clamp(0.1).item()  # never 0
            return x.relu() / t
    """
    facts = facts_of("GB0124", program, 2)
    first = suggest_break_fixes(facts)[0]
    assert (
        first.title
        == "Keep `self.temperature.clamp(0.1)` a tensor: `.detach()` instead of `.item()`"
    )
    assert first.edits[0].replacement == (
        "    t = self.temperature.clamp(0.1).detach()  # never 0",
    )
    assert label_break(facts) == "`.item()` on a tensor"


@pytest.mark.parametrize(
    ("use", "fix_id", "captured"),
    [
        ("return x * n", "item_kept_a_tensor", True),
        ("return x if n > 3 else -x", "item_branch", False),
        ("while n > 3: n -= 1", "while_in_caller", False),
        ("return torch.zeros(n)", "item_captured", True),
        ("for i in range(n): x = x + i", "range_in_caller", False),
        ("return x, n", "item_in_caller", True),
        ("print(f'{n:.3f}')", "item_in_caller", False),
        ("return x + names[n]", "lookup_in_caller", False),
        ("return x.cumsum(0)[n]", "item_captured", True),
        ("if n in names: x = x + names.get(n, 0)", "lookup_in_caller", False),
        ("names = [x, -x]\n    return x + names[n]", "parts_around", False),
        ("meter.history.append(n)", "item_in_caller", True),
        ("return x.clamp(n)", "item_captured", True),
        ("y = x.sin(); y += n; return y", "item_kept_a_tensor", True),
        ("n += 1; return x * n", "item_captured", True),
        ("return x.sum() if n > 3 else x", "item_size_in_caller", False),
    ],
)
def test_what_a_number_is_used_for_decides(use: str, fix_id: str, captured: bool) -> None:
    fixes = suggest_break_fixes(
        facts_of("GB0124", f"def f(x):\n    n = x.sum().item()\n    {use}\n", 2)
    )
    assert fixes[0].fix.id == fix_id
    assert any(suggested.settings for suggested in fixes) is captured


@pytest.mark.parametrize(
    ("use", "fix_id"),
    [
        ("if random.random() < p: x = x.flip(0)", "random_where"),
        ("x = x + 1 if random.random() < p else x", "random_where"),
        ("if random.random() < p: x = x[:2]", None),
        ("x = x * random.random()", "random_torch"),
    ],
)
def test_other_random_numbers_come_after_the_same_ones(use: str, fix_id: str | None) -> None:
    facts = facts_of(
        "GB0007",
        f"def f(x, p):\n    {use}\n    return x\n",
        2,
        context="module: random, qualname: random",
    )
    first, *others = suggest_break_fixes(facts)
    assert first.fix.id == "random_in_caller"
    assert [suggested.fix.id for suggested in others] == ([fix_id] if fix_id else [])
    assert all(other.title.endswith(". Changes the random numbers") for other in others)


@pytest.mark.parametrize(
    ("body", "title"),
    [
        ("if a: x = x.flip(0)", "`random.random()` and `random.randint(0, p)`, in this order,"),
        ("if a: b = random.random()", None),
        ("if a: return x", None),
        ("random.seed(p)", None),
    ],
)
def test_random_numbers_are_drawn_in_the_order_of_the_program(body: str, title: str | None) -> None:
    program = f"""
        def f(x, p):
            a = random.random() < 0.5
            {body}
            if random.randint(0, p): x = x.sin()
            return x
    """
    facts = facts_of("GB0007", program, 4, context="module: random, qualname: randint")
    titles = {suggested.fix.id: suggested.title for suggested in suggest_break_fixes(facts)}
    in_caller = titles["random_in_caller"]
    assert ("Changes the order of the draws" in in_caller) is (title is None)
    assert (title or "Draw `random.randint(0, p)` in") in in_caller


@pytest.mark.parametrize(
    ("branch", "fix_id"),
    [
        ("x = x * 2", "if_where"),
        ("x = x[:2]", "parts_around"),
        ("x = self.second(x)", "parts_around"),
        ("x = x / x.norm()", "parts_around"),
        ("x = x.log()", "parts_around"),
        ("c = torch.finfo(x.dtype).max; x = x.clamp(-c, c)", "if_where"),
        ("c = next(self.limits); x = x.clamp(-c, c)", "parts_around"),
    ],
)
def test_a_branch_on_what_a_layer_gave_is_chosen_where_the_shape_stays(
    branch: str, fix_id: str
) -> None:
    program = f"def f(self, x):\n    x = self.fc(x)\n    if x.sum() > 0:\n        {branch}\n"
    first, *_ = suggest_break_fixes(facts_of("GB0170", f"{program}    return x\n", 3))
    assert first.fix.id == fix_id


def test_an_edit_is_only_given_where_the_use_is_known() -> None:
    program = "def f(x):\n    n = x.sum().item()\n"
    assert suggest_break_fixes(facts_of("GB0124", program, 2))[0].edits == ()
    assert suggest_break_fixes(BreakFacts("GB0124", source_line="n = x.item()"))[0].edits == ()


def test_a_removed_line_leaves_its_block_whole() -> None:
    alone = "def f(x):\n    if x.ndim:\n        breakpoint()\n    return x\n"
    context = {"context": "builtin breakpoint [] False"}
    assert first_replacement(facts_of("GB0059", alone, 3, **context)) == ("        pass",)
    second = "def f(x):\n    y = x\n    breakpoint()\n    return y\n"
    edits = suggest_break_fixes(facts_of("GB0059", second, 3, **context))[0].edits
    assert (edits[0].replacement, edits[0].line_count) == ((), 1)


def test_a_statement_of_several_lines_is_edited_whole() -> None:
    program = """
        def f(x):
            assert (
                x >= 0
            ).all(), f"negative: {x.min()}"
            return x
    """
    for line in (2, 3, 4):
        edit = suggest_break_fixes(facts_of("GB0170", program, line))[1].edits[0]
        assert (edit.line, edit.line_count) == (2, 3)
        assert edit.replacement[-1] == "    ).all(), 'negative'"


def test_a_check_that_only_raises_is_made_outside_or_becomes_an_assertion() -> None:
    program = """
        def f(x):
            if x.isnan().any():
                raise ValueError("NaN")
            return x
    """
    outside, asserted = suggest_break_fixes(facts_of("GB0170", program, 2))
    assert outside.fix.id == "check_in_caller" and "Changes the exception" in asserted.title
    (edit,) = asserted.edits
    assert (edit.line_count, edit.replacement) == (
        2,
        ("    torch._assert_async(~(x.isnan().any()), 'NaN')",),
    )
    longer = program.replace("            return x", "                x = 1\n            return x")
    assert suggest_break_fixes(facts_of("GB0170", longer, 2))[0].edits == ()


def test_a_branch_on_a_captured_size_gets_no_setting() -> None:
    program = "def f(x, m):\n    y = x[m]\n    {use}\n"
    ids = {"if len(y) == 0: return x": (), "return y.sum()": ("shape_captured",)}
    for use, expected in ids.items():
        fixes = suggest_break_fixes(
            facts_of("GB0036", program.format(use=use), 2, context="aten.nonzero.default")
        )
        assert tuple(suggested.fix.id for suggested in fixes if suggested.settings) == expected


def test_a_print_of_an_object_is_not_reordered() -> None:
    context = "builtin print [<class 'torch._dynamo.variables.{kind}'>] False"
    line = "def f(x):\n    print(x)\n    return x\n"
    tensor = suggest_break_fixes(
        facts_of("GB0059", line, 2, context=context.format(kind="tensor.TensorVariable"))
    )
    assert (tensor[0].fix.id, len(tensor[0].settings)) == ("print_reordered", 1)
    listed = suggest_break_fixes(
        facts_of("GB0059", line, 2, context=context.format(kind="lists.ListVariable"))
    )
    assert "print_reordered" not in [suggested.fix.id for suggested in listed]


def test_the_loop_that_runs_eagerly_is_taken_out_of_compiled_code() -> None:
    program = (
        "def relax(x):\n    for _ in range(3):\n        torch._dynamo.graph_break()\n    return x\n"
    )
    eager = (EagerFunction("relax", "t.py", 1, block="for", block_line=2),)
    fixes = suggest_break_fixes(facts_of("GB0025", program, 3, function="relax", eager=eager))
    assert [suggested.fix.id for suggested in fixes] == ["graph_break_removed", "loop_body"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (3, None),
        (5, ("try", 4)),
        (7, None),
        (8, ("with", 8)),
        (10, ("for", 9)),
        (12, ("while", 12)),
    ],
)
def test_the_block_around_a_line_is_of_its_own_function(
    line: int, found: tuple[str, int] | None
) -> None:
    text = """
    for f in everything:
        def f(x):
            try:
                x = read(x)
            except OSError:
                x = 0
            async with lock:
                for y in x:
                    print(y)

            while x.any():
                x = x - 1
    """
    lines = tuple(textwrap.dedent(text).split("\n"))
    assert find_block(SourceLines("t.py", 1, lines), line) == found


def test_a_fix_that_is_a_newer_torch_is_suggested_to_an_older_one() -> None:
    program = "def f(x):\n    y = x * 2\n    return copy.deepcopy(y) + x\n"
    old, new = (
        suggest_break_fixes(facts_of("GB0179", program, 3, torch_version=version))
        for version in ((2, 11), (2, 13))
    )
    assert [fixes[0].fix.id for fixes in (old, new)] == ["newer_torch", "deepcopy_clone"]


def test_hints_without_effect_are_named() -> None:
    hint = "Set torch._dynamo.trace_autograd_ops=True"
    warnings = list_hint_warnings(
        BreakFacts("GB0123", source_line="loss.backward()", hints=(hint,))
    )
    assert [warning.hint for warning in warnings] == [hint]
    scalars = "Set `torch._dynamo.config.capture_scalar_outputs = True`"
    branch = "def f(x):\n    n = x.item()\n    if n > 0: x = x + 1\n    return x\n"
    assert list_hint_warnings(facts_of("GB0124", branch, 2, hints=(scalars,)))
    assert not list_hint_warnings(
        facts_of("GB0124", branch.replace("if n > 0: ", ""), 2, hints=(scalars,))
    )


def test_an_older_torch_gets_no_setting_that_it_lacks() -> None:
    program = "def f(x, w):\n    loss = (x * w).sum()\n    loss.backward()\n"
    settings = {
        version: [
            len(suggested.settings)
            for suggested in suggest_break_fixes(
                facts_of("GB0123", program, 3, torch_version=version)
            )
        ]
        for version in ((2, 6), (2, 13))
    }
    assert settings == {(2, 6): [0], (2, 13): [0, 1]}


EXPRESSIONS = st.sampled_from(
    [
        "x",
        "self.w[0]",
        "x.sum()",
        "(x + é)",
        "f(a, *b, **c)",
        "x[mask]",
        "'ü'",
        "-x",
        "x @ y",
        "[i for i in x]",
        "λ.max()",
    ]
)
LINES = st.one_of(
    st.text(max_size=60),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(
            [
                "y = ",
                "return ",
                "if ",
                "elif ",
                "while ",
                "assert ",
                "print(",
                "y += 2 * ",
                "for i in ",
                "",
            ]
        ),
        st.builds(
            "{}{}".format,
            EXPRESSIONS,
            st.sampled_from([".item()", ".tolist()", "", " > 0", ", f'{x}'", ".backward()"]),
        ),
        st.sampled_from(["", ":", ")", "  # é", " + 1", ", 1", "[0]", " if x else y", "; z = 1"]),
    ),
    st.builds(
        "{}({}){}".format,
        st.sampled_from(["float", "int", "copy.deepcopy", "print", "torch.nonzero"]),
        EXPRESSIONS,
        st.sampled_from(["", " * 2"]),
    ),
)
CONTEXTS = st.sampled_from(
    [
        "",
        "builtin print [<class 'torch._dynamo.variables.tensor.TensorVariable'>] False",
        "builtin breakpoint [] False",
        "aten.nonzero.default",
        "aten._local_scalar_dense.default",
        "module: time, qualname: time, skip reason: x",
    ]
)


def parses(text: str) -> bool:
    for whole in (text, f"{text} pass", f"if 1:\n pass\n{text} pass"):
        try:
            ast.parse(whole)
        except (SyntaxError, ValueError):
            continue
        return True
    return False


@given(
    gb_id=st.sampled_from(
        sorted({key for fix in list_fixes("graph_break") for key in fix.keys} | {"GB9999"})
    ),
    lines=st.lists(
        st.builds("{}{}".format, st.sampled_from(["", "    ", "        ", "\t"]), LINES),
        min_size=1,
        max_size=6,
    ),
    position=st.integers(0, 5),
    context=CONTEXTS,
    eager=st.sampled_from([(), (EagerFunction("f", "t.py", 7, block="for"),)]),
)
def test_an_edit_of_any_line_parses_or_is_not_given(
    gb_id: str,
    lines: list[str],
    position: int,
    context: str,
    eager: tuple[EagerFunction, ...],
) -> None:
    lines = [line for text in lines for line in text.splitlines()] or [""]
    position %= len(lines)
    facts = BreakFacts(
        gb_id,
        context=context,
        function="f",
        file="t.py",
        line=position + 7,
        source_line=lines[position].strip(),
        first_line=7,
        lines=tuple(lines),
        eager=eager,
        hints=("Avoid calling `type.__new__` in your code.",),
    )
    assert label_break(facts)
    list_hint_warnings(facts)
    for suggested in suggest_break_fixes(facts):
        for edit in suggested.edits:
            assert 7 <= edit.line <= facts.line and edit.line + edit.line_count <= 7 + len(lines)
            assert not edit.replacement or parses(textwrap.dedent("\n".join(edit.replacement)))


@pytest.mark.parametrize(
    "text",
    [
        "self.a_layer_with_a_rather_long_name.weight.abs().max()",
        "self.a_layer_with_a_rather_long_name.weight.sum() > 0 and x",
        "short(x)",
    ],
)
def test_only_the_arguments_of_a_long_call_are_left_out(text: str) -> None:
    assert shorten(text) == text
    assert shorten(f"torch.nn.functional.attention({text}, key)") == (
        "torch.nn.functional.attention(…)"
        if len(text) > 10
        else f"torch.nn.functional.attention({text}, key)"
    )


def test_a_line_is_shown_with_its_statement_or_marked_as_a_part() -> None:
    lines = ["def f(x):", "    print(", '        "x",', "        x,", "    )", "    return x"]
    assert find_whole(lines, 7, 9) == 'print(\n    "x",\n    x,\n)'
    assert find_whole(lines, 7, 12) == "return x" and find_whole(lines, 7, 13) is None
    assert [mark_part(line) for line in lines[1:3]] == ["print( …", '"x", …']
    assert mark_part("    and y > 0") == "… and y > 0" and mark_part("return x") == "return x"
    assert mark_part("y.shape)") == "… y.shape)" and mark_part("f(g(x))") == "f(g(x))"


@pytest.mark.parametrize(
    ("gb_id", "program", "line", "is_inlined"),
    [
        ("GB0025", "def f(self):\n    self.trainer.update()\n", 2, False),
        ("GB0170", "def f(x):\n    y = x * 2\n    if y.sum() > 0:\n        return x\n", 3, False),
        ("GB0170", "def f(x):\n    if x.sum() > 0:\n        return x\n", 2, True),
        ("GB0124", "def log(self, loss):\n    self.meter.update(loss.item())\n", 2, True),
        ("GB0036", "def f(self, h, m):\n    return self.norm(h[m])\n", 2, False),
        (
            "GB0036",
            "def f(self, h, m):\n    h = h[m]\n    for b in self.blocks: h = b(h)\n",
            2,
            False,
        ),
        ("GB0208", "def f(self):\n    self.seed = torch.initial_seed()\n", 2, False),
    ],
    ids=[
        "torch's own",
        "computed",
        "if of a callee",
        "loss of a callee",
        "module",
        "its name",
        "number",
    ],
)
def test_nothing_is_promised_where_a_precondition_fails(
    gb_id: str, program: str, line: int, is_inlined: bool
) -> None:
    first = suggest_break_fixes(facts_of(gb_id, program, line, is_inlined=is_inlined))[0]
    assert first.title.startswith("No safe fix is known")
    assert not first.edits and not first.helps


def test_a_size_that_a_linear_layer_takes_is_captured() -> None:
    program = "def f(self, h, m):\n    h = h[m]\n    return self.head(h)\n"
    assert suggest_break_fixes(facts_of("GB0036", program, 2))[0].fix.id == "shape_captured"


@pytest.mark.parametrize("gb_id", ["GB0007", "GB0025"])
def test_an_optimizer_s_own_graph_break_is_as_expected(gb_id: str) -> None:
    facts = facts_of(gb_id, "def update():\n    opt.step()\n    scheduler.step()\n", 2)
    facts = replace(facts, context="module: torch.optim.sgd, qualname: SGD.step, skip reason: …")
    assert [suggested.fix.id for suggested in suggest_break_fixes(facts)] == ["optimizer_own"]
    assert title_breaks([facts]) == "`opt.step` call"


@pytest.mark.parametrize(
    ("body", "fix_id"), [("x = layer(x)", "loop_body"), ("x = layer(x) / (i + 1)", "parts_around")]
)
def test_a_loop_that_computes_with_its_number_would_recompile(body: str, fix_id: str) -> None:
    program = (
        f"def f(x, layer):\n    for i in range(9):\n        {body}\n"
        "        if x.sum() > 0:\n            break\n"
    )
    eager = (EagerFunction("f", "train.py", 1, block="for", block_line=2),)
    assert suggest_break_fixes(facts_of("GB0170", program, 4, eager=eager))[0].fix.id == fix_id


def called_by(program: str, line: int) -> tuple[tuple[Caller, ...], ...]:
    lines = textwrap.dedent(program).strip("\n").split("\n")
    return ((Caller("Net.forward", line, 1, tuple(lines)),),)


@pytest.mark.parametrize(
    ("body", "line", "fix_id"),
    [
        ("self.log(x); return self.fc(x)", 2, "rest_compiled"),
        ("y = self.fc(x)\n    self.log(y)\n    return y", 3, "rest_compiled"),
        ("y = self.fc(x)\n    self.log(y)\n    self.count.add(1)\n    return y", 3, None),
        ("y = self.fc(x)\n    self.log(y)\n    return self.head(y)", 3, None),
        ("y = self.log(x)\n    return self.fc(y)", 2, None),
        (
            "y = self.fc(x)\n    if x.ndim:\n        return y\n    self.log(y)\n    return y",
            5,
            None,
        ),
        ("y = self.fc(x)\n    with self.no_grad():\n        self.log(y)\n    return y", 4, None),
    ],
)
def test_a_call_before_or_after_all_else_is_left_to_python(
    body: str, line: int, fix_id: str | None
) -> None:
    callers = called_by(f"def forward(self, x):\n    {body}\n", line)
    program = "def log(self, y):\n    self.lines.append(json.dumps(y.shape))\n"
    first = suggest_break_fixes(facts_of("GB0156", program, 2, is_inlined=True, callers=callers))[0]
    assert first.fix.id == (fix_id or "parts_around")


@pytest.mark.parametrize(
    ("call", "fix_id"),
    [
        ("y = self.choose(mask)", "if_in_caller"),
        ("y = self.choose(m=mask)", "if_in_caller"),
        ("y = self.choose(mask * 2)", "if_in_caller"),
        ("y = self.choose(self.draw(mask))", "parts_around"),
        ("y = self.choose(*masks)", "parts_around"),
        ("mask = self.embed(x)\n    y = self.choose(mask)", "parts_around"),
        ("limit = x.max()\n    y = self.choose(mask)", "parts_around"),
        ("mask.mul_(2)\n    y = self.choose(mask)", "parts_around"),
    ],
)
def test_a_condition_is_known_to_the_caller_where_it_is_passed_on(call: str, fix_id: str) -> None:
    line = 2 + call.count("\n")
    callers = called_by(f"def forward(self, x, mask):\n    {call}\n    return x + y\n", line)
    program = "def choose(self, m):\n    if (m == limit).any():\n        return m\n"
    first, *_ = suggest_break_fixes(
        facts_of("GB0170", program, 2, is_inlined=True, callers=callers)
    )
    assert first.fix.id == fix_id


@pytest.mark.parametrize(
    ("line", "title"),
    [
        (
            "history.loc[0] = [x.sum().item(), y.item()]",
            "Return `x.sum()` and `y`, and run "
            "`history.loc[0] = [x.sum().item(), y.item()]` in the caller",
        ),
        ("seen.append(y.item())", "Return `y`, and call `seen.append(y.item())` in the caller"),
        (
            "n = y.item(); seen.append(n)",
            "Return `y`, and call `.item()` and `seen.append(n)` in the caller",
        ),
        (
            "n = y.item(); z = seen.pop(n)",
            "Read `y` in the caller and pass the number in",
        ),
        (
            "meter.update(y.item(), x.size(0))",
            "Return `y`, and call `meter.update(y.item(), x.size(0))` in the caller",
        ),
        (
            "z = x + y; pbar.set_postfix(loss=y.item(), z=z)",
            "Return `y` and `z`, and call `pbar.set_postfix(loss=y.item(), z=z)` in the caller",
        ),
        ("y.mul_(y.item())", None),
        ("meter.update(y.item()); x = x / meter.count", None),
    ],
)
def test_a_line_that_stores_numbers_is_moved_whole(line: str, title: str | None) -> None:
    lines = line.replace("; ", "\n    ")
    place = 2 + next(n for n, text in enumerate(line.split("; ")) if ".item()" in text)
    facts = facts_of("GB0124", f"def f(x, y):\n    {lines}\n    return x\n", place)
    first = suggest_break_fixes(facts)[0].title
    assert first == title if title else "update(" not in first and "mul_(" not in first


@pytest.mark.parametrize(
    ("compiled", "place"),
    [("Net.forward", "the caller of `Net.forward`"), (None, "the caller of the compiled function")],
)
def test_the_caller_is_the_one_of_the_compiled_function(compiled: str | None, place: str) -> None:
    program = "def attend(x):\n    print(x.norm())\n    return x.softmax(-1)\n"
    facts = facts_of("GB0059", program, 2, context="builtin print")
    first, *_ = suggest_break_fixes(replace(facts, is_inlined=True, compiled=compiled))
    assert first.fix.id == "print_in_caller" and first.title.endswith(place)


@pytest.mark.parametrize(
    ("test", "joined"),
    [
        ("(x > 0).all() and (x < 1).all()", "(x > 0).all() & (x < 1).all()"),
        ("x.any() or y.any() or z.any()", "x.any() | y.any() | z.any()"),
        ("x.all() and not y.any()", "x.all() & ~y.any()"),
        ("(x > 0).all() and x.sum() > 0", None),
        ("(x > 0).all() and self.check(x).all()", None),
        ("flag and (x > 0).all()", None),
    ],
)
def test_single_bools_are_joined_without_asking(test: str, joined: str | None) -> None:
    facts = facts_of("GB0170", f"def f(self, x, y, z):\n    return {test}\n", 2)
    assert first_replacement(facts) == ((f"    return {joined}",) if joined else ())


@pytest.mark.parametrize(
    ("body", "fix_id"),
    [
        ("self.used[i] = self.used.get(i, 0) + n", "item_in_caller"),
        ("self.used.update(n)", "item_in_caller"),
        ("x = x + n", None),
        ("self.weights[i] = n", None),
    ],
)
def test_a_loop_that_only_stores_numbers_runs_in_the_caller(body: str, fix_id: str) -> None:
    program = (
        "def f(self, x):\n    counts = x.bincount()\n"
        f"    for i, n in enumerate(counts.tolist()):\n        {body}\n"
        "    return x * self.weights\n"
    )
    first = suggest_break_fixes(facts_of("GB0033", program, 3))[0]
    assert (first.fix.id == "item_in_caller") is (fix_id is not None)


@pytest.mark.parametrize(
    ("before", "fix_id"),
    [
        ("x = data['x']\n    x.requires_grad_(True)", "requires_grad_of_input"),
        ("x = data['x']\n    if not x.requires_grad: x.requires_grad_()", "requires_grad_of_input"),
        ("x = data['x'] * 2\n    x.requires_grad_(True)", "parts_around"),
        ("x = data['x']\n    if self.training: x.requires_grad_(True)", "parts_around"),
        ("data['x'] = data['x'] * 2\n    x = data['x']\n    x.requires_grad_()", "parts_around"),
    ],
)
def test_an_argument_gets_its_gradient_in_the_caller(before: str, fix_id: str) -> None:
    line = 2 + before.count("\n")
    facts = facts_of("GB0125", f"def f(self, data):\n    {before}\n    return x.sum()\n", line)
    assert suggest_break_fixes(facts)[0].fix.id == fix_id


def test_a_loop_that_does_nothing_else_is_left_out() -> None:
    (way,) = called_by(
        "def forward(self, x):\n    for f in self.filters:\n        f.use(x)\n    return x.max()\n",
        3,
    )
    eager = (EagerFunction("Net.forward", "train.py", 1, block="for", block_line=2),)
    facts = facts_of("GB0292", "def use(self, x):\n    x[self.ids.get()] = 0\n", 2, is_inlined=True)
    first, *_ = suggest_break_fixes(replace(facts, eager=eager, skipped=way))
    assert first.fix.id == "loop_left_out"


def test_a_loop_in_a_loop_that_computes_leaves_with_it() -> None:
    (way,) = called_by(
        "def forward(self, x):\n    for i, layer in enumerate(self.layers):\n        x = layer(x)\n"
        "        for hook in self.hooks:\n            hook.use(i, x)\n    return x\n",
        5,
    )
    eager = (EagerFunction("Net.forward", "train.py", 1, block="for", block_line=2),)
    facts = facts_of("GB0007", "def use(self, i, x):\n    csv.writer(i)\n", 2, is_inlined=True)
    first, *_ = suggest_break_fixes(replace(facts, eager=eager, skipped=way))
    assert first.fix.id == "loop_body" and "`hook.use(i, x)`" in first.title


@pytest.mark.parametrize(
    ("loop", "body", "fix_id"),
    [
        ("for x in loader:", "y = net(x).sum().item()", "loop_body"),
        ("for i in tqdm(range(9)):", "y = net(x) / i", "parts_around"),
        (
            "for x in loader:",
            "opt.zero_grad(); y = net(x).sum(); y.backward(); opt.step()",
            "step_outside",
        ),
    ],
)
def test_a_loop_over_what_dynamo_cannot_iterate_is_the_caller_s(
    loop: str, body: str, fix_id: str
) -> None:
    program = f"def train(net, loader, opt):\n    {loop}\n        {body}\n    return y\n"
    eager = (EagerFunction("train", "train.py", 1, block="for", block_line=2),)
    first, *_ = suggest_break_fixes(facts_of("GB0008", program, 2, eager=eager))
    assert first.fix.id == fix_id and ("Pass it tensors" in first.title) is (fix_id == "loop_body")


@pytest.mark.parametrize(
    ("body", "fix_id"),
    [("torch.manual_seed(7)", "block_in_caller"), ("y = x.cos()", "context_in_caller")],
)
def test_a_block_that_seeds_breaks_inside_too(body: str, fix_id: str) -> None:
    program = f"def f(x):\n    with torch.random.fork_rng():\n        {body}\n    return x.sin()\n"
    assert suggest_break_fixes(facts_of("GB0208", program, 2))[0].fix.id == fix_id


def test_sizes_of_an_attention_are_not_captured() -> None:
    program = (
        "def f(self, q, n):\n    parts = torch.split(q, n.tolist())\n"
        "    return [F.scaled_dot_product_attention(p, p, p) for p in parts]\n"
    )
    assert not suggest_break_fixes(facts_of("GB0033", program, 2, is_inlined=True))[0].helps


def test_a_training_step_is_compiled_up_to_its_loss() -> None:
    program = (
        "def step(self, x):\n    self.optimizer.zero_grad()\n    loss = self.model(x).mean()\n"
        "    loss.backward()\n    self.optimizer.step()\n    return loss\n"
    )
    for gb_id, line in (("GB0008", 2), ("GB0123", 4), ("GB0025", 5)):
        (first,) = suggest_break_fixes(facts_of(gb_id, program, line))
        assert first.fix.id == "step_outside"


def test_a_number_that_a_hook_stores_is_captured_by_no_setting() -> None:
    callers = called_by(
        "def forward(self, x):\n    h = x.relu()\n    h.register_hook(self.probe)\n    return h\n",
        3,
    )
    program = "def __call__(self, grad):\n    self.norms.append(grad.norm().item())\n"
    (first,) = suggest_break_fixes(facts_of("GB0124", program, 2, is_inlined=True, callers=callers))
    assert "`h.register_hook(self.probe)`" in first.title and not first.helps


@pytest.mark.parametrize(
    ("body", "title"),
    [
        ("if n % 2:\n        print(y.sum().item())", "Return `y.sum()`, and call `print("),
        ("if n % 2:\n        m = y.sum().item()\n        log.info('%s', m)", "Return `y.sum()`"),
        ("if self.n % 2:\n        self.log('loss', x.item())", "Call `self.log('loss', x.item())`"),
        ("if y.sum() > 0:\n        print(x.item())", None),  # the caller does not know it
        ("if n % 2:\n        print(x.item())\n        y = y + 1", None),
        ("if n % 2:\n        print(y.sum().item())\n    self.opt.step()", None),
        ("if n % 2:\n        print(y.item())\n    y.add_(1)", None),
        ("for _ in range(n):\n        print(y.sum().item())", None),
    ],
)
def test_a_report_is_made_in_the_caller_with_its_if(body: str, title: str | None) -> None:
    program = f"def f(self, x, n):\n    y = x * 2\n    {body}\n    return y\n"
    line = 1 + next(n for n, text in enumerate(program.split("\n")) if ".item()" in text)
    first = suggest_break_fixes(facts_of("GB0124", program, line))[0]
    assert (first.fix.id == "report_in_caller") == bool(title)
    assert first.title.startswith(title or "") and (
        not title or " in the caller, if" in first.title
    )


@pytest.mark.parametrize(
    ("body", "is_report"),
    [
        ("print(json.dumps({'step': n, 'loss': float(loss)}))", True),
        ("self.best = min(self.best, float(loss))", False),
        ("loss.mul_(float(loss))", False),
        ("return float(loss)", False),
    ],
)
def test_a_function_that_only_reports_is_called_in_the_caller(body: str, is_report: bool) -> None:
    callers = called_by(
        "def step(x, n):\n    loss = x.sum()\n    report(n, loss)\n    loss.backward()\n"
        "    return loss\n",
        3,
    )
    facts = facts_of("GB0124", f"def report(n, loss):\n    {body}\n", 2, is_inlined=True)
    first = suggest_break_fixes(replace(facts, callers=callers))[0]
    place = "the caller of the compiled function"
    assert (first.title == f"Call `report(n, loss)` in {place}") == is_report


def test_a_logger_call_in_the_caller_gets_what_it_logs() -> None:
    program = "def f(x):\n    y = x * 2\n    log.info('%s', {})\n    return y.sin()\n"
    for value, start in (
        ("y.amax()", "Return `y.amax()`, and call `log"),
        ("x.dim()", "Call `log"),
    ):
        first, *_ = suggest_break_fixes(facts_of("GB0291", program.format(value), 3))
        assert first.title.startswith(start) and first.title.endswith("in the caller")


def test_a_loop_until_a_number_is_small_is_compiled_by_its_passes() -> None:
    program = (
        "def solve(a, b, steps):\n    x = b\n    for i in range(steps):\n        r = b - a @ x\n"
        "        x = x + r\n        if r.norm().item() < 1e-4:\n            print(i)\n"
        "            break\n    return x\n"
    )
    eager = (EagerFunction("solve", "train.py", 1, block="for", block_line=3),)
    first = suggest_break_fixes(facts_of("GB0124", program, 6, eager=eager))[0]
    assert first.fix.id == "loop_body" and "`r.norm().item()`" in first.title


def test_a_number_that_was_drawn_is_drawn_in_the_caller() -> None:
    program = "def f(x):\n    k = random.randint(0, 3)\n    return torch.rot90(x, k)\n"
    (first,) = suggest_break_fixes(facts_of("GB0033", program, 3))
    assert first.title.startswith("Draw `random.randint(0, 3)` in the caller")


@pytest.mark.parametrize(
    ("line", "called", "start"),
    [
        ("raise ValueError(x)", "x = align(x)", "Nothing to fix"),
        ("return x if x.data_ptr() % 16 else -x", "x, y = align(x), align(y)", "Call `align(x)`"),
        ("return x if x.data_ptr() % 16 else -x", "x = align(x * 2)", "No safe fix is known"),
        ("return zlib.crc32(x) % 16", "x = align(x)", "No safe fix is known"),
    ],
)
def test_only_an_exception_of_the_program_s_own_is_as_expected(
    line: str, called: str, start: str
) -> None:
    facts = facts_of("GB0088", f"def align(x):\n    {line}\n", 2, is_inlined=True)
    callers = called_by(f"def forward(x, y):\n    {called}\n    return x + y\n", 2)
    assert suggest_break_fixes(replace(facts, callers=callers))[0].title.startswith(start)


def test_a_size_that_decides_in_a_loop_is_asked_for_in_its_passes() -> None:
    program = (
        "def f(x, top):\n    for i, layer in enumerate(layers):\n"
        "        idx = torch.where(top == i)[0]\n        if idx.numel() == 0:\n"
        "            continue\n        x[idx] = layer(x[idx])\n    return x\n"
    )
    eager = (EagerFunction("f", "train.py", 1, block="for", block_line=2),)
    first, second = suggest_break_fixes(facts_of("GB0036", program, 3, eager=eager))
    assert first.fix.id == "loop_body" and "`torch.where(top == i)[0]`" in first.title
    assert second.fix.id == "empty_captured" and "gradients" in second.title
    assert (second.edits[0].line, second.edits[0].line_count) == (4, 2) and second.settings
    for body in ("x[idx] = layer(x[idx]).mean(0)", "total += x[idx].sum()"):
        other = program.replace("x[idx] = layer(x[idx])", body)
        fixes = suggest_break_fixes(facts_of("GB0036", other, 3, eager=eager))
        assert [fix.fix.id for fix in fixes] == ["loop_body"]


def test_a_check_of_a_called_block_that_only_reports_is_made_after_the_call() -> None:
    block = "def forward(self, x):\n    if torch.isnan(x).any():\n        {}\n    return x\n"
    net = (
        "def forward(self, x):",
        "    for block in self.blocks:",
        "        x = block(x)",
        "    return x",
    )
    way = Caller("Net.forward", 3, 1, net)
    eager = (EagerFunction("Net.forward", "train.py", 1, block="for", block_line=2),)
    more = {"is_inlined": True, "callers": ((way,),), "skipped": (way,), "eager": eager}
    facts = facts_of("GB0170", block.format('log.warning("nan")'), 2, **more)
    assert [fix.title for fix in suggest_break_fixes(facts)] == [
        "Return `torch.isnan(x).any()`, and check it after the compiled call"
    ]
    facts = facts_of("GB0170", block.format("x = self.mend(x)"), 2, **more)
    assert "check_after_call" not in [fix.fix.id for fix in suggest_break_fixes(facts)]


def test_a_timer_leaves_with_what_the_function_writes_to_its_module() -> None:
    program = """
        def forward(self, x):
            with clock():
                self.seen[x.shape[1]] = True
                return x + 1
    """
    eager = (EagerFunction("forward", "train.py", 1, block="with", block_line=2),)
    (first,) = suggest_break_fixes(
        facts_of("GB0007", program, 2, eager=eager, context="module: time, qualname: time")
    )
    assert "look up `self.seen` in the caller too" in first.title


@pytest.mark.parametrize(
    ("gb_id", "body", "title"),
    [
        (
            "GB0124",
            "for row in x:\n        meter.update(row.sum().item(), len(row))",
            "Return a list of every `row.sum()` of the loop, and call "
            "`meter.update(row.sum().item(), len(row))` in the caller, once for each entry",
        ),
        (
            "GB0124",
            "for row in x:\n        total += row.sum().item()",
            "Return a list of every `row.sum()` of the loop, and run "
            "`total += row.sum().item()` in the caller, once for each entry",
        ),
        (
            "GB0124",
            "if x.shape[0] > 2: log.append(x.sum().item())",
            "Return `x.sum()`, and call `log.append(x.sum().item())` in the caller, "
            "if `x.shape[0] > 2`",
        ),
        (
            "GB0124",  # the caller reads `n` after it was changed
            "n += 1\n    if n % 2:\n        s = x.item()\n        log.append(s)",
            "Return `x` and `n % 2`, and call `.item()` and `log.append(s)` in the caller, "
            "if `n % 2`",
        ),
        (
            "GB0291",
            "for i, row in enumerate(x):\n        log.info('%d', row.sum())",
            "Return a list of every `row.sum()` of the loop, and call "
            "`log.info('%d', row.sum())` in the caller, once for each entry",
        ),
        (
            "GB0291",
            "while n > 3:\n        log.info('a pass')",
            "Call `log.info('a pass')` in the caller, once for each time that the loop reaches it",
        ),
    ],
)
def test_a_call_is_made_in_the_caller_as_often_as_now(gb_id: str, body: str, title: str) -> None:
    program = f"def f(x, log, meter, n, total):\n    {body}\n    return x, total\n"
    reads = ("item()", "info(")
    line = 1 + next(
        n for n, text in enumerate(program.split("\n")) if any(read in text for read in reads)
    )
    assert suggest_break_fixes(facts_of(gb_id, program, line))[0].title == title


def test_a_report_of_a_function_that_a_loop_calls_is_made_for_each_pass() -> None:
    callers = called_by("def g(xs):\n    for x in xs:\n        note(x)\n    return xs\n", 3)
    program = "def note(x):\n    print(x.sum().item())\n    return x\n"
    facts = facts_of("GB0124", program, 2, is_inlined=True, compiled="g", callers=callers)
    assert suggest_break_fixes(facts)[0].title == (
        "Return a list of every `x.sum()` of the loop, and call `print(x.sum().item())` in the "
        "caller of `g`, once for each entry"
    )


@pytest.mark.parametrize(
    "line", ["v = meter.update({}, 1)", "v = d.pop({}, x)", "v = cache.setdefault({}, 0)"]
)
def test_a_number_whose_call_gives_a_value_is_needed_inside(line: str) -> None:
    for tensor, fix_id in (("x", "item_size_in_caller"), ("y", "parts_around")):
        call = line.format(f"{tensor}.sum().item()")
        program = f"def f(x, meter, d, cache):\n    y = x * 2\n    {call}\n    return x * v\n"
        assert suggest_break_fixes(facts_of("GB0124", program, 3))[0].fix.id == fix_id


@pytest.mark.parametrize("loop", ["for i in range(n)", "while n > 3"])
def test_a_loop_of_an_inlined_function_is_made_by_its_own_caller(loop: str) -> None:
    program = f"def helper(x):\n    n = x.sum().item()\n    {loop}: x = x + 1\n    return x\n"
    facts = facts_of("GB0124", program, 2, is_inlined=True, compiled="Net.forward")
    assert "Net.forward" not in suggest_break_fixes(facts)[0].title


def test_a_quoted_text_with_the_words_the_caller_stays_as_it_is() -> None:
    program = "def helper(x):\n    y = x * 2\n    print('the caller', y.sum().item())\n"
    facts = facts_of("GB0124", program, 3, is_inlined=True, compiled="Net.forward")
    assert "call `print('the caller', y.sum().item())` in the caller of `Net.forward`" in (
        suggest_break_fixes(facts)[0].title
    )
