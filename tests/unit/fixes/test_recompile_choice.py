"""Which fix of a recompile is chosen, and in whose names it is written."""

import ast
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.categories import BY_NAME
from compileboard.collectors.decode.recompile_reasons import parse_reason
from compileboard.collectors.fixes.fix import RecompileFacts
from compileboard.collectors.fixes.recompile_fixes import (
    describe_guard_fixes,
    join_settings,
    suggest_recompile_fixes,
    suggest_together,
)

NAMES = st.from_regex(r"[a-z]{6,8}", fullmatch=True)
SOURCES = st.one_of(
    NAMES,
    st.builds("{}['{}']".format, NAMES, NAMES),
    st.builds("___stack{}".format, st.integers(0, 9)),
    st.builds("___stack0.{}".format, NAMES),
    st.builds("self.{}".format, NAMES),
    st.builds("G['{}']".format, NAMES),
    st.text(max_size=40),
)
ENTRIES = st.builds("L['{}']:{}".format, NAMES, st.integers(0, 3)) | st.text()
VALUES = st.sampled_from(["0", "1", "4", "0.5", "None", "'a'", "True", "missing"]) | st.text()
FACTS = st.builds(
    RecompileFacts,
    category=st.sampled_from([*BY_NAME, "of a later version"]),
    source=st.none() | SOURCES,
    siblings=st.lists(SOURCES, max_size=2).map(tuple),
    dim=st.none() | st.integers(0, 5),
    values=st.lists(VALUES, max_size=3).map(tuple),
    reason=st.text(max_size=80),
    function=st.sampled_from(
        [None, "forward", "torch_dynamo_resume_in_forward_at_3", "wrap_inline.<locals>.inner"]
    ),
    source_line=st.none() | st.text(max_size=40),
    recompile_count=st.integers(0, 3),
    after_break=st.booleans(),
    lines=st.lists(st.text(max_size=30), max_size=3).map(tuple),
    dynamic_sources=st.lists(
        st.builds("L['{}']:{}".format, NAMES, st.integers(0, 3)) | st.text(), max_size=3
    ).map(tuple),
    torch_version=st.sampled_from([(2, 4), (2, 7), (2, 13)]),
)


def choose(category: str, source: str | None = None, **rest: object) -> list[str]:
    return [
        suggested.fix.id
        for suggested in suggest_recompile_fixes(RecompileFacts(category, source, **rest))
    ]  # type: ignore[arg-type]


@given(FACTS)
def test_a_suggestion_has_no_blank_and_settings_that_parse(facts: RecompileFacts) -> None:
    for suggested in suggest_recompile_fixes(facts):
        assert suggested.fix.minimum_torch <= facts.torch_version
        assert "___stack" not in suggested.title and "torch_dynamo_resume_in" not in suggested.title
        for setting in suggested.settings:
            assert isinstance(ast.parse(setting).body[0], ast.Assign)
            assert "___stack" not in setting


@given(FACTS, NAMES)
def test_a_local_of_code_after_a_break_is_never_named(facts: RecompileFacts, name: str) -> None:
    left = RecompileFacts(
        facts.category, name, function="torch_dynamo_resume_in_f_at_3", reason=facts.reason
    )
    for suggested in suggest_recompile_fixes(left):
        assert name not in suggested.title.replace(suggested.fix.title, "")
        assert name not in " ".join(suggested.settings)


SIZE = {"category": "tensor_size", "source": "x"}
TEXT = {"category": "string_value", "source": "text", "values": ("'a'", "'b'", "'c'", "'d'")}
DTYPE = {"category": "tensor_dtype", "source": "x"}
BOOLS = ("True", "False")
INT = {"category": "int_value", "source": "k", "values": ("2",)}
GRAD_MODE = {"category": "grad_mode", "together": ("grad_mode", "dispatch_keys")}
TYPE = {"category": "type_change", "source": "self"}


