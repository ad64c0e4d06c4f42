"""A repro with its programs, input values and origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compileboard.collectors.contract.repros import ReproInput, ReproManifest
from compileboard.collectors.contract.run_config import RunConfig


class NotRunnable(ValueError):
    """Raised with a message for the user if nothing could be run."""


def advise_preload(recorded: tuple[str, ...]) -> str:
    if not recorded:
        return "name its module or file with --preload"
    registers = "does not by being imported" if len(recorded) == 1 else "do not by being imported"
    return (
        f"{', '.join(recorded)} {registers}; name the function that does: --preload "
        f"{recorded[-1]}:FUNCTION"
    )


def advise_passing(recorded: tuple[str, ...]) -> list[str]:
    if not recorded:
        return []
    names = ", ".join(recorded)
    return [
        (
            f"{names} was imported. What a function of it registers needs --preload "
            f"{recorded[-1]}:FUNCTION."
        )
    ]


@dataclass(frozen=True)
class Repro:
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
    storage_folder: str | None = (
        None  # torch's content store, with the values of a script of torch's
    )
    storage_hashes: Mapping[int, str] = field(
        default_factory=dict
    )  # in it, by number of the storage
    distrust: str | None = None  # why it runs only with --trust; None: it is the person's own

    def text(self, level: str | None = None) -> str:
        if level is None or level == self.manifest.level:
            return self.program
        if level == "dynamo" and self.dynamo_program is not None:
            return self.dynamo_program
        raise NotRunnable(
            f"{self.name} has no graph of level {level}, only of {self.manifest.level}"
        )

    def inputs(self, level: str | None = None) -> tuple[ReproInput, ...]:
        if level is None or level == self.manifest.level:
            return self.manifest.inputs
        return self.manifest.dynamo_inputs

    def check_trust(self, *, is_trusted: bool) -> None:
        """Raises NotRunnable for a repro of another origin unless it is trusted."""
        if self.distrust is not None and not is_trusted:
            raise NotRunnable(
                f"{self.distrust}, and to run it is to run its code: read it first (`repro "
                "show --program`), "
                "then say --trust"
            )
