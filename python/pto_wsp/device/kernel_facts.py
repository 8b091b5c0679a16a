"""What a kernel needs of a device, whatever the shapes of a call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import assert_never

from pto_wsp.analysis.buffers import buffer_use
from pto_wsp.device.model import CoreKind, Device
from pto_wsp.errors import NoCost
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Range
from pto_wsp.ir.native_cycles import native_cycles
from pto_wsp.ir.scalar import Const, Expr, Var, walk
from pto_wsp.isa.forms import PRODUCTS, Form, factors
from pto_wsp.isa.table import TABLE
from pto_wsp.types.space import Space
from pto_wsp.types.tile import TileType


def reading_spaces(kernel: k.KernelFunction) -> dict[str, frozenset[Space]]:
    """Return the memories from which each tile of a kernel is read."""
    read: dict[str, set[Space]] = {name: set() for name, _ in kernel.tiles}
    for stmt in k.walk_statements(kernel.body or ()):
        if isinstance(stmt, (k.Load, k.Store, k.Prefetch)) and stmt.rows is not None:
            read[stmt.rows].add(Space.UB)
        elif isinstance(stmt, k.Instr):
            form = TABLE[stmt.op].form
            if form in PRODUCTS:
                for tile, space in factor_spaces(form, stmt.tiles):
                    read[tile].add(space)
            elif form is Form.MATMUL_QUANTISED:
                for tile, space in zip(stmt.tiles, (Space.UB, Space.L0A, Space.UB), strict=True):
                    read[tile].add(space)
            else:
                for tile in stmt.tiles:
                    read[tile].add(Space.UB)
    return {name: frozenset(spaces) for name, spaces in read.items()}


def factor_spaces(form: Form, tiles: Sequence[str]) -> list[tuple[str, Space]]:
    """Return the memories that a product reads its operands from."""
    a, b = factors(form, tiles)
    places = [(a, Space.L0A), (b, Space.L0B)]
    if form is Form.MATMUL_ACC:
        places.append((tiles[0], Space.L0C))
    elif form is Form.MATMUL_BIAS:
        places.append((tiles[2], Space.L1))
    return places


L0_ROWS, L0_ROW_BYTES = 16, 32
"""A tile in L0 is whole blocks: rows of a block, and bytes of a row."""


def terms_dims(kernel: k.KernelFunction) -> list[tuple[str, int]]:
    """Return the factors of the products of a kernel, and the dimension along which products are summed."""
    found: dict[tuple[str, int], None] = {}
    for stmt in k.walk_statements(kernel.body or ()):
        if isinstance(stmt, k.Instr) and (form := TABLE[stmt.op].form) in PRODUCTS:
            a, b = factors(form, stmt.tiles)
            found[a, 0 if stmt.attr("trans_a") else 1] = found[b, 1 if stmt.attr("trans_b") else 0] = None
    return [*found]


def terms_that_fit(tile: TileType, terms_dim: int, l0_bytes: int) -> int:
    """Return how many terms of a factor fit half of its L0 memory, in whole blocks; 0 if none do."""
    size = tile.dtype.itemsize
    unit = max(L0_ROWS, L0_ROW_BYTES // size)
    other = -(-tile.shape[1 - terms_dim] // unit) * unit
    return l0_bytes // 2 // (other * size) // unit * unit


def terms_of_parts(kernel: k.KernelFunction, kinds: Sequence[CoreKind]) -> int:
    """Return how many terms of a product move to L0 at a time, 0 for all. Moves overlap products."""
    types, l0 = dict(kernel.tiles), (Space.L0A, Space.L0B)
    sizes = [kind.memories[space] for kind in kinds for space in l0 if space in kind.memories]
    return min((terms_that_fit(types[t], dim, n) for t, dim in terms_dims(kernel) for n in sizes), default=0)


def tile_places(kernel: k.KernelFunction) -> dict[Space, dict[str, bool]]:
    """Return the tiles that lie in UB, L1 and L0C at some time, and whether each is loaded there."""
    uses = reading_spaces(kernel)
    found: dict[Space, dict[str, bool]] = {space: {} for space in (Space.UB, Space.L1, Space.L0C)}
    for stmt in k.walk_statements(kernel.body or ()):
        if isinstance(stmt, k.Load):
            for space in load_targets(uses[stmt.tile]):
                found[space][stmt.tile] = True
        elif isinstance(stmt, k.Instr):
            is_product = TABLE[stmt.op].form in PRODUCTS or clears_sum(stmt, uses)
            found[Space.L0C if is_product else Space.UB].setdefault(stmt.dst, False)
    for tile, read in uses.items():
        if Space.UB in read:
            found[Space.UB].setdefault(tile, False)
        if read & {Space.L0A, Space.L0B, Space.L1}:
            found[Space.L1].setdefault(tile, False)
    return found


def load_targets(read: frozenset[Space]) -> tuple[Space, ...]:
    """Return where a load puts a tile: UB for vector work, L1 for products.

    Args:
        read: the memories that the tile is read from.
    """
    spaces = [Space.UB] if read & {Space.UB, Space.L0C} or not read else []
    return (*spaces, Space.L1) if read & {Space.L0A, Space.L0B, Space.L1} else tuple(spaces)


def too_large(kernel: k.KernelFunction, device: Device, num_buffers: int) -> tuple[Space, int, int] | None:
    """Return a memory that the tiles of a kernel do not fit, the bytes that they take, and its size.

    Args:
        kernel: a verified kernel.
        device: where it runs.
        num_buffers: buffers of each tile that is loaded.
    """
    kinds = core_kinds(kernel, device)
    for space, tiles in tile_places(kernel).items():
        sizes = [kind.memories[space] for kind in kinds if space in kind.memories]
        copies = {tile: num_buffers if is_loaded else 1 for tile, is_loaded in tiles.items()}
        taken = buffer_use(kernel, copies).shared
        if sizes and taken > max(sizes):
            return space, taken, max(sizes)
    return None


def buffers_that_fit(kernel: k.KernelFunction, device: Device) -> int:
    """Return how many buffers each tile that is loaded has: 2 where these fit a core, or 1."""
    return 1 if too_large(kernel, device, 2) else 2


def clears_sum(instr: k.Instr, uses: Mapping[str, frozenset[Space]]) -> bool:
    """Return whether an instruction only clears a sum of products: the first product overwrites it.

    Args:
        instr: any instruction.
        uses: the memories that each tile is read from.
    """
    is_zero = instr.op == "expands" and isinstance(value := instr.scalars[0], Const) and value.value == 0
    return is_zero and uses[instr.dst] == {Space.L0C}


def core_kinds(kernel: k.KernelFunction, device: Device) -> tuple[CoreKind, ...]:
    """Return the kinds of cores that a kernel takes.

    Raises:
        NoCost: the device has no core of such a kind.
    """
    has_products, has_others = units_of_work(kernel)
    units: tuple[str, ...]
    match kernel.unit:
        case "any":
            units = ("cube",) * has_products + ("vector",) * (has_others or not has_products)
        case "mixed":
            units = ("cube", "vector")
        case unit:
            units = (unit, *(("vector",) if unit == "cube" and has_others else ()))
            units += ("cube",) if unit == "vector" and has_products else ()
    kinds: list[CoreKind] = []
    for unit in units:
        kind = device.by_unit.get(unit)
        if kind is None:
            raise NoCost(
                kernel=kernel.name,
                device=device.name,
                reason=f"no core of the device runs kernels of unit `{unit}`",
                advice="choose another device, or add the unit to a kind of core",
                loc=kernel.loc,
            )
        if kind not in kinds:
            kinds.append(kind)
    return tuple(kinds)


def units_of_work(kernel: k.KernelFunction) -> tuple[bool, bool]:
    """Return whether a kernel has work for the cube, and whether it has work for a vector core."""
    uses, statements = reading_spaces(kernel), list(k.walk_statements(kernel.body or ()))
    instrs = [s for s in statements if isinstance(s, k.Instr) and not clears_sum(s, uses)]
    forms = {TABLE[instr.op].form for instr in instrs}
    loaded = {s.tile for s in statements if isinstance(s, k.Load)}
    adds_to_loaded = any(TABLE[s.op].form is Form.MATMUL_ACC and s.tiles[0] in loaded for s in instrs)
    return bool(forms & {*PRODUCTS, Form.MATMUL_QUANTISED}), bool(forms - PRODUCTS) or adds_to_loaded


def is_stated(kernel: k.KernelFunction) -> bool:
    """Return whether a user states the cost of a kernel."""
    return kernel.cost is not None or native_cycles(kernel) is not None


def scalars_that_matter(kernel: k.KernelFunction) -> tuple[bool, ...]:
    """Return, for each scalar parameter, whether the cost of a call depends on it.

    It does if the parameter has a part in a condition, in the bounds of a loop, or in the extent of a region
    or tile.
    """
    if kernel.cost is not None:
        asked = inspect.signature(kernel.cost).parameters
        return tuple(p.name in asked for p in kernel.scalar_params)
    if (stated := native_cycles(kernel)) is not None:
        return tuple(p.name in stated.names for p in kernel.scalar_params)
    reached: set[str] = set()
    defined: dict[str, set[str]] = {}
    for stmt in k.walk_statements(kernel.body or ()):
        reached |= _names_of_shape(stmt)
        if isinstance(stmt, k.Assign):
            defined.setdefault(stmt.name, set()).update(_names(stmt.value))
        elif isinstance(stmt, k.For):
            defined.setdefault(stmt.var, set()).update(_names(stmt.start))
    while True:
        more = {name for known in reached for name in defined.get(known, ())} - reached
        if not more:
            return tuple(p.name in reached for p in kernel.scalar_params)
        reached |= more


def _names_of_shape(stmt: k.Stmt) -> set[str]:
    """Return the scalars by which a statement decides what runs, or how large tiles are."""
    exprs: list[Expr] = []
    match stmt:
        case k.For(start=start, stop=stop):
            exprs += (start, stop)
        case k.If(condition=condition) | k.While(condition=condition):
            exprs.append(condition)
        case k.Load(region=region) | k.Store(region=region):
            exprs += (dim.extent for dim in region.dims if isinstance(dim, Range))
        case k.Instr():
            asked = (stmt.attr("rows"), stmt.attr("cols"))
            exprs += (value for value in asked if isinstance(value, Expr))
        case k.Assign() | k.Prefetch() | k.Print() | k.Assert() | k.KernelCall():
            pass
        case _:
            assert_never(stmt)
    return set().union(*map(_names, exprs))


def _names(expr: Expr) -> set[str]:
    return {part.name for part in walk(expr) if isinstance(part, Var)}
