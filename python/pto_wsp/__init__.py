"""PTO-WSP: dynamic LLM operators in three parts: kernels, workloads and schedules."""

from pto_wsp.builder import CompareMode, ElementType, MemorySpace, PTOFunctionBuilder, PTOModule
from pto_wsp.errors import PtoError
from pto_wsp.errors.short_errors import short_errors
from pto_wsp.lang.annotations import Constexpr, In, InOut, Out
from pto_wsp.lang.kernel import pto, ptoisa
from pto_wsp.lang.kernel.kernel import kernel, lookup_kernel, ptoisa_kernel, registered_kernels
from pto_wsp.lang.operands import Scalar, Tile
from pto_wsp.lang.schedule.directives.calendar import CalendarPolicy
from pto_wsp.lang.schedule.directives.deps import Deps
from pto_wsp.lang.schedule.directives.dispatch import DispatchPolicy
from pto_wsp.lang.schedule.directives.pools import Pools, stage
from pto_wsp.lang.schedule.directives.ready import ReadyPolicy
from pto_wsp.lang.schedule.directives.start import StartPolicy
from pto_wsp.lang.schedule.directives.stores import StorePolicy
from pto_wsp.lang.schedule.directives.timing import TimingPolicy
from pto_wsp.lang.schedule.directives.trace import TracePolicy
from pto_wsp.lang.schedule.directives.window import TaskWindow, WindowMode
from pto_wsp.lang.schedule.schedule import Schedule
from pto_wsp.lang.schedule.strategies import Strategies
from pto_wsp.lang.workload.assumptions import assume, distinct
from pto_wsp.lang.workload.broadcast import ALL
from pto_wsp.lang.workload.channels import Channel, wait
from pto_wsp.lang.workload.group_by import group_by
from pto_wsp.lang.workload.loops import P
from pto_wsp.lang.workload.networks import network, process, replicate
from pto_wsp.lang.workload.ragged import Ragged
from pto_wsp.lang.workload.slots import (
    slot_bool,
    slot_i64,
    slot_load_bool,
    slot_load_i64,
    slot_load_u64,
    slot_set_bool,
    slot_set_i64,
    slot_set_u64,
    slot_u64,
)
from pto_wsp.lang.workload.sparse import Sparse
from pto_wsp.lang.workload.symbols import symbol_f32, symbol_i64, symbol_u64
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.lang.workload.tiers import tier
from pto_wsp.lang.workload.workload import combine, sequential, workload
from pto_wsp.runtime.calendar import Calendar
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.contracts import graph
from pto_wsp.runtime.memory import empty
from pto_wsp.runtime.program import Program
from pto_wsp.runtime.run import Run
from pto_wsp.runtime.session import Session
from pto_wsp.runtime.stats import RunStats
from pto_wsp.targets.preferences import panel_cols
from pto_wsp.text import parse
from pto_wsp.types import DYN, Dense, DenseDyn, MemLayout, b1, bf16, f16, f32, i8, i16, i32, i64, u8, u16, u32

__all__ = [
    "ALL",
    "DYN",
    "Calendar",
    "CalendarPolicy",
    "Channel",
    "CompareMode",
    "Constexpr",
    "Dense",
    "DenseDyn",
    "Deps",
    "DispatchPolicy",
    "ElementType",
    "In",
    "InOut",
    "MemLayout",
    "MemorySpace",
    "Out",
    "P",
    "PTOFunctionBuilder",
    "PTOModule",
    "Pools",
    "Program",
    "PtoError",
    "Ragged",
    "ReadyPolicy",
    "Run",
    "RunStats",
    "Scalar",
    "Schedule",
    "Session",
    "Sparse",
    "StartPolicy",
    "StorePolicy",
    "Strategies",
    "TaskWindow",
    "Tensor",
    "Tile",
    "TimingPolicy",
    "TracePolicy",
    "WindowMode",
    "assume",
    "b1",
    "bf16",
    "combine",
    "compile_module",
    "distinct",
    "empty",
    "f16",
    "f32",
    "graph",
    "group_by",
    "i8",
    "i16",
    "i32",
    "i64",
    "kernel",
    "lookup_kernel",
    "network",
    "panel_cols",
    "parse",
    "process",
    "pto",
    "ptoisa",
    "ptoisa_kernel",
    "registered_kernels",
    "replicate",
    "sequential",
    "short_errors",
    "slot_bool",
    "slot_i64",
    "slot_load_bool",
    "slot_load_i64",
    "slot_load_u64",
    "slot_set_bool",
    "slot_set_i64",
    "slot_set_u64",
    "slot_u64",
    "stage",
    "symbol_f32",
    "symbol_i64",
    "symbol_u64",
    "tier",
    "u8",
    "u16",
    "u32",
    "wait",
    "workload",
]
