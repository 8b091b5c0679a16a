"""Functions of the tile library that many kernels call, and that take longer to compile than a kernel.

Each part is an object of its own, compiled once on a machine and kept in the cache; units of generated code
declare its functions and are linked with it.
"""

from __future__ import annotations

from pto_wsp.support.record import record

_TILE = "const Tile<float>&"


@record
class Instances:
    """Instances of function templates.

    Attributes:
        header: where they are defined, without folder and suffix.
        functions: their declarations, in the namespace of the tile library.
    """

    header: str
    functions: tuple[str, ...]

    @property
    def declarations(self) -> list[str]:
        """The lines that leave the instances out of a unit."""
        return [f"extern template {function};" for function in self.functions]

    @property
    def source(self) -> str:
        """The unit that has the instances."""
        instances = [f"template {function};" for function in self.functions]
        head = ["// Compiled once, for all kernels.", f'#include "pto/wsp/tile/{self.header}.hpp"']
        space = ["namespace pto::wsp::tile {", *instances, "}  // namespace pto::wsp::tile", ""]
        return "\n".join(head + space)


def moves(storage: str) -> Instances:
    """Return the part that copies between views and tiles."""
    window, memory = f"const Window<{storage}>", f"{storage}*, int64_t"
    sizes = "int64_t, int64_t"
    return Instances(
        "move",
        (
            f"Tile<{storage}> copy({window}, {memory})",
            f"Tile<{storage}> bring_together({window}&, {memory})",
            f"void write({window}, const Tile<{storage}>)",
            f"bool moved_away({memory}, {sizes}, {memory}, const void*, int64_t, {sizes}, bool, bool)",
            f"Bits<{storage}> get_rest(const {storage}*, int64_t)",
            f"void put_rest({storage}*, const Bits<{storage}>, int64_t)",
        ),
    )


def turns(storage: str) -> Instances:
    """Return the part that transposes tiles."""
    tile = f"const Tile<{storage}>"
    return Instances(
        "move",
        (
            f"void transpose({storage}*, int64_t, {tile})",
            f"void write_turned(const Window<{storage}>&, {tile}&, {tile}&)",
        ),
    )


def folds(vector: str, storage: str, function: str) -> Instances:
    """Return the part that folds the lanes of many rows together."""
    return Instances("fold", (f"void fold_rows<{vector}, {storage}, {function}>({vector}*, {storage}*)",))


def packs(function: str, storage: str) -> Instances:
    """Return the part that puts a right operand of a product into panels."""
    return Instances("matmul", (f"Right<float> {function}(const Window<{storage}>&, float*)",))


def panel_product(function: str, left: str) -> Instances:
    """Return the product with a right operand in panels."""
    return Instances(
        "matmul", (f"void {function}({_TILE}, const {left}&, const Right<float>&, bool, const Ahead&)",)
    )


def tile_product(function: str, left: str, right: str, *, has_ahead: bool) -> Instances:
    """Return the product with a tile; `has_ahead` where something is prefetched meanwhile."""
    more = ", const Ahead&" if has_ahead else ""
    operands = f"{_TILE}, const {left}&, const Tile<{right}>&, bool, int64_t, float*{more}"
    return Instances("matmul", (f"void {function}({operands})",))


def stream_product(function: str, left: str, right: str) -> Instances:
    """Return the product with a right operand that is read where it lies."""
    return Instances(
        "stream", (f"void {function}({_TILE}, const {left}&, const Window<{right}>&, bool, Ahead)",)
    )


def integer_product(function: str, left: str) -> Instances:
    """Return the product of two tiles of i8."""
    operands = f"const Tile<int32_t>&, const {left}&, const Tile<int8_t>&, bool, uint32_t*"
    return Instances("integers", (f"void {function}({operands})",))


def quantised_product(function: str, left: str) -> Instances:
    """Return the product with blocks of a quantised matrix."""
    return Instances("quantised", (f"void {function}({_TILE}, const {left}&, const Tile<uint8_t>&, float*)",))
