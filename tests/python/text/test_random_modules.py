"""The random modules say all that modules can."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import get_args

from pto_wsp.ir import core, scalar
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.isa.attributes import ATTRIBUTES, MODES
from pto_wsp.isa.table import TABLE
from tests.generators.modules import random_module
from tests.python.targets.test_random_kernels import row_of

NUM_MODULES = 400
"""With the seeds below it, everything is in some module."""
KINDS = (
    *get_args(k.Stmt),
    *get_args(w.Node),
    *get_args(w.WorkloadParam),
    *(kind for kind in get_args(scalar.Expr) if kind is not scalar.FlushValue),
    *get_args(core.DimSelect),
)


def parts(node: object) -> Iterator[object]:
    """Yield a record and everything in it."""
    if isinstance(node, tuple):
        for part in node:
            yield from parts(part)
    elif hasattr(type(node), "__match_args__"):
        yield node
        yield from parts(tuple(vars(node).values()))


def test_everything_is_in_some_module() -> None:
    """What is new in the IR or the table needs a place in `tests/generators/modules.py`."""
    kinds: set[type] = set()
    said: set[object] = set()
    for seed in range(NUM_MODULES):
        for part in parts(random_module(random.Random(seed))):
            kinds.add(type(part))
            match part:
                case k.Instr(attrs=attrs):
                    said |= {
                        row_of(part),
                        *(key for key, _ in attrs),
                        *(v for _, v in attrs if isinstance(v, str)),
                    }
                case k.Load() | k.Store():
                    said.add(row_of(part))
                case scalar.Binary(op=op) | scalar.Unary(op=op):
                    said.add(op)
                case w.Task(after=after):
                    said |= {"after"} if after else set()
    assert kinds >= set(KINDS), set(KINDS) - kinds
    words = {*TABLE, *ATTRIBUTES, *(word for words in MODES.values() for word in words), "after"}
    words |= {*scalar.BINARY_OPS, *scalar.UNARY_CALLS, "neg"}
    assert said >= words, words - said
