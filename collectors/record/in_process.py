"""Observe torch.compile in a block of this process, without a database or recorder.

This uses the hooks of `compileboard.observe()` with a spool of its own, which is read at the end of
the block. If hooks are already installed (`collectors run`, `install()`), their spool is read.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from compileboard.collectors.contract.events import (
    CompileFailed,
    CompileStarted,
    GraphBroke,
    Recompiled,
)
from compileboard.collectors.contract.rejects import IngestResult
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import PathNamer, qualify
from compileboard.collectors.logs.source import EventBatch, pump
from compileboard.collectors.record.spool_source import SpoolSource


@dataclass
class BlockRecord:
    graph_breaks: list[GraphBroke] = field(default_factory=list)
    recompiles: list[Recompiled] = field(default_factory=list)
    failures: list[CompileFailed] = field(default_factory=list)
    compiles: list[CompileStarted] = field(default_factory=list)
    losses: dict[str, int] = field(default_factory=dict)
    _take: Callable[[BlockRecord], None] | None = field(default=None, repr=False, compare=False)

    def catch_up(self) -> None:
        if self._take is not None:
            self._take(self)

    @property
    def distinct_graph_breaks(self) -> list[GraphBroke]:
        return list(
            {
                graph_break.fingerprint: graph_break for graph_break in reversed(self.graph_breaks)
            }.values()
        )[::-1]


@contextmanager
def watch(roots: Iterable[str | Path] = (), *, reset: bool = True) -> Iterator[BlockRecord]:
    """Observe torch.compile in the block. File names are shortened relative to `roots`.

    `reset` clears Dynamo's cache first, because code that an earlier test compiled would not break
    again. Raises ImportError without torch.
    """
    import torch._dynamo

    from compileboard.collectors.observe import hooks

    if reset:
        torch._dynamo.reset()
    decoder = Decoder(PathNamer([str(root) for root in roots]), qualify)
    other = hooks.current() or hooks.current_of_other_copy()
    folder = (
        Path(tempfile.mkdtemp(prefix="compileboard-"))
        if other is None
        else Path(other.spool.folder)
    )
    source = SpoolSource(folder, decoder)
    try:
        installed = other or hooks.install_hooks("watch", str(folder), RunConfig())
        lost_before = Counter({} if other is None else other.spool.losses)
        if other is not None:
            pump(source, _BlockSink(BlockRecord(), None))  # written before the block

        def store_blocks(seen: BlockRecord) -> None:
            seen.losses = dict(Counter(installed.spool.losses) - lost_before)
            pump(source, _BlockSink(seen, None if other is None else other.spool.process_id))

        seen = BlockRecord(_take=store_blocks)
        try:
            yield seen
        finally:
            if other is None:
                hooks.uninstall_hooks()
            store_blocks(seen)
            seen._take = None
    finally:
        if other is None:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _BlockSink:
    seen: BlockRecord
    process_id: str | None

    def ingest(self, batch: EventBatch) -> IngestResult:
        seen = self.seen
        for event in batch.events:
            if self.process_id is not None and event.process_id != self.process_id:
                continue
            if isinstance(event, GraphBroke):
                seen.graph_breaks.append(event)
            elif isinstance(event, Recompiled):
                seen.recompiles.append(event)
            elif isinstance(event, CompileFailed):
                seen.failures.append(event)
            elif isinstance(event, CompileStarted):
                seen.compiles.append(event)
        return IngestResult(new_count=len(batch.events))
