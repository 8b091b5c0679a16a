"""Random small workloads whose results depend on the order of conflicting tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from pto_wsp.interp.workload import expand
from pto_wsp.ir.core import DimSelect, Full, Index, Range, Region, TileRange
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.kernel import For, Instr, KernelFunction, Load, Param, Stmt, Store
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import (
    Const,
    Expr,
    Extent,
    LoopExtent,
    LoopStart,
    Unary,
    Var,
    add,
    binary,
    ceildiv,
    mul,
)
from pto_wsp.ir.workload import Loop, Node, SizeParam, Task, TensorParam, WorkloadFunction
from pto_wsp.types import ScalarType, TensorType, TileType, ViewType, f32, i64

ROWS, COLS = 4, 8
_TILE, _COLUMN, _ONE = TileType(ROWS, COLS, f32), TileType(ROWS, 1, f32), TileType(1, 1, f32)
_VIEW = ViewType(f32, (None, None))


def blend_kernel(role: str) -> KernelFunction:
    """y = y / 2 + sum(x) / 8 + c (inout), or y = sum(x) / 8 + c (out): any shapes, order matters."""
    old: tuple[Stmt, ...] = ()
    if role == "inout":
        old = (
            Load("old", _part("y")),
            Instr("muls", "old", ("old",), (Const(0.5, f32),)),
            Instr("add", "new", ("new", "old")),
        )
    fill = (
        Instr("rowexpand", "wide", ("column",), (), (("cols", _extent("y", "c", 1, COLS)),)),
        Instr("mov", "new", ("wide",)),
        *old,
        Store(_part("y"), "new"),
    )
    total_as_column = Instr("colexpand", "column", ("total",), (), (("rows", _extent("y", "r", 0, ROWS)),))
    body = (
        Instr("expands", "total", (), (Unary("f32", Var("c0")),)),
        _tiles("x", (Load("old", _part("x")), *_accumulate())),
        _tiles("y", (total_as_column, *fill)),
    )
    params = (
        Param("x", "in", _VIEW),
        Param("y", role, _VIEW),
        Param("c0", "in", ScalarType(i64)),
    )
    tiles = (
        ("old", _TILE),
        ("new", _TILE),
        ("wide", _TILE),
        ("column", _COLUMN),
        ("total", _ONE),
        ("part", _ONE),
    )
    return KernelFunction(f"blend_{role}", params, (*tiles, ("sums", _COLUMN)), (), body)


def _accumulate() -> tuple[Stmt, ...]:
    return (
        Instr("rowsum", "sums", ("old",)),
        Instr("colsum", "part", ("sums",)),
        Instr("muls", "part", ("part",), (Const(0.125, f32),)),
        Instr("add", "total", ("total", "part")),
    )


def _extent(view: str, var: str, dim: int, tile: int) -> Expr:
    left = binary("sub", Extent(view, dim), mul(Var(var), Const(tile)))
    return binary("min", Const(tile), left)


def _part(view: str) -> Region:
    return Region(
        view,
        (
            Range(mul(Var("r"), Const(ROWS)), _extent(view, "r", 0, ROWS)),
            Range(mul(Var("c"), Const(COLS)), _extent(view, "c", 1, COLS)),
        ),
    )


def _tiles(view: str, body: tuple[Stmt, ...]) -> Stmt:
    inner = For("c", Const(0), ceildiv(Extent(view, 1), COLS), 1, body)
    return For("r", Const(0), ceildiv(Extent(view, 0), ROWS), 1, (inner,))


KERNELS = (blend_kernel("inout"), blend_kernel("out"))


@dataclass(frozen=True)
class Sample:
    """A module, and the values of its arrays before the run."""

    module: Module
    shapes: dict[str, tuple[int, ...]]
    sizes: dict[str, int]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return fresh arrays, the same every time."""
        rng = np.random.default_rng(7)
        return {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in self.shapes.items()}


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Draw a workload over two or three tensors with up to three loops inside each other."""
    ranks = draw(st.lists(st.integers(2, 3), min_size=2, max_size=3))
    tensors = {f"T{i}": rank for i, rank in enumerate(ranks)}
    counter = iter(range(100))
    body = draw(_bodies(tensors, {}, 0, counter))
    sizes = {"n": draw(st.integers(0, 9))}
    workload = WorkloadFunction("w", (SizeParam("n"),), body)
    shapes = {name: _needed_shape(workload, name, rank, sizes) for name, rank in tensors.items()}
    params = (
        SizeParam("n"),
        *(TensorParam(name, TensorType(f32, shape)) for name, shape in shapes.items()),
    )
    workload = WorkloadFunction("w", params, body)
    return Sample(Module("m", KERNELS, (workload,), "w"), shapes, sizes)


@st.composite
def _bodies(
    draw: st.DrawFn, tensors: dict[str, int], loops: dict[str, Loop], depth: int, counter: object
) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for _ in range(draw(st.integers(1, 3))):
        if depth < 3 and draw(st.booleans()):
            nodes.append(draw(_loops(tensors, loops, depth, counter)))
        else:
            nodes.append(draw(_tasks(tensors, loops)))
    return tuple(nodes)


@st.composite
def _loops(
    draw: st.DrawFn, tensors: dict[str, int], loops: dict[str, Loop], depth: int, counter: object
) -> Loop:
    kind = draw(st.sampled_from(["parallel", "seq", "range"]))
    var = f"i{next(counter)}"  # type: ignore[call-overload]
    tile = draw(st.none() | st.integers(1, 4))
    plain = [name for name, loop in loops.items() if loop.tile is None]
    extents: list[Expr] = [Const(draw(st.integers(1, 4))), Const(draw(st.integers(1, 6))), Var("n")]
    if plain:
        extents.append(add(Var(draw(st.sampled_from(plain))), Const(1)))
    extent = draw(st.sampled_from(extents[:1] if depth == 2 else extents))
    inside = {**loops, var: Loop(kind, var, extent, tile, ())}
    return Loop(kind, var, extent, tile, draw(_bodies(tensors, inside, depth + 1, counter)))


@st.composite
def _tasks(draw: st.DrawFn, tensors: dict[str, int], loops: dict[str, Loop]) -> Task:
    kernel = draw(st.sampled_from(KERNELS))
    regions = [draw(_regions(tensors, loops)) for _ in range(2)]
    constant = Var(draw(st.sampled_from(sorted(loops)))) if loops else Const(1)
    return Task(kernel.name, (*regions, constant), tuple(Var(name) for name in loops))


@st.composite
def _regions(draw: st.DrawFn, tensors: dict[str, int], loops: dict[str, Loop]) -> Region:
    name = draw(st.sampled_from(sorted(tensors)))
    rank = tensors[name]
    dropped = draw(st.integers(0, rank - 2)) if rank == 3 else -1
    dims: list[DimSelect] = []
    for dim in range(rank):
        dims.append(Index(draw(_offsets(loops))) if dim == dropped else draw(_ranges(loops)))
    return Region(name, tuple(dims))


@st.composite
def _ranges(draw: st.DrawFn, loops: dict[str, Loop]) -> DimSelect:
    tiled = sorted(name for name, loop in loops.items() if loop.tile is not None)
    choice = draw(st.integers(0, 9))
    if choice == 0:
        return Full()
    if tiled and choice < 5:
        return TileRange(draw(st.sampled_from(tiled)))
    if tiled and choice < 7:
        return _part_of(draw(st.sampled_from(tiled)), draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    return Range(draw(_offsets(loops)), Const(draw(st.integers(0, 5))))


def _part_of(loop: str, start: int, stop: int) -> Range:
    """Return a slice of a tile, clipped to it, as the part of a range is written."""
    length = LoopExtent(loop)
    last = binary("within", binary("min", Const(max(start, stop)), length), length)
    first = binary("within", binary("min", Const(start), length), last)
    return Range(add(LoopStart(loop), first), binary("sub", last, first))


@st.composite
def _offsets(draw: st.DrawFn, loops: dict[str, Loop]) -> Expr:
    offset: Expr = Const(draw(st.integers(0, 3)))
    for name in loops:
        factor = draw(st.integers(0, 3))
        if factor:
            offset = add(mul(Var(name), Const(factor)), offset)
    return offset


def _needed_shape(
    workload: WorkloadFunction, tensor: str, rank: int, sizes: dict[str, int]
) -> tuple[int, ...]:
    """Return the smallest shape that holds every region of `tensor`."""
    shape = [2] * rank
    for task in expand(workload, dict(sizes)):
        for arg in task.node.args:
            if not isinstance(arg, Region) or arg.tensor != tensor:
                continue
            for dim, entry in enumerate(arg.dims):
                shape[dim] = max(shape[dim], _stop(entry, task.scope))
    return tuple(shape)


def _stop(entry: DimSelect, scope: object) -> int:
    match entry:
        case Index(at=at):
            return int(evaluate(at, scope)) + 1  # type: ignore[arg-type]
        case Range(start=start, extent=extent):
            return int(evaluate(add(start, extent), scope))  # type: ignore[arg-type]
        case TileRange(loop=loop):
            return scope[LoopStart(loop)] + scope[LoopExtent(loop)]  # type: ignore[index]
    return 0