@pytest.mark.parametrize(
    ("line", "fix_id"),
    [
        ("return x.unfold(-1, 2, k)", "int-that-is-needed"),
        ("return torch.nn.functional.avg_pool2d(x, k)", "int-that-is-needed"),
        ("return x.logsumexp(dim=k)", "int-that-is-needed"),
        ("return x.narrow(1, 0, k)", "dynamic-number"),
    ],
)
def test_a_number_that_torch_compiles_in_is_not_to_be_made_dynamic(line: str, fix_id: str) -> None:
    facts = RecompileFacts(**INT, lines=("def f(x, k):", f"    {line}"), is_static=True)
    attribute = replace(facts, category="module_attribute", source="self.k")
    attribute = replace(attribute, lines=("def f(self, x):", f"    {line.replace('k', 'self.k')}"))
    for known in (facts, attribute):
        assert suggest_recompile_fixes(known)[0].fix.id == fix_id


@pytest.mark.parametrize(
    ("facts", "fix_id"),
    [
        ({**SIZE, "values": ("4", "5"), "after_break": True}, "value-after-a-break"),
        ({**SIZE, "values": ("4", "5"), "lines": ("if x.shape[0] == 4:",)}, "size-in-the-code"),
        ({**SIZE, "values": ("4", "5"), "lines": ("x.view(4, -1)",)}, "size-in-the-code"),
        (
            {**SIZE, "values": ("4", "5", "1"), "lines": ("x.view(-1, 2, x.shape[1])",)},
            "size-of-an-input",
        ),
        ({**SIZE, "values": ("1", "5"), "lines": ("if len(x) > 3:",)}, "size-zero-or-one"),
        ({**SIZE, "values": ("8", "1"), "dim": 1}, "size-zero-or-one"),
        ({**SIZE, "values": ("12", "1"), "dim": 0}, "last-batch"),
        ({**SIZE, "values": ("1", "5", "6"), "dim": 0}, "size-of-an-input"),
        ({**SIZE, "dim": 1, "is_compiled_in": True}, "int-that-is-needed"),
        (INT, "dynamic-number"),
        ({**INT, "source_line": "for _ in range(k):"}, "int-that-the-code-needs"),
        ({**INT, "source_line": "x = layers[k](x)"}, "int-that-the-code-needs"),
        ({**INT, "source_line": "return x[:k] * 2"}, "dynamic-number"),
        ({**INT, "source_line": "return x[k] * 2"}, "int-that-subscripts-a-tensor"),
        (
            {**INT, "source_line": "return x[k] * 2", "recompile_count": 2},
            "int-that-picks-from-a-list",
        ),
        ({**INT, "source_line": "y = call(x[k + 1],"}, "int-that-subscripts-a-tensor"),
        (
            {**INT, "category": "global_value", "source_line": "y = x[k]"},
            "int-that-subscripts-a-tensor",
        ),
        ({**INT, "source_line": "return x[k] if k > 2 else x"}, "int-that-the-code-needs"),
        ({"category": "grad_mode", "is_eager": True}, "variants-at-the-limit"),
        (
            {**SIZE, "values": ("1", "5"), "lines": ("if len(x) > 3:",), "is_eager": True},
            "variants-at-the-limit",
        ),
        ({**INT, "source_line": 'return x * k if mode == "sin" else x - k'}, "dynamic-number"),
        ({**INT, "source_line": "return x if k else x - 1"}, "int-that-the-code-needs"),
        ({**INT, "source_line": "elif flag and k > 2:"}, "int-that-the-code-needs"),
        (
            {**INT, "source": "self.k", "source_line": "return [x for _ in range(self.k)]"},
            "int-that-the-code-needs",
        ),
        ({**INT, "source_line": "if (k > 2 and"}, "int-that-the-code-needs"),
        (
            {**INT, "category": "module_attribute", "source_line": "for _ in range(k):"},
            "int-that-the-code-needs",
        ),
        (
            {**INT, "category": "global_value", "source_line": "if k > 2:"},
            "int-that-the-code-needs",
        ),
        ({**INT, "source_line": "return x[:, k]"}, "int-that-is-a-position"),
        ({**INT, "source_line": "y = x[..., k + 1, :] * k"}, "int-that-is-a-position"),
        ({**INT, "source_line": "y = call(x[:, k],"}, "int-that-is-a-position"),
        (
            {**INT, "category": "global_value", "source_line": "x[0, k] = y"},
            "int-that-is-a-position",
        ),
        ({**INT, "source_line": "return x[:, :k, 0]"}, "dynamic-number"),
        ({**INT, "source_line": "return x[:, k] if k > 2 else x"}, "int-that-the-code-needs"),
        ({**INT, "source_line": "x = layers[0, k](x)"}, "int-that-the-code-needs"),
        ({"category": "grad_mode", "after_break": True}, "grad-mode"),
        ({**GRAD_MODE, "reason": "GLOBAL_STATE changed: grad_mode"}, "inference-mode-variants"),
        (
            {**GRAD_MODE, "reason": "GLOBAL_STATE changed: grad_mode autocast(cpu)_enabled"},
            "grad-mode",
        ),
        (
            {
                "category": "module_attribute",
                "source": "self.n",
                "after_break": True,
                "values": ("3",),
            },
            "dynamic-number",
        ),
        ({"category": "other_value", "source": "self.training", "values": ("True",)}, "training"),
        (
            {
                "category": "object_identity",
                "source": "fn",
                "file": "torch/_dynamo/external_utils.py",
            },
            "shared-wrapper",
        ),
        ({"category": "container_length", "source": "d", "reason": "len(d) != 2"}, "dict-keys"),
        (
            {
                "category": "container_length",
                "source": "meta['sizes']",
                "source_line": 'parts = [p.sum(0) for p in x.split(meta["sizes"])]',
            },
            "list-of-sizes",
        ),
        (
            {
                "category": "tensor_requires_grad",
                "source": "self.head.weight",
                "reason": "tensor 'self._modules['head']._parameters['weight']' requires_grad",
            },
            "requires-grad-of-a-parameter",
        ),
        ({"category": "dict_keys", "source": "kwargs"}, "other-arguments"),
        ({"category": "dict_keys", "source": "batch"}, "dict-keys"),
        ({"category": "type_change", "source": "mask", "reason": "NoneType"}, "none"),
        ({"category": "other_value", "source": "m", "values": ("None", "Tensor")}, "none"),
        ({"category": "other_value", "source": "m", "values": ("None", "tuple")}, "value-variants"),
        (
            {
                "category": "int_value",
                "source": "n",
                "source_line": "mask = torch.arange(x.shape[1]) >= n",
                "lines": ("def f(x, n):", "    mask = torch.arange(x.shape[1]) >= n"),
            },
            "dynamic-number",
        ),
        (
            {"category": "type_change", "source": "c.keys[0]", "reason": "NoneType"},
            "value-variants",
        ),
        ({**TYPE, "values": ("a tensor", "<class 'int'>")}, "type"),
        (
            {**TYPE, "values": ("<class '__main__.Flip'>", "<class '__main__.Roll'>")},
            "value-variants",
        ),
        (TYPE, "value-variants"),
        ({"category": "tensor_requires_grad", "source": "w"}, "requires-grad-variants"),
        ({**DTYPE, "values": ("torch.float32", "torch.bfloat16")}, "dtype"),
        ({**DTYPE, "values": ("torch.uint8", "torch.float32")}, "dtype-variants"),
        (
            {**DTYPE, "lines": ("def f(x):", "    if x.dtype == torch.half: x = x * 2")},
            "dtype-variants",
        ),
        ({**DTYPE, "lines": ("def f(x):", "    return x.float().to(x.dtype)")}, "dtype"),
        (
            {"category": "tensor_requires_grad", "source": "w", "is_without_gradients": True},
            "requires-grad",
        ),
        ({**TEXT, "source_line": "ids = [ord(c) for c in text]"}, "text-in-caller"),
        ({**TEXT, "source_line": 'if text == "a":'}, "value-variants"),
        ({**TEXT, "source_line": "self.fields[text] = x.float()"}, "text-to-store-by"),
        ({**TEXT, "source_line": "return getattr(torch, text)(x)"}, "value-variants"),
        ({**TEXT, "source_line": "return x * SCALES[text]"}, "value-variants"),
        ({"category": "module_attribute", "source": "self.last", "values": BOOLS}, "bool"),
        ({"category": "global_value", "source": "G['FAST']", "values": BOOLS}, "bool"),
    ],
)
def test_the_case_is_told_by_what_is_recorded(facts: dict[str, object], fix_id: str) -> None:
    assert choose(**facts)[0] == fix_id  # type: ignore[arg-type]


