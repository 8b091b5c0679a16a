"""The 24 bytes of a work descriptor as numpy structured types.

The three types lay the same bytes out under different names: `plan.view(ATTENTION_DESCRIPTOR)` costs nothing.
"""

from __future__ import annotations

import numpy as np

FLAG_FIRST = 0x01
FLAG_LAST = 0x02
FLAG_INIT = 0x04

_HEAD = [("work_id", "<u4"), ("tier", "u1"), ("flags", "u1"), ("reserved", "<u2")]

WORK_DESCRIPTOR = np.dtype([*_HEAD, ("params", "<u4", (4,))])
ATTENTION_DESCRIPTOR = np.dtype(
    [*_HEAD, ("request_idx", "<u4"), ("head_idx", "<u4"), ("kv_start", "<u4"), ("kv_len", "<u4")]
)
MOE_DESCRIPTOR = np.dtype(
    [*_HEAD, ("batch_idx", "<u4"), ("expert_idx", "<u4"), ("token_start", "<u4"), ("token_count", "<u4")]
)
DESCRIPTOR_TYPES = (WORK_DESCRIPTOR, ATTENTION_DESCRIPTOR, MOE_DESCRIPTOR)
