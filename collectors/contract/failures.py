"""Identify a failure across runs by exception type, operation and message without values."""

from __future__ import annotations

import re
from typing import NamedTuple

from compileboard.collectors.contract.fingerprints import fingerprint
from compileboard.collectors.contract.repros import find_operation, normalize_error_message

_SAYS_NOTHING = re.compile(r"backend=.{1,200} raised:$|Set TORCH|You can suppress this exception")
# As in torch/fx/interpreter.py and torch/_dynamo/utils.py (2.4 to 2.13).
_NODE = re.compile(
    r"While executing %.{1,400}? = call_\w+\[target=(?P<target>[^\]]{1,200})\]"
    r"|(?:FX node with fake tensors: |Failed running )call_\w+ "
    r"(?:<(?:built-in )?(?:function|method) (?P<built_in>[\w.]+)[^>]*>|(?P<named>[\w.]+))\("
)
# The line of a graph that raised, as eager backends run it: the innermost frame of the traceback.
_GRAPH_LINE = re.compile(r"File \"<eval_with_key>[^\n]*\n +\w+ = ([\w.]+)\(")
_SYMBOL = re.compile(r"\b[su]\d+\b")
_SIZES = re.compile(r"\b[1-9]\d*(?:x\d+)+\b")
_LIST = re.compile(r"N(?:, ?N)+")
MAX_CHARS = 4_000  # Only this much of a message, and of a traceback's end, is searched.
MAX_TEXT_CHARS = 64_000


class Failure(NamedTuple):
    error_type: str | None
    operation: str | None
    message: str | None

    @property
    def fingerprint(self) -> str:
        return fingerprint("failure", *self)


def identify_failure(error_type: str | None, message: str | None, traceback: str = "") -> Failure:
    """Return a failure without the values that differ from run to run.

    >>> identify_failure("RuntimeError", "size 37 at 0x7f3a, in /tmp/xy/a.py")
    Failure(error_type='RuntimeError', operation=None, message='size N at 0x…, in /…')
    """
    message = (message or "")[:MAX_CHARS]
    line = _SYMBOL.sub("N", _SIZES.sub("N", find_telling_line(message)))
    pattern = _LIST.sub("N", normalize_error_message(line))
    return Failure(error_type, _find_operation(message, traceback), pattern or None)


def find_telling_line(message: str) -> str:
    """Return the most informative line of an error message."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    return next((line for line in lines if not _SAYS_NOTHING.match(line)), first)


def _find_operation(message: str, traceback: str) -> str | None:
    named = find_operation(message)
    if named is None and (node := _NODE.search(message)):
        named = node["target"] or node["built_in"] or node["named"]
    if named is None and (raised := _GRAPH_LINE.findall(traceback[-MAX_TEXT_CHARS:])):
        named = raised[-1]
    return named and named[:200].removeprefix("torch.ops.")
