"""The operands that a row of the instruction table takes in a builder, and the tiles that it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pto_wsp.builder.names import CompareMode
from pto_wsp.builder.steps import TileStep
from pto_wsp.errors import BadOperand, UnknownName
from pto_wsp.ir.kernel import AttrValue
from pto_wsp.isa import TABLE, Form, FormError, Instruction, result_type
from pto_wsp.isa.attributes import CONSTANTS, EXTENTS, MODES, PLACES
from pto_wsp.isa.compositions import COMPOSITIONS
from pto_wsp.isa.meaning import ROUND_MODES
from pto_wsp.lang.kernel.builder import Site, mismatch
from pto_wsp.location import Location
from pto_wsp.types.tile import TileType

MOVES = frozenset({Form.LOAD, Form.STORE, Form.GATHER, Form.SCATTER})
"""Forms of instructions on memory, which are methods of their own."""

SIZED_BY_DESTINATION = frozenset({Form.FILL, Form.IOTA, Form.CONVERT, *EXTENTS})
"""Forms whose result the operands do not decide: the destination is declared."""


def methods() -> dict[str, Instruction]:
    """Return the row of every method for an instruction on tiles."""
    return {row.name: row for row in TABLE.values() if row.form not in MOVES}


def option_names(form: Form) -> tuple[str, ...]:
    """Return the options that a method also takes after its operands, in order."""
    return (*CONSTANTS.get(form, ()), *PLACES.get(form, ()))


def constants_of(step: TileStep) -> tuple[tuple[str, AttrValue], ...]:
    """Return the attributes of an instruction: comparison modes, transposed operands and the like.

    Raises:
        BadOperand: an option that the instruction does not have, or none where it needs one.
    """
    form = TABLE[step.row].form
    known = CONSTANTS.get(form, {})
    unknown = [name for name in step.options if name not in known and name not in _extents(form)]
    if unknown:
        names = [*known, *_extents(form)]
        raise _bad(step, "one of " + ", ".join(names) if names else "no options", f"`{unknown[0]}`")
    found: list[tuple[str, AttrValue]] = []
    for name, (kind, default) in known.items():
        value, modes = step.options.get(name, default), MODES.get(name)
        value = value if modes is None else _word(value)
        is_known = modes is None or value in modes or (value == default and name not in step.options)
        if type(value) is not kind or not is_known:
            expected = f"a {kind.__name__}" if modes is None else "one of " + ", ".join(modes)
            raise _bad(step, f"`{name}`: {expected}", "none" if value is None else repr(value))
        assert isinstance(value, (bool, int, str))
        if value is not False and value != "":
            found.append((name, value))
    return tuple(found)


def _extents(form: Form) -> tuple[str, ...]:
    return (*EXTENTS.get(form, ()), *PLACES.get(form, ()))


def _word(value: object) -> object:
    if isinstance(value, CompareMode):
        return value.value
    return value.lower() if isinstance(value, str) else value


def made_type(step: TileStep, tiles: Sequence[TileType], attrs: Mapping[str, object]) -> TileType:
    """Return the type of the undeclared destination that an instruction declares.

    Raises:
        UnknownName: its operands do not decide it.
        ShapeMismatch, DTypeMismatch: they do not fit the instruction.
    """
    row = TABLE[step.row]
    if row.form in SIZED_BY_DESTINATION:
        advice = f'declare it first: `.tile("{step.dst}", rows, cols)`; `.{step.method}` makes any shape'
        raise UnknownName(name=step.dst, where="this function", advice=advice, loc=step.loc)
    try:
        return result_type(row.form, tiles, attrs)
    except FormError as error:
        raise mismatch(error, Site(step.loc, step.method)) from None


def require_count(step: TileStep) -> None:
    """Raise BadOperand unless an instruction has its operands; `matmul_acc` counts its accumulator."""
    if step.row in COMPOSITIONS:
        wanted = len(COMPOSITIONS[step.row].operands)
    else:
        form = TABLE[step.row].form
        wanted = form.num_tiles + form.num_scalars
    if len(step.operands) != wanted:
        raise _bad(step, f"{wanted} operands after the destination", str(len(step.operands)))


def require_decided(step: TileStep) -> None:
    """Raise UnknownName where the operands of a composition do not decide its undeclared destination."""
    if COMPOSITIONS[step.row].rounds:
        advice = f'declare it first: `.tile("{step.dst}", rows, cols, dtype)` says what `{step.method}` makes'
        raise UnknownName(name=step.dst, where="this function", advice=advice, loc=step.loc)


def rounding(method: str, rmode: object, loc: Location) -> str:
    """Return how a composition rounds; empty where that is not said."""
    if isinstance(rmode, str) and rmode.lower() in ("", *ROUND_MODES):
        return rmode.lower()
    expected = "`rmode`: one of " + ", ".join(ROUND_MODES)
    raise BadOperand(op=method, expected=expected, found=repr(rmode), loc=loc)


def unknown_tile(name: object, where: str, known: Sequence[str], loc: Location | None) -> UnknownName:
    """Return the error of a tile that nothing has declared or written."""
    shown = ", ".join(f"`{n}`" for n in known) or "none"
    advice = f"tiles so far: {shown}; a tile is declared by `.tile(...)`, `.load(...)` or its first write"
    return UnknownName(name=name, where=where, advice=advice, loc=loc)


def _bad(step: TileStep, expected: str, found: str) -> BadOperand:
    return BadOperand(op=step.method, expected=expected, found=found, loc=step.loc)
