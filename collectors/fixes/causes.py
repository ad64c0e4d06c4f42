"""The causes of a run's lost compile time as a tree: a graph break or guard, its consequences, and
the time that a fix saves.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Annotated, Literal, TypeVar

from compileboard.collectors.contract.categories import SETTINGS, label_category
from compileboard.collectors.contract.compile_labels import label_line
from compileboard.collectors.contract.library_names import is_harness_step, is_library_name
from compileboard.collectors.fixes.break_fixes import (
    reads_for_branch,
    suggest_break_fixes,
    suggest_library_fixes,
)
from compileboard.collectors.fixes.cache_entries import Guards, choose_guards, list_entries
from compileboard.collectors.fixes.counterfactual import (
    Failed,
    add_causes,
    count_saved,
    find_steady_sets,
    list_sources,
)
from compileboard.collectors.fixes.fix import (
    Block,
    BreakFacts,
    BreakOccurrence,
    Caller,
    EagerFunction,
    Left,
    LineEdit,
    RecompileFacts,
    RecordedBreak,
    RecordedCompile,
    RecordedGuard,
    RecordedRecompile,
    RecordedRun,
    SourceLines,
    StackFrame,
    SuggestedFix,
    TriedFix,
    TriedStep,
)
from compileboard.collectors.fixes.preconditions import find_function, name_argument
from compileboard.collectors.fixes.recompile_fixes import (
    parse_dynamic_source,
    suggest_recompile_fixes,
    suggest_together,
)
from compileboard.collectors.fixes.savings import (
    Claims,
    Cost,
    claim_all_but_dynamic,
    claim_joined,
    claim_whole,
    measure_costs,
    resolve_claims,
    share_clock,
)
from compileboard.collectors.fixes.statement import find_block
from compileboard.collectors.fixes.step_costs import BreakCost, RunSteps
from compileboard.collectors.fixes.titles import (
    describe_eager,
    is_of_ddp,
    join_names,
    name_builtin,
    name_sources,
    name_stack_values,
    takes_longer,
    title_breaks,
    title_recompiles,
)

LOGGING_BUILTINS = ("print",)
SHOWN_BEFORE, SHOWN_AFTER = 4, 5


@dataclass(frozen=True)
class HintWarning:
    """One of torch's hints that should not be followed, and why."""

    hint: Annotated[str, "The hint, in torch's words."]
    reason: Annotated[str, "Why it does not help."]


def list_hint_warnings(facts: BreakFacts) -> list[HintWarning]:
    return [
        HintWarning(hint, reason) for hint in facts.hints if (reason := _judge_hint(hint, facts))
    ]


def _judge_hint(hint: str, facts: BreakFacts) -> str | None:
    gb_id, line = facts.gb_id, facts.source_line or ""
    if gb_id == "GB0123" and "torch._dynamo.trace_autograd_ops" in hint:
        return "No effect as written: the setting is `torch._dynamo.config.trace_autograd_ops`."
    if gb_id == "GB0109" and "integer type" in hint:
        return "No effect alone: `.tolist()` of integers breaks next (GB0033)."
    if gb_id == "GB0015" and "fullgraph=False" in hint:
        return "No effect: graph breaks are allowed already."
    if (
        gb_id == "GB0059"
        and "reorderable_logging_functions" in hint
        and name_builtin(facts) not in LOGGING_BUILTINS
    ):
        return "For logging functions only: the call's result would be lost."
    if (
        gb_id == "GB0156"
        and hint.startswith("Avoid calling `")
        and f".{hint.split('`')[1].split('.')[-1]}(" not in line
    ):
        return "The name is torch's: your line calls it indirectly."
    if (
        gb_id == "GB0033"
        and "capture_scala" in hint
        and any(name in line for name in ("np.random", "numpy.random"))
    ):
        return "No effect on numpy.random."
    if gb_id == "GB0033" and "custom op" in hint and "_local_scalar_dense" not in facts.context:
        return "No effect: a custom operator that returns a bool breaks the graph at the `if`."
    if gb_id == "GB0170" and "branchless" in hint and line.lstrip().startswith(("while", "assert")):
        return "Fits an `if`, not this line."
    if gb_id == "GB0124" and "capture_scalar_outputs" in hint and reads_for_branch(facts):
        return "Moves the break to the `if` that depends on the number (GB0170)."
    return None


_DIM = re.compile(r"at index (\d{1,4})\b")
_ARGUMENT = re.compile(r"args\[\d+\]|kwargs\['\w+'\]")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
_LEFT_BY_BREAK = re.compile(r"\b___stack\d+")
# Settings of the whole process: one change is one cause, in however many functions it shows.
_Member = TypeVar("_Member")
_Made = TypeVar("_Made")
_GLOBAL = SETTINGS | {"global_value"}
# What code after a break reads of the same object as before it would vary without the break, too.
_OWN_STATE = re.compile(r"(?:self|G)\b")
# Guards whose values are the source's own, not its size or type.
_OF_VALUES = {f"{name}_value" for name in ("int", "float", "string", "other", "global")}
_OF_VALUES |= {"module_attribute", "container_length", "object_identity"}
# Values that do not say what they are of.
_OF_TENSORS = {
    "tensor_size": "size",
    "tensor_stride": "stride",
    "tensor_rank": "dimensions",
    "tensor_requires_grad": "requires_grad",
}
_PRIVATE = {"private": True}  # not in the API as it is: see app/runs/advice.py
_MODULES = "torch/nn/modules/"
_MODULE_CALLS = f"{_MODULES}module.py"
_BRANCHES = ("Data-dependent branching", "generic_jump")
# It leaves its model to be compiled on its own, and torch never does that with `nn.Sequential`.
_DDP = EagerFunction("DistributedDataParallel.forward", "torch/nn/parallel/distributed.py", None)


@dataclass(frozen=True)
class ResumedFunction:
    """Code that was compiled separately because of a graph break, and its recompiles."""

    function: Annotated[str | None, "Qualified name of the function."]
    file: Annotated[str | None, "Its file: path in the repository, or module path."]
    line: Annotated[
        int | None,
        "Line of the function at which the graph broke; null of a function called by one that "
        "runs eagerly.",
    ]
    compile_keys: Annotated[tuple[int, ...], "`id` of each of its compiles."]
    recompile_keys: Annotated[tuple[int, ...], "Those that are recompiles."]
    compile_us: Annotated[int, "Time of its compiles. Microseconds."]

    def describe(self, function: str | None) -> str:
        """Return "After the break at line 19: 2 compiles"; `function` has the break."""
        name = self.function or "an unknown function"
        if self.line is None:
            start = f"Called from there, {name}"
        else:
            other = "" if self.function == function else f" of {name}"
            start = f"After the break at line {self.line}{other}"
        counts = [(len(self.compile_keys), "compile"), (len(self.recompile_keys), "recompile")]
        parts = [f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count]
        return f"{start}: {', '.join(parts)}"


@dataclass(frozen=True)
class SeenValue:
    """The value of a source at one compile."""

    compile_id: Annotated[str, "Compile id as torch prints it."]
    value: Annotated[str, "The value at the call that was compiled."]


@dataclass(frozen=True)
class VaryingSource:
    """A source whose value differed between calls, and how many of the function's recompiles it
    caused alone.
    """

    source: Annotated[
        str, "What differs, as the guards name it, or the call of torch's own function."
    ]
    values: Annotated[tuple[SeenValue, ...], "Its values, in the order of the compiles."]
    saved_alone: Annotated[
        int, "Recompiles that would not have happened if it alone had stayed the same."
    ]

    @property
    def name(self) -> str:
        return _join_names([name_stack_values(self.source)])


@dataclass(frozen=True)
class SteadySources:
    """Sources that would have to stay the same together."""

    sources: Annotated[
        tuple[str, ...],
        "Values that would have to stay the same, as expressions: `L['x'].size()[0]`.",
    ]
    saved_count: Annotated[int, "Recompiles that would not have happened."]
    stable_after: Annotated[
        str | None, "Compile id of the last recompile that is left; null where none is."
    ]

    @property
    def names(self) -> list[str]:
        return [_join_names([name_stack_values(source)]) for source in self.sources]

    @property
    def stability(self) -> str:
        return f"after {self.stable_after or 'its first compile'}"


MAX_VALUES, MAX_VALUE_LENGTH, MAX_FEWER_NOTES = 6, 60, 2  # as lines of text show them


