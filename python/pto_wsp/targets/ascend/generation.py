"""The generations of Ascend processors, and where they differ."""

from __future__ import annotations

from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType, bf16, f16, f32, i8, i16, i32, i64, u8

Conversions = frozenset[tuple[DType, DType]]


@record
class Generation:
    """A generation of processors.

    Attributes:
        name: of the target.
        arch: as the PTO library names it.
        vector_cores, cube_cores: as the vendor's compiler names them.
        define: a macro that the vendor's compiler needs.
        ub_bytes: unified buffer of a vector core that tiles can use.
        ub_reserved: bytes after those, which row broadcasts use as scratch memory.
        l0c_bytes: memory of a cube core for results of products.
        wide_arithmetic: element types that vector arithmetic accepts in addition to those of all generations.
        orders_vectors: whether the vector pipe completes each instruction before a dependent one starts.
        conversions: pairs of element types that it converts, in addition to those of all generations.
    """

    name: str
    arch: str
    vector_cores: str
    cube_cores: str
    define: str
    ub_bytes: int
    ub_reserved: int
    l0c_bytes: int
    wide_arithmetic: frozenset[DType]
    orders_vectors: bool
    conversions: Conversions = frozenset()


A2A3 = Generation(
    name="ascend_a2a3",
    arch="A2A3",
    vector_cores="dav-c220-vec",
    cube_cores="dav-c220-cube",
    define="MEMORY_BASE",
    ub_bytes=184 << 10,
    ub_reserved=8 << 10,
    l0c_bytes=128 << 10,
    wide_arithmetic=frozenset(),
    orders_vectors=False,
)
A5 = Generation(
    name="ascend_a5",
    arch="A5",
    vector_cores="dav-c310-vec",
    cube_cores="dav-c310-cube",
    define="REGISTER_BASE",
    ub_bytes=256 << 10,
    ub_reserved=0,
    l0c_bytes=256 << 10,
    wide_arithmetic=frozenset({bf16}),
    orders_vectors=True,
)

L1_BYTES = 512 << 10
"""Memory of a cube core for operands of products."""

L0_BYTES = 64 << 10
"""Memory of a cube core for the left operand of the next products, and the same for the right one."""

GENERATIONS = {generation.name: generation for generation in (A2A3, A5)}
"""All of them, by the names of the targets."""

CONVERSIONS: Conversions = frozenset(
    [(f32, to) for to in (f16, bf16, i16, i32, i64)]
    + [(f16, to) for to in (f32, i32, i16, i8, u8)]
    + [(bf16, to) for to in (f32, i32)]
    + [(i16, to) for to in (f16, f32)]
    + [(i32, to) for to in (f32, i64)]
    + [(u8, f16), (i8, f16)]
)
"""Pairs of element types that every generation converts in one instruction."""
