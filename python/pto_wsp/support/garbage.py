"""The garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 20_000
"""Objects that a block makes and leaves, from which on they are not searched for cycles when it ends."""


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collect nothing inside: a large tree that is being built would be searched for cycles all the time.

    Of a block that leaves MANY objects, all that there are count as old afterwards: the next full collection
    searches them, and no earlier one.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_count()[0] > MANY and gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()
            gc.enable()
