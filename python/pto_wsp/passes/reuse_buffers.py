"""Let tiles of one type that are not in use together be one tile.

    %a = texp %x : T                %a = texp %x : T
    %b = tneg %a : T          ->    %a = tneg %a : T
    %c = tadd %b, %b : T            %a = tadd %a, %a : T

Targets share memory between tiles of all types, by the same lifetimes (`analysis/buffers.py`); this is for
those, and for readers, that go by names. With `capacity`, tiles that are in use together and do not fit so
many bytes are refused.
"""

from __future__ import annotations

from pto_wsp.analysis.buffers import buffer_use, first_writes, tile_spans
from pto_wsp.errors import TilesTooLarge
from pto_wsp.ir import kernel as k
from pto_wsp.ir.module import Module
from pto_wsp.ir.names import KernelRenaming
from pto_wsp.support.record import replace


def reuse_buffers(module: Module, capacity: int = 0) -> Module:
    """Return `module` with as few tiles as lifetimes allow.

    Args:
        module: a verified module.
        capacity: bytes of tiles that a core has room for, or 0 for any number.

    Raises:
        TilesTooLarge: more are in use together in some kernel.
    """
    kernels = [kernel if kernel.body is None else _reuse(kernel) for kernel in module.kernels]
    if capacity:
        for kernel in kernels:
            require_room(kernel, capacity)
    return module.with_kernels(kernels)


def _reuse(kernel: k.KernelFunction) -> k.KernelFunction:
    spans = tile_spans(kernel)
    types = dict(kernel.tiles)
    names: dict[str, str] = {}
    ends: dict[str, int] = {}
    for tile in sorted(spans, key=lambda tile: spans[tile]):
        first, last = spans[tile]
        free = (other for other, end in ends.items() if end < first and types[other] == types[tile])
        home = next(free, tile)
        names[tile], ends[home] = home, last
    tiles = tuple((name, kind) for name, kind in kernel.tiles if names.get(name, name) == name)
    return replace(kernel, tiles=tiles, body=KernelRenaming(tiles=names).statements(kernel.body or ()))


def require_room(kernel: k.KernelFunction, capacity: int) -> None:
    """Raise TilesTooLarge unless the tiles of a kernel that are in use together fit `capacity` bytes."""
    use = buffer_use(kernel)
    if use.shared <= capacity:
        return
    places = first_writes(kernel)
    live = ", ".join(f"`{tile}` ({size})" for tile, size in use.peak)
    notes = [(f"`{tile}`, {size} bytes, is made here", places.get(tile)) for tile, size in use.peak]
    raise TilesTooLarge(
        kernel=kernel.name, needed=use.shared, capacity=capacity, live=live, loc=kernel.loc, notes=notes
    )
