"""Types that follow an instruction in the forms of `.pto` text of elsewhere.

These types repeat facts that other lines state. They are compared with the types of the built function,
because the builder infers the types of some tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pto_wsp.builder.function import PTOFunctionBuilder
from pto_wsp.builder.names import scalar_dtype
from pto_wsp.builder.steps import Operand
from pto_wsp.errors import TextMismatch
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Expr, Var
from pto_wsp.isa.table import Instruction
from pto_wsp.location import Location
from pto_wsp.support.record import record, replace
from pto_wsp.text.expressions import tile_type
from pto_wsp.text.foreign.scalars import TYPES, ForeignScalars
from pto_wsp.text.tokens import TYPE, WORD, Cursor, Token
from pto_wsp.types.dtype import DType
from pto_wsp.types.tile import TileType

_PLACES = ("index", "idx")
_KINDS = ("memref", "tile")


@record
class _Claim:
    """The text says that a tile or scalar of a statement has a type.

    Attributes:
        tiles: the tiles that can be meant.
        scalars: types of the scalars that can be meant.
    """

    tiles: tuple[str, ...]
    scalars: tuple[DType, ...]
    written: TileType | DType
    loc: Location


class ForeignTypes(ForeignScalars):
    """Reads the types of instructions."""

    def __init__(self, builder: PTOFunctionBuilder, is_workload: bool) -> None:
        super().__init__(builder, is_workload)
        self.claims: list[_Claim] = []

    def signature(
        self,
        cursor: Cursor,
        operands: Sequence[Operand],
        dst: str | None,
        row: Instruction | None = None,
        memref: str | None = None,
    ) -> None:
        """Read `: types` or `: types -> type`; a new destination is declared with its type.

        Args:
            cursor: at the colon, or at the end of the statement.
            operands: names of tiles, and expressions.
            dst: the tile that the statement writes.
            row: the row of the instruction, None for moves.
            memref: the memref of the statement.
        """
        if not cursor.accept(":"):
            return
        taken = self.type_list(cursor, memref)
        has_result = cursor.accept("->")
        given = self.type_list(cursor, memref) if has_result else []
        last = (given or taken or [None])[-1]
        is_decided = row is not None and row.form.num_tiles > 0
        if dst is not None and dst not in self.tiles and not is_decided and last is not None:
            self.declare_result(cursor, dst, last)
        names = tuple(operand for operand in operands if isinstance(operand, str))
        scalars = tuple(map(self.operand_dtype, (o for o in operands if not isinstance(o, str))))
        whole = names if dst is None else (*names, dst)
        for token in taken:
            self.claim(cursor, token, whole, scalars)
        for token in given:
            self.claim(cursor, token, whole if dst is None else (dst,), scalars)

    def operand_dtype(self, operand: Operand) -> DType:
        """Return the type of a scalar operand: the declared one, or that of the expression."""
        assert isinstance(operand, Expr)
        dtype = operand.dtype
        return self.scalars.get(operand.name, dtype) if isinstance(operand, Var) else dtype

    def type_list(self, cursor: Cursor, memref: str | None) -> list[Token]:
        """Read types, which may be in parentheses; check those of the memref."""
        has_parentheses = cursor.accept("(")
        found: list[Token] = []
        while not (has_parentheses and not found and cursor.at(")")):
            token = cursor.token
            is_memref = token.text == "memref" or token.text.startswith("!pto.memref")
            if token.kind != TYPE and not (token.kind == WORD and token.text in (*TYPES, *_KINDS)):
                cursor.fail("a type")
            if is_memref and memref is None:
                cursor.fail("the type of a tile: the statement has no memref")
            found.append(cursor.advance())
            if token.kind == TYPE and is_memref:
                assert memref is not None
                self.require_memref(cursor, token, memref)
            if not cursor.accept(","):
                break
        if has_parentheses:
            cursor.expect(")")
        return found

    def require_memref(self, cursor: Cursor, token: Token, name: str) -> None:
        """Refuse a type of a memref that contradicts its declaration."""
        declared, written = self.memrefs.get(name), self.memref_type(cursor, token)
        if declared is None or token.text == "!pto.memref":
            return
        same_sizes = None in (declared.sizes, written.sizes) or declared.sizes == written.sizes
        if not same_sizes or replace(written, sizes=declared.sizes) != declared:
            what, place = f"the type of `{name}`", cursor.place(token)
            raise TextMismatch(what=what, found=token.text, expected=declared.text, advice="", loc=place)

    def claim(self, cursor: Cursor, token: Token, tiles: tuple[str, ...], scalars: tuple[DType, ...]) -> None:
        """Keep a type of a tile or scalar for the comparison with the built function."""
        if token.text in (*_PLACES, *_KINDS) or token.text.startswith("!pto.memref"):
            return
        written = tile_type(cursor, token) if token.kind == TYPE else TYPES[token.text]
        self.claims.append(_Claim(tiles, scalars, written, cursor.place(token)))

    def declare_result(self, cursor: Cursor, dst: str, token: Token) -> None:
        """Declare the destination of a load or of an instruction whose operands do not decide its type."""
        if token.kind == TYPE and token.text.startswith("!pto.tile"):
            self.declare_tile(cursor, dst, tile_type(cursor, token))

    def require_claims(self, function: k.KernelFunction | w.WorkloadFunction) -> None:
        """Refuse types in the text that the built function does not have."""
        types = dict(function.tiles) if isinstance(function, k.KernelFunction) else {}
        for claim in self.claims:
            _require(claim, types)


def _require(claim: _Claim, types: Mapping[str, TileType]) -> None:
    tiles = [types[name] for name in claim.tiles if name in types]
    written = claim.written
    if isinstance(written, TileType):
        is_sound = any(written in (tile, replace(tile, space=None)) for tile in tiles)
        kind, found, expected = "tile", f"!pto.{written}", [f"!pto.{tile}" for tile in tiles]
    else:
        dtypes = [*claim.scalars, *(tile.dtype for tile in tiles)] if claim.scalars else []
        is_sound = any(written in (dtype, scalar_dtype(dtype)) for dtype in dtypes)
        kind, found, expected = "scalar", str(written), [str(dtype) for dtype in dtypes]
    if not is_sound:
        listed = " or ".join(sorted({*expected})) or f"without a {kind}"
        what = f"the type of a {kind} here"
        raise TextMismatch(what=what, found=found, expected=listed, advice="", loc=claim.loc)
