"""Random kernels: of exact instructions, on which targets and the interpreter agree to the bit, or of all."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full, Range, Region
from pto_wsp.ir.scalar import Binary, Const, Expr, Extent, TileElement, Var, binary, element_dtype
from pto_wsp.isa.forms import PRODUCTS, Form
from pto_wsp.isa.meaning import COMPARE_MODES, ROUND_MODES
from pto_wsp.isa.table import EXACT, TABLE
from pto_wsp.types.dtype import DType, b1, bf16, f16, f32, i8, i16, i32, i64, u8, u16, u32
from pto_wsp.types.quantised import FORMATS, rounded_cols
from pto_wsp.types.tile import ScalarType, TileType, ViewType
from tests.generators.drawing import DRAWS, Draw

ROWS, COLS = 5, 19
QUANTISED = FORMATS["q8_0"]
VIEWS = {"a": k.IN, "b": k.IN, "y": k.INOUT, "z": k.INOUT}
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
NAMES = {"t": 4, "c": 2, "r": 2, "u": 2, "m": 2, "x": 2, "p": 2, "g": 1, "q": 1, "s": 2, "b": 1}
NAMES |= {"w": 1, "k": 1, "h": 1}


def tile_types(dtype: DType) -> dict[str, TileType]:
    """The tiles of every kernel: t whole, c a column, r a row, u transposed, m masks, x indices, p pairs.

    g are row numbers, q columns of indices, s products, b a row of biases; w are rows to multiply with h, a
    block of a quantised matrix, and k the same rounded.
    """
    kinds = {
        "t": TileType(ROWS, COLS, dtype),
        "c": TileType(ROWS, 1, dtype),
        "r": TileType(1, COLS, dtype),
        "u": TileType(COLS, ROWS, dtype),
        "m": TileType(ROWS, COLS, b1),
        "x": TileType(ROWS, COLS, i32),
        "p": TileType(ROWS, COLS, i64),
        "g": TileType(1, ROWS, i32),
        "q": TileType(ROWS, 1, i32),
        "s": TileType(ROWS, ROWS, f32),
        "b": TileType(1, ROWS, f32),
        "w": TileType(ROWS, QUANTISED.block, f32),
        "k": TileType(ROWS, rounded_cols(QUANTISED.block), u8),
        "h": TileType(1, ROWS * QUANTISED.column_bytes, u8),
    }
    return {f"{kind}{i}": kinds[kind] for kind, count in NAMES.items() for i in range(count)}


class _Body:
    """Draws statements. `defined` are the tiles that have a value on every path."""

    def __init__(self, draw: Draw, dtype: DType, has_all: bool) -> None:
        self.draw = draw
        self.dtype = dtype
        self.has_all = has_all
        self.loops = 0

    def row(self, *forms: Form) -> str:
        """Pick an instruction of one of some forms that the kernel's element type has."""
        rows = [row for row in TABLE.values() if row.form in forms and self.dtype in row.dtypes]
        return str(self.pick([row.name for row in rows if self.has_all or row.bound == EXACT]))

    def pick(self, items: object) -> object:
        return self.draw.choice(list(items))

    def known(self, kind: str, defined: set[str]) -> str:
        return self.pick(sorted(t for t in defined if t[0] == kind))

    def new(self, kind: str) -> str:
        return f"{kind}{self.draw.randint(0, NAMES[kind] - 1)}"

    def region(self, view: str, loops: list[str]) -> Region:
        if loops and self.draw.random() < 0.5:
            start = Binary("mul", Var(loops[-1]), Const(ROWS))
            left = Binary("sub", Extent(view, 0), start)
            return Region(view, (Range(start, Binary("min", Const(ROWS), left)), Full()))
        first, count = self.draw.randint(0, 2), self.draw.randint(0, ROWS + 1)
        extent = self.pick([Const(count), binary("min", Const(ROWS), Extent(view, 0)), Extent("t0", 0)])
        return self.pick(
            [
                Region(view, (Full(), Full())),
                Region(view, (Range(Const(0), binary("min", Const(ROWS), Extent(view, 0))), Full())),
                Region(view, (Range(Const(first), extent), Full())),
            ]
        )

    def scalar(self) -> Expr:
        if self.dtype.is_integer:
            return self.pick([Const(3), Const(-2 if self.dtype.kind == "i" else 2), Var("n")])
        return self.pick([Const(1.5, f32), Const(-0.3, f32), Var("s", f32)])

    def statements(self, count: int, defined: set[str], loops: list[str]) -> tuple[k.Stmt, ...]:
        found: list[k.Stmt] = []
        for _ in range(count):
            found += self.statement(defined, loops)
        return tuple(found)

    def statement(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        by_need: list[tuple[str, list[Callable[[set[str], list[str]], list[k.Stmt]]]]] = [
            ("", [self.load, self.prefetch, self.fill, self.assign, self.number_rows]),
            ("t", [self.elementwise] * (8 if self.has_all else 4)),
            ("t", [self.store, self.store, self.fold, self.mask, self.turn]),
            ("tu", [self.product] * (self.has_all and self.dtype.is_float)),
            ("t", [self.quantised] * self.has_all),
            ("s", [self.use_product]),
            ("x", [self.convert]),
            (
                "t",
                [self.number, self.best, self.reshape, self.extract_part, self.get, self.set]
                + [self.round] * self.dtype.is_float,
            ),
            ("tc", [self.broadcast, self.column, self.insert]),
            ("r", [self.expand_row]),
            ("tr", [self.broadcast_row] * 2),
            ("tm", [self.select, self.masks]),
            ("tx", [self.take, self.put] + [self.sort] * self.dtype.is_float),
            ("p", [self.merge, self.extract] * 2),
            ("g", [self.gather]),
            ("tg", [self.scatter]),
        ]
        kinds = {t[0] for t in defined}
        makers = [maker for need, found in by_need if kinds >= set(need) for maker in found]
        if len(loops) < 2:
            makers += [self.loop, self.branch]
        return self.draw.choice(makers)(defined, loops)

    def load(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        tile = self.new("t")
        region = self.region(str(self.pick(VIEWS)), loops)
        if (
            any(isinstance(d, Range) and d.extent == Extent("t0", 0) for d in region.dims)
            and "t0" not in defined
        ):
            region = Region(region.tensor, (Full(), Full()))
        defined.add(tile)
        return [k.Load(tile, region)]

    def store(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        tile = self.known("t", defined)
        view = str(self.pick(["y", "z"]))
        fits = Region(view, (Range(Const(0), Extent(tile, 0)), Range(Const(0), Extent(tile, 1))))
        return [k.Store(self.pick([fits, fits, Region(view, (Full(), Full()))]), tile)]

    def instr(self, op: str, dst: str, *tiles: str, defined: set[str], **rest: object) -> list[k.Stmt]:
        defined.add(dst)
        scalars = rest.pop("scalars", ())
        return [k.Instr(op, dst, tiles, scalars, tuple(rest.items()))]

    def elementwise(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a, b, dst = self.known("t", defined), self.known("t", defined), self.new("t")
        match self.draw.randint(0, 4):
            case 0:
                return self.instr(self.row(Form.BINARY), dst, a, b, defined=defined)
            case 1:
                return self.instr(self.row(Form.UNARY), dst, a, defined=defined)
            case 2:
                return self.instr(
                    self.row(Form.TERNARY), dst, a, b, self.known("t", defined), defined=defined
                )
            case 3:
                op, scalars = self.row(Form.BINARY_SCALAR), (self.scalar(),)
                return self.instr(op, dst, a, b, scalars=scalars, defined=defined)
            case _:
                op = self.row(Form.TILE_SCALAR)
                return self.instr(op, dst, a, scalars=(self.scalar(),), defined=defined)

    def fill(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        op, extent = self.row(Form.FILL), self.pick([Const(COLS), Const(3), Extent("a", 1)])
        scalars = (self.scalar(),)
        return self.instr(op, self.new("t"), scalars=scalars, cols=extent, defined=defined)

    def fold(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        kind, form = self.pick([("c", Form.ROW_REDUCE), ("r", Form.COL_REDUCE)])
        return self.instr(self.row(form), self.new(kind), self.known("t", defined), defined=defined)

    def column(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a, b = self.known("c", defined), self.known("c", defined)
        return self.instr(self.row(Form.BINARY), self.new("c"), a, b, defined=defined)

    def product(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        """Return a product of t and u, or of u and t with both transposed."""
        t, u, is_turned = self.known("t", defined), self.known("u", defined), self.draw.random() < 0.5
        flags = {"trans_a": True, "trans_b": True} if is_turned else {}
        op, dst = self.row(*PRODUCTS), self.new("s")
        factors = (u, t) if is_turned else (t, u)
        first: list[k.Stmt] = []
        if TABLE[op].form is Form.MATMUL_BIAS:
            extent = Extent(factors[1], 0 if is_turned else 1)
            bias = self.pick([Const(0.5, f32), Var("s", f32)])
            first = self.instr("expands", "b0", scalars=(bias,), cols=extent, defined=defined)
            factors = (*factors, "b0")
        elif TABLE[op].form is Form.MATMUL_ACC:
            extents = {"rows": Extent(t, 0), "cols": Extent(u, 1)}
            first = self.instr("expands", dst, scalars=(Const(1.0, f32),), **extents, defined=defined)
            factors = (dst, *factors)
        return first + self.instr(op, dst, *factors, **flags, defined=defined)

    def quantised(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        """Return a product of rows, rounded or not, with a block of a quantised matrix."""
        rows, acc = Extent(self.known("t", defined), 0), self.new("s")
        filling = self.pick([Const(0.5, f32), Var("s", f32)])
        made = self.instr("expands", "w0", scalars=(filling,), rows=rows, defined=defined)
        made += self.instr("quantise", "k0", "w0", defined=defined)
        made += self.instr("expands", "h0", scalars=(Const(self.draw.randint(0, 59)),), defined=defined)
        made += self.instr("expands", acc, scalars=(Const(1.0, f32),), rows=rows, defined=defined)
        x = str(self.pick(["w0", "k0"]))
        return made + self.instr(
            "matmul_quantised", acc, acc, x, "h0", format=QUANTISED.name, defined=defined
        )

    def use_product(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        product = self.known("s", defined)
        if self.dtype is f32 and self.draw.random() < 0.5:
            region = Region("y", (Range(Const(0), Extent(product, 0)), Range(Const(0), Extent(product, 1))))
            return [k.Store(region, product)]
        return self.instr("rowargmax", self.new("q"), product, defined=defined)

    def broadcast(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        op = self.row(Form.ROW_EXPAND, Form.ROW_BROADCAST)
        column, dst = self.known("c", defined), self.new("t")
        if op == "rowexpand":
            extent = self.pick([Const(COLS), Extent("a", 1)])
            return self.instr(op, dst, column, cols=extent, defined=defined)
        return self.instr(op, dst, self.known("t", defined), column, defined=defined)

    def broadcast_row(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        row, a = self.known("r", defined), self.known("t", defined)
        return self.instr(self.row(Form.COL_BROADCAST), self.new("t"), a, row, defined=defined)

    def expand_row(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        extent = self.pick([Const(ROWS), Const(2), binary("min", Const(ROWS), Extent("a", 0))])
        return self.instr("colexpand", self.new("t"), self.known("r", defined), rows=extent, defined=defined)

    def mask(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        mode = self.pick(COMPARE_MODES)
        op, a, dst = self.row(Form.COMPARE, Form.COMPARE_SCALAR), self.known("t", defined), self.new("m")
        if TABLE[op].form is Form.COMPARE_SCALAR:
            return self.instr(op, dst, a, scalars=(self.scalar(),), mode=mode, defined=defined)
        return self.instr(op, dst, a, self.known("t", defined), mode=mode, defined=defined)

    def select(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        op, dst = self.row(Form.SELECT, Form.SELECT_SCALAR), self.new("t")
        mask, a = self.known("m", defined), self.known("t", defined)
        if TABLE[op].form is Form.SELECT_SCALAR:
            return self.instr(op, dst, mask, a, scalars=(self.scalar(),), defined=defined)
        return self.instr(op, dst, mask, a, self.known("t", defined), defined=defined)

    def masks(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a, b = self.known("m", defined), self.known("m", defined)
        if self.draw.random() < 0.5:
            return self.instr("bitwise_not", self.new("m"), a, defined=defined)
        return self.instr(str(self.pick(BITS)), self.new("m"), a, b, defined=defined)

    def convert(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        return self.instr("cvt", self.new("t"), self.known("x", defined), defined=defined)

    def round(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        mode, a = str(self.pick(ROUND_MODES)), self.known("t", defined)
        return self.instr("cvt", self.new(str(self.pick("tx"))), a, rmode=mode, defined=defined)

    def reshape(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a = self.known("t", defined)
        extents = {"rows": Extent(a, 1), "cols": Extent(a, 0)}
        return self.instr("reshape", self.new("u"), a, **extents, defined=defined)

    def extract_part(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a, col = self.known("t", defined), self.pick([Const(0), Const(2), Var("n")])
        rows = self.pick([Extent(a, 0), Const(2)])
        return self.instr("extract", self.new("c"), a, rows=rows, col=col, defined=defined)

    def insert(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a, part = self.known("t", defined), self.known("c", defined)
        place = {"row": Const(self.draw.randint(0, 1)), "col": self.pick([Const(0), Var("n")])}
        return self.instr("insert", self.new("t"), a, part, **place, defined=defined)

    def place(self) -> tuple[Expr, Expr]:
        """Draw the place of an element, which may lie outside."""
        row = self.pick([Const(0), Const(1), binary("sub", Extent("a", 0), Const(1))])
        return row, self.pick([Const(0), Const(2), Var("n")])

    def get(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        tile = self.known(str(self.pick("tx")) if any(t[0] == "x" for t in defined) else "t", defined)
        dtype = element_dtype(tile_types(self.dtype)[tile].dtype)
        found: Expr = TileElement(tile, self.place(), dtype)
        if dtype is f32:
            return [k.Assign("s", Binary("mul", found, Const(0.5, f32)))]
        return [k.Assign("n", Binary("bitand", found, Const(7)))]

    def set(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a = self.known("t", defined)
        dst, (row, col) = self.pick([a, self.new("t")]), self.place()
        return self.instr("setval", str(dst), a, scalars=(self.scalar(),), row=row, col=col, defined=defined)

    def put(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a, values, at = self.known("t", defined), self.known("t", defined), self.known("x", defined)
        return self.instr("put", self.new("t"), a, values, at, defined=defined)

    def number(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        like, start = self.known("t", defined), self.pick([Const(0), Const(-1), Var("n")])
        extents = {"rows": Extent(like, 0), "cols": Extent(like, 1)}
        return self.instr("iota", self.new("x"), scalars=(start,), **extents, defined=defined)

    def number_rows(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        start, count = self.pick([Const(0), Const(1), Var("n")]), self.pick([Const(ROWS), Const(2), Const(0)])
        return self.instr("iota", self.new("g"), scalars=(start,), cols=count, defined=defined)

    def take(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        kind = self.pick(["t", "x"])
        operands = self.known(kind, defined), self.known("x", defined)
        return self.instr("take", self.new(kind), *operands, defined=defined)

    def best(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        op = self.row(Form.ROW_ARG)
        return self.instr(op, self.new("q"), self.known("t", defined), defined=defined)

    def sort(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        operands = self.known("t", defined), self.known("x", defined)
        return self.instr(self.row(Form.SORT), self.new("p"), *operands, defined=defined)

    def merge(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a, b = self.known("p", defined), self.known("p", defined)
        if self.draw.random() < 0.5:
            return self.instr("mrgsort", self.new("p"), a, run=self.pick([1, 4, 32]), defined=defined)
        extent = self.pick([Const(COLS), Const(3), Extent(a, 1)])
        return self.instr("merge", self.new("p"), a, b, cols=extent, defined=defined)

    def extract(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        pairs, extent = self.known("p", defined), self.pick([Const(COLS), Const(3), Extent("a", 1)])
        if self.dtype is f32 and self.draw.random() < 0.5:
            return self.instr("extract_topk_values", self.new("t"), pairs, cols=extent, defined=defined)
        return self.instr("extract_topk_indices", self.new("x"), pairs, cols=extent, defined=defined)

    def prefetch(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        return [k.Prefetch(Region(str(self.pick(VIEWS)), (Full(), Full())))]

    def gather(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        tile, rows = self.new("t"), self.known("g", defined)
        defined.add(tile)
        return [k.Load(tile, Region(str(self.pick(VIEWS)), (Full(), Full())), None, rows)]

    def scatter(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        region = Region(str(self.pick(["y", "z"])), (Full(), Full()))
        return [k.Store(region, self.known("t", defined), None, self.known("g", defined))]

    def turn(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        if any(t[0] == "u" for t in defined) and self.draw.random() < 0.5:
            return self.instr("transpose", self.new("t"), self.known("u", defined), defined=defined)
        return self.instr("transpose", self.new("u"), self.known("t", defined), defined=defined)

    def assign(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        value = self.pick([Const(2), binary("add", Var("n"), Const(1)), Extent("a", 0)])
        return [k.Assign("n", value)]

    def loop(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        self.loops += 1
        var = f"i{self.loops}"
        stop = self.pick([Const(2), Const(3), Const(0), Extent("b", 0)])
        body = self.statements(self.draw.randint(1, 4), set(defined), [*loops, var])
        return [k.For(var, Const(0), stop, self.draw.randint(1, 3), body)]

    def branch(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        condition = Binary("lt", Var("n"), Const(4))
        then_defined, other_defined = set(defined), set(defined)
        then = self.statements(self.draw.randint(1, 3), then_defined, loops)
        other = self.statements(self.draw.randint(0, 2), other_defined, loops)
        defined |= then_defined & other_defined
        return [k.If(condition, then, other)]


def random_kernel(draw: Draw, name: str, has_all: bool = False) -> k.KernelFunction:
    """Return a kernel over the views a, b, y, z and the scalars s (f32) and n (i64).

    Args:
        draw: what chooses.
        name: of the kernel.
        has_all: whether it has inexact instructions, too, and is longer.
    """
    dtype = draw.choice([f32, f32, bf16, f16, i8, i16, i32, i64, u8, u16, u32])
    count = draw.randint(8, 30) if has_all else draw.randint(3, 14)
    statements = _Body(draw, dtype, has_all).statements(count, set(), [])
    view = ViewType(dtype, (None, None))
    params = [k.Param(v, role, view) for v, role in VIEWS.items()]
    params += [k.Param("s", k.IN, ScalarType(f32)), k.Param("n", k.IN, ScalarType(i64))]
    return k.KernelFunction(name, tuple(params), tuple(tile_types(dtype).items()), (), statements)


def kernels(name: str, has_all: bool = False) -> st.SearchStrategy[k.KernelFunction]:
    """Return random kernels, which can be made smaller."""
    return DRAWS.map(lambda draw: random_kernel(draw, name, has_all))
