"""Which memories instructions work on."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.isa.forms import PRODUCTS, Form
from pto_wsp.types.space import Space

_PRODUCT = ((Space.L0C,), (Space.L0A,), (Space.L0B,))
_OPERANDS: dict[Form, tuple[tuple[Space, ...], ...]] = {
    Form.LOAD: ((Space.UB, Space.L1),),
    Form.GATHER: ((Space.UB, Space.L1), (Space.UB,)),
    Form.STORE: ((Space.UB, Space.L1, Space.L0C),),
    Form.SCATTER: ((Space.UB, Space.L1, Space.L0C), (Space.UB,)),
    Form.MATMUL: _PRODUCT,
    Form.MATMUL_ACC: ((Space.L0C,), (Space.L0C,), (Space.L0A,), (Space.L0B,)),
    Form.MATMUL_BIAS: (*_PRODUCT, (Space.L1,)),
    Form.MATMUL_QUANTISED: ((Space.L0C,), (Space.L0C,), (Space.L0A,), (Space.L0B,)),
}
"""Memories of the tiles of a form: of its result, if it has one, then of its operands. Others work on UB."""

_MOVES = ("mov",)
"""Rows that move tiles from any memory to any other."""


def wrong_space(op: str, form: Form, spaces: Sequence[Space | None]) -> tuple[int, tuple[Space, ...]] | None:
    """Return the first tile of an instruction that is in a memory that it does not work on, or None.

    Args:
        op: its row.
        form: the row's form.
        spaces: where its tiles are, the result first; None where that is left open.

    Returns:
        The number of the tile, and the memories that it can be in.
    """
    if op in _MOVES:
        return None
    allowed = _OPERANDS.get(form, ((Space.UB,),) * len(spaces))
    assert form not in PRODUCTS or len(allowed) == len(spaces)
    pairs = enumerate(zip(spaces, allowed, strict=True))
    return next(((n, known) for n, (space, known) in pairs if space is not None and space not in known), None)
