"""What surrounds two sides: which differences make their numbers lie, which make them doubtful, and the settings."""

from __future__ import annotations

from compileboard.app.analysis.comparison_model import CompareSide, Difference, Setting

# In the order of the page. A number across another GPU says which is the faster GPU.
REFUSES, WARNS, DIFFERS = "refuses", "warns", "differs"
FIELDS = {
    "device": ("Device", REFUSES),
    "hardware": ("Hardware", REFUSES),
    "torch": ("torch", WARNS),
    "triton": ("triton", WARNS),
    "cuda": ("CUDA", WARNS),
    "driver": ("Driver", WARNS),
    "timing": ("Timing policy", WARNS),
    "python": ("Python", WARNS),
    "host": ("Host", DIFFERS),
}
# A version of torch brings its own.
_OF_TORCH = ("torch", "triton", "cuda")


def diff_environment(base: CompareSide, new: CompareSide) -> tuple[Difference, ...]:
    """Compare the surroundings; what is not recorded on a side is no difference."""
    found = []
    for field, (label, weight) in FIELDS.items():
        ours, theirs = base.environment.get(field, ()), new.environment.get(field, ())
        if not ours and not theirs:
            continue
        found.append(Difference(label, ours, theirs, _weigh(field, weight, base, new)))
    return tuple(found)


def _weigh(field: str, weight: str, base: CompareSide, new: CompareSide) -> str:
    ours, theirs = set(base.environment.get(field, ())), set(new.environment.get(field, ()))
    if not ours or not theirs or ours == theirs:
        return "same"
    if field in _OF_TORCH and base.kind == new.kind == "torch":
        return "intended"
    # Where a machine is on both sides, its models are compared, and the others are excluded one by one.
    return WARNS if weight == REFUSES and ours & theirs else weight


def refuse(differences: tuple[Difference, ...]) -> tuple[str, ...]:
    """Say which differences make the numbers lie."""
    return tuple(_say(it) for it in differences if it.weight == REFUSES)


def warn(differences: tuple[Difference, ...]) -> tuple[str, ...]:
    """Say which differences make the numbers doubtful."""
    return tuple(_say(it) for it in differences if it.weight == WARNS)


def _say(it: Difference) -> str:
    return f"{it.name}: {', '.join(it.base)} on base, {', '.join(it.new)} in new"


def diff_settings(base: CompareSide, new: CompareSide) -> tuple[Setting, ...]:
    """List what differs from torch's defaults on either side, what differs between the sides first."""
    found = []
    for place in sorted({*base.config, *new.config}):
        ours, theirs = base.config.get(place), new.config.get(place)
        default = (ours or theirs or ("", ""))[1]
        found.append(Setting(*place, default, ours and ours[0], theirs and theirs[0]))
    return tuple(sorted(found, key=lambda it: (not it.differs, it.module, it.name)))
