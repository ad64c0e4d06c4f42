"""The categories of guard failures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Category:
    name: str
    label: str
    meaning: str
    is_setting: bool = False  # A setting of the whole process, which has no other source.
    title: str | None = None  # A title for recompiles, if a setting's name is descriptive.


CATEGORIES: tuple[Category, ...] = (
    Category("tensor_size", "Tensor size", "A tensor dimension differed from the compiled size."),
    Category(
        "tensor_stride", "Tensor stride", "A tensor's memory layout differed from the compiled one."
    ),
    Category(
        "tensor_rank",
        "Tensor rank",
        "A tensor's number of dimensions differed from the compiled one.",
    ),
    Category("tensor_dtype", "Tensor dtype", "A tensor's dtype differed from the compiled one."),
    Category("tensor_device", "Tensor device", "A tensor's device differed from the compiled one."),
    Category(
        "tensor_requires_grad",
        "requires_grad",
        "A tensor's requires_grad differed from the compiled one.",
    ),
    Category(
        "dispatch_keys",
        "Dispatch keys",
        "A tensor's dispatch keys differed: inference mode, subclass, layout or device.",
    ),
    Category(
        "tensor_aliasing", "Tensor aliasing", "Two inputs that were distinct are the same tensor."
    ),
    Category(
        "symbolic_shape",
        "Symbolic shape",
        "A condition on dynamic sizes was false, or dimension markings differed.",
    ),
    Category("int_value", "Integer value", "A Python integer differed from the compiled value."),
    Category("float_value", "Float value", "A Python float differed from the compiled value."),
    Category("string_value", "String value", "A string differed from the compiled value."),
    Category(
        "other_value", "Other value", "A bool, None, dtype, device or other constant differed."
    ),
    Category(
        "global_value", "Global variable", "A global variable differed from the compiled value."
    ),
    Category(
        "module_attribute",
        "Module attribute",
        "An attribute of a module or object changed, appeared or disappeared.",
    ),
    Category(
        "container_length",
        "Container length",
        "The length of a list, tuple, dict, set or iterator differed.",
    ),
    Category(
        "dict_keys", "Dict or set keys", "The keys of a dict or set, or their order, differed."
    ),
    Category(
        "object_identity",
        "Object identity",
        "Another object (function, class, module, …) was in its place.",
    ),
    Category("type_change", "Type", "A value's type differed from the compiled one."),
    Category(
        "grad_mode",
        "Grad mode",
        "Gradients were enabled or disabled since the compile.",
        is_setting=True,
        title="Grad mode changes between calls",
    ),
    Category(
        "autocast",
        "Autocast",
        "Automatic mixed precision or its dtype changed since the compile.",
        is_setting=True,
        title="Autocast changes between calls",
    ),
    Category(
        "deterministic",
        "Deterministic algorithms",
        "The setting for deterministic algorithms changed since the compile.",
        is_setting=True,
        title="Deterministic algorithms change between calls",
    ),
    Category(
        "global_state",
        "Other global state",
        "Default dtype or device, threads, TF32 or torch function modes changed.",
        is_setting=True,
    ),
    Category(
        "backend_mismatch",
        "Backend",
        "The code was compiled by another backend.",
        is_setting=True,
        title="The backend callable changes between calls",
    ),
    Category(
        "invalidated",
        "Invalidated",
        "An object of the compiled code was freed, so its cache entry was dropped.",
    ),
    Category(
        "several",
        "Several sources",
        "Values of different kinds differed at the same call; to keep one steady saves nothing.",
    ),
    Category("unknown", "Unknown", "CompileBoard cannot classify torch's text."),
)
BY_NAME: dict[str, Category] = {category.name: category for category in CATEGORIES}
SETTINGS = frozenset(category.name for category in CATEGORIES if category.is_setting)


def label_category(name: str) -> Category:
    """Return a category by name. An unknown one, from a later version, is its own label."""
    return BY_NAME.get(name) or Category(name, name.replace("_", " "), "")