@dataclass(frozen=True)
class Variation:
    """The sources that differed between the calls of a recompiled function."""

    function: Annotated[str | None, "Qualified name of the function."]
    recompile_count: Annotated[int, "Number of recompiles."]
    sources: Annotated[tuple[VaryingSource, ...], "What differed, the most recompiles first."]
    sets: Annotated[
        tuple[SteadySources, ...],
        "Sources that avoid most recompiles if they stay the same: the best set of each size that "
        "avoids more, and the set of each cause with several.",
    ]
    is_limited: Annotated[bool, "Whether the recompile limit hides what came later."]
    is_whole: Annotated[
        bool, "False if of some cache entries only torch's first failed guard is known."
    ]
    is_part: Annotated[
        bool, "Whether the function has other compiled parts, before or after a graph break."
    ] = False

    @property
    def lines(self) -> list[str]:
        """Return each source with its values: "x: 2 (0/0), 3 (0/1); alone 1 of 2 recompiles"."""
        lines = []
        for source in self.sources:
            seen = [
                f"{value.value[:MAX_VALUE_LENGTH]} ({value.compile_id})"
                for value in source.values[:MAX_VALUES]
            ]
            left_out = len(source.values) - MAX_VALUES
            seen += [f"{left_out} more"] if left_out > 0 else []
            alone = f"alone {source.saved_alone} of {self.recompile_count} recompiles"
            lines.append(f"{source.name}: {'; '.join(filter(None, (', '.join(seen), alone)))}")
        return lines

    @property
    def sentence(self) -> str:
        """Return a sentence on what would have avoided recompiles: "If x stayed the same, 2 of 5
        recompiles …".
        """
        parts: list[str] = []
        before: tuple[str, ...] = ()
        fewer: list[str] = []
        most = 0
        for _size, group in groupby(self.sets, key=lambda steady: len(steady.sources)):
            level = list(group)
            above = max(most, *(steady.saved_count for steady in level))
            best = [steady for steady in level if most < steady.saved_count == above]
            fewer += [
                f"If {_join_names(steady.sources)} stayed the same, {self._describe_saved(steady)}."
                for steady in level
                if steady not in best
            ]
            most = above
            if not best:
                continue
            # Of sets that save as many, the one that goes on from the set before.
            steady = max(best, key=lambda steady: len({*before} & {*steady.sources}))
            more = [source for source in steady.sources if source not in before]
            is_more = len(more) + len(before) == len(steady.sources)
            names = f"{_join_names(more)} too" if parts and is_more else _join_names(steady.sources)
            start = f"with {names}" if parts else f"If {names} stayed the same"
            parts.append(f"{start}, {self._describe_saved(steady)}")
            before = steady.sources
        notes = [f"{'; '.join(parts)}.", *fewer[:MAX_FEWER_NOTES]] if parts else []
        if self.is_limited:
            notes.append("The recompile limit hides later calls: more may vary.")
        if not self.is_whole:
            of = f" of {self.function}" if self.function else ""
            notes.append(f"At least these vary: not every failed guard{of} was recorded.")
        return " ".join(notes)

    def _describe_saved(self, steady: SteadySources) -> str:
        saved = f"{steady.saved_count} of {self.recompile_count} recompiles would not happen"
        if not self.is_whole:
            return f"at most {saved}"
        if steady.stable_after is None:
            recompiled = "this part of the function" if self.is_part else "the function"
            return f"{recompiled} would never be recompiled"
        return f"{saved}, and {steady.stable_after} would be the last one"


def _join_names(sources: Sequence[str]) -> str:
    return name_sources(
        [label_category(name).label.lower() if name in SETTINGS else name for name in sources]
    )


@dataclass(frozen=True)
class Cause:
    number: Annotated[
        int, "The number that `try --fix` takes: its place in the list before any trial."
    ]
    kind: Annotated[Literal["graph_break", "recompile"], "Kind of cause."]
    title: Annotated[str, "What happens."]
    fingerprint: Annotated[str, "What identifies it in every database."]
    saved_us: Annotated[
        int | None,
        "Compile time that fixing it saves: measured where a fix was verified, negative if it "
        "grew, else an estimate. Time that several causes share counts once, ranks that compile "
        "at the same time count by the clock. Microseconds.",
    ]
    is_eager: Annotated[bool, "Whether code runs eagerly for it."]
    event_count: Annotated[int, "Graph breaks, or recompiles."]
    function: Annotated[str | None, "Qualified name of the function."]
    file: Annotated[str | None, "Its file: path in the repository, or module path."]
    line: Annotated[int | None, "Number of the line in the file, from 1."]
    source_line: Annotated[str | None, "That line of the user's code; null with `--no-source`."]
    evidence: Annotated[
        str, "The failed guard, or the reason of the graph break, in torch's words."
    ]
    explanation: Annotated[str, "torch's explanation of the graph break; empty of a recompile."]
    called_at: Annotated[
        str | None, "Of a library's function: the line of the user's code that called it."
    ] = None
    beyond: Annotated[
        int | None,
        "Number of a cause that its fix contains: `saved_us` is what is saved beyond it.",
    ] = None
    category: Annotated[str | None, "Kind of guard that failed; null of a graph break."] = None
    gb_id: Annotated[str | None, "torch's id of this kind of graph break: `GB0059`."] = None
    place_count: Annotated[int, "Functions that it shows in."] = 1
    graph_count: Annotated[int, "Graphs that a fix would join to others."] = 0
    eager: Annotated[
        tuple[EagerFunction, ...], "Functions that run eagerly for a graph break, outermost first."
    ] = ()
    resumed: Annotated[
        tuple[ResumedFunction, ...],
        "Code after the graph break, and what eager functions call, compiled on its own.",
    ] = ()
    compile_keys: Annotated[
        tuple[int, ...], "`id` of each compile that a fix would shorten or save."
    ] = ()
    freed_keys: Annotated[
        tuple[int, ...],
        "`id` of each recompile by values that the function no longer reads after its first fix.",
    ] = ()
    passed_keys: Annotated[
        tuple[int, ...],
        "`id` of each recompile by values that its first fix passes in: it is not saved, as they "
        "vary as arguments too.",
    ] = ()
    content_ids: tuple[int, ...] = field(
        default=(), metadata=_PRIVATE
    )  # of its graph breaks, or recompile causes
    fingerprints: Annotated[
        tuple[str, ...], "Fingerprints of its graph breaks, or recompile causes."
    ] = ()
    hints: Annotated[tuple[str, ...], "torch's hints."] = ()
    hint_warnings: Annotated[
        tuple[HintWarning, ...], "Those of the hints that have no effect here, and why."
    ] = ()
    sources: Annotated[
        tuple[str, ...], "What must stay the same together for its recompiles not to happen."
    ] = ()
    variation: Annotated[
        Variation | None,
        "What differed between calls of its function; null where an earlier cause has it.",
    ] = None
    code: Annotated[
        SourceLines | None, "The user's source around it; null where it was not kept."
    ] = None
    clock_us: Annotated[
        int | None,
        "Compile time of the run by the clock, where processes compiled at the same time. "
        "Microseconds.",
    ] = None
    step_us: Annotated[
        int | None,
        "What its graph breaks cost a step, measured by a trial or else an estimate; null where no "
        "step was timed, and of a recompile. Microseconds.",
    ] = None
    run_us: Annotated[
        int | None,
        "`saved_us`, and `step_us` for each step of the run; null where no step was timed. "
        "Microseconds.",
    ] = None
    whole_step_us: Annotated[
        int | None, "Time of a step of the run; null where none was timed. Microseconds."
    ] = None
    fixes: tuple[SuggestedFix, ...] = field(default=(), metadata=_PRIVATE)
    trials: Annotated[
        tuple[TriedFix, ...], "The newest trial of each fix, those that helped first."
    ] = ()
    together: TriedFix | None = field(
        default=None, metadata=_PRIVATE
    )  # the newest that helped, of its fix and those of other causes
    step_trial: TriedFix | None = field(
        default=None, metadata=_PRIVATE
    )  # that measured a step without its graph breaks

    @property
    def verified(self) -> TriedFix | None:
        """Return the trial of a fix that helped."""
        return next((trial for trial in self.trials if trial.is_verified), None)

    @property
    def measured(self) -> TriedFix | None:
        """Return the verified trial if compile times were measured; `saved_us` is based on it."""
        trial = self.verified
        return trial if trial is not None and trial.saved_share is not None else None

    @property
    def measured_step(self) -> TriedStep | None:
        """Return the step times without and with the fix, if they differ beyond noise."""
        step = self.step_trial.step if self.step_trial else None
        return step if step is not None and not step.is_noise else None

    @property
    def takes_longer(self) -> bool:
        return takes_longer(self)

    @property
    def ranked_us(self) -> int:
        """Return the cause's cost to the run, which is only its compile time if steps were not
        timed.
        """
        return (self.saved_us if self.run_us is None else self.run_us) or 0

    @property
    def is_fixable(self) -> bool:
        return not self.is_in_harness and bool(self.fixes) and self.fixes[0].helps

    @property
    def is_in_harness(self) -> bool:
        return is_harness_step(self.file)

    @property
    def eager_function(self) -> str:
        """Return the function that runs eagerly, which may differ from the one that breaks."""
        function = self.eager[0].function if self.eager else self.function
        return function or "A function"

    @property
    def eager_sentences(self) -> list[str]:
        return [describe_eager(part, self.function) for part in self.eager]

    @property
    def passed_sentence(self) -> str:
        count = len(self.passed_keys)
        them, verb = ("recompile", "remains") if count == 1 else ("recompiles", "remain")
        return f"{count} {them} {verb}: what its fix passes in varies between calls."

    @property
    def has_recompiles(self) -> bool:
        is_recompiled = any(part.recompile_keys for part in self.resumed) or bool(self.freed_keys)
        return self.kind == "recompile" or is_recompiled

    @property
    def is_expected(self) -> bool:
        return self.is_in_harness or (
            bool(self.fixes) and not self.is_eager and self.fixes[0].fix.is_needless
        )

    @property
    def automatic(self) -> int | None:
        """Return the index of the first fix that can be applied automatically and was not tried
        without effect.
        """
        in_vain = {trial.fix_id for trial in self.trials if not trial.is_verified}
        can_try = (fix.can_try and fix.fix.id not in in_vain for fix in self.fixes)
        return next((place for place, is_one in enumerate(can_try) if is_one), None)

    @property
    def can_try(self) -> bool:
        return self.automatic is not None


