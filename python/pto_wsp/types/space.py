"""Memories that tiles and tensors lie in."""

from __future__ import annotations

import enum


class Space(enum.Enum):
    """A memory of a device. A tile or tensor without one lies where the target chooses.

    A call gives tensors in GM, global memory. Vector instructions work on UB; a product reads its left
    operand from L0A and its right one from L0B, and writes L0C.
    """

    GM = "gm"
    L2 = "l2"
    L1 = "l1"
    UB = "ub"
    L0A = "l0a"
    L0B = "l0b"
    L0C = "l0c"


TILE_SPACES = (Space.UB, Space.L1, Space.L0A, Space.L0B, Space.L0C)
"""Where tiles can lie."""

LOCAL_SPACES = (Space.L2, Space.L1)
"""Where tensors can lie that the run makes; those of a call are in global memory."""
