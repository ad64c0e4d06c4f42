"""Read a command line as its interpreter does: the default run name, and switches that disable the
hooks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise

LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")
COLLECT = "compileboard-collect"
OWN_MODULES = (("-m", "collectors"), ("-m", "compileboard.collectors"))


def default_name(command: list[str]) -> str:
    """Return the name of a command's script or module: train.py (also under torchrun), my.module,
    python -c.
    """
    inner = _observed_inside(command)
    if inner:
        return default_name(inner)
    if _is_python(command[0]):
        named = _python_names(command[1:])
        if named:
            return named
    scripts = [word for word in command if word.endswith(".py")]
    if scripts:
        return os.path.basename(scripts[0])
    modules = [
        after for word, after in pairwise(command) if word == "-m" and after not in LAUNCHERS
    ]
    return modules[0] if modules else os.path.basename(command[0])


def _observed_inside(command: list[str]) -> list[str]:
    own = os.path.basename(command[0]) == COLLECT or (
        _is_python(command[0]) and any(pair in OWN_MODULES for pair in list(pairwise(command))[:4])
    )
    return command[command.index("--") + 1 :] if own and "--" in command else []


def _is_python(word: str) -> bool:
    return os.path.basename(word).startswith("python")


def _python_names(words: list[str]) -> str | None:
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        word, position = words[position], position + 1
        if word.startswith("--"):
            continue
        letter, rest = next(
            ((c, word[n + 1 :]) for n, c in enumerate(word) if n and c in "cmWX"), ("", "")
        )
        if letter == "c":
            return "python -c"
        if letter == "m":
            module = rest or "".join(words[position : position + 1])
            return None if module in LAUNCHERS else module or None
        if letter and not rest:  # -W and -X take the next word
            position += 1
    return (
        os.path.basename(words[position])
        if position < len(words) and words[position] != "-"
        else None
    )


def unreachable(command: list[str]) -> list[str]:
    if not _is_python(command[0]):
        return []
    for word in _switches(command[1:]):
        for letter in "IES":
            if letter in word:
                return [
                    (
                        f"python -{letter} ignores PYTHONPATH or sitecustomize: this interpreter "
                        "cannot be observed"
                    )
                ]
    return []


def _switches(words: list[str]) -> Iterator[str]:
    value_follows = False
    for word in words:
        if value_follows:
            value_follows = False
        elif not word.startswith("-") or word == "-":
            return
        elif not word.startswith("--"):
            letters = word[1:]
            ends = [position for letter in "cmWX" if (position := letters.find(letter)) >= 0]
            end = min(ends, default=len(letters))
            yield letters[:end]
            if letters[end : end + 1] in ("c", "m"):
                return
            value_follows = bool(ends) and end == len(letters) - 1
