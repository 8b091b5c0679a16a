"""PTO-WSP: dynamic LLM operators in three parts: kernels, workloads and schedules."""

from typing import NoReturn

from pto_wsp.builder import CompareMode, ElementType, MemorySpace, PTOFunctionBuilder, PTOModule
from pto_wsp.builder.drivers import refuse_driver
from pto_wsp.builder.module import set_compile_hook as set_module_hook
from pto_wsp.errors import PtoError
from pto_wsp.errors.showing import hide_own_frames
from pto_wsp.lang import pto, ptoisa
from pto_wsp.lang.axes import P
from pto_wsp.lang.broadcast import ALL
from pto_wsp.lang.declarations import lookup_kernel, registered_kernels
from pto_wsp.lang.groups import group_by
from pto_wsp.lang.kernel import kernel, ptoisa_kernel
from pto_wsp.lang.ragged import Ragged
from pto_wsp.lang.scalar import Scalar
from pto_wsp.lang.slots import (
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
from pto_wsp.lang.sparse import Sparse
from pto_wsp.lang.surface import Constexpr, In, InOut, Out, Tile
from pto_wsp.lang.symbols import symbol_f32, symbol_i64, symbol_u64
from pto_wsp.lang.tensor import Tensor
from pto_wsp.lang.tiers import tier
from pto_wsp.lang.workload import combine, sequential, set_compile_hook, workload
from pto_wsp.runtime.memory import empty
from pto_wsp.runtime.program import Program, compile_module, compile_program
from pto_wsp.runtime.run import Run
from pto_wsp.runtime.stats import RunStats
from pto_wsp.schedule.policies import (
    Deps,
    DispatchPolicy,
    Pools,
    ReadyPolicy,
    StartPolicy,
    StorePolicy,
    TaskWindow,
    TimingPolicy,
    TracePolicy,
    WindowMode,
)
from pto_wsp.schedule.schedule import Schedule
from pto_wsp.targets.cpu.features import panel_cols
from pto_wsp.text import parse
from pto_wsp.types import DYN, Dense, DenseDyn, MemLayout, b1, bf16, f16, f32, i8, i16, i32, i64, u8, u16, u32

__all__ = [
    "ALL",
    "DYN",
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
    "Sparse",
    "StartPolicy",
    "StorePolicy",
    "TaskWindow",
    "Tensor",
    "Tile",
    "TimingPolicy",
    "TracePolicy",
    "WindowMode",
    "b1",
    "bf16",
    "combine",
    "empty",
    "f16",
    "f32",
    "group_by",
    "i8",
    "i16",
    "i32",
    "i64",
    "kernel",
    "lookup_kernel",
    "panel_cols",
    "parse",
    "pto",
    "ptoisa",
    "ptoisa_kernel",
    "registered_kernels",
    "sequential",
    "slot_bool",
    "slot_i64",
    "slot_load_bool",
    "slot_load_i64",
    "slot_load_u64",
    "slot_set_bool",
    "slot_set_i64",
    "slot_set_u64",
    "slot_u64",
    "symbol_f32",
    "symbol_i64",
    "symbol_u64",
    "tier",
    "u8",
    "u16",
    "u32",
    "workload",
]

hide_own_frames(PtoError)
set_compile_hook(compile_program)
set_module_hook(compile_module)


def __getattr__(name: str) -> NoReturn:
    refuse_driver(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
