"""Random kernels whose every result is exact, so that a target and the interpreter agree to the bit."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full, Range, Region
from pto_wsp.ir.scalar import Binary, Const, Expr, Extent, Var, binary
from pto_wsp.isa.meaning import ROUND_MODES
from pto_wsp.types.dtype import DType, b1, bf16, f32, i8, i32, i64, u16, u32
from pto_wsp.types.tile import ScalarType, TileType, ViewType

ROWS, COLS = 5, 19
VIEWS = {"a": k.IN, "b": k.IN, "y": k.INOUT, "z": k.INOUT}
BINARY = ("add", "sub", "mul", "div", "max", "min")
BROADCAST = BINARY
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "shl", "shr", "rem")
UNARY = ("mov", "abs", "neg", "relu")
NAMES = {"t": 4, "c": 2, "r": 2, "u": 2, "m": 2, "x": 2, "p": 2, "g": 1, "q": 1}


def tile_types(dtype: DType) -> dict[str, TileType]:
    """The tiles of every kernel: t whole, c a column, r a row, u transposed, m masks, x indices, p pairs.

    g are row numbers, q columns of indices.
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
    }
    return {f"{kind}{i}": kinds[kind] for kind, count in NAMES.items() for i in range(count)}


class _Body:
    """Draws statements. `defined` are the tiles that have a value on every path."""

    def __init__(self, draw: st.DrawFn, dtype: DType) -> None:
        self.draw = draw
        self.dtype = dtype
        self.loops = 0

    def pick(self, items: object) -> object:
        return self.draw(st.sampled_from(list(items)))

    def known(self, kind: str, defined: set[str]) -> str:
        return self.pick(sorted(t for t in defined if t[0] == kind))

    def new(self, kind: str) -> str:
        return f"{kind}{self.draw(st.integers(0, NAMES[kind] - 1))}"

    def region(self, view: str, loops: list[str]) -> Region:
        if loops and self.draw(st.booleans()):
            start = Binary("mul", Var(loops[-1]), Const(ROWS))
            left = Binary("sub", Extent(view, 0), start)
            return Region(view, (Range(start, Binary("min", Const(ROWS), left)), Full()))
        first, count = self.draw(st.integers(0, 2)), self.draw(st.integers(0, ROWS + 1))
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
            ("", [self.load, self.assign, self.number_rows]),
            ("t", [self.elementwise] * 4 + [self.store] * 2 + [self.fold, self.mask, self.turn]),
            (
                "t",
                [self.number, self.best, self.reshape, self.extract_part]
                + [self.round] * self.dtype.is_float,
            ),
            ("tc", [self.broadcast, self.column, self.insert]),
            ("r", [self.expand_row]),
            ("tr", [self.broadcast_row] * 2),
            ("tm", [self.select, self.masks]),
            ("tx", [self.take, self.put] + [self.sort] * self.dtype.is_float),
            ("p", [self.merge, self.extract]),
            ("g", [self.gather]),
            ("tg", [self.scatter]),
        ]
        kinds = {t[0] for t in defined}
        makers = [maker for need, found in by_need if kinds >= set(need) for maker in found]
        if len(loops) < 2:
            makers += [self.loop, self.branch]
        return self.draw(st.sampled_from(makers))(defined, loops)

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
        binary = BINARY + BITS * self.dtype.is_integer
        form = self.draw(st.integers(0, 4))
        if form == 0:
            return self.instr(str(self.pick(binary)), dst, a, b, defined=defined)
        if form == 1:
            unary = (*UNARY, "bitwise_not") if self.dtype.is_integer else UNARY
            return self.instr(str(self.pick(unary)), dst, a, defined=defined)
        if form == 2:
            c = self.known("t", defined)
            return self.instr(str(self.pick(["addc", "subc"])), dst, a, b, c, defined=defined)
        if form == 3:
            op, scalars = str(self.pick(["addsc", "subsc"])), (self.scalar(),)
            return self.instr(op, dst, a, b, scalars=scalars, defined=defined)
        return self.instr(f"{self.pick(binary)}s", dst, a, scalars=(self.scalar(),), defined=defined)

    def fold(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        kind, op = self.pick([("c", "rowmax"), ("c", "rowmin"), ("r", "colmax"), ("r", "colmin")])
        return self.instr(op, self.new(kind), self.known("t", defined), defined=defined)

    def column(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a, b = self.known("c", defined), self.known("c", defined)
        return self.instr(str(self.pick(BINARY)), self.new("c"), a, b, defined=defined)

    def broadcast(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        op = str(self.pick(["rowexpand", *(f"rowexpand{name}" for name in BROADCAST)]))
        column, dst = self.known("c", defined), self.new("t")
        if op == "rowexpand":
            extent = self.pick([Const(COLS), Extent("a", 1)])
            return self.instr(op, dst, column, cols=extent, defined=defined)
        return self.instr(op, dst, self.known("t", defined), column, defined=defined)

    def broadcast_row(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        row, a = self.known("r", defined), self.known("t", defined)
        return self.instr(f"colexpand{self.pick(BROADCAST)}", self.new("t"), a, row, defined=defined)

    def expand_row(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        extent = self.pick([Const(ROWS), Const(2), binary("min", Const(ROWS), Extent("a", 0))])
        return self.instr("colexpand", self.new("t"), self.known("r", defined), rows=extent, defined=defined)

    def mask(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        mode = self.pick(["eq", "ne", "lt", "le", "gt", "ge"])
        a, b = self.known("t", defined), self.known("t", defined)
        return self.instr("cmp", self.new("m"), a, b, mode=mode, defined=defined)

    def select(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a, b = self.known("t", defined), self.known("t", defined)
        return self.instr("sel", self.new("t"), self.known("m", defined), a, b, defined=defined)

    def masks(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a, b = self.known("m", defined), self.known("m", defined)
        if self.draw(st.booleans()):
            return self.instr("bitwise_not", self.new("m"), a, defined=defined)
        return self.instr(str(self.pick(BITS[:3])), self.new("m"), a, b, defined=defined)

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
        place = {"row": Const(self.draw(st.integers(0, 1))), "col": self.pick([Const(0), Var("n")])}
        return self.instr("insert", self.new("t"), a, part, **place, defined=defined)

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
        op = str(self.pick(["rowargmax", "rowargmin"]))
        return self.instr(op, self.new("q"), self.known("t", defined), defined=defined)

    def sort(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        operands = self.known("t", defined), self.known("x", defined)
        return self.instr(str(self.pick(["sort", "sort32"])), self.new("p"), *operands, defined=defined)

    def merge(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        a, b = self.known("p", defined), self.known("p", defined)
        if self.draw(st.booleans()):
            return self.instr("mrgsort", self.new("p"), a, run=self.pick([1, 4, 32]), defined=defined)
        extent = self.pick([Const(COLS), Const(3), Extent(a, 1)])
        return self.instr("merge", self.new("p"), a, b, cols=extent, defined=defined)

    def extract(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        pairs, extent = self.known("p", defined), self.pick([Const(COLS), Const(3), Extent("a", 1)])
        if self.dtype is f32 and self.draw(st.booleans()):
            return self.instr("extract_topk_values", self.new("t"), pairs, cols=extent, defined=defined)
        return self.instr("extract_topk_indices", self.new("x"), pairs, cols=extent, defined=defined)

    def gather(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        tile, rows = self.new("t"), self.known("g", defined)
        defined.add(tile)
        return [k.Load(tile, Region(str(self.pick(VIEWS)), (Full(), Full())), None, rows)]

    def scatter(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        region = Region(str(self.pick(["y", "z"])), (Full(), Full()))
        return [k.Store(region, self.known("t", defined), None, self.known("g", defined))]

    def turn(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        if any(t[0] == "u" for t in defined) and self.draw(st.booleans()):
            return self.instr("transpose", self.new("t"), self.known("u", defined), defined=defined)
        return self.instr("transpose", self.new("u"), self.known("t", defined), defined=defined)

    def assign(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        value = self.pick([Const(2), binary("add", Var("n"), Const(1)), Extent("a", 0)])
        return [k.Assign("n", value)]

    def loop(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        self.loops += 1
        var = f"i{self.loops}"
        stop = self.pick([Const(2), Const(3), Const(0), Extent("b", 0)])
        body = self.statements(self.draw(st.integers(1, 4)), set(defined), [*loops, var])
        return [k.For(var, Const(0), stop, self.draw(st.integers(1, 3)), body)]

    def branch(self, defined: set[str], loops: list[str]) -> list[k.Stmt]:
        condition = Binary("lt", Var("n"), Const(4))
        then_defined, other_defined = set(defined), set(defined)
        then = self.statements(self.draw(st.integers(1, 3)), then_defined, loops)
        other = self.statements(self.draw(st.integers(0, 2)), other_defined, loops)
        defined |= then_defined & other_defined
        return [k.If(condition, then, other)]


@st.composite
def kernels(draw: st.DrawFn, name: str) -> k.KernelFunction:
    """Draw a kernel over the views a, b, y, z and the scalars s (f32) and n (i64)."""
    dtype = draw(st.sampled_from([f32, f32, bf16, i32, i64, i8, u16, u32]))
    body = _Body(draw, dtype)
    defined: set[str] = set()
    statements = body.statements(draw(st.integers(3, 14)), defined, [])
    view = ViewType(dtype, (None, None))
    params = [k.Param(v, role, view) for v, role in VIEWS.items()]
    params += [k.Param("s", k.IN, ScalarType(f32)), k.Param("n", k.IN, ScalarType(i64))]
    return k.KernelFunction(name, tuple(params), tuple(tile_types(dtype).items()), (), statements)
