"""Which models are known to fail their accuracy now and then: the harness's own data file, read as data."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from compileboard.start import PACKAGE

FILE = Path(PACKAGE) / "collectors" / "bench" / "model_facts.json"


@cache
def list_flaky() -> frozenset[str]:
    """List the models that are flaky wherever they run; none where the file was not installed."""
    try:
        suites = json.loads(FILE.read_text(encoding="utf-8"))["models"]
    except FileNotFoundError:
        return frozenset()
    return frozenset(
        model
        for models in suites.values()
        for model, facts in models.items()
        if any(fact["fact"] == "flaky" and not fact.get("when") for fact in facts)
    )
