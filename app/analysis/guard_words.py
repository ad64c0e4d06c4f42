"""What each kind of guard checks, in plain words."""

from __future__ import annotations

# Source: GuardBuilder in torch/_dynamo/guards.py and torch/csrc/dynamo/guards.cpp (2.5 to 2.13)
_WORDS = {
    "TYPE_MATCH": "an object's type is the same",
    "ID_MATCH": "it is the very same object",
    "EQUALS_MATCH": "a value is equal to the one at compile time",
    "CONSTANT_MATCH": "a constant is the same",
    "TRUE_MATCH": "a value is True",
    "FALSE_MATCH": "a value is False",
    "NONE_MATCH": "a value is None",
    "NOT_NONE": "a value is not None",
    "NOT_NONE_MATCH": "a value is not None",
    "BOOL_MATCH": "a truth value is the same",
    "TENSOR_MATCH": "a tensor has the same type, dtype, device, sizes and requires_grad",
    "NO_TENSOR_ALIASING": "no two of several tensors are the same one",
    "OBJECT_ALIASING": "two names stand for the same object",
    "SYMBOLIC_SHAPE_GUARD": "sizes that are dynamic keep what the graph assumes of them",
    "SHAPE_ENV": "sizes that are dynamic keep what the graph assumes of them",
    "DIMENSION_DYNAMIC_MARKING_GUARD": "no other dimension of a tensor was marked as dynamic",
    "DYNAMIC_INDICES": "no other dimension of a tensor was marked as dynamic",
    "DICT_CONTAINS": "a dict has, or has not, a key",
    "DICT_NOT_CONTAINS": "a dict has not a key",
    "DICT_LENGTH": "a dict has as many entries",
    "DICT_KEYS_MATCH": "a dict has the same keys",
    "DICT_VERSION": "a dict was not changed at all",
    "SET_CONTAINS": "a set has, or has not, a value",
    "LENGTH_CHECK": "a list or tuple is as long",
    "SEQUENCE_LENGTH": "a list or tuple is as long",
    "TUPLE_ITERATOR_LEN": "an iterator has as much left",
    "RANGE_ITERATOR_MATCH": "an iterator over a range stands where it stood",
    "HASATTR": "an object has an attribute",
    "NO_HASATTR": "an object has no attribute of that name",
    "LAMBDA_GUARD": "a condition that is called as a Python function: slower than the others",
    "WEAKREF_ALIVE": "an object still exists",
    "GLOBAL_STATE": "gradient mode, autocast, threads, default dtype and their like are as they were",
    "DEFAULT_DEVICE": "the default device is the same",
    "TORCH_FUNCTION_MODE_STACK": "the same torch function modes are active",
    "TORCH_FUNCTION_STATE": "torch functions may be overridden, or not, as before",
    "GRAD_MODE": "gradient mode is the same",
    "DETERMINISTIC_ALGORITHMS": "deterministic algorithms are on or off as before",
    "DISPATCH_KEY_SET_MATCH": "a tensor's dispatch keys are the same",
    "DUPLICATE_INPUT": "the same two inputs are one tensor",
    "MAPPING_KEYS_CHECK": "a mapping has the same keys",
}


def describe_kind(kind: str | None) -> str:
    """Say what a guard of this kind checks; empty where nobody knows."""
    return _WORDS.get(kind or "", "")
