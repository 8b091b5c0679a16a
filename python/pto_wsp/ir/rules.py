"""What the verifiers of kernels and workloads share."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.errors import InvalidIR
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Region
from pto_wsp.ir.scalar import Element
from pto_wsp.isa.forms import Form
from pto_wsp.isa.spaces import wrong_space
from pto_wsp.location import Location
from pto_wsp.types.dtype import DType, b1
from pto_wsp.types.space import TILE_SPACES, Space
from pto_wsp.types.tile import MAX_TILE_BYTES, TileType, ViewType


def require(condition: bool, message: str, loc: Location | None) -> None:
    """Raise InvalidIR at `loc` unless `condition` holds."""
    if not condition:
        raise InvalidIR(message=message, loc=loc)


def require_distinct(
    names: Sequence[str], loc: Location | None, message: str = "`{}` is declared twice"
) -> None:
    """Raise InvalidIR at the first name that is there twice."""
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise InvalidIR(message=message.format(twice), loc=loc)


def require_tile(name: str, tile: TileType, loc: Location | None) -> None:
    """Raise InvalidIR unless a tile has elements, and not more than any core could hold."""
    known = tile.space is None or tile.space in TILE_SPACES
    require(known, f"`{name}` is {tile}: a tile lies in {_listed(TILE_SPACES)}", loc)
    sound = tile.rows > 0 < tile.cols and tile.num_bytes <= MAX_TILE_BYTES
    require(sound, f"`{name}` is {tile}: a tile has elements, of at most {MAX_TILE_BYTES} bytes", loc)


def require_space(
    op: str, form: Form, names: Sequence[str], tiles: Sequence[TileType], loc: Location | None
) -> None:
    """Raise InvalidIR unless an instruction works on the memories of its tiles, the result first."""
    found = wrong_space(op, form, [tile.space for tile in tiles])
    if found is not None:
        number, known = found
        space = tiles[number].space
        assert space is not None
        raise InvalidIR(
            message=f"`{op}` takes `{names[number]}` in {_listed(known)}, not in `{space.value}`", loc=loc
        )


def _listed(spaces: Sequence[Space]) -> str:
    return " or ".join(f"`{space.value}`" for space in spaces)


def call_left(name: str, loc: Location | None) -> InvalidIR:
    """Return the error that a call of `name` has come to where only inlined functions can be."""
    return InvalidIR(message=f"the call of `{name}` is not inlined", loc=loc)


def require_element(node: Element, rank: int, dtype: DType, loc: Location | None) -> None:
    """Raise InvalidIR unless `node` is an element of a tensor of integers or truth values of that rank."""
    require(len(node.indices) == rank, f"`{node.name}` has {rank} dimensions", loc)
    require(dtype.is_integer or dtype is b1, f"elements of `{node.name}` are not integers", loc)


def region_rank(region: Region) -> int:
    """Return the number of dimensions of the view that a region makes."""
    return len(region.kept)


def view_rank_and_dtype(param: k.Param) -> tuple[int, DType]:
    """Return the rank and element type of a specialised tensor parameter."""
    match param.type:
        case TileType(dtype=dtype):
            return 2, dtype
        case ViewType(dtype=dtype, dims=dims) if dims is not None and dtype is not None:
            return len(dims), dtype
        case _:
            raise InvalidIR(message=f"parameter `{param.name}` is not specialised", loc=param.loc)
