"""Nothing is collected while a large tree is built, and nothing else changes."""

from __future__ import annotations

import gc

import pytest

from pto_wsp.support.garbage import collection_paused


def test_nothing_is_collected_inside() -> None:
    frozen = gc.get_freeze_count()
    with collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled() and gc.get_freeze_count() == frozen


def test_an_error_ends_the_pause() -> None:
    with pytest.raises(KeyError), collection_paused():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_disabled_stays_disabled() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
