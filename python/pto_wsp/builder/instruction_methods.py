"""The methods of a builder that follow from the tables: one for each instruction and composition on tiles.

`instruction_methods.pyi` lists them for editors and type checkers; `make docs` writes it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pto_wsp.builder.names import require_name
from pto_wsp.builder.operands import methods, option_names
from pto_wsp.builder.steps import Operand, TileStep
from pto_wsp.isa.compositions import COMPOSITIONS
from pto_wsp.location import Location

T = TypeVar("T", bound="InstructionMethods")


class InstructionMethods:
    """A method for each instruction on tiles, called by its row in the table: `add(dst, a, b)`."""

    @abstractmethod
    def _step(self: T, step: Any) -> T:
        """Record a step."""

    @abstractmethod
    def _here(self, method: str) -> Location:
        """Return the place of the call of a method."""


def _method(name: str, row: str, count: int, names: Sequence[str], doc: str) -> Callable[..., object]:
    """Return the method of a row or composition: its operands, then its options in order or by name."""

    def method(self: T, dst: str, *operands: Operand, **options: Any) -> T:
        loc = self._here(name)
        require_name(name, dst, loc)
        if count < len(operands) <= count + len(names):
            options |= dict(zip(names, operands[count:], strict=False))
            operands = operands[:count]
        return self._step(TileStep(row, name, dst, operands, options, loc))

    method.__name__ = name
    method.__qualname__ = f"PTOFunctionBuilder.{name}"
    method.__doc__ = doc
    return method


for _name, _row in methods().items():
    _count = _row.form.num_tiles + _row.form.num_scalars
    setattr(InstructionMethods, _name, _method(_name, _row.name, _count, option_names(_row.form), _row.doc))
for _name, _composed in COMPOSITIONS.items():
    if not _composed.stores:
        _options = ("rmode",) if _composed.rounds else ()
        _made = _method(_name, _name, len(_composed.operands), _options, _composed.doc)
        setattr(InstructionMethods, _name, _made)
