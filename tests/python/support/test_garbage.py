"""Large trees that were just made are not searched for cycles, and nothing else changes."""

from __future__ import annotations

import gc

from pto_wsp.support import garbage
from pto_wsp.support.garbage import collection_paused


def young() -> int:
    return len(gc.get_objects(generation=0))


def made(count: int) -> list[list[int]]:
    with collection_paused():
        assert not gc.isenabled()
        return [[number] for number in range(count)]


def test_what_many_objects_leave_is_old() -> None:
    gc.collect()
    large = made(garbage.MANY + 5000)
    assert gc.isenabled() and young() < 2000
    gc.collect()
    small = made(300)
    assert gc.is_tracked(small[0]) and young() >= 300
    assert len(large) > garbage.MANY


def test_what_was_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        kept = made(garbage.MANY + 5000)
        assert abs(gc.get_freeze_count() - count) < 1000 and kept  # some of what is frozen may die
    finally:
        gc.unfreeze()


def test_a_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        kept = made(garbage.MANY + 5000)
        assert not gc.isenabled() and kept
    finally:
        gc.enable()
