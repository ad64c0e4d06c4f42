"""What words of a command line mean, for every command of the collector."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """Read a number from 1 up."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 up, got {text!r}")
    return int(text)


def pair(text: str) -> tuple[str, str]:
    """Read KEY=VALUE."""
    key, value = maybe_pair(text, "KEY=VALUE")
    if value is None:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key, value


def maybe_pair(text: str, expected: str = "KEY or KEY=VALUE") -> tuple[str, str | None]:
    """Read KEY=VALUE, or KEY alone, whose value is none."""
    key, equals, value = text.partition("=")
    if not key.strip():
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return key.strip(), value if equals else None
