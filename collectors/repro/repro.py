"""A repro in hand: what it is, its programs and the values of its inputs, and where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compileboard.collectors.contract.repros import ReproInput, ReproManifest
from compileboard.collectors.contract.run_config import RunConfig


class NotRunnable(ValueError):
    """Why nothing could be run, in one sentence."""


def advise_preload(recorded: tuple[str, ...]) -> str:
    """Return what to do where something is not registered; `recorded` is what was imported by itself."""
    if not recorded:
        return "name its module or file with --preload"
    registers = "does not by being imported" if len(recorded) == 1 else "do not by being imported"
    return f"{', '.join(recorded)} {registers}; name the function that does: --preload {recorded[-1]}:FUNCTION"


def advise_passing(recorded: tuple[str, ...]) -> list[str]:
    """Return the line that follows "passes here", where the program registered something of its own."""
    if not recorded:
        return []
    names = ", ".join(recorded)
    return [f"{names} was imported. What a function of it registers needs --preload {recorded[-1]}:FUNCTION."]


@dataclass(frozen=True)
class Repro:
    """A manifest, programs and values; nothing of it has been run."""

    manifest: ReproManifest
    program: str  # of the manifest's level
    dynamo_program: str | None = None  # where `program` is AOTAutograd's
    values: Mapping[str, bytes] = field(default_factory=dict)  # a storage's raw bytes, by SHA-256
    name: str = "the repro"  # for people: the id or the file
    id: str | None = None  # content id in `database`
    database: str | None = None  # that it was loaded from
    server: RunConfig | None = None  # the settings of the server that it was loaded from
    run_id: str | None = None  # on that server
    path: str | None = None  # the file or folder that it was loaded from
    storage_folder: str | None = None  # torch's content store, with the values of a script of torch's
    storage_hashes: Mapping[int, str] = field(default_factory=dict)  # in it, by number of the storage
    distrust: str | None = None  # why it runs only with --trust; None: it is the person's own

    def text(self, level: str | None = None) -> str:
        """Return the program of a level, by default the manifest's.

        Raises: NotRunnable if there is none.
        """
        if level is None or level == self.manifest.level:
            return self.program
        if level == "dynamo" and self.dynamo_program is not None:
            return self.dynamo_program
        raise NotRunnable(f"{self.name} has no graph of level {level}, only of {self.manifest.level}")

    def inputs(self, level: str | None = None) -> tuple[ReproInput, ...]:
        """Return the inputs of the program of a level."""
        if level is None or level == self.manifest.level:
            return self.manifest.inputs
        return self.manifest.dynamo_inputs

    def check_trust(self, *, is_trusted: bool) -> None:
        """Refuse to run what is not the person's own.

        Raises: NotRunnable.
        """
        if self.distrust is not None and not is_trusted:
            raise NotRunnable(
                f"{self.distrust}, and to run it is to run its code: read it first (`repro show --program`), "
                "then say --trust"
            )
