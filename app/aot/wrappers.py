"""The actions of AOTAutograd's wrappers around each call of a compiled graph, and their costs.

Source: torch/_functorch/_aot_autograd/runtime_wrappers.py, graph_compile.py (2.6 to 2.13)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

RUNTIME = "RuntimeWrapper"
AUTOGRAD = "AOTDispatchAutograd"


@dataclass(frozen=True)
class WrapperAction:
    """One action of a wrapper."""

    title: Annotated[str, "The action, with its inputs or outputs."]
    what: Annotated[str, "What the wrapper does."]
    cost: Annotated[str, "Cost per call."]
    avoid: Annotated[str, "How to avoid it."]
    wrapper: Annotated[str, "torch's name of the wrapper."]


PLAIN = WrapperAction(
    title="Nothing but the plain wrapper",
    what="No input is written to, no output is a view of anything, no tensor subclass passes, and"
    " there is no backward: the graph's outputs are returned as they are.",
    cost=(
        "A few calls in Python: the gradient mode is set and put back, and the number of "
        "outputs is checked."
    ),
    avoid="Nothing needs to be avoided.",
    wrapper=RUNTIME,
)

SYNTHETIC_BASE = WrapperAction(
    title="Inputs that share memory were merged into their base",
    what="At least two inputs are views of the same memory and one of them is written to, so "
    "the graph takes their"
    " base and makes the views itself. Inputs are numbered as they are after merging.",
    cost="Each call finds the base of the merged inputs, or makes a tensor over their storage "
    "where they have none,"
    " and builds a new list of arguments; in the graph, each view is cut out of the base and "
    "written back.",
    avoid=(
        "Pass the base and take the views inside the function, or pass a clone of the input "
        "that is written to."
    ),
    wrapper="AOTSyntheticBaseWrapper",
)

DUPLICATES = WrapperAction(
    title="The same tensor was passed more than once, and is written to",
    what="The graph takes the tensor once. It holds only for calls that repeat their arguments "
    "in the same places."
    " Inputs are numbered as they are after merging.",
    cost=(
        "Each call filters its list of arguments in Python, all of them; a call that repeats "
        "others recompiles."
    ),
    avoid="Pass the tensor once, or a clone where it is written to.",
    wrapper="AOTDedupeWrapper",
)

MERGED = WrapperAction(
    title="Inputs were merged: one tensor passed twice, or views of one tensor",
    what="Inputs that share memory, of which one is written to, became one input of the graph. "
    "The metadata does not"
    " say which of the two it was. Inputs are numbered as they are after merging.",
    cost="Each call builds a new list of arguments in Python; for views it also finds or makes "
    "their base, and the"
    " graph cuts each view out of it.",
    avoid=(
        "Pass a tensor once, and views of a tensor as the tensor itself; or pass a clone of "
        "what is written to."
    ),
    wrapper="AOTDedupeWrapper or AOTSyntheticBaseWrapper",
)


DEBUG_ASSERT = WrapperAction(
    title="Inputs are checked at each call (debug_assert)",
    what=(
        "The graph was made for inputs that need no gradient, or are not tensors, and each call "
        "checks that they are."
    ),
    cost="One check in Python for each such input.",
    avoid="Leave torch._functorch.config.debug_assert off: guards check the same.",
    wrapper="DebugAssertWrapper",
)

FAKIFIED = WrapperAction(
    title="The first call returns outputs without values (DDP)",
    what="DDPOptimizer cut the graph. Each piece is called once while compiling, so that the "
    "next one knows the"
    " strides that inductor chose.",
    cost="None after the compile. Such graphs are not stored in AOTAutograd's cache.",
    avoid="Set torch._dynamo.config.optimize_ddp to False to compile one graph, without "
    "overlap of its gradients'"
    " communication.",
    wrapper="FakifiedOutWrapper",
)

LAZY_BACKWARD = WrapperAction(
    title="Backward compiled at its first call",
    what=(
        "The forward saves no symbolic sizes, so the compiler gets the backward graph when the "
        "first backward runs."
    ),
    cost=(
        "The first backward takes its compile time. A graph whose backward never runs never "
        "compiles it."
    ),
    avoid="Nothing needs to be avoided: run one backward before you measure.",
    wrapper=AUTOGRAD,
)

EAGER_BACKWARD = WrapperAction(
    title="Backward compiled together with the forward",
    what=(
        "The forward saves symbolic sizes for the backward, so both graphs are compiled at the "
        "first call."
    ),
    cost="The first call takes the compile time of both, also where no backward follows.",
    avoid="Call the function under torch.no_grad() where no backward follows.",
    wrapper=AUTOGRAD,
)


def describe_donated(count: int) -> WrapperAction:
    return WrapperAction(
        title=f"Donated buffers: {count}",
        what=(
            "The backward may write its results into these saved tensors: nothing else shares "
            "their memory."
        ),
        cost="None: it saves memory. Where the first backward() keeps no graph, a later one "
        "with retain_graph=True or"
        " create_graph=True raises an error.",
        avoid=(
            "Set torch._functorch.config.donated_buffer to False where a graph is run backward "
            "more than once."
        ),
        wrapper=AUTOGRAD,
    )


def describe_tangents(count: int) -> WrapperAction:
    return WrapperAction(
        title=f"Gradients are expected in a guessed layout: {count}",
        what="The backward was traced before any gradient was there: torch guesses that each "
        "has the layout, type and"
        " subclass of its output. Whether a call's gradients had them is not recorded.",
        cost="A gradient of another layout is copied at each backward: out.sum().backward() "
        "passes one. One of another"
        " subclass raises an error, unless it has __coerce_same_metadata_as_tangent__.",
        avoid="Pass gradients as laid out as their outputs: they are not copied.",
        wrapper=AUTOGRAD,
    )


_WHY_COPIED = {
    "backend": (
        (
            "the caller of AOTAutograd does not let graphs write to inputs (keep_input_mutations "
            "is off)"
        ),
        "Compile with torch.compile, whose backends keep such writes in the graph, or pass"
        " keep_inference_input_mutations=True to aot_function; or return the new value instead "
        "of writing it.",
    ),
    "metadata": (
        "its sizes or strides change as well, which a graph may not do to an input",
        (
            "Do not reshape in place (t_, transpose_, unsqueeze_, resize_): use the new view, and "
            "return it."
        ),
    ),
    "autograd": (
        "it needs gradients and autograd can see the write",
        (
            "Write under torch.no_grad(), then the graph writes itself; or return the new value "
            "instead of writing it."
        ),
    ),
}


def describe_mutation(kind: str, why: str, inputs: str) -> WrapperAction:
    reason, avoid_copy = _WHY_COPIED.get(why, ("", ""))
    title, what, cost, avoid = MUTATIONS[kind]
    return WrapperAction(
        title.format(inputs), what.format(inputs, reason), cost, avoid or avoid_copy, RUNTIME
    )


# Mutation → (title, what, cost, avoid); {} is the inputs, then why they are copied, which shows how
# to avoid it.
MUTATIONS = {
    "copy": (
        "Copied back after the graph: {}",
        "The function writes to {}. The graph returns the new value, and the wrapper copies it "
        "into the"
        " caller's tensor, because {}.",
        "One more output of the graph and one copy of the whole tensor each (copy_), memory "
        "for both until then."
        " With gradients, autograd records the copy; where sizes or strides change as well, "
        "as_strided_ comes first.",
        "",
    ),
    "graph": (
        "Written by the graph itself: {}",
        "The function writes to {}, and the graph does so in place: nothing is copied afterwards.",
        "No copy. Where autograd is to know of the write, one call raises the tensors' "
        "version. A GPU graph that"
        " writes to inputs other than parameters and buffers may not be recorded as a CUDA graph.",
        (
            "Nothing needs to be avoided, unless CUDA graphs were skipped for it: then return the "
            "new value."
        ),
    ),
    "metadata": (
        "Given new sizes or strides after the graph: {}",
        "The function changes the shape of {} in place (t_, transpose_, resize_), not the values.",
        (
            "One more output of the graph and one as_strided_ on the caller's tensor each: time of "
            "the CPU, no copy."
        ),
        "Use x.t() instead of x.t_(), and return it.",
    ),
    "storage": (
        "Given other memory after the graph: {}",
        (
            "The function calls set_() on {}: the wrapper points the caller's tensor at the new "
            "memory."
        ),
        "One more output of the graph and one set_() each: time of the CPU, no copy.",
        "Return the new tensor instead of calling set_().",
    ),
    "unknown": (
        "Written to: {}",
        (
            "The function writes to {}. The metadata does not tell whether the graph or the "
            "wrapper does it."
        ),
        (
            "Unknown: nothing more where the graph writes, a copy of the tensor where the wrapper "
            "does."
        ),
        "Return the new value instead of writing it.",
    ),
}

# Output type → (title, what, cost, avoid, wrapper); {} is the outputs, then what they alias.
_REPLAY = (
    "Each call makes the view again, by replaying its view operations or by as_strided: time "
    "of the CPU, no copy"
)
ALIASES = {
    "is_input": (
        "Returned as it was passed: {}",
        (
            "The function returns {}, the tensor that the caller gave as {}: the wrapper hands "
            "back that very tensor."
        ),
        "Next to nothing: one look into the arguments.",
        "Do not return what the caller has already.",
        RUNTIME,
    ),
    "alias_of_input": (
        "Views of inputs, made again: {}",
        "The function returns {}, made by view operations from {}. A graph cannot return an "
        "alias of its input, so the"
        " wrapper makes the view from the caller's tensor.",
        f"{_REPLAY}. All outputs pass through the wrapper's list.",
        (
            "Take the view outside of the compiled function, or return a copy (.clone()) where "
            "memory is cheaper."
        ),
        RUNTIME,
    ),
    "alias_of_intermediate": (
        "Views of a result that is not returned: {}",
        "The function returns {}, made by view operations from {}. Autograd must know what "
        "shares memory, so the graph"
        " returns what they are views of as well, and the wrapper makes the views from that.",
        f"{_REPLAY}. The whole intermediate stays in memory for as long as any of its views.",
        (
            "Return the tensor itself and take the views outside, or return copies (.clone(), "
            ".contiguous())."
        ),
        RUNTIME,
    ),
    "alias_of_intermediate_base_is_user_output": (
        "Views of another output, made again: {}",
        "The function returns {}, made by view operations from {}, which it returns as well: "
        "the wrapper makes the"
        " views from that.",
        f"{_REPLAY}.",
        "Return only the tensor and take its views outside.",
        RUNTIME,
    ),
    "unsafe_view_alias": (
        "Views of a result that nothing else shares: {}",
        "The function returns {}, made by a view operation from a result that nothing else "
        "returns: torch treats it"
        " as a result of its own.",
        (
            "One _unsafe_view each, so that autograd does not take them for views: time of the "
            "CPU, no copy."
        ),
        "Nothing needs to be avoided.",
        AUTOGRAD,
    ),
}
SAME = {"alias_of_intermediate_save_as_output": "alias_of_intermediate"}
# torch treats an output of a custom autograd.Function that is a view as any other: its wrapper does
# nothing.
ORDINARY = ("non_alias", "custom_function_view")
BASES = {
    "is_input": "input",
    "alias_of_input": "input",
    "alias_of_intermediate_base_is_user_output": "output",
}


# Without one of these it is unknown whether a graph has only the plain wrapper.
DECISIVE = (
    "arguments_merged",
    "inputs_mutated",
    "outputs",
    "subclass_input_count",
    "subclass_output_count",
    "effect_token_count",
    "trained",
)
_MAX_RANGES = 6

Summary = Mapping[str, Any]


def explain_graph(summary: Summary) -> list[WrapperAction]:
    """List the actions of the compiled function besides its graph, outermost wrapper first."""
    costs = [
        *_explain_merged_inputs(summary),
        *_explain_mutations(summary),
        *_explain_outputs(summary),
        *_explain_runtime(summary),
        *_explain_randomness(summary),
        *_explain_subclasses(summary),
        *_explain_effects(summary),
    ]
    costs += _explain_autograd(summary)
    costs += [DEBUG_ASSERT] * (summary.get("requires_grad_asserted") is True)
    costs += [FAKIFIED] * (summary.get("first_call_fakified") is True)
    if not costs and all(summary.get(name) is not None for name in DECISIVE):
        costs.append(PLAIN)
    return costs


def list_unknown(summary: Summary) -> list[str]:
    names = {
        "arguments_merged": "whether arguments were merged before the graph",
        "inputs_mutated": "which inputs are written to",
        "outputs": "which outputs alias something",
        "subclass_input_count": "whether inputs are tensor subclasses",
        "subclass_output_count": "whether outputs are tensor subclasses",
        "effect_token_count": "whether the graph has ordered side effects",
        "trained": "whether there is a backward",
        "rng_functionalized": (
            "whether random numbers are functionalised (torch._functorch.config says it)"
        ),
    }
    unknown = [
        f"Not in the metadata: {text}." for name, text in names.items() if summary.get(name) is None
    ]
    if summary.get("synthetic_base") and summary.get("deduplicated") is None:
        unknown.append("Not in the metadata: whether duplicated arguments were merged as well.")
    return unknown


def name_numbers(noun: str, numbers: Iterable[int]) -> str:
    """Format with ranges: `input 0`, `inputs 0–3 and 7`."""
    ordered = sorted(set(numbers))
    ranges: list[list[int]] = []
    for number in ordered:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [f"{low}" if low == high else f"{low}–{high}" for low, high in ranges[:_MAX_RANGES]]
    if left := sum(high - low + 1 for low, high in ranges[_MAX_RANGES:]):
        texts.append(f"{left} more")
    text = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
    return f"{noun}{'' if len(ordered) == 1 else 's'} {text}"


def _explain_merged_inputs(summary: Summary) -> list[WrapperAction]:
    if not summary.get("arguments_merged"):
        return []
    known = [SYNTHETIC_BASE] * (summary.get("synthetic_base") is True)
    known += [DUPLICATES] * (summary.get("deduplicated") is True)
    return known or [MERGED]


def _explain_mutations(summary: Summary) -> list[WrapperAction]:
    groups: dict[tuple[str, str], list[int]] = {}
    for mutation in summary.get("inputs_mutated") or ():
        groups.setdefault(_mutation_kind(mutation), []).append(mutation["index"])
    return [
        describe_mutation(*kind, name_numbers("input", indices)) for kind, indices in groups.items()
    ]


def _mutation_kind(mutation: Mapping[str, Any]) -> tuple[str, str]:
    if mutation.get("applied_in") not in ("graph", "epilogue"):
        return "unknown", ""
    if mutation["applied_in"] == "graph":
        return "graph", ""
    if mutation.get("storage"):
        return "storage", ""
    if not mutation.get("data"):
        return ("metadata", "") if mutation.get("metadata") else ("unknown", "")
    if mutation.get("keep_input_mutations") is False:
        return "copy", "backend"
    return "copy", "metadata" if mutation.get("metadata") else "autograd"


def _explain_outputs(summary: Summary) -> list[WrapperAction]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for output in summary.get("outputs") or ():
        kind = output.get("output_type")
        if kind not in ORDINARY:
            groups.setdefault(SAME.get(kind, kind) or "", []).append(output)
    return [_explain_alias(kind, items, summary) for kind, items in groups.items()]


def _explain_alias(
    kind: str, items: Sequence[Mapping[str, Any]], summary: Summary
) -> WrapperAction:
    outputs = name_numbers("output", [alias["index"] for alias in items])
    if kind not in ALIASES:
        kinds = f"as {kind}, a kind that is not known here" if kind else "of an unrecorded kind"
        return WrapperAction(
            f"Aliases: {outputs}",
            f"Torch lists {outputs} {kinds}.",
            "Unknown.",
            "Unknown.",
            RUNTIME,
        )
    title, what, cost, avoid, wrapper = ALIASES[kind]
    bases = [alias["base_index"] for alias in items if alias.get("base_index") is not None]
    noun = BASES.get(kind)
    base = _describe_intermediates(summary)
    if noun is not None:
        base = name_numbers(noun, bases) if bases else f"an {noun}"
    what = what.format(outputs, base)
    if (
        kind == "alias_of_input"
        and summary.get("arguments_merged")
        and any(alias.get("views") is None for alias in items)
    ):
        # AOTSyntheticBaseWrapper uses such outputs itself to give the caller's inputs their new
        # shape.
        what += (
            " Some of them may be merged inputs whose sizes or strides the function changed, "
            "not results."
        )
    return WrapperAction(title.format(outputs), what, cost, avoid, wrapper)


def _describe_intermediates(summary: Summary) -> str:
    count = summary.get("intermediate_base_count")
    return f"{count} intermediate results" if count and count > 1 else "an intermediate result"


def _explain_runtime(summary: Summary) -> list[WrapperAction]:
    costs = []
    if (mode := summary.get("grad_enabled_after")) is not None:
        costs.append(
            WrapperAction(
                title=f"Gradient mode is turned {'on' if mode else 'off'} at the end",
                what=(
                    "The function leaves torch's gradient mode other than it found it, and the "
                    "wrapper does the same."
                ),
                cost=(
                    "One call that sets a flag. What runs after it builds gradients, or none, "
                    "as the flag says."
                ),
                avoid="Change the mode in a with block that ends inside the function.",
                wrapper=RUNTIME,
            )
        )
    if dynamic := summary.get("dynamic_output_indices"):
        outputs = name_numbers("output", dynamic)
        costs.append(
            WrapperAction(
                title=f"Marked as dynamic: {outputs}",
                what=f"Sizes of {outputs} are symbolic: the wrapper marks them, so that a next "
                "compiled graph takes"
                " them as dynamic at once instead of recompiling.",
                cost="Attributes are set on every output tensor, in Python.",
                avoid="Nothing needs to be avoided: it saves recompiles.",
                wrapper=RUNTIME,
            )
        )
    return costs


def _explain_randomness(summary: Summary) -> list[WrapperAction]:
    costs = []
    if summary.get("rng_functionalized"):
        costs.append(
            WrapperAction(
                title="Random numbers are functionalised",
                what=(
                    "Seed and offset of the CUDA generator are inputs of the graph, and the "
                    "new offset is an output."
                ),
                cost=(
                    "Each call reads the generator's state into tensors, and writes the offset "
                    "back."
                ),
                avoid=(
                    "Leave torch._functorch.config.functionalize_rng_ops off, unless "
                    "recomputing needs it."
                ),
                wrapper="FunctionalizedRngRuntimeWrapper",
            )
        )
    if count := summary.get("graphsafe_rng_state_count"):
        costs.append(
            WrapperAction(
                title=f"Generators are passed along for recomputing: {count}",
                what="The backward computes random operations again (dropout under activation "
                "checkpointing, say) and"
                " must draw the same numbers: forward and backward each get generators as inputs.",
                cost="The generators are appended to the arguments; where forwards and "
                "backwards do not alternate,"
                " their states are copied out and back.",
                avoid="Keep random operations out of the regions that are recomputed.",
                wrapper=AUTOGRAD,
            )
        )
    return costs


def _explain_subclasses(summary: Summary) -> list[WrapperAction]:
    costs = []
    inputs, outputs = (
        summary.get("subclass_input_count") or 0,
        summary.get("subclass_output_count") or 0,
    )
    if inputs or outputs:
        costs.append(
            WrapperAction(
                title=f"Tensor subclasses are unwrapped and wrapped: {inputs} in, {outputs} out",
                what="The graph knows plain tensors only: each subclass is taken apart before "
                "it, and each result of"
                " the graph that is one (outputs, written inputs, shared bases) is put "
                "together after it.",
                cost="Attributes of each inner tensor are read, and __tensor_unflatten__ is "
                "called for each result,"
                " all in Python; in the backward, each gradient's type and metadata are "
                "checked as well.",
                avoid=(
                    "Compile a larger region, so that subclasses cross its border less often, "
                    "or pass inner tensors."
                ),
                wrapper="AOTDispatchSubclassWrapper",
            )
        )
    if waits := summary.get("async_collective_input_count"):
        costs.append(
            WrapperAction(
                title=f"Collectives are waited for before the graph: {waits}",
                what="Inputs are results of collectives that may still be running.",
                cost="The call waits for each of them, which ends their overlap with computing.",
                avoid="Compile the collective and what uses its result together.",
                wrapper="AOTDispatchSubclassWrapper",
            )
        )
    return costs


def _explain_effects(summary: Summary) -> list[WrapperAction]:
    if not (count := summary.get("effect_token_count")):
        return []
    return [
        WrapperAction(
            title=f"Side effects are kept in order by tokens: {count}",
            what="The graph has operations with side effects (printing, calls of custom "
            "objects). Tokens that pass"
            " through the graph keep their order.",
            cost=(
                "The lists of arguments and of outputs are built once more, with a placeholder "
                "for each token."
            ),
            avoid=(
                "Move these operations out of the compiled function; inductor's graphs need no "
                "tokens."
            ),
            wrapper="EffectTokensWrapper",
        )
    ]


def _explain_autograd(summary: Summary) -> list[WrapperAction]:
    if not summary.get("trained"):
        return []
    also = ""
    if summary.get("backward_mutation_count"):
        also = " The backward writes to inputs: it raises an error under create_graph=True."
    costs = [
        WrapperAction(
            title="Forward and backward are one autograd function",
            what=(
                "Some result needs gradients, so the graph runs as a "
                f"torch.autograd.Function.{also}"
            ),
            cost="Each call enters the function, saves what the backward needs and makes "
            "autograd's node; each backward"
            " checks the gradients that come in, and copies those whose strides are not the "
            "expected ones.",
            avoid=(
                "Call the function under torch.no_grad() or torch.inference_mode() where no "
                "gradient is needed."
            ),
            wrapper=AUTOGRAD,
        )
    ]
    if tangents := summary.get("traced_tangent_count"):
        costs.append(describe_tangents(tangents))
    if (symints := summary.get("saved_symint_count")) is not None:
        costs.append(EAGER_BACKWARD if symints else LAZY_BACKWARD)
    if donated := summary.get("donated_buffer_count"):
        costs.append(describe_donated(donated))
    return costs