@dataclass
class CauseDraft:
    cause: Cause
    claims: Claims
    consequences: frozenset[int] = frozenset()  # keys of recompiles that are gone with its break


class UnionFind:
    def __init__(self) -> None:
        self._parents: dict[Hashable, Hashable] = {}

    def root(self, key: Hashable) -> Hashable:
        parent = self._parents.setdefault(key, key)
        while parent != self._parents[parent]:
            parent = self._parents[parent]
        self._parents[key] = parent
        return parent

    def join(self, first: Hashable, second: Hashable) -> None:
        self._parents[self.root(second)] = self.root(first)


def build_causes(run: RecordedRun) -> list[Cause]:
    """List causes: those with a verified fix first, by its saving, then by time. Those whose
    verified fix takes longer come after the others.

    Causes are numbered by compile time alone, so that trials and step times do not renumber them.
    """
    causes = _list_ordered(run)
    plain = replace(run, trials=(), steps=None)
    untried = _list_ordered(plain) if run.trials or run.steps else causes
    numbers: dict[str, int] = {}
    for cause in (*untried, *causes):
        numbers.setdefault(cause.fingerprint, len(numbers) + 1)
    numbered: list[Cause] = []
    described: set[Variation | None] = {None}
    for cause in sorted(causes, key=_rank_verified):
        variation = None if cause.variation in described else cause.variation
        described.add(variation)
        parts = [part for part in numbered if _is_part(part, cause)]
        largest = max(parts, key=lambda part: len(part.sources), default=None)
        numbered.append(
            replace(
                cause,
                number=numbers[cause.fingerprint],
                variation=variation,
                beyond=largest.number if largest else None,
                fixes=tuple(_number_combined_parts(fix, parts) for fix in cause.fixes),
            )
        )
    return [_link_joint_fixes(cause, numbered) for cause in numbered]


def _list_ordered(run: RecordedRun) -> list[Cause]:
    compiles = {row.key: row for row in run.compiles}
    costs = measure_costs(run.compiles)
    code = CodeIndex(run.code)
    saved = _list_saved(run, compiles)
    drafts = _draft_breaks(run, compiles, costs, code, saved)
    consequences = {key for draft in drafts for key in draft.consequences}
    drafts += _draft_recompiles(saved, run, costs, code, consequences)
    causes = _assign_savings(drafts, costs, run.compiles)
    if run.steps is not None:
        causes = [_add_steps(cause, run.steps) for cause in causes]
    return _place_parts_first(sorted(causes, key=_rank))


def _link_joint_fixes(cause: Cause, causes: Sequence[Cause]) -> Cause:
    """Link fixes that must be made together: the fix of a `with` block that makes its function run
    eagerly, and the fixes of containers that the function writes to. Once compiled, the function
    guards on these containers.
    """
    states = [str(other.number) for other in causes if _must_be_fixed_together(cause, other)]
    eager = [str(other.number) for other in causes if _must_be_fixed_together(other, cause)]
    if not states and not eager:
        return cause
    first, *more = cause.fixes
    title = f"{first.title}. Do it together with fix {' and '.join(states or eager)}"
    title += ": without that, each call may recompile" if states else ""
    return replace(cause, fixes=(replace(first, title=title), *more))


def _must_be_fixed_together(eager: Cause, state: Cause) -> bool:
    called = {(part.file, part.function) for part in eager.resumed}
    return (
        any(part.block == "with" for part in eager.eager)
        and eager.is_fixable
        and state.is_fixable
        and state.category == "container_length"
        and any(source.startswith("self.") for source in state.sources)
        and (state.file, state.function) in called
    )


def _number_combined_parts(suggested: SuggestedFix, parts: Iterable[Cause]) -> SuggestedFix:
    """In a combined fix, replace the titles of its parts by the numbers of their causes."""
    known = {part.fixes[0].title: f"fix {part.number}" for part in parts if part.fixes}
    numbers = [known[title] for title in suggested.parts if title in known]
    if not numbers:
        return suggested
    rest = [title for title in suggested.parts if title not in known]
    title = f"Together with {join_names(numbers)}: {'. '.join(rest)}"
    return replace(suggested, title=title if rest else f"Do {join_names(numbers)} together")


def _is_compiled_for(eager: Cause, cause: Cause) -> bool:
    """Return whether a function is compiled separately only because its caller runs eagerly, due to
    a break in this function.
    """
    called = {key for part in eager.resumed for key in part.compile_keys}
    is_same = (eager.file, eager.function) == (cause.file, cause.function)
    is_called = is_same and not called.isdisjoint(cause.compile_keys)
    return is_called and bool(eager.eager) and eager.is_fixable


def _affects_only_rest(graph_break: Cause, cause: Cause) -> bool:
    """Return whether only the code after a break is recompiled, which the break's fix removes."""
    rest = {key for part in graph_break.resumed for key in part.compile_keys}
    is_rest = cause.kind == "recompile" and rest.issuperset(cause.compile_keys)
    return is_rest and graph_break.is_fixable


def _is_part(smaller: Cause, cause: Cause) -> bool:
    is_same = (smaller.file, smaller.function) == (cause.file, cause.function)
    return is_same and bool(smaller.sources) and {*smaller.sources} < {*cause.sources}


def _rank_verified(cause: Cause) -> tuple[int, int]:
    if cause.verified is None:
        return (3 if cause.is_expected else 1), 0
    return (2 if takes_longer(cause) else 0), -cause.ranked_us


def _add_steps(cause: Cause, steps: RunSteps) -> Cause:
    if cause.is_expected:
        return cause
    whole_us = round(steps.us)
    if cause.kind == "recompile":
        return replace(cause, run_us=cause.saved_us or 0, whole_step_us=whole_us)
    costs = [steps.by_break[place] for place in cause.content_ids if place in steps.by_break]
    if cause.measured_step is not None:
        count = costs[0].step_count if costs else steps.count
        costs = [BreakCost(cause.measured_step.saved_us, count)]
    elif cause.is_eager and not any(cost.us for cost in costs):
        return cause  # it did not run in the steps, or its cost is not known
    return replace(
        cause,
        step_us=round(sum(cost.us for cost in costs)),
        run_us=(cause.saved_us or 0) + round(sum(cost.run_us for cost in costs)),
        whole_step_us=whole_us,
    )


def _rank(cause: Cause) -> tuple[bool, bool, int, int, str]:
    """Return a sort key: code that runs eagerly comes first, unless its cost per step is known."""
    return (
        cause.is_expected,
        not cause.is_eager or cause.run_us is not None,
        -cause.ranked_us,
        -cause.event_count,
        cause.fingerprint,
    )


def _place_parts_first(causes: Sequence[Cause]) -> list[Cause]:
    """Move a cause with several sources below causes of the same function with some of these
    sources, unless those save nothing. Move recompiles of a function with a break, or of the code
    after a break, below the break.
    """
    placed: dict[int, Cause] = {}
    for cause in causes:
        for part in causes if cause.sources else ():
            is_smaller = _is_part(part, cause) and (_saves_time(part) or not _saves_time(cause))
            if is_smaller or _is_compiled_for(part, cause) or _affects_only_rest(part, cause):
                placed.setdefault(id(part), part)
        placed.setdefault(id(cause), cause)
    return list(placed.values())


def _saves_time(cause: Cause) -> bool:
    return (cause.saved_us or 0) > 0


_NO_EFFECT = ("unchanged", "worse", "different", "failed")
_SETTING = re.compile(r"torch\._dynamo\.config\.(?P<name>\w+) = (?P<value>.+)")


