"""The random kernels say all that kernels can."""

from __future__ import annotations

import random

from pto_wsp.ir import kernel as k
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.isa.table import TABLE
from tests.generators.kernels import random_kernel


def row_of(stmt: k.Stmt) -> str:
    """Return the row of the table that a statement is one of, or nothing."""
    match stmt:
        case k.Instr(op=op):
            return op
        case k.Load(rows=rows):
            return "load" if rows is None else "gather"
        case k.Store(rows=rows):
            return "store" if rows is None else "scatter"
        case _:
            return ""


def test_every_instruction_is_in_some_kernel() -> None:
    """A row that is new needs a place in `tests/generators/kernels.py`, unless its form has one."""
    found: set[str] = set()
    for seed in range(300):
        kernel = verify(Module("m", (random_kernel(random.Random(seed), "k", has_all=True),))).kernels[0]
        found |= {row_of(stmt) for stmt in k.walk_statements(kernel.body or ())}
    assert TABLE.keys() <= found, TABLE.keys() - found