COUNTED = ("def forward(self, x):", "    self.step += 1")


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        ((*COUNTED, "    return x * 2"), ["counter"]),
        ((*COUNTED, "    return x * self.step"), ["counter"]),
        ((*COUNTED, "    if self.step % 100 == 0:", "        x = x * 2", "    return x"), []),
        ((*COUNTED, "    return x.new_zeros(self.step)"), []),
        ((*COUNTED, "    n = self.step", "    return x[:n]"), []),
        ((*COUNTED, '    log.info(f"step {self.step}")'), []),
        ((*COUNTED, "    return self.layers[self.step](x)"), []),
        ((), []),
    ],
)
def test_a_counter_is_a_buffer_only_where_each_reading_can_be(
    lines: tuple[str, ...], more: list[str]
) -> None:
    counter = {"source": "self.step", "values": ("0",), "source_line": "self.step += 1"}
    assert choose("module_attribute", lines=lines, **counter) == ["dynamic-number", *more]
    older = choose("module_attribute", lines=lines, torch_version=(2, 6), **counter)
    assert older == (more or ["int-that-is-needed"])
    loop = (*COUNTED, "    for _ in range(self.step):", "        x = x * 2")
    assert choose("module_attribute", lines=loop, **counter) == ["int-that-the-code-needs"]