def _apply_trials(cause: Cause, run: RecordedRun) -> Cause:
    """List verified fixes first. Drop fixes that had no effect in a trial, and settings that are
    already set.
    """
    trials: dict[str, TriedFix] = {}
    fixes: list[SuggestedFix] = []
    fingerprints = {cause.fingerprint, *cause.fingerprints}
    for suggested in cause.fixes:
        of_fix = (trial for trial in run.trials if trial.is_trial_of(fingerprints, suggested))
        trial = next((trial for trial in of_fix if trial.outcome != "interrupted"), None)
        if trial is not None:
            trials[suggested.fix.id] = trial
        if trial is not None and trial.outcome in _NO_EFFECT:
            continue
        is_set = any(_is_set(statement, run.settings) for statement in suggested.settings)
        fixes.append(replace(suggested, settings=()) if is_set else suggested)
    verified = {fix_id for fix_id, trial in trials.items() if trial.is_verified}
    fixes.sort(key=lambda suggested: suggested.fix.id not in verified)
    ordered = sorted(trials.values(), key=lambda trial: not trial.is_verified)
    together = (trial for trial in run.trials if not fingerprints.isdisjoint(trial.causes))
    helped = next((trial for trial in together if trial.is_verified), None)
    timed = (
        trial
        for trial in run.trials
        if trial.cause_fingerprint in cause.fingerprints and trial.step and trial.has_fewer_breaks
    )
    return replace(
        cause,
        fixes=tuple(fixes),
        trials=tuple(ordered),
        together=helped,
        step_trial=min(timed, key=_rank_step, default=None),
    )


def _rank_step(trial: TriedFix) -> tuple[bool, bool]:
    """Return a sort key that prefers the trial with several executions, then one whose fix
    helped.
    """
    return trial.step is None or trial.step.lowest_us is None, not trial.is_verified


def _is_set(statement: str, settings: Mapping[str, object]) -> bool:
    match = _SETTING.fullmatch(statement)
    return match is not None and repr(settings.get(match["name"])) == match["value"]


def _assign_savings(
    drafts: Sequence[CauseDraft], costs: Mapping[int, Cost], compiles: Sequence[RecordedCompile]
) -> list[Cause]:
    shares = share_clock(compiles)
    left_us = whole_us = int(sum(row.total_us * shares[row.key] for row in compiles))
    clock_us = whole_us if min(shares.values(), default=1.0) < 1 else None
    settled = [draft.cause for draft in drafts if draft.cause.is_expected]
    drafts = [draft for draft in drafts if not draft.cause.is_expected]
    measured = _share_measured_savings([draft.cause for draft in drafts])
    estimates = zip(drafts, resolve_claims([draft.claims for draft in drafts], costs))
    for draft, saved_us in sorted(estimates, key=lambda pair: pair[0].cause.measured is None):
        if draft.cause.measured is not None:
            saved_us = round(measured.get(draft.cause.fingerprint, 0.0) * whole_us)
        is_timed = any(costs[key].total_us for key in draft.cause.compile_keys)
        saved_us = min(saved_us, left_us)
        left_us -= max(0, saved_us)
        settled.append(replace(draft.cause, saved_us=saved_us if is_timed else None))
    return [replace(cause, clock_us=clock_us) for cause in settled]


def _share_measured_savings(causes: Sequence[Cause]) -> dict[str, float]:
    """Return the share of the compile time that the fix of each cause saved, by fingerprint.

    One fix of several causes counts once: each has an equal part of it. The shares of fixes that
    were tried together add up to the time they saved together, if that is more than noise.
    """
    shares: dict[str, float] = {}
    sharing = Counter(cause.measured.new_run_id for cause in causes if cause.measured)
    for cause in causes:
        if (trial := cause.measured) is not None:
            count = sharing[trial.new_run_id] if trial.new_run_id else 1
            share = 0.0 if trial.is_noise else trial.saved_share or 0.0
            shares[cause.fingerprint] = share / count
    for together in dict.fromkeys(cause.together for cause in causes if cause.together):
        saving = [name for name in together.causes if shares.get(name, 0.0) > 0]
        alone = sum(shares[name] for name in saving)
        if together.saved_share is not None and alone and not together.is_noise:
            for name in saving:
                shares[name] *= max(0.0, together.saved_share) / alone
    return shares


class CodeIndex:
    def __init__(self, code: Iterable[SourceLines]) -> None:
        self._by_file: dict[str, list[SourceLines]] = defaultdict(list)
        for part in code:
            self._by_file[part.file].append(part)

    def find(self, file: str | None, line: int | None) -> SourceLines | None:
        if file is None or line is None:
            return None
        parts = (
            p
            for p in self._by_file.get(file, ())
            if p.first_line <= line < p.first_line + len(p.lines)
        )
        return max(
            parts,
            key=lambda p: (
                p.lines[0].lstrip().startswith(("def ", "async def ", "@")),  # a whole function
                min(line - p.first_line, p.first_line + len(p.lines) - 1 - line),
            ),
            default=None,
        )

    def text(self, file: str | None, line: int | None) -> str | None:
        part = self.find(file, line)
        return part.lines[line - part.first_line] if part is not None and line is not None else None


def _cut_lines(
    part: SourceLines | None, line: int | None, edits: Sequence[LineEdit] = ()
) -> SourceLines | None:
    """Return the lines of a function that a page shows: those around a line and around edits."""
    if part is None or line is None:
        return part
    first = min([line - SHOWN_BEFORE, *(edit.line for edit in edits)]) - part.first_line
    last = max([line + SHOWN_AFTER, *(edit.line + edit.line_count for edit in edits)])
    start = max(0, first)
    lines = part.lines[start : last - part.first_line + 1]
    return SourceLines(part.file, part.first_line + start, lines)


def _draft_breaks(
    run: RecordedRun,
    compiles: Mapping[int, RecordedCompile],
    costs: Mapping[int, Cost],
    code: CodeIndex,
    saved: Sequence[_AvoidableRecompile],
) -> list[CauseDraft]:
    occurrences = defaultdict(list)
    for occurrence in run.occurrences:
        occurrences[occurrence.distinct_id].append(occurrence)
    resumed = defaultdict(list)
    for row in run.compiles:
        if row.resumed_at is not None:
            resumed[row.process_id, row.file, row.function, row.resumed_at].append(row)
    compiled = {(row.file, bare_name(row.function)) for row in run.compiles}
    compiled |= {("torch", bare_name(row.torch_function)) for row in run.compiles}
    guards = {recompile.compile_key: recompile.guards for recompile in run.recompiles}

    def draft(members: Sequence[RecordedBreak]) -> CauseDraft:
        events = [event for member in members for event in occurrences[member.id]]
        broken: dict[int, RecordedCompile] = {}
        eager: dict[tuple[str | None, ...], EagerFunction] = {}
        after: dict[tuple[str | None, str | None, int | None], list[RecordedCompile]] = {}
        known: set[int] = set()
        # A line of a function may break thousands of times: the code after it is looked up once.
        located: set[tuple[str | int | None, ...]] = set()
        for event in events:
            at = compiles.get(event.compile_key) if event.compile_key is not None else None
            if at is None:
                continue
            broken[at.key] = at
            if event.outcome == "skipped":
                part = _describe_skipped(at, event.frame_line, code)
                eager.setdefault((part.file, part.function), part)
            location = (at.process_id, at.file, at.function, event.frame_line or -1)
            rows = [] if location in located else list(resumed.get(location, ()))
            located.add(location)
            frame = (at.process_id, at.file, at.function)
            if event.outcome == "skipped" and frame not in located:
                located.add(frame)
                called = run.called.get(at.key, ())
                later = called[bisect_right(called, at.key) :]
                rows += [compiles[key] for key in later if key in compiles]
            for row in rows:
                if row.key not in known:
                    known.add(row.key)
                    after.setdefault((row.file, row.function, row.resumed_at), []).append(row)
        rows = [row for rows in after.values() for row in rows]
        parts = list(_list_eager_modules(events, compiles, compiled))
        if is_of_ddp(members[0]) and not any(row.op_count for row in run.compiles):
            parts.append(replace(_DDP, called_at=label_line(members[0].file, members[0].line)))
        for part in parts:
            eager.setdefault((part.file, part.function), part)
        call = members[0].call
        is_call_compiled = call is not None and (call.file, call.name) in compiled
        cause = _make_break_cause(
            members, events, tuple(eager.values()), is_call_compiled, run, code, compiles
        )
        cause = replace(
            cause,
            resumed=tuple(_describe_resumed(rows) for rows in after.values()),
            graph_count=len(
                {(row.process_id, row.frame) for row in rows if row.outcome == "compiled"}
            ),
            compile_keys=(*broken, *(row.key for row in rows if row.key not in broken)),
            is_eager=bool(eager) or any(row.outcome == "recompile_limit" for row in rows),
        )
        cause = _apply_trials(cause, run)
        freed = _list_freed(cause, broken.values(), saved)
        is_passed = _left_by(cause) == "passed"
        claims, consequences, passed = _claim_joined(
            events, broken, rows, freed, guards, costs, is_passed
        )
        # What runs eagerly is compiled with the fix, which takes more than it saves.
        claims = {} if eager or _left_by(cause) == "each" else claims
        cause = replace(cause, freed_keys=tuple(freed), passed_keys=passed)
        return CauseDraft(cause, claims, consequences)

    joined = _make_by_fix_key(
        _group_breaks(run.breaks, code), draft, lambda own: _break_fix_key(own.cause)
    )
    return [own for _members, own in joined]


