"""The bytes of descriptors, items and rows to merge as numpy structured types.

The three types of 24 bytes lay the same bytes out under different names: `plan.view(ATTENTION_DESCRIPTOR)`
costs nothing. An item of a balanced plan is a descriptor and two more words; as a plain array it is
`items.view(np.int32).reshape(-1, 8)`.
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
BALANCED_ITEM = np.dtype([*ATTENTION_DESCRIPTOR.descr, ("q_start", "<u4"), ("partial", "<i4")])
MERGE_ROW = np.dtype([(name, "<u4") for name in ("request_idx", "head_idx", "q_start", "first_item")])
DESCRIPTOR_TYPES = (WORK_DESCRIPTOR, ATTENTION_DESCRIPTOR, MOE_DESCRIPTOR)
