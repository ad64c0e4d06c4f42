"""Differences between two environments that make them incomparable or doubtful, and changed
settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.comparison.model import ComparedSetting, ComparedSide, EnvironmentDifference
from compileboard.app.core.fields import Count

# In the order of the page. A number from another GPU only shows which GPU is faster.
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
# Each torch version comes with its own.
_OF_TORCH = ("torch", "triton", "cuda")


def diff_environment(base: ComparedSide, new: ComparedSide) -> tuple[EnvironmentDifference, ...]:
    differences = []
    for field, (label, weight) in FIELDS.items():
        base_values, new_values = base.environment.get(field, ()), new.environment.get(field, ())
        if not base_values and not new_values:
            continue
        differences.append(
            EnvironmentDifference(
                label, base_values, new_values, _weigh_difference(field, weight, base, new)
            )
        )
    return tuple(differences)


def _weigh_difference(field: str, weight: str, base: ComparedSide, new: ComparedSide) -> str:
    ours, theirs = set(base.environment.get(field, ())), set(new.environment.get(field, ()))
    if not ours or not theirs or ours == theirs:
        return "same"
    if field in _OF_TORCH and base.kind == new.kind == "torch":
        return "intended"
    # If a machine is on both sides, its models are compared, and the others are excluded one by
    # one.
    return WARNS if weight == REFUSES and ours & theirs else weight


def describe_differences(
    differences: tuple[EnvironmentDifference, ...], weight: str
) -> tuple[str, ...]:
    return tuple(
        f"{part.name}: {', '.join(part.base)} on base, {', '.join(part.new)} in new"
        for part in differences
        if part.weight == weight
    )


def diff_settings(base: ComparedSide, new: ComparedSide) -> tuple[ComparedSetting, ...]:
    settings = []
    for key in sorted({*base.config, *new.config}):
        ours, theirs = base.config.get(key), new.config.get(key)
        default = (ours or theirs or ("", ""))[1]
        settings.append(ComparedSetting(*key, default, ours and ours[0], theirs and theirs[0]))
    return tuple(
        sorted(
            settings,
            key=lambda changed_setting: (
                not changed_setting.differs,
                changed_setting.module,
                changed_setting.name,
            ),
        )
    )


@dataclass(frozen=True)
class NonDefaultSetting:
    """One setting that differs from torch's default."""

    module: Annotated[str, "dynamo, inductor or functorch."]
    name: Annotated[str, "Name of the setting."]
    value: Annotated[str, "Value of the setting."]
    default: Annotated[str, "torch's default."]
    process_count: Annotated[Count, "Processes that had this value."]


@dataclass(frozen=True)
class SettingDifference:
    name: str
    values: tuple[tuple[str, str], ...]


def show_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    return (
        value
        if isinstance(value, str) and value
        else json.dumps(value, ensure_ascii=False, sort_keys=True)
    )


def list_changes(
    changed: Sequence[tuple[str, Mapping[str, Mapping[str, Any]]]],
) -> list[NonDefaultSetting]:
    processes_by_key: dict[tuple[str, str, str, str], set[str]] = {}
    for process_id, modules in changed:
        for module, settings in modules.items():
            for name, pair in settings.items() if isinstance(settings, Mapping) else ():
                pair = pair if isinstance(pair, Mapping) else {"value": pair}
                key = (module, name, show_value(pair.get("value")), show_value(pair.get("default")))
                processes_by_key.setdefault(key, set()).add(process_id)
    return [
        NonDefaultSetting(*key, process_count=len(processes))
        for key, processes in sorted(processes_by_key.items())
    ]


def compare_texts(texts: Sequence[tuple[str, Mapping[str, Any]]]) -> list[SettingDifference]:
    names = sorted({name for _hash, values in texts for name in values})
    differences = []
    for name in names:
        seen = [
            (show_value(values[name]) if name in values else "not there", digest)
            for digest, values in texts
        ]
        if len({value for value, _digest in seen}) > 1:
            differences.append(SettingDifference(name, tuple(seen)))
    return differences