def test_an_index_that_another_function_takes_is_not_promised_to_be_dynamic() -> None:
    layer = {"source": "self.index", "values": ("0",)}
    scaled = ("def forward(self, x):", "    return x / (self.index + 1)")
    cached = ("def forward(self, x):", "    return self.cache.update(x, self.index)")
    key = ("def forward(self, x, states):", "    return x if self.index in states else x * 2")
    assert choose("module_attribute", lines=scaled, **layer) == ["dynamic-number", "layer-index"]
    for unknown in (cached, key, ()):
        assert choose("module_attribute", lines=unknown, **layer) == ["layer-index"]


def test_a_whole_model_is_not_to_be_split_into_functions_for_its_layers_flags() -> None:
    index = RecompileFacts("module_attribute", "self.layer_idx", values=("1",), is_eager=True)
    flag = RecompileFacts("other_value", "cache[0].ready", values=BOOLS, reason="'bool'")
    (first,) = suggest_together([replace(flag, is_eager=True), index])
    assert first.title == "Compile the whole model, or do not read self.layer_idx in forward"
    size = RecompileFacts("tensor_size", "x", dim=0, values=("4", "5"))
    (first,) = suggest_together([size, index])
    assert "Mark dimension 0" in first.title and "Compile the whole model" in first.title


def test_a_loop_or_branch_is_named_only_where_the_code_has_one() -> None:
    line = 'def f(x, n): return x + n[0] + CFG["a"]'
    facts = {"source": "n[0]", "source_line": line, "lines": (line,), "recompile_count": 9}
    assert choose("int_value", **facts)[0] == "int-that-is-needed"
    assert choose("int_value", **facts, is_static=True)[0] == "dynamic-number"
    numbers = [
        RecompileFacts("global_value", **{**facts, "source": "G['CFG']['a']"}, values=("0",)),
        RecompileFacts("int_value", **facts, is_static=True),
    ]
    (first, *_) = suggest_together(numbers)
    assert first.title.startswith("Name `G['CFG']['a'],L['n'][0]` in torch.compiler.config")
    assert "which makes CFG['a'] and n[0] dynamic" in first.title
    assert first.settings[0].endswith("\"G['CFG']['a'],L['n'][0]\"")


