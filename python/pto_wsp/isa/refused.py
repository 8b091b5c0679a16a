"""Instructions of the PTO ISA that are no rows of the table, and what stands in their place."""

from __future__ import annotations

REFUSED: dict[str, str] = {
    "tassign": "places of tiles are chosen by each target; write to a tile to give it a value",
    "tsync": "what waits for what follows from what instructions read and write",
    "tmov.fp": "scale with `rowexpandmul` or `colexpandmul`, then convert with `tcvt`",
    "tstore.fp": "scale with `rowexpandmul` or `colexpandmul`, convert with `tcvt`, then store",
    "tmatmul.mx": "there are no 4- and 8-bit floats; multiply scaled operands with `tmatmul`",
    "tgatherb": "tiles have no byte addresses; `tgather` picks elements of rows by their index",
    "getval": "an element of a tile is a scalar: `s = t[i, j]`",
    "sload": "an element of an integer input is a scalar: `x[i, j]`",
    "sstore": "store a filled tile of one element: `texpands`, then `tstore`",
}
"""By mnemonic, what to write instead."""