def _make_by_fix_key(
    groups: Iterable[Sequence[_Member]],
    make: Callable[[Sequence[_Member]], _Made],
    find_key: Callable[[_Made], Hashable],
) -> list[tuple[Sequence[_Member], _Made]]:
    """Call `make` for each group, and once for all groups whose fixes have the same key."""
    by_cure: dict[Hashable, list[tuple[Sequence[_Member], _Made]]] = defaultdict(list)
    for place, members in enumerate(groups):
        made = make(members)
        by_cure[find_key(made) or place].append((members, made))
    joined = []
    for (members, made), *others in by_cure.values():
        if others:
            members = [*members, *(member for more, _made in others for member in more)]
            made = make(members)
        joined.append((members, made))
    return joined


def _break_fix_key(cause: Cause) -> Hashable:
    """Return a key that is equal for graph breaks that one change removes; None if no other break
    can share it.
    """
    first = next(iter(cause.fixes), None)
    if first is None or not cause.is_fixable or first.edits:
        return None
    return cause.file, cause.function, first.fix.id, first.title


def _list_freed(
    cause: Cause, broken: Iterable[RecordedCompile], saved: Sequence[_AvoidableRecompile]
) -> dict[int, RecordedCompile]:
    """Return, by key, the recompiles caused by values that a fixed function no longer reads."""
    frees = cause.fixes[0].frees if cause.fixes else frozenset()
    frames = {(row.process_id, row.frame) for row in broken}
    return {
        one.compile.key: one.compile
        for one in saved
        if (one.compile.process_id, one.compile.frame) in frames and frees.issuperset(one.sources)
    }


def _claim_joined(
    events: Sequence[BreakOccurrence],
    broken: Mapping[int, RecordedCompile],
    after: Sequence[RecordedCompile],
    freed: Mapping[int, RecordedCompile],
    guards: Mapping[int, tuple[RecordedGuard, ...]],
    costs: Mapping[int, Cost],
    is_passed: bool,
) -> tuple[Claims, frozenset[int], tuple[int, ...]]:
    """Return the compile time saved if the code around a break becomes one graph, the keys of the
    recompiles that the break caused, and of those among them that remain; those `freed` do not
    happen either.

    With `is_passed`, the fix passes the values left by the break as arguments, whose changes then
    still recompile.
    """
    functions = {(row.file, row.function) for row in broken.values()}
    # A function that another with the same break called is compiled only for that.
    inner = set()
    for event in events:
        row = broken.get(event.compile_key or -1)
        if row is None:
            continue
        others = functions - {(row.file, row.function)}
        names = {(file, bare_name(function)) for file, function in others}
        if any((frame.file, frame.name) in names for frame in event.above):
            inner.add((row.file, row.function))
    resumed = {row.key for row in after}
    parts: dict[str, tuple[list[RecordedCompile], list[RecordedCompile]]] = {}
    of_state: dict[Hashable, list[RecordedCompile]] = defaultdict(list)
    consequences = {*freed}
    for row in {row.key: row for row in (*broken.values(), *after)}.values():
        if row.key in freed:
            continue
        left, gone = parts.setdefault(row.process_id, ([], []))
        first_guard = next(iter(guards.get(row.key, ())), None)
        if row.key not in resumed and (row.file, row.function) not in inner:
            left.append(row)
        elif first_guard is None:
            gone.append(row)
        elif is_passed and _LEFT_BY_BREAK.search(first_guard.source or ""):
            of_state[row.process_id, row.frame].append(row)
            consequences.add(row.key)
        elif (row.file, row.function) in inner or not _OWN_STATE.match(first_guard.source or ""):
            gone.append(row)
            consequences.add(row.key)
        else:
            of_state[row.process_id, row.frame].append(row)
    # What varies without the break, too, recompiles the joined function once where it recompiled
    # each of its parts.
    passed: list[int] = []
    for rows in of_state.values():
        left, gone = parts[rows[0].process_id]
        most = max((Counter(row.frame for row in left)).values(), default=1)
        gone += rows[: most - 1]
        passed += [row.key for row in rows[most - 1 :] if row.key in consequences]
    claims = claim_whole(freed, costs)
    for left, gone in parts.values():
        claims |= claim_joined(left, gone, costs)
    return claims, frozenset(consequences), tuple(passed)


def bare_name(function: str | None) -> str:
    return (function or "").rsplit(".", 1)[-1]


def _describe_skipped(
    row: RecordedCompile, frame_line: int | None, code: CodeIndex
) -> EagerFunction:
    """Describe a frame that torch skips, and the statement that contains the break."""
    block: tuple[Block | None, int | None] = (None, None)
    if not (row.function or "").endswith(">"):
        text = code.text(row.file, frame_line) or ""
        block = find_block(code.find(row.file, frame_line), frame_line) or block
        block = ("comprehension", frame_line) if not block[0] and " for " in text else block
    is_rest = row.resumed_at is not None
    return EagerFunction(row.function, row.file, row.line, is_rest, *block, row.called_at)


def _list_eager_modules(
    events: Sequence[BreakOccurrence],
    compiles: Mapping[int, RecordedCompile],
    compiled: set[tuple[str | None, str]],
) -> Iterator[EagerFunction]:
    """List torch's own modules, such as `nn.Sequential`, between a compiled function and the break
    below it. torch never compiles their frames on their own.
    """
    keys = [event.compile_key for event in events if event.is_inlined and event.compile_key]
    rows = [compiles[key] for key in keys if key in compiles]
    inlined = {(row.file, bare_name(row.function)) for row in rows}
    for event in events:
        passed: list[StackFrame] = []
        for frame in reversed(event.above):
            if (frame.file, frame.name) in inlined:
                called_at = label_line(frame.file, frame.line)
                for part in reversed(passed):
                    yield EagerFunction(part.name, part.file, part.line, called_at=called_at)
                break
            is_module = frame.file.startswith(_MODULES) and frame.file != _MODULE_CALLS
            if is_module and ("torch", frame.name) not in compiled:
                passed.append(frame)


def _group_breaks(breaks: Sequence[RecordedBreak], code: CodeIndex) -> list[list[RecordedBreak]]:
    groups = UnionFind()
    by_function = defaultdict(list)
    for graph_break in breaks:
        groups.root(graph_break.id)
        if graph_break.line is not None:
            by_function[graph_break.file, graph_break.function].append(graph_break)
    for members in by_function.values():
        for first in members:
            for second in members:
                if first is not second and (
                    first.line == second.line or _is_in_branch(first, second, code)
                ):
                    groups.join(first.id, second.id)
    by_root: dict[Hashable, list[RecordedBreak]] = defaultdict(list)
    for graph_break in breaks:
        by_root[groups.root(graph_break.id)].append(graph_break)
    return [sorted(members, key=lambda member: member.line or 0) for members in by_root.values()]


def _is_in_branch(branch: RecordedBreak, other: RecordedBreak, code: CodeIndex) -> bool:
    if branch.line is None or other.line is None or other.line <= branch.line:
        return False
    if not (branch.gb_type or branch.reason).startswith(_BRANCHES):
        return False
    head = code.text(branch.file, branch.line)
    between = [code.text(branch.file, line) for line in range(branch.line + 1, other.line + 1)]
    if head is None or None in between:
        return other.line == branch.line + 1
    depth = len(head) - len(head.lstrip())
    return all(len(line) - len(line.lstrip()) > depth for line in between if line and line.strip())


def _describe_resumed(rows: Sequence[RecordedCompile]) -> ResumedFunction:
    return ResumedFunction(
        rows[0].function,
        rows[0].file,
        rows[0].resumed_at,
        tuple(row.key for row in rows),
        tuple(row.key for row in rows if row.is_recompile),
        sum(row.total_us for row in rows),
    )


def _list_callers(
    events: Sequence[BreakOccurrence], compiles: Mapping[int, RecordedCompile], code: CodeIndex
) -> tuple[tuple[Caller, ...], ...]:
    """Return the call chains to an inlined break; empty if one of them is not fully known."""
    distinct = {event.inside: event for event in events if event.is_inlined}
    ways = {_find_callers(event, compiles, code) for event in distinct.values()}
    return tuple(sorted(ways, key=lambda way: [at.line for at in way])) if all(ways) else ()


