"""Declarations, moves and instructions on tiles in the forms of `.pto` text of elsewhere."""

from __future__ import annotations

from pto_wsp.builder.function import PTOFunctionBuilder
from pto_wsp.builder.steps import Operand
from pto_wsp.errors import NoMeaning, RepeatedText
from pto_wsp.ir.scalar import Expr, Extent, Var
from pto_wsp.isa.attributes import ATTRIBUTES, PLACES
from pto_wsp.isa.compositions import BY_COMPOSED_MNEMONIC, Composition
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import BY_MNEMONIC, Instruction
from pto_wsp.text.expressions import read_constant, read_operand, read_tile
from pto_wsp.text.foreign.scalars import ANY_NAME
from pto_wsp.text.foreign.signatures import ForeignTypes
from pto_wsp.text.refused import refuse_known
from pto_wsp.text.tokens import NAME, WORD, Cursor, Source, Token

_ALIASES = {"cmpMode": "mode"}


class ForeignTiles(ForeignTypes):
    """Drives a function builder through statements on tiles.

    Attributes:
        written: tiles that have been written.
    """

    def __init__(self, source: Source, builder: PTOFunctionBuilder, is_workload: bool) -> None:
        super().__init__(builder, is_workload)
        self.source = source
        self.written: set[str] = set()

    def assignment(self, cursor: Cursor) -> None:
        """Read a statement that begins with a name: a declaration, a load or an instruction."""
        dst = cursor.name()
        if cursor.at(","):
            self.sorted(cursor, dst)
            return
        cursor.expect("=")
        token = cursor.token
        if token.text == "alloc_tile":
            cursor.advance()
            cursor.expect(":")
            tile = read_tile(cursor)
            self.declare_tile(cursor, dst, tile)
        elif token.text == "alloc_scalar":
            cursor.advance()
            cursor.expect(":")
            self.declare_scalar(cursor, dst)
        elif token.text in ("getval", "tgetval"):
            self.get_element(cursor, dst)
        else:
            self.load(cursor, dst) if token.text in ("tload", "mgather") else self.instruction(cursor, dst)
            self.written.add(dst)

    # --- moves ---

    def load(self, cursor: Cursor, dst: str) -> None:
        """Read what follows `%dst =` in a load or gather."""
        is_gather = cursor.advance().text == "mgather"
        memref, row, col = self.place(cursor, is_gather)
        rows = self.row_numbers(cursor) if is_gather else None
        self.signature(cursor, () if rows is None else (rows,), dst, memref=memref)
        if rows is not None:
            self.builder.at(cursor.whole).gather(dst, memref, rows)
        else:
            self.builder.at(cursor.whole).load(dst, memref, row, col)

    def store(self, cursor: Cursor) -> None:
        """Read `tstore %tile, %m[row, col]` or `mscatter %tile, %m, %rows`."""
        is_scatter = cursor.advance().text == "mscatter"
        tile = self.tile(cursor)
        cursor.expect(",")
        memref, row, col = self.place(cursor, is_scatter)
        rows = self.row_numbers(cursor) if is_scatter else None
        self.signature(cursor, (tile,) if rows is None else (tile, rows), None, memref=memref)
        if rows is not None:
            self.builder.at(cursor.whole).scatter(memref, tile, rows)
        else:
            self.builder.at(cursor.whole).store(memref, tile, row, col)

    def move_element(self, cursor: Cursor) -> None:
        """Read `LOAD %d:i32, %m[row, col]` or `STORE %s:i32, %m[row, col]`, both offsets in elements."""
        if cursor.advance().text == "STORE":
            value = self.typed(cursor)
            cursor.expect(",")
            memref, row, col = self.place(cursor, False)
            self.builder.at(cursor.whole).scalar_store(memref, value, row, col)
            return
        dst = cursor.name("a scalar")
        if cursor.at(":"):
            self.written_type(cursor, dst, is_new=True)
        cursor.expect(",")
        memref, row, col = self.place(cursor, False)
        self.builder.at(cursor.whole).scalar_load(dst, memref, row, col)

    def get_element(self, cursor: Cursor, dst: str) -> None:
        """Read what follows `%dst =` in `getval %tile[row, col]`."""
        cursor.advance()
        tile = self.tile(cursor)
        row, col = self.offsets(cursor)
        self.signature(cursor, (tile, Var(dst)), None)
        self.builder.at(cursor.whole).getval(dst, tile, row, col)

    def row_numbers(self, cursor: Cursor) -> str:
        """Read the tile of row numbers behind a view."""
        cursor.expect(",")
        return self.tile(cursor, "the tile of row numbers")

    def place(self, cursor: Cursor, is_whole: bool) -> tuple[str, Operand, Operand]:
        """Read `%memref[row, col]`, or `%memref` alone where the whole is meant."""
        memref = cursor.name("a memref")
        if is_whole and not cursor.at("["):
            return memref, 0, 0
        row, col = self.offsets(cursor)
        return memref, row, col

    def offsets(self, cursor: Cursor) -> tuple[Expr, Expr]:
        """Read `[row, col]`."""
        cursor.expect("[")
        row = self.expression(cursor)
        cursor.expect(",", "an offset is `[row, col]`: a row of tiles, and a column")
        col = self.expression(cursor)
        cursor.expect("]")
        return row, col

    def tile(self, cursor: Cursor, expected: str = "a tile") -> str:
        """Read the name of a tile that has been declared or written."""
        token, name = cursor.token, cursor.name(expected)
        if name not in self.tiles and name not in self.written:
            cursor.unknown("tile", name, "this function", {*self.tiles, *self.written}, token)
        return name

    # --- instructions ---

    def instruction(self, cursor: Cursor, dst: str) -> None:
        """Read what follows `%dst =` in an instruction."""
        token = cursor.token
        row, composition = BY_MNEMONIC.get(token.text), BY_COMPOSED_MNEMONIC.get(token.text)
        if composition is not None and not composition.stores:
            self.composition(cursor, dst)
            return
        if row is None or token.kind != WORD:
            refuse_known(cursor)
            composed = (word for word, c in BY_COMPOSED_MNEMONIC.items() if not c.stores)
            cursor.word((*BY_MNEMONIC, *composed, "alloc_tile", "alloc_scalar"), "an instruction")
            raise AssertionError(token)
        cursor.advance()
        options: dict[str, object] = {}
        operands = self.operands(cursor, row, options)
        if cursor.at("{"):
            self.options(cursor, options)
        self.signature(cursor, operands, dst, row)
        getattr(self.builder.at(cursor.whole), row.name)(dst, *operands, **options)

    def composition(self, cursor: Cursor, dst: str) -> None:
        """Read what follows `%dst =` in an instruction that is several rows."""
        composition = BY_COMPOSED_MNEMONIC[cursor.advance().text]
        options: dict[str, object] = {}
        tiles = self.named_tiles(cursor, composition)
        if cursor.at("{"):
            self.options(cursor, options)
        self.signature(cursor, tiles, dst)
        getattr(self.builder.at(cursor.whole), composition.name)(dst, *tiles, **options)

    def named_tiles(self, cursor: Cursor, composition: Composition) -> list[str]:
        """Read the tiles of a composition."""
        found: list[str] = []
        for name in composition.operands:
            if found:
                shown = ", ".join(composition.operands)
                cursor.expect(",", f"`{composition.mnemonic}` takes {shown}")
            found.append(self.tile(cursor, f"the tile `{name}`"))
        return found

    def store_scaled(self, cursor: Cursor) -> None:
        """Read `tstore.fp %tile, %fp, %m[row, col]`."""
        composition = BY_COMPOSED_MNEMONIC[cursor.advance().text]
        tile, fp = self.named_tiles(cursor, composition)
        cursor.expect(",", "behind them stands the place: `%memref[row, col]`")
        memref, row, col = self.place(cursor, False)
        options: dict[str, object] = {}
        if cursor.at("{"):
            self.options(cursor, options)
        self.signature(cursor, (tile, fp), None, memref=memref)
        getattr(self.builder.at(cursor.whole), composition.name)(memref, tile, fp, row, col, **options)

    def operands(self, cursor: Cursor, row: Instruction, options: dict[str, object]) -> list[Operand]:
        """Read the operands of an instruction: its tiles, then its scalars, which may be among them.

        Where a part of a tile begins, `%tile[row, col]`, is an option.
        """
        tiles: list[Operand] = []
        scalars: list[Operand] = []
        num_tiles, num_scalars = row.form.num_tiles, row.form.num_scalars
        advice = f"`{row.mnemonic}` takes {num_tiles + num_scalars} operands"
        for number in range(num_tiles + num_scalars):
            if number:
                cursor.expect(",", advice)
            is_scalar = len(tiles) == num_tiles or (num_scalars and self.is_scalar(cursor))
            if is_scalar:
                scalars.append(read_operand(cursor, ANY_NAME))
                continue
            tiles.append(self.tile(cursor))
            if number == 0 and row.form in PLACES and cursor.at("["):
                options |= dict(zip(PLACES[row.form], self.offsets(cursor), strict=True))
        if cursor.at(","):
            cursor.fail("the end of the operands", advice)
        return [*tiles, *scalars]

    def is_scalar(self, cursor: Cursor) -> bool:
        """Return whether the next operand can be no tile."""
        token = cursor.token
        return token.kind != NAME or (token.text[1:] in self.scalars and token.text[1:] not in self.tiles)

    def sorted(self, cursor: Cursor, values: str) -> None:
        """Read `%values, %indices = tsort32 %a`: what is sorted, and where in its row it was."""
        cursor.expect(",")
        indices = cursor.name("a tile")
        cursor.expect("=")
        row = BY_MNEMONIC.get(cursor.token.text)
        if row is None or row.form is not Form.SORT:
            known = ", ".join(f"`{r.mnemonic}`" for r in BY_MNEMONIC.values() if r.form is Form.SORT)
            cursor.fail(f"an instruction with two results: {known}")
        cursor.advance()
        source = self.tile(cursor)
        self.signature(cursor, [source, values, indices], None)
        rows, cols = Extent(source, 0), Extent(source, 1)
        pairs = f"{values}_pairs"
        while pairs in self.tiles or pairs in self.written:
            pairs += "_"
        builder = self.builder.at(cursor.whole).iota(indices, 0, rows=rows, cols=cols)
        getattr(builder, row.name)(pairs, source, indices)
        builder.extract_topk_values(values, pairs, cols=cols).extract_topk_indices(indices, pairs, cols=cols)
        self.written |= {values, indices, pairs}

    def options(self, cursor: Cursor, found: dict[str, object]) -> None:
        """Read attributes in braces into `found`."""
        cursor.expect("{")
        while True:
            key = cursor.take(WORD, "an attribute")
            cursor.expect("=")
            self.option(cursor, key, found)
            if cursor.accept("}"):
                return
            cursor.expect(",")

    def option(self, cursor: Cursor, key: Token, found: dict[str, object]) -> None:
        """Read the value of one attribute."""
        name = _ALIASES.get(key.text, key.text)
        if name == "isBinary":
            if cursor.word(("true", "false"), "`true` or `false`") == "true":
                reason = "the order of a sum is not chosen"
                raise NoMeaning(form="`isBinary = true`", reason=reason, advice="", loc=cursor.place(key))
            return
        if name in found:
            raise RepeatedText(kind="attribute", name=name, loc=cursor.place(key))
        if name not in ATTRIBUTES:
            cursor.fail("an attribute: " + ", ".join((*ATTRIBUTES, *_ALIASES, "isBinary")), token=key)
        kind = ATTRIBUTES[name]
        if cursor.accept("#"):
            cursor.take(WORD, "a kind of attribute")
            cursor.expect("<")
            found[name] = cursor.take(WORD, "a word").text.lower()
            cursor.expect(">")
        elif kind is None:
            found[name] = self.expression(cursor)
        else:
            value = read_constant(cursor, kind)
            found[name] = value.lower() if isinstance(value, str) else value
