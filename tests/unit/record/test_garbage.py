"""Garbage collection around large imports."""

from __future__ import annotations

import gc

import pytest

from compileboard.collectors.record.garbage import search_imports, without_collections


@pytest.mark.nightly
def test_what_is_loaded_without_collections_is_searched_again_when_asked_for() -> None:
    class Loaded:
        pass

    with pytest.raises(ImportError), without_collections():
        assert not gc.isenabled()
        loaded = Loaded()
        raise ImportError
    try:
        assert gc.isenabled() and not any(value is loaded for value in gc.get_objects())
    finally:
        search_imports()
    assert any(value is loaded for value in gc.get_objects()) and gc.get_freeze_count() == 0