def test_a_float_of_a_global_object_is_compiled_in_at_its_first_value_alone() -> None:
    facts = RecompileFacts("global_value", "G['cfg'].temperature", values=("1.0", "1.5"))
    (first,) = suggest_recompile_fixes(facts)
    assert first.title.startswith("Make cfg.temperature a tensor: as a number it costs one compile")
    (each,) = suggest_recompile_fixes(replace(facts, recompile_count=2))
    assert (each.fix.id, each.title) == ("global-number", "Make cfg.temperature a tensor")


@pytest.mark.parametrize(
    ("loop", "dims"),
    [
        ("for t in range(x.shape[1]):", {1}),
        ("for t in range(1, x.size(1) // 2):", {1}),
        ("for t, row in enumerate(reversed(x.unbind(dim=1))):", {1}),
        ("for row in torch.split(x, 1, dim=1):", {1}),
        ("for row in zip(x, y):", {0}),
        ("while t < len(x):", {0}),
        ("batch, length = x.shape\n    for t in range(length):", {1}),
        ("rows = x.unbind()\n    for row in rows:", {0}),
        ("for t in range(y.shape[0]):", set()),
        ("for layer in self.layers[: x.dim()]:", set()),
    ],
)
def test_a_size_that_a_loop_runs_to_is_not_to_be_marked(loop: str, dims: set[int]) -> None:
    lines = ("def f(x, y):", *f"    {loop}\n        y = y + 1".split("\n"))
    looped = {
        dim
        for dim in (0, 1, 2)
        if choose("tensor_size", "x", dim=dim, lines=lines)[0] == "size-that-a-loop-runs-to"
    }
    assert looped == dims


def test_a_learning_rate_is_a_tensor_and_its_scheduler_steps_in_the_caller() -> None:
    facts = RecompileFacts(
        "module_attribute",
        "self.param_groups[0]['lr']",
        values=("0.1", "0.09"),
        function="SGD.step",
        lines=("def update():", "    opt.step()", "    self.sched.step()"),
        recompile_count=4,
    )
    (rate,) = suggest_recompile_fixes(facts)
    assert rate.fix.id == "optimizer-rate" and not rate.settings
    assert ". Call `self.sched.step()` in the caller. Changes what" in rate.title
    (rate,) = suggest_recompile_fixes(replace(facts, lines=facts.lines[:2]))
    assert "in the caller" not in rate.title
    assert choose("module_attribute", facts.source, values=facts.values)[0] != "optimizer-rate"


def test_a_float_that_a_function_of_python_s_takes_is_not_to_be_a_tensor() -> None:
    line = "return torch.nn.utils.clip_grad_norm_(params, most)"
    lines = ("def clip(params, most):", f"    {line}")
    assert choose("float_value", "most", lines=lines, source_line=line) == ["float-passed-on"]


def test_a_float_names_the_setting_that_a_trial_applies() -> None:
    line = "return x * scale"
    facts = RecompileFacts(
        "float_value", "scale", lines=("def f(x, scale):", f"    {line}"), source_line=line
    )
    (dynamic,) = suggest_recompile_fixes(facts)
    (static,) = suggest_recompile_fixes(replace(facts, is_static=True))
    assert dynamic.settings and dynamic.settings[0] in dynamic.title
    assert not static.settings and dynamic.title.startswith(static.title)


def test_equal_sizes_are_the_codes_where_it_compares_them() -> None:
    sizes, reason = "x.size()[1], x.size()[0]", "x.size()[1] == x.size()[0]"
    assert choose("symbolic_shape", sizes, reason=reason) == ["sizes-equal"]
    assert choose(
        "symbolic_shape", sizes, reason=reason, source_line="if x.shape[0] == x.shape[1]:"
    ) == ["size-compared"]


