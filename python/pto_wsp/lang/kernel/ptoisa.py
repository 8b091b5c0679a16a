"""`ptoisa`: instructions as calls, destination first, on tiles that are declared; see `@ptoisa_kernel`.

There is one function per row of the instruction table and per composition, called by its mnemonic in upper
case: `TLOAD(tile, view)`, `TSTORE(view, tile)`, `TADD(dst, a, b)`, `TMATMUL_MX(dst, a, a_scale, b, b_scale)`.
"""

from __future__ import annotations

from typing import NoReturn

from pto_wsp.errors import OutsideWorkload, UnknownInstruction, did_you_mean
from pto_wsp.isa import TABLE, Instruction
from pto_wsp.isa.attributes import CONSTANTS, EXTENTS, PLACES
from pto_wsp.isa.compositions import COMPOSITIONS, Composition
from pto_wsp.isa.refused import REFUSED
from pto_wsp.lang.operands import Tile
from pto_wsp.location import caller_location
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType


@record
class PtoisaFunction:
    """An instruction as a function of a kernel; calling it outside of one is an error."""

    name: str
    row: Instruction | Composition

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Refuse: kernels are read, not executed."""
        raise OutsideWorkload(what=f"`ptoisa.{self.name}`", where="kernel", loc=caller_location())

    @property
    def keywords(self) -> tuple[str, ...]:
        """Names of the arguments that are given by name."""
        if isinstance(self.row, Composition):
            return ("rmode",) if self.row.rounds else ()
        form = self.row.form
        return (*CONSTANTS.get(form, ()), *EXTENTS.get(form, ()), *PLACES.get(form, ()))


def _name(row: Instruction | Composition) -> str:
    return row.mnemonic.upper().replace(".", "_")


FUNCTIONS: dict[str, PtoisaFunction] = {
    _name(row): PtoisaFunction(_name(row), row) for row in (*TABLE.values(), *COMPOSITIONS.values())
}


def tile(rows: int, cols: int, dtype: DType) -> Tile:
    """Declare a tile of `rows` x `cols` elements: a place that instructions write and read.

    Args:
        rows: its rows, a positive constant.
        cols: its columns, a positive constant.
        dtype: type of the elements.
    """
    raise OutsideWorkload(what="`ptoisa.tile`", where="kernel", loc=caller_location())


def unknown(name: str) -> str:
    """Return a hint for an instruction that does not exist."""
    instead = REFUSED.get(name.lower()) or REFUSED.get(name.lower().replace("_", "."))
    return instead or did_you_mean(name, (*FUNCTIONS, "tile"))


def __getattr__(name: str) -> PtoisaFunction:
    if name.startswith("__"):
        raise AttributeError(name)
    if name not in FUNCTIONS:
        raise UnknownInstruction(name=f"ptoisa.{name}", advice=unknown(name), loc=caller_location())
    return FUNCTIONS[name]


def __dir__() -> list[str]:
    return sorted((*FUNCTIONS, "tile"))