def _find_callers(
    event: BreakOccurrence, compiles: Mapping[int, RecordedCompile], code: CodeIndex
) -> tuple[Caller, ...]:
    compiled = compiles.get(event.compile_key or -1)
    frames = [frame for frame in event.inside[:-1] if not frame.file.startswith(_MODULES)]
    if compiled is None or not frames or frames[0].file != compiled.file:
        return ()
    way: list[Caller] = []
    for frame in frames:
        part = code.find(frame.file, frame.line)
        if part is None or frame.line is None:
            return ()
        name = frame.name if way else compiled.function or frame.name
        way.append(Caller(name, frame.line, part.first_line, part.lines))
    first = way[0]
    # Lines of a decorated function are recorded from its `def` on; its own first line is above.
    is_def = first.lines[0].split("(")[0].split() == ["def", bare_name(compiled.function)]
    place = (compiled.line or 0) - first.first_line
    return tuple(way) if 0 <= place < len(first.lines) or (is_def and place < 0) else ()


def _name_outermost(
    events: Sequence[BreakOccurrence], compiles: Mapping[int, RecordedCompile]
) -> str | None:
    """Return the compiled function that an inlined break leaves. A compiled function that another
    one called, which runs eagerly for the break, does not count.
    """
    rows = {
        event: row
        for event in events
        if event.is_inlined and (row := compiles.get(event.compile_key or -1)) is not None
    }
    places = {(row.file, bare_name(row.function)) for row in rows.values()}
    outer = {
        row.function
        for event, row in rows.items()
        if not any((frame.file, frame.name) in places for frame in event.above)
    }
    return outer.pop() if len(outer) == 1 else None


def _make_break_cause(
    members: Sequence[RecordedBreak],
    events: Sequence[BreakOccurrence],
    eager: tuple[EagerFunction, ...],
    is_call_compiled: bool,
    run: RecordedRun,
    code: CodeIndex,
    compiles: Mapping[int, RecordedCompile],
) -> Cause:
    first = members[0]
    breaks = []
    fixes: dict[str, SuggestedFix] = {}
    warnings: dict[str, HintWarning] = {}
    for member in members:
        part = code.find(member.file, member.line)
        own = [event for event in events if event.distinct_id == member.id]
        # What torch skipped it compiled again, without what stands above.
        skipped = [event for event in own if event.is_inlined and event.outcome == "skipped"]
        again = [event for event in own if event.is_inlined and event.outcome != "skipped"]
        facts = replace(
            member,
            first_line=part.first_line if part else None,
            lines=part.lines if part else (),
            eager=eager,
            is_inlined=any(event.is_inlined for event in own),
            compiled=_name_outermost(own, compiles),
            callers=_list_callers(again or own, compiles, code),
            skipped=next(
                (way for event in skipped if (way := _find_callers(event, compiles, code))), ()
            ),
            torch_version=run.torch_version,
        )
        breaks.append(facts)
        warnings |= {warning.hint: warning for warning in list_hint_warnings(facts)}
        suggest = suggest_break_fixes
        if is_library_name(member.file or ""):
            suggest = partial(suggest_library_fixes, is_call_compiled=is_call_compiled)
        for suggested in suggest(facts):
            fixes.setdefault(suggested.fix.id, suggested)
    return Cause(
        number=0,
        kind="graph_break",
        title=title_breaks(breaks, eager),
        fingerprint=first.fingerprint,
        saved_us=None,
        is_eager=bool(eager),
        event_count=len(events),
        function=first.function,
        file=first.file,
        line=first.line,
        source_line=first.source_line,
        evidence=first.reason.strip().split("\n")[0],
        explanation=first.explanation,
        called_at=first.call.place if first.call else None,
        eager=eager,
        gb_id=first.gb_id,
        place_count=len({(member.file, member.function) for member in members}),
        content_ids=tuple(member.id for member in members),
        fingerprints=tuple(member.fingerprint for member in members),
        hints=tuple(dict.fromkeys(hint for member in members for hint in member.hints)),
        hint_warnings=tuple(warnings.values()),
        code=_cut_lines(
            code.find(first.file, first.line),
            first.line,
            [edit for suggested in fixes.values() for edit in suggested.edits],
        ),
        fixes=tuple(fixes.values()),
    )


@dataclass(frozen=True)
class _AvoidableRecompile:
    """A recompile and the guards that would all have had to hold to avoid it, the most important
    first.
    """

    compile: RecordedCompile
    guards: tuple[RecordedGuard, ...]
    sources: tuple[str, ...]
    variation: Variation
    recompile: RecordedRecompile
    frame: tuple[RecordedRecompile, ...]  # all recompiles of its function
    names: tuple[tuple[str, str], ...] = ()  # of its arguments, and what the user's call passes
    # Dimensions that differed after torch had made them dynamic: each size is compiled in.
    compiled_in: frozenset[tuple[str, int]] = frozenset()

    @property
    def guard(self) -> RecordedGuard:
        return self.guards[0]

    @property
    def fingerprint(self) -> str:
        return self.recompile.fingerprint or self.guard.fingerprint

    @property
    def is_after_break(self) -> bool:
        return self.compile.resumed_at is not None or any(
            _LEFT_BY_BREAK.search(guard.source or "") for guard in self.guards
        )


def _find_dim(guard: RecordedGuard) -> int | None:
    match = _DIM.search(guard.reason)
    return int(match[1]) if match else None


Kind = tuple[str, int | None]  # category of a guard, and the dimension that it is of
Recompiled = tuple[RecordedRecompile, RecordedCompile]


def choose_recompile_causes(frame: Sequence[Recompiled]) -> list[_AvoidableRecompile]:
    """Return the guards that would have avoided each recompile of one frame."""
    recompiles = [recompile for recompile, _row in frame]
    options = [[failed for failed, _guards in list_entries(recompile)] for recompile in recompiles]
    chosen, whole = choose_guards(recompiles), tuple(recompiles)
    variation = _describe_variation(frame, options, chosen)
    compiled_in = _find_specialized(frame)
    names = _name_arguments(frame)
    return [
        _AvoidableRecompile(
            row,
            tuple(dict.fromkeys((*guards.values(), *_list_other_layouts(recompile, guards)))),
            tuple(guards),
            variation,
            recompile,
            whole,
            names,
            compiled_in,
        )
        for guards, (recompile, row) in zip(chosen, frame, strict=True)
        if guards
    ]


def _name_arguments(frame: Sequence[Recompiled]) -> tuple[tuple[str, str], ...]:
    """Return the names of the arguments of torch's wrapper in the user's calls, if all compiled
    calls pass the same ones.
    """
    codes = {row.source_line or "" for _recompile, row in frame if row.torch_function}
    roots = {
        match[0]
        for recompile, _row in frame
        for guard in recompile.failed or recompile.guards
        if (match := _ARGUMENT.match(guard.source or ""))
    }
    named = {root: {name_argument(code, root) for code in codes} for root in sorted(roots)}
    return tuple(
        (root, (next(iter(found)) if len(found) == 1 else None) or _describe_argument(root))
        for root, found in named.items()
        if found
    )


def _describe_argument(root: str) -> str:
    """Return "the first argument" for `args[0]`, "the argument ids" for `kwargs['ids']`."""
    key = root.partition("[")[2].rstrip("]")
    if not key.isdigit():
        return f"the argument {key.strip(chr(39))}"
    return f"the {_ORDINALS[int(key)]} argument" if int(key) < len(_ORDINALS) else root


def _rename_arguments(cause: Cause, names: Sequence[tuple[str, str]]) -> Cause:
    def rename(text: str) -> str:
        for root, name in names:
            # A part of an argument that has no name of its own keeps torch's.
            part = r"(?![.\[])" if name.startswith("the ") else ""
            text = name.join(re.split(re.escape(root) + part, text))
        return text

    variation = cause.variation and replace(
        cause.variation,
        sources=tuple(replace(one, source=rename(one.source)) for one in cause.variation.sources),
        sets=tuple(
            replace(one, sources=tuple(map(rename, one.sources))) for one in cause.variation.sets
        ),
    )
    return replace(
        cause,
        title=re.sub("^the ", "The ", rename(cause.title)),
        sources=tuple(map(rename, cause.sources)),
        variation=variation,
        fixes=tuple(
            replace(one, title=rename(one.title), parts=tuple(map(rename, one.parts)))
            for one in cause.fixes
        ),
    )


def _list_other_layouts(recompile: RecordedRecompile, guards: Guards) -> list[RecordedGuard]:
    """List guards on strides of tensors whose size failed too. A slice that varies recompiles for
    its strides even if its sizes are dynamic.
    """
    sizes = {
        (guard.source, guard.cache_entry)
        for guard in guards.values()
        if guard.category == "tensor_size"
    }
    return [
        guard
        for guard in recompile.failed
        if guard.category == "tensor_stride" and (guard.source, guard.cache_entry) in sizes
    ]


