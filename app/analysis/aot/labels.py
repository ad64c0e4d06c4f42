"""Descriptions of the work of AOTAutograd's wrappers around a graph, its cost per call and how to
avoid it.

Costs are categories, not microseconds: they were read from torch's source, and logs do not time
them.

Source: torch/_functorch/_aot_autograd/runtime_wrappers.py, functional_utils.py gen_alias_from_base
(2.6 to 2.13)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

RUNTIME = "RuntimeWrapper"
AUTOGRAD = "AOTDispatchAutograd"


@dataclass(frozen=True)
class WrapperCost:
    """One thing that a wrapper does."""

    title: Annotated[str, "What, with the inputs or outputs that it concerns."]
    what: Annotated[str, "What that is."]
    cost: Annotated[str, "What it costs a call."]
    avoid: Annotated[str, "How to avoid it."]
    wrapper: Annotated[str, "torch's name of the wrapper."]


PLAIN = WrapperCost(
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

SYNTHETIC_BASE = WrapperCost(
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

DUPLICATES = WrapperCost(
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

MERGED = WrapperCost(
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


DEBUG_ASSERT = WrapperCost(
    title="Inputs are checked at each call (debug_assert)",
    what=(
        "The graph was made for inputs that need no gradient, or are no tensors, and each call "
        "checks that they are."
    ),
    cost="One check in Python for each such input.",
    avoid="Leave torch._functorch.config.debug_assert off: guards check the same.",
    wrapper="DebugAssertWrapper",
)

FAKIFIED = WrapperCost(
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

LAZY_BACKWARD = WrapperCost(
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

EAGER_BACKWARD = WrapperCost(
    title="Backward compiled together with the forward",
    what=(
        "The forward saves symbolic sizes for the backward, so both graphs are compiled at the "
        "first call."
    ),
    cost="The first call takes the compile time of both, also where no backward follows.",
    avoid="Call the function under torch.no_grad() where no backward follows.",
    wrapper=AUTOGRAD,
)


def describe_donated(count: int) -> WrapperCost:
    return WrapperCost(
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


def describe_tangents(count: int) -> WrapperCost:
    return WrapperCost(
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


def describe_mutation(kind: str, why: str, inputs: str) -> WrapperCost:
    reason, avoid_copy = _WHY_COPIED.get(why, ("", ""))
    title, what, cost, avoid = MUTATIONS[kind]
    return WrapperCost(
        title.format(inputs), what.format(inputs, reason), cost, avoid or avoid_copy, RUNTIME
    )


# Mutation → (title, what, cost, avoid); {} is the inputs, then why they are copied, which says how
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
# Torch treats an output of a custom autograd.Function that is a view as any other: its wrapper does
# nothing.
ORDINARY = ("non_alias", "custom_function_view")
BASES = {
    "is_input": "input",
    "alias_of_input": "input",
    "alias_of_intermediate_base_is_user_output": "output",
}
