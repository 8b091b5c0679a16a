"""Ranges of one row, which count from 0, do not index a dimension that packs all rows."""

from __future__ import annotations

from collections.abc import Iterator

from pto_wsp.errors import BadIndex
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Range, Region, TileRange
from pto_wsp.ir.scalar import Binary, Const, Element, Expr, walk


def require_packed_ranges(entry: w.WorkloadFunction) -> None:
    """Refuse `X[t]` for a range `t` of `P.tiles(kv[b], n)` where rows of `kv` are packed in this dimension.

    Which dimensions are packed follows from the regions that begin at an offset of the axis, `Y[kv[b]]`.

    Raises:
        BadIndex: at the argument. `X[kv[b][t]]` is the part of the row.
    """
    offsets = {axis.offsets: axis.name for axis in entry.params if isinstance(axis, w.RaggedParam)}
    if not offsets:
        return
    sizes = {tensor.name: tensor.type.dims for tensor in entry.tensors}
    regions = [arg for node in w.walk_nodes(entry.body) if isinstance(node, w.Task) for arg in node.args]
    packed = {
        (name, size)
        for region in regions
        if isinstance(region, Region)
        for dim, size in zip(region.dims, sizes[region.tensor], strict=True)
        if isinstance(dim, Range) and isinstance(size, str)
        for name in _elements(dim.start)
    }
    loops = [node for node in w.walk_nodes(entry.body) if isinstance(node, w.Loop) and node.tile is not None]
    rows = {loop.var: (name, loop.called) for loop in loops if (name := _length_of(loop.extent)) in offsets}
    for region in regions:
        if isinstance(region, Region):
            _require(region, sizes[region.tensor], rows, packed, offsets)


def _require(
    region: Region,
    dims: tuple[int | str | None, ...],
    rows: dict[str, tuple[str, str]],
    packed: set[tuple[str, str]],
    offsets: dict[str, str],
) -> None:
    for dim, size in zip(region.dims, dims, strict=True):
        if not isinstance(dim, TileRange) or dim.loop not in rows or not isinstance(size, str):
            continue
        tensor, called = rows[dim.loop]
        if (tensor, size) in packed:
            raise BadIndex(
                tensor=region.tensor,
                expected=f"a range of `{size}`, which holds all rows of `{offsets[tensor]}`",
                found=f"`{called}`, which counts from 0 in each row",
                loc=region.loc,
                hint=f"write `{region.tensor}[{offsets[tensor]}[...][{called}]]`; "
                f"`slice({called}.start, {called}.stop)` is a range of the whole dimension",
            )


def _length_of(expr: Expr) -> str:
    """Return the name of the tensor whose elements i + 1 and i differ by `expr`, or an empty name."""
    match expr:
        case Binary(
            op="sub",
            a=Element(name=name, indices=(Binary(op="add", a=row, b=Const(value=1)),)),
            b=Element(name=first, indices=(i,)),
        ) if (name, row) == (first, i):
            return name
        case _:
            return ""


def _elements(expr: Expr) -> Iterator[str]:
    return (part.name for part in walk(expr) if isinstance(part, Element))