def test_titles_and_settings_are_in_the_users_names() -> None:
    facts = RecompileFacts(
        "tensor_size", "batch['user']", ("batch['item']",), dim=0, values=("4", "5")
    )
    (first, *_) = suggest_recompile_fixes(facts)
    assert (
        first.title
        == "Mark dimension 0 of batch['user'] and batch['item'] dynamic before the first call"
    )
    assert first.settings == (
        "torch.compiler.config.dynamic_sources = \"L['batch']['user']:0,L['batch']['item']:0\"",
    )
    older = RecompileFacts(
        facts.category,
        facts.source,
        facts.siblings,
        dim=0,
        values=facts.values,
        torch_version=(2, 9),
    )
    assert suggest_recompile_fixes(older)[0].settings == (
        "torch.compiler.config.dynamic_sources = \"L['batch']['user'],L['batch']['item']\"",
    )


def test_settings_are_joined_or_exclude_each_other() -> None:
    name = "torch.compiler.config.dynamic_sources"
    settings = [f'{name} = "x:0"', f'{name} = "y,x:0"', "s.add(print)", "z = 1"]
    assert join_settings(settings) == (f"{name} = 'x:0,y'", "s.add(print)", "z = 1")
    assert join_settings([*settings, "z = 2"]) is None


def test_a_librarys_input_is_marked_at_the_users_call() -> None:
    def title(call: str, *siblings: str) -> str:
        facts = RecompileFacts(
            "tensor_size",
            "kwargs['ids']",
            dim=1,
            called_at="run.py:9",
            call_code=call,
            siblings=siblings,
        )
        return suggest_recompile_fixes(facts)[0].title

    once = (
        "Mark dimension 1 of tokens dynamic before the call at run.py:9: "
        "`torch._dynamo.mark_dynamic(tokens, 1)`"
    )
    assert title("loss = model(ids=tokens).loss") == once
    assert title("loss = model(ids=tokens).loss", "ids") == once
    assert "`torch._dynamo.mark_dynamic(batch['ids'], 1)`" in title("model(**batch)")
    part = title("model(ids=tokens, cache=cache)", "kwargs['cache'].keys[0]")
    assert "L['kwargs']['cache'].keys[0]:1" in part and "mark_dynamic" not in part
    setting = "`torch.compiler.config.dynamic_sources = \"L['kwargs']['ids']:1\"`"
    assert (
        title("out = model.generate(prompt)")
        == f"Mark dimension 1 of kwargs['ids'] dynamic with {setting}, before the call at run.py:9"
    )


def test_a_guard_alone_has_the_titles_of_its_fixes() -> None:
    guard = parse_reason("0/0: tensor 'x' size mismatch at index 0. expected 4, actual 8")
    assert describe_guard_fixes(guard) == (
        "Mark dimension 0 of x, and of inputs that share its size, dynamic before the first call. "
        "Or pad x to a few fixed sizes and cut the result. "
        "Changes sums, means and softmax over the padding, and what a loop carries through it, "
        "unless the code masks it"
    )
    assert describe_guard_fixes(guard, after_break=True) == (
        "Remove the graph break before this code. Or compile with dynamic=True, which keeps "
        "the break"
    )


def test_a_number_that_is_appended_is_read_in_the_caller_too() -> None:
    grows = RecompileFacts("container_length", "history", source_line="history.append(loss.item())")
    (first, *_others) = suggest_recompile_fixes(grows)
    assert first.title == "Return `loss`, and append `loss.item()` to history in the caller"


@pytest.mark.parametrize(
    ("body", "fix_id"),
    [
        ("return torch.cat([k for k, v in past])", "list-that-is-joined"),
        ("return torch.stack(past)", "list-that-is-joined"),
        ("return x + past[-2]", "list-that-is-read"),
        ("return torch.stack(past) / len(past)", "list-that-is-read"),
        ("past.append(x + 1); return past", "list-that-grows"),
        ("return torch.stack(self.past)", "list-that-grows"),
    ],
)
def test_what_is_read_too_is_not_only_appended_to_in_the_caller(body: str, fix_id: str) -> None:
    lines = ("def step(self, x, past):", "    past.append(x)", f"    {body}")
    facts = RecompileFacts("container_length", "past", source_line="past.append(x)", lines=lines)
    assert [suggested.fix.id for suggested in suggest_recompile_fixes(facts)] == [fix_id]