def _find_specialized(frame: Sequence[Recompiled]) -> frozenset[tuple[str, int]]:
    """Return sizes that were specialized although they are marked dynamic.

    A size is dynamic if another cache entry accepted a second value for it, even if the guard of
    one entry failed on it.
    """
    dynamic = {
        row.compile_id: set(map(parse_dynamic_source, recompile.dynamic_sources))
        for recompile, row in frame
    }
    compiled_in: set[tuple[str, int]] = set()
    taken: set[tuple[str, int]] = set()
    seen: dict[tuple[str, int], dict[str, str | None]] = defaultdict(dict)
    for recompile, row in frame:
        differed: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for guard in recompile.failed or recompile.guards:
            size = (guard.source or "", _find_dim(guard) or 0)
            differed[guard.cache_entry or ""].add(size)
            if guard.category == "tensor_size":
                seen[size][row.compile_id] = guard.actual
                is_dynamic = size in dynamic.get(guard.cache_entry or "", ())
                if is_dynamic and guard.expected not in ("0", "1"):
                    compiled_in.add(size)
        for entry in differed.keys() - {*recompile.unread}:
            taken |= {
                size
                for size, values in seen.items()
                if size in dynamic.get(entry, set()) - differed[entry]
                and values.get(entry) != values.get(row.compile_id)
                and {entry, row.compile_id} <= values.keys()
            }
    return frozenset(compiled_in - taken)


