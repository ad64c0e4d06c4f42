"""What the bench command knows of a model without loading it, and how a model is asked for. No torch here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelRef:
    """Name a model, and the function that builds it in a child process.

    `builder` is "module:function"; it is called with the batch size and, where there is one, `argument`, and returns a
    compileboard.collectors.bench.loaded.Loaded.
    """

    suite: str
    name: str
    builder: str
    argument: str | None = None
    family: str = ""
    batch_size: int = 8  # what --batch-size replaces
    training_batch_size: int | None = None
    trains: bool = True  # whether --training has a meaning

    def batch_size_for(self, mode: str, wanted: int | None) -> int:
        """Return the batch size to build with."""
        if wanted is not None:
            return wanted
        return (self.training_batch_size if mode == "training" else None) or self.batch_size

    @property
    def only(self) -> str:
        """Return what `--only` takes to name this model again."""
        return self.argument if self.argument is not None and self.argument.startswith("path:") else self.name