@pytest.mark.parametrize(
    ("body", "fix_id"),
    [
        ("return torch.stack(parts).sum()", "list-length"),
        ("return torch.cat(parts, dim=1)", "list-length"),
        ("first, second, *rest = parts", "list-that-is-read"),
        ("return parts[0] + parts[-1]", "list-that-is-read"),
        ("return self.pool(parts)", "list-that-is-read"),
    ],
)
def test_a_list_becomes_one_tensor_only_where_the_function_joins_it(body: str, fix_id: str) -> None:
    lines = ("def forward(self, parts):", f"    {body}")
    assert choose("container_length", source="parts", lines=lines) == [fix_id]
    assert choose("container_length", source="parts") == ["list-that-is-read"]
    loop = (*lines, "    for part in parts: self.add(part)")
    (looped,) = suggest_recompile_fixes(RecompileFacts("container_length", "parts", lines=loop))
    assert looped.title.startswith("Worth trying: stack parts") and looped.fix.is_unsure


def test_a_size_that_torch_kept_static_beside_dynamic_ones_is_named() -> None:
    facts = RecompileFacts(
        "tensor_size", "g", ("p",), 0, ("3", "4"), sizes=(("g", 0), ("p", 0)), is_compiled_in=True
    )
    first, _buckets = suggest_recompile_fixes(replace(facts, dynamic_sources=("L['g']:0",)))
    assert first.title.startswith("Torch kept the sizes of p static") and not first.helps
    assert first.settings == ("torch.compiler.config.dynamic_sources = \"L['g'],L['p']\"",)
    for dynamic in ((), ("L['g']:0", "L['p']:0")):
        first, *_ = suggest_recompile_fixes(replace(facts, dynamic_sources=dynamic))
        assert first.fix.id == "int-that-is-needed"


def test_one_number_of_dimensions_is_not_promised_beside_other_variants() -> None:
    facts = RecompileFacts("tensor_rank", "x", values=("2", "3"), beside=frozenset({"tensor_rank"}))
    (first,) = suggest_recompile_fixes(facts)
    assert first.fix.id == "rank" and first.fix.left == "dynamic"
    for category in ("tensor_dtype", "tensor_requires_grad", "grad_mode"):
        (first,) = suggest_recompile_fixes(replace(facts, beside=frozenset({category})))
        assert not first.helps and "try to give it one" in first.title


def test_what_a_forward_hook_appends_is_kept_for_after_the_call() -> None:
    lines = ("def hook(module, inputs, output):", "    self.seen.append(output.mean())")
    hooks = "fn.1._forward_hooks"
    source = f"{hooks}[list(dict.keys({hooks}))[0]].__closure__[1].cell_contents.seen"
    for facts in (
        RecompileFacts("container_length", "self.seen", source_line=lines[1], lines=lines),
        RecompileFacts("container_length", "self.seen", source_line=lines[1], is_in_hook=True),
        RecompileFacts("container_length", source, source_line=lines[1]),
    ):
        (first, *_others) = suggest_recompile_fixes(facts)
        assert first.fix.id == "hook-that-stores"
    assert "append them to the hook's seen after" in first.title


def test_what_a_dictionary_gains_is_returned() -> None:
    line = "self.fields[name] = value.float()"
    facts = RecompileFacts("container_length", "store.fields", source_line=line)
    (first,) = suggest_recompile_fixes(facts)
    assert first.title == "Return `value.float()`, and add it to store.fields in the caller"


@pytest.mark.parametrize(
    ("line", "fix_id"),
    [
        ("return self.heads[self.task](x)", "attribute-key"),
        ("return ACTIVATIONS[self.task](x)", "attribute-value"),
        ("return x * self.scales[self.task]", "attribute-value"),
    ],
)
def test_an_attribute_that_picks_a_module_is_to_stay_the_same(line: str, fix_id: str) -> None:
    facts = {"values": ("'a'", "'b'"), "source_line": line}
    assert choose("module_attribute", "self.task", **facts) == [fix_id]