def _describe_variation(
    frame: Sequence[Recompiled],
    options: Sequence[Sequence[Failed]],
    chosen: Sequence[Collection[str]],
) -> Variation:
    seen: dict[str, dict[Kind, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for recompile, row in frame:
        for guard in recompile.failed or recompile.guards:
            (source, *others) = list_sources(guard.category, guard.source, guard.reason)
            values = seen[source][guard.category, _find_dim(guard)]
            known = ((guard.cache_entry, guard.expected), (row.compile_id, guard.actual))
            for compile_id, value in known if not others else ():
                # An attribute's value says more than that it is there.
                if compile_id and value and values.get(compile_id, "present") == "present":
                    values[compile_id] = value
    names = {source for failed in options for entry in failed for source in entry}
    sources = [
        VaryingSource(
            source,
            _list_values(seen[source]),
            count_saved([source], options),
        )
        for source in names
    ]
    sets = [
        SteadySources(
            steady.sources,
            len(steady.saved),
            next(
                (
                    row.compile_id
                    for position, (_recompile, row) in reversed(list(enumerate(frame)))
                    if position not in steady.saved
                ),
                None,
            ),
        )
        for steady in add_causes(find_steady_sets(options), chosen, options)
    ]
    return Variation(
        function=frame[0][1].function,
        recompile_count=len(frame),
        sources=tuple(sorted(sources, key=lambda source: (-source.saved_alone, source.source))),
        sets=tuple(sets),
        is_limited=any(row.outcome == "recompile_limit" for _recompile, row in frame),
        is_whole=all(recompile.is_whole for recompile, _row in frame),
    )


def _list_values(seen: Mapping[Kind, Mapping[str, str]]) -> tuple[SeenValue, ...]:
    """Return a source's values by compile. If guards of several kinds failed for it, each value has
    the kind as a label.
    """
    kinds = {kind: values for kind, values in seen.items() if values}
    named = {id for values in kinds.values() for id, value in values.items() if value != "present"}
    kinds = {
        kind: {id: value for id, value in values.items() if value != "present" or id not in named}
        for kind, values in kinds.items()
    }
    compile_ids = {compile_id for values in kinds.values() for compile_id in values}
    return tuple(
        SeenValue(
            compile_id,
            ", ".join(
                _name_value(kind, values[compile_id])
                if len(kinds) > 1 or kind[0] == "tensor_requires_grad"
                else values[compile_id]
                for kind, values in kinds.items()
                if compile_id in values
            ),
        )
        for compile_id in sorted(compile_ids, key=_order)
    )


def _name_value(kind: Kind, value: str) -> str:
    category, dim = kind
    name = _OF_TENSORS.get(category)
    name = name if dim is None else f"{name or category}[{dim}]"
    return f"{name} {value}" if name else value


def _order(compile_id: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", compile_id)]


def _list_saved(
    run: RecordedRun, compiles: Mapping[int, RecordedCompile]
) -> list[_AvoidableRecompile]:
    frames: dict[Hashable, list[Recompiled]] = defaultdict(list)
    for recompile in run.recompiles:
        row = compiles.get(recompile.compile_key)
        if row is not None and (recompile.guards or recompile.failed):
            frames[row.process_id, row.frame].append((recompile, row))
    parts: dict[Hashable, set[Hashable]] = defaultdict(set)
    for row in run.compiles:
        parts[row.process_id, row.file, row.function].add(row.resumed_at)
    saved = [one for frame in frames.values() for one in choose_recompile_causes(frame)]
    return [
        replace(one, variation=replace(one.variation, is_part=True))
        if len(parts[one.compile.process_id, one.compile.file, one.compile.function]) > 1
        else one
        for one in saved
    ]


def _draft_recompiles(
    saved: Sequence[_AvoidableRecompile],
    run: RecordedRun,
    costs: Mapping[int, Cost],
    code: CodeIndex,
    consequences: set[int],
) -> list[CauseDraft]:
    firsts: dict[Hashable, RecordedCompile] = {}
    for row in run.compiles:
        firsts.setdefault((row.process_id, row.frame), row)
    groups = UnionFind()
    for one in saved:
        for guard in one.guards:
            for key in _list_group_keys(guard):
                groups.join(("guard", guard.fingerprint), key)
    by_root: dict[Hashable, list[_AvoidableRecompile]] = defaultdict(list)
    for one in saved:
        roots = {groups.root(("guard", guard.fingerprint)) for guard in one.guards}
        by_root[frozenset(roots)].append(one)
    found: list[tuple[Cause, list[RecordedCompile]]] = []
    make = partial(_make_recompile_cause, run=run, code=code)
    for members, cause in _make_by_fix_key(by_root.values(), make, _recompile_fix_key):
        own = {m.compile.key: m.compile for m in members if not _is_consequence(m, consequences)}
        if own:
            found.append((_apply_trials(cause, run), list(own.values())))
    # The first recompile of a function that a fix makes one for any size takes the first compile's
    # place; the later ones are saved whole.
    places: dict[Hashable, int] = {}
    for row in sorted(
        (row for cause, rows in found if _left_by(cause) == "dynamic" for row in rows),
        key=lambda row: row.key,
    ):
        places.setdefault((row.process_id, row.frame), row.key)
    return [
        CauseDraft(cause, _claim_recompiles(cause, rows, firsts, places, costs))
        for cause, rows in found
    ]


def _recompile_fix_key(cause: Cause) -> Hashable:
    """Return a key that is equal for causes with the same fix at one place, if single sources of a
    function vary one at a time; None if no other cause can share it.
    """
    is_one = len(cause.sources) == 1 and cause.place_count == 1 and cause.is_fixable
    return (cause.file, cause.function, cause.category, cause.fixes[0].fix.id) if is_one else None


def _is_consequence(saved: _AvoidableRecompile, consequences: Collection[int]) -> bool:
    """Return whether a recompile disappears with a graph break. If an input's size caused it, only
    recompiles of code after the break do.
    """
    is_size = any(guard.category == "tensor_size" for guard in saved.guards)
    return saved.compile.key in consequences and (saved.is_after_break or not is_size)


def _left_by(cause: Cause) -> Left:
    return cause.fixes[0].fix.left if cause.fixes else "first"


def _claim_recompiles(
    cause: Cause,
    rows: Iterable[RecordedCompile],
    firsts: Mapping[Hashable, RecordedCompile],
    places: Mapping[Hashable, int],
    costs: Mapping[int, Cost],
) -> Claims:
    left = _left_by(cause)
    if left == "each":
        return {}
    by_frame: dict[Hashable, list[RecordedCompile]] = defaultdict(list)
    for row in rows:
        by_frame[row.process_id, row.frame].append(row)
    claims: Claims = {}
    for frame, own in by_frame.items():
        if left == "dynamic" and any(row.key == places[frame] for row in own):
            claims |= claim_all_but_dynamic(firsts[frame], own, costs)
        else:
            claims |= claim_whole((row.key for row in own), costs)
    return claims


def _list_group_keys(guard: RecordedGuard) -> list[Hashable]:
    dim = _find_dim(guard)
    if guard.category == "tensor_size" and dim is not None and guard.expected and guard.actual:
        return [("size", dim, guard.expected, guard.actual)]
    return [("state", guard.category, guard.source)] if guard.category in _GLOBAL else []


def _make_recompile_cause(
    members: Sequence[_AvoidableRecompile], run: RecordedRun, code: CodeIndex
) -> Cause:
    own = [member for member in members if not member.is_after_break] or list(members)
    first = own[0]
    guard = first.guard
    row = _place_at_guard(first.compile, guard, code)
    line = row.line
    source_line = row.source_line or (code.text(row.file, line) or "").strip() or None
    part = code.find(row.file, line)
    is_eager = any(member.variation.is_limited for member in members)
    common = RecompileFacts(
        category=guard.category,
        function=row.torch_function or row.function,
        file=row.file,
        line=line,
        source_line=guard.source_line or source_line,
        recompile_count=len(members),
        after_break=all(member.is_after_break for member in members),
        lines=part.lines if part else (),
        dynamic_sources=tuple(
            dict.fromkeys(
                entry
                for member in own
                for entry in (*_list_dynamic(member), *_list_of_same_size(member))
            )
        ),
        torch_version=run.torch_version,
        is_eager=is_eager,
        is_static=any(member.recompile.is_static for member in own),
        is_compiled_in=any(
            size in member.compiled_in for member in own for size in _list_own_sizes(member)
        ),
        is_without_gradients=any(member.recompile.has_gradients is False for member in own),
        called_at=row.called_at,
        call_code=row.call_code,
        is_in_hook=row.is_in_hook,
        beside=frozenset(failed.category for one in first.frame for failed in one.failed),
    )
    changes = _list_changes(members, own, common)
    alone = {varying.source: varying.saved_alone for varying in first.variation.sources}
    # What saves recompiles alone has a cause of its own, which stands above.
    ranked = sorted(changes, key=lambda facts: alone.get(facts.source or "", 0))
    fixes = suggest_together(ranked)
    if fixes and not fixes[0].fix.is_needless:
        needless = [_find_needless(member, common) for member in own]
        fixes = [one for one in needless[:1] if one and all(needless)] or fixes
    cause = Cause(
        number=0,
        kind="recompile",
        title=title_recompiles(changes, is_together=len(first.guards) > 1),
        fingerprint=first.fingerprint,
        saved_us=None,
        is_eager=is_eager,
        event_count=len(members),
        function=row.function,
        file=row.file,
        line=line,
        source_line=source_line,
        evidence=guard.reason,
        explanation="",
        called_at=row.called_at,
        category=guard.category,
        place_count=len({(member.compile.file, member.compile.function) for member in members}),
        compile_keys=tuple(member.compile.key for member in members),
        content_ids=tuple(
            dict.fromkeys(
                member.recompile.cause_id
                for member in members
                if member.recompile.cause_id is not None
            )
        ),
        fingerprints=tuple(dict.fromkeys(member.fingerprint for member in members)),
        sources=tuple(dict.fromkeys(source for member in members for source in member.sources)),
        variation=max(
            (member.variation for member in own), key=lambda variation: variation.recompile_count
        ),
        code=_cut_lines(part, line),
        fixes=tuple(fixes),
    )
    return _rename_arguments(cause, first.names) if first.names else cause


def _find_needless(member: _AvoidableRecompile, common: RecompileFacts) -> SuggestedFix | None:
    """Return a suggestion to change nothing, if another guard of the same sources needs a separate
    compile anyway. An example is a tensor of another type that also has one row.
    """
    for guard in member.recompile.failed:
        is_of_set = guard.source in member.sources and guard not in member.guards
        if not is_of_set or guard.cache_entry != member.guard.cache_entry:
            continue
        facts = replace(
            common,
            category=guard.category,
            source=guard.source,
            dim=_find_dim(guard),
            values=tuple(value for value in (guard.expected, guard.actual) if value),
            reason=guard.reason,
        )
        first = next(iter(suggest_recompile_fixes(facts)), None)
        if first is not None and first.fix.is_needless:
            return first
    return None


def _place_at_guard(row: RecordedCompile, guard: RecordedGuard, code: CodeIndex) -> RecordedCompile:
    """Return the compile with its line replaced by the guard's. For a function of torch, only if
    the guard is in a user function inlined into it.
    """
    if row.torch_function is None:
        text = guard.source_line or row.source_line
        return replace(row, line=guard.line or row.line, source_line=text)
    file, line = guard.inlined_file, guard.inlined_line
    part = code.find(file, line)
    function = find_function(part.lines, part.first_line, line) if part else None
    if function is None:
        return row
    is_same = function.name == bare_name(row.function)
    name = row.function if is_same else function.name
    return replace(row, function=name, file=file, line=line, source_line=guard.source_line)


def _list_own_sizes(member: _AvoidableRecompile) -> Iterator[tuple[str, int]]:
    for guard in member.guards:
        if guard.category == "tensor_size":
            yield from _list_sizes(member.recompile, guard)


def _list_dynamic(member: _AvoidableRecompile) -> Iterator[str]:
    """List the sources that torch made dynamic, except other inputs with a size of 0 or 1 in that
    call, for which `mark_dynamic` raises.
    """
    ones = {
        (guard.source, _find_dim(guard))
        for guard in member.recompile.failed
        if guard.category == "tensor_size" and guard.actual in ("0", "1")
    }
    for entry in member.recompile.dynamic_sources:
        source = parse_dynamic_source(entry)
        if source is None or source not in ones or source[0] in member.sources:
            yield entry


def _list_of_same_size(member: _AvoidableRecompile) -> Iterator[str]:
    """List the inputs whose size was equal to the member's at some recompile, such as a weight that
    not every call has. If one is not marked, it fixes the size of all, and `mark_dynamic` raises.
    """
    for recompile in member.frame:
        named = {parse_dynamic_source(entry): entry for entry in recompile.dynamic_sources}
        sizes = [
            ((guard.source or "", _find_dim(guard) or 0), guard)
            for guard in recompile.failed
            if guard.category == "tensor_size" and guard.actual not in ("0", "1")
        ]
        own = {
            (guard.cache_entry, guard.expected, guard.actual)
            for (source, _dim), guard in sizes
            if source in member.sources
        }
        for size, guard in sizes:
            if size in named and (guard.cache_entry, guard.expected, guard.actual) in own:
                yield named[size]


def _list_changes(
    members: Sequence[_AvoidableRecompile],
    own: Sequence[_AvoidableRecompile],
    common: RecompileFacts,
) -> list[RecompileFacts]:
    """Return the changes, one per source. Sizes that change together count as one."""
    changes: dict[tuple[str, Hashable], RecompileFacts] = {}
    # Sizes 0 and 1 have a compile of their own, whatever others do at the same call.
    guards = [guard for member in own for guard in member.guards]
    ones = {guard.source for guard in guards if {"0", "1"} & {guard.expected, guard.actual}}
    inputs = UnionFind()  # of one size
    for guard in guards:
        for of_size in _list_group_keys(guard):
            inputs.join((_find_dim(guard), guard.source), of_size)
    for member in own:
        for guard in member.guards:
            dim = _find_dim(guard)
            is_size = guard.category == "tensor_size"
            same: Hashable = None if guard.category in SETTINGS else guard.source
            size = (dim, inputs.root((dim, guard.source)) if guard.source in ones else None)
            key: tuple[str, Hashable] = (guard.category, size if is_size else same)
            if key not in changes:
                changes[key] = replace(
                    common,
                    category=guard.category,
                    source=guard.source,
                    dim=dim,
                    reason=guard.reason,
                    source_line=guard.source_line or common.source_line,
                )
            if is_size:
                sizes = (*changes[key].sizes, *_list_sizes(member.recompile, guard))
                changes[key] = replace(changes[key], sizes=tuple(dict.fromkeys(sizes)))
            known = changes[key]
            if is_size and guard.source and guard.source not in (known.source, *known.siblings):
                changes[key] = replace(known, siblings=(*known.siblings, guard.source))
    for key, facts in changes.items():
        pairs = [
            (guard.source, value)
            for member in members
            for guard in member.guards
            if guard.category == facts.category
            and (facts.category in SETTINGS or guard.source in (facts.source, *facts.siblings))
            and (facts.dim is None or facts.dim == _find_dim(guard))
            for value in (guard.expected, guard.actual)
            if value
        ]
        varied = next(
            (source for source in own[0].variation.sources if source.source == facts.source), None
        )
        seen = (
            (value.value for value in varied.values)
            if varied is not None and facts.category in _OF_VALUES
            else (value for _source, value in pairs)
        )
        by_source = Counter(source for source, _value in {*pairs})
        changes[key] = replace(
            facts,
            values=tuple(dict.fromkeys(seen)),
            is_one_series=len({value for _source, value in pairs}) in {0, *by_source.values()},
            recompile_count=_count_failures(own[0].frame, facts.source),
        )
    return list(changes.values())


def _list_sizes(recompile: RecordedRecompile, guard: RecordedGuard) -> list[tuple[str, int]]:
    """List all dimensions of a guard's tensor in which it differed from one cache entry."""
    return [
        (other.source, dim)
        for other in (guard, *recompile.failed)
        if other.source == guard.source and other.category == guard.category
        if other.source and (dim := _find_dim(other)) is not None
    ]


def _count_failures(frame: Sequence[RecordedRecompile], source: str | None) -> int:
    """Count the recompiles for which the newest cache entry failed at a source."""
    newest = [(known, known[0].cache_entry) for r in frame if (known := r.failed or r.guards)]
    return sum(
        any(guard.source == source and guard.cache_entry == entry for guard in known)
        for known, entry in newest
    )
