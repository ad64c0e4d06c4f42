"""What the tests of repros share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tools.observed import PLAIN_CODE


@pytest.fixture(scope="module", autouse=True)
def plain_code() -> Iterator[None]:
    """Let inductor compile no vector code: of a new cache that is half the time, and each driver has one."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PLAIN_CODE.items():
            patch.setenv(name, value)
        yield
