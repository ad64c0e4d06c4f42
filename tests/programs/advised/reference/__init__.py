"""Programs of reported wrong advice: the fixes that are to be advised first, in the order of the
causes, and in `followed` the same programs with that advice followed by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent
_HEAD = "# advised first: "


@dataclass(frozen=True)
class ReferenceProgram:
    name: str
    fix_ids: tuple[str, ...]
    text: str
    followed: str | None  # None where a setting is the fix, or nothing is to be done


def list_reference_programs() -> list[ReferenceProgram]:
    return [_read(path) for path in sorted(_FOLDER.glob("[a-z]*.py"))]


def _read(path: Path) -> ReferenceProgram:
    head, _, text = path.read_text(encoding="utf-8").partition("\n")
    followed = _FOLDER / "followed" / path.name
    return ReferenceProgram(
        path.stem,
        tuple(head.removeprefix(_HEAD).split(", ")),
        text,
        followed.read_text(encoding="utf-8") if followed.exists() else None,
    )
