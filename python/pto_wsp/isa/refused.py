"""Instructions of the PTO ISA without a row in the table, and their replacements."""

from __future__ import annotations

REFUSED: dict[str, str] = {
    "tassign": "no value depends on it: each target decides where tiles are placed; leave it out",
    "tsync": "no value depends on it: targets order instructions by what they read and write; leave it out",
    "getval": "an element of a tile is a scalar: `s = t[i, j]`",
    "sload": "an element of an integer input is a scalar: `x[i, j]`",
    "sstore": "store a filled tile of one element: `texpands`, then `tstore`",
}
"""By mnemonic, what to write instead."""
