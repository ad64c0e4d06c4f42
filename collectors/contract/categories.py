"""The kinds of guard failure that the classifier tells apart, with a label and a meaning each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Category:
    """A kind of guard failure."""

    name: str
    label: str
    meaning: str


CATEGORIES: tuple[Category, ...] = (
    Category("tensor_size", "Tensor size", "A dimension of a tensor had another size than the one compiled for."),
    Category("tensor_stride", "Tensor stride", "A tensor was laid out otherwise in memory than the one compiled for."),
    Category("tensor_rank", "Tensor rank", "A tensor had another number of dimensions than the one compiled for."),
    Category("tensor_dtype", "Tensor dtype", "A tensor had another element type than the one compiled for."),
    Category("tensor_device", "Tensor device", "A tensor was on another device than the one compiled for."),
    Category("tensor_requires_grad", "requires_grad", "A tensor's requires_grad differed from the one compiled for."),
    Category(
        "dispatch_keys",
        "Dispatch keys",
        "A tensor was of another kind to PyTorch's dispatcher: inference mode, a subclass, another layout or device.",
    ),
    Category("tensor_aliasing", "Tensor aliasing", "Two inputs, distinct before, are the same tensor."),
    Category(
        "symbolic_shape",
        "Symbolic shape",
        "A condition over dynamic sizes was false, or dimensions were marked dynamic otherwise.",
    ),
    Category("int_value", "Integer value", "A Python integer had another value than the one compiled in."),
    Category("float_value", "Float value", "A Python float had another value than the one compiled in."),
    Category("string_value", "String value", "A string had another value than the one compiled in."),
    Category(
        "other_value", "Other value", "A bool, None, dtype, device or other constant differed from the one compiled in."
    ),
    Category("global_value", "Global variable", "A global variable had another value than the one compiled in."),
    Category(
        "module_attribute",
        "Module attribute",
        "An attribute of a module or another object had another value than the one compiled in, or came or went.",
    ),
    Category("container_length", "Container length", "A list, tuple, dict, set or iterator had another length."),
    Category("dict_keys", "Dict or set keys", "A dict or set had other keys, or its keys in another order."),
    Category(
        "object_identity", "Object identity", "Another object (function, class, module, …) was found in the same place."
    ),
    Category("type_change", "Type", "A value was of another type than the one compiled for."),
    Category("grad_mode", "Grad mode", "Gradients were enabled or disabled since the compile."),
    Category("autocast", "Autocast", "Automatic mixed precision was switched or changed its type since the compile."),
    Category(
        "deterministic",
        "Deterministic algorithms",
        "The setting for deterministic algorithms changed since the compile.",
    ),
    Category(
        "global_state",
        "Other global state",
        "Another of torch's global settings changed: default dtype or device, threads, TF32, torch function modes.",
    ),
    Category(
        "backend_mismatch", "Backend", "The code was compiled by another backend callable than the one asked for now."
    ),
    Category(
        "invalidated",
        "Invalidated",
        "An object that the compiled code relied on was freed, so its cache entry was dropped.",
    ),
    Category("unknown", "Unknown", "torch's text is not one that this version can classify."),
)
BY_NAME: dict[str, Category] = {category.name: category for category in CATEGORIES}


def label_category(name: str) -> Category:
    """Return a category by its name; one that a later version wrote is its own label."""
    return BY_NAME.get(name) or Category(name, name.replace("_", " "), "")
