"""The work planner: how a batch of sequences of different lengths is cut into units of work.

`AttentionPlanner` and `MoEPlanner` make plans; a plan is a numpy array of 24-byte work descriptors, the same
bytes that the C++ headers `pto/runtime/` read. See docs/planner.md.
"""

from __future__ import annotations

from pto_wsp.errors import (
    BadPlanBuffer,
    BadPlanConfig,
    InvalidPlanParams,
    PlanBufferOverflow,
    PlanError,
    UnsupportedSize,
)
from pto_wsp.planner.balanced import (
    ANY_LENGTH_TIERS,
    CANONICAL_BLOCK,
    PARTIAL_STATISTICS,
    WRITE_THROUGH,
    BalancedConfig,
    BalancedPlan,
    BalancedPlanner,
)
from pto_wsp.planner.config import DECODE_ATTENTION_TIERS, PlanConfig, Tier, TierConfig
from pto_wsp.planner.descriptor import (
    ATTENTION_DESCRIPTOR,
    BALANCED_ITEM,
    FLAG_FIRST,
    FLAG_INIT,
    FLAG_LAST,
    MERGE_ROW,
    MOE_DESCRIPTOR,
    WORK_DESCRIPTOR,
)
from pto_wsp.planner.planner import (
    AttentionPlanner,
    MoEPlanner,
    WorkPlanner,
    generate,
    get_total_work,
    plan_chunk_size,
)

__all__ = [
    "ANY_LENGTH_TIERS",
    "ATTENTION_DESCRIPTOR",
    "BALANCED_ITEM",
    "CANONICAL_BLOCK",
    "DECODE_ATTENTION_TIERS",
    "FLAG_FIRST",
    "FLAG_INIT",
    "FLAG_LAST",
    "MERGE_ROW",
    "MOE_DESCRIPTOR",
    "PARTIAL_STATISTICS",
    "WORK_DESCRIPTOR",
    "WRITE_THROUGH",
    "AttentionPlanner",
    "BadPlanBuffer",
    "BadPlanConfig",
    "BalancedConfig",
    "BalancedPlan",
    "BalancedPlanner",
    "InvalidPlanParams",
    "MoEPlanner",
    "PlanBufferOverflow",
    "PlanConfig",
    "PlanError",
    "Tier",
    "TierConfig",
    "UnsupportedSize",
    "WorkPlanner",
    "generate",
    "get_total_work",
    "plan_chunk_size",
]
