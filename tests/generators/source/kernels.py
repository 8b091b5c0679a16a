"""Source text of random kernels whose every result is exact.

Sums and products get small integers as operands, so that their order does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.generators.drawing import Draw

NAMES = ("a", "b", "c", "d")
"""Tiles of the main shape that every kernel has, and assigns again and again."""

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 33)
FLOATS = ("f32", "bf16", "f16")

Shape = tuple[int, int]
Kind = tuple[Shape, str]
"""Shape and element type of a tile."""


@dataclass(frozen=True)
class KernelText:
    """A kernel: its text, and its tile parameters with their roles."""

    name: str
    text: str
    tiles: dict[str, tuple[str, Kind]]
    dtype: str
    has_rows: bool
    has_ids: bool

    @property
    def shape(self) -> Shape:
        """Capacity of its main tiles."""
        return self.tiles["x"][1][0]


def random_kernel(draw: Draw, name: str) -> KernelText:
    """Return a kernel of `x`, `z` and `o` of one shape, and perhaps of more; `s` and `n` are scalars."""
    return _Writer(draw, name).write()


class _Writer:
    def __init__(self, draw: Draw, name: str) -> None:
        self.draw = draw
        self.name = name
        self.shape = (draw.choice(SIZES), draw.choice(SIZES))
        self.dtype = draw.choice([*FLOATS, "f32", "f32", "i32"])
        self.has_rows = draw.random() < 0.5
        self.has_ids = draw.random() < 0.25
        self.lines: list[str] = []
        self.indent = 1
        self.depth = 0
        self.count = 0
        self.env: dict[str, Kind] = {}
        self.params: set[str] = set()

    def write(self) -> KernelText:
        main, rows, cols = (self.shape, self.dtype), self.shape[0], self.shape[1]
        out = self.draw.choice(["Out", "InOut"])
        tiles: dict[str, tuple[str, Kind]] = {"x": ("In", main), "z": ("In", main), "o": (out, main)}
        if self.draw.random() < 0.7:
            tiles["p"] = ("Out", main)
        if self.draw.random() < 0.5:
            tiles["v"] = ("In", ((1, cols), self.dtype))
        if self.draw.random() < 0.4:
            tiles["q"] = ("Out", ((rows, 1), self.dtype))
        self.env = {p: kind for p, (role, kind) in tiles.items() if role == "In"}
        self.params = set(self.env)
        first = "pto.load(o)" if out == "InOut" else "pto.load(x)"
        for name, value in zip(NAMES, (first, "x", "z", "x - z"), strict=True):
            self.line(f"{name} = {value}")
            self.env[name] = main
        self.line("i, j = n, x.rows")
        self.block(self.draw.randint(3, 10))
        self.line("pto.store(o, a + i)")
        if "p" in tiles:
            self.line(f"pto.store(p, {self.draw.choice('bcd')} * j)")
        if "q" in tiles:
            column = ((rows, 1), self.dtype)
            self.line(f"pto.store(q, {self.pick(lambda k: k == column) or 'pto.rowmin(x)'})")
        return KernelText(self.name, self.signature(tiles), tiles, self.dtype, self.has_rows, self.has_ids)

    def signature(self, tiles: dict[str, tuple[str, Kind]]) -> str:
        params = [f"{p}: {role}[Tile[{s[0]}, {s[1]}, {d}]]" for p, (role, (s, d)) in tiles.items()]
        if self.has_rows:
            params.append(f"k: In[Tensor[{self.dtype}, DYN, {self.shape[1]}]]")
        if self.has_ids:
            params.append("ids: In[Tensor[i32, DYN]]")
        params += ["s: Scalar[f32]", "n: Scalar[i64]"]
        body = "\n".join(self.lines)
        return f"@kernel\ndef {self.name}({', '.join(params)}):\n{body}\n"

    # --- names ---

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def pick(self, accepts: Callable[[Kind], bool]) -> str:
        found = [name for name, kind in self.env.items() if accepts(kind)]
        return self.draw.choice(found) if found else ""

    def number(self) -> str:
        """Return a tile that is not a mask."""
        return self.pick(lambda kind: kind[1] != "b1")

    def assign(self, kind: Kind, expression: str) -> str:
        """Give a value to a new name, or to one that is a tile of this kind."""
        known = [name for name, k in self.env.items() if k == kind and name not in self.params]
        name = self.draw.choice(known) if known and self.draw.random() < 0.7 else self.fresh()
        self.line(f"{name} = {expression}")
        self.env[name] = kind
        return name

    # --- statements ---

    def block(self, count: int) -> None:
        makers: Sequence[tuple[Callable[[], object], int]] = (
            (self.binary, 9),
            (self.unary, 3),
            (self.fold, 2),
            (self.total, 1),
            (self.select, 2),
            (self.product, 2),
            (self.convert, 1),
            (self.turn, 1),
            (self.fill, 1),
            (self.store_early, 1),
            (self.reload, 1),
            (self.swap, 2),
            (self.augment, 2),
            (self.count_on, 2),
        )
        nested = ((self.loop, 2), (self.branch, 2), (self.while_loop, 1), (self.rows, 3), (self.ids, 2))
        for _ in range(count):
            choices = (*makers, *(nested if self.depth < 2 else ()))
            self.draw.choices([m for m, _ in choices], [w for _, w in choices])[0]()

    def scalar(self, dtype: str) -> str:
        if dtype == "i32":
            return self.draw.choice(["3", "-2", "n", "i", "j", "(i - j)", "2147483647", "-2147483648"])
        return self.draw.choice(["1.5", "-0.25", "s", "i", "j", "(s + 1.0)", "(s * j - i)", "inf"])

    def binary(self) -> None:
        a = self.number()
        (rows, cols), dtype = self.env[a]
        op = self.draw.choice(["+", "-", "*", "maximum", "minimum", "div", "rem", "add", "sub"])
        if self.draw.random() < 0.35:
            operands = [a, self.scalar(dtype)]
            self.draw.shuffle(operands)
            shape = (rows, cols)
        else:
            b = self.pick(lambda kind: kind[1] == dtype and _fits(kind[0], (rows, cols)))
            operands = [a, b]
            shape = (max(rows, self.env[b][0][0]), max(cols, self.env[b][0][1]))
        first, second = operands
        self.assign(
            (shape, dtype), f"{first} {op} {second}" if len(op) == 1 else f"pto.{op}({first}, {second})"
        )

    def unary(self) -> None:
        a = self.number()
        shape, dtype = self.env[a]
        op = self.draw.choice(["abs", "relu", "neg", "-", *(["recip", "sqrt"] if dtype != "i32" else [])])
        self.assign((shape, dtype), f"-{a}" if op == "-" else f"pto.{op}({a})")

    def fold(self) -> None:
        a = self.number()
        (rows, cols), dtype = self.env[a]
        op = self.draw.choice(["rowmax", "rowmin", "colmax", "colmin"])
        self.assign(((rows, 1) if op.startswith("row") else (1, cols), dtype), f"pto.{op}({a})")

    def small(self, a: str) -> str:
        """Return an expression of small whole numbers."""
        dtype = self.env[a][1]
        if dtype == "i32":
            return f"pto.minimum(pto.maximum({a}, -3), 3)"
        return f"pto.cast(pto.cast(pto.minimum(pto.maximum({a}, -3.0), 3.0), i32), {dtype})"

    def total(self) -> None:
        a = self.number()
        (rows, cols), dtype = self.env[a]
        op = self.draw.choice(["rowsum", "colsum"])
        self.assign(((rows, 1) if op == "rowsum" else (1, cols), dtype), f"pto.{op}({self.small(a)})")

    def product(self) -> None:
        a = self.pick(lambda kind: kind[1] in FLOATS)
        if not a:
            return
        is_turned = self.draw.random() < 0.4
        rows, inner = self.env[a][0][::-1] if is_turned else self.env[a][0]
        fitting = [(b, "", s[1]) for b, (s, d) in self.env.items() if d in FLOATS and s[0] == inner]
        fitting += [(b, ".T", s[0]) for b, (s, d) in self.env.items() if d in FLOATS and s[1] == inner]
        b, turn, cols = self.draw.choice(fitting)
        left, right = (self.assign(self.env[t], self.small(t)) for t in (a, b))
        if self.env[left] == self.env[right]:
            left = self.assign(self.env[a], self.small(a))
        kind, operands = ((rows, cols), "f32"), f"{left}{'.T' if is_turned else ''}, {right}{turn}"
        acc = self.pick(lambda k: k == kind)
        if acc and self.draw.random() < 0.5:
            self.assign(kind, f"pto.matmul({operands}, acc={self.small(acc)})")
        else:
            self.assign(kind, f"pto.matmul({operands})")

    def select(self) -> None:
        a = self.number()
        kind = self.env[a]
        other = self.pick(lambda k: k == kind) if self.draw.random() < 0.6 else self.scalar(kind[1])
        arms = [a, self.pick(lambda k: k == kind) if self.draw.random() < 0.6 else self.scalar(kind[1])]
        self.draw.shuffle(arms)
        op = self.draw.choice(["<", "<=", ">", ">=", "==", "!="])
        self.assign(kind, f"pto.where({a} {op} {other}, {arms[0]}, {arms[1]})")

    def convert(self) -> None:
        a = self.number()
        dtype = self.draw.choice([*FLOATS, "i32", self.dtype])
        self.assign((self.env[a][0], dtype), f"pto.cast({a}, {dtype})")

    def turn(self) -> None:
        a = self.number()
        (rows, cols), dtype = self.env[a]
        self.assign(((cols, rows), dtype), self.draw.choice([f"pto.transpose({a})", f"{a}.T + 0"]))

    def fill(self) -> None:
        rows, cols = self.shape
        dtype = self.draw.choice(["f32", self.dtype])
        text, shape = self.draw.choice(
            [("x.rows, x.cols", self.shape), ("x.rows, 1", (rows, 1)), ("1, x.cols", (1, cols))]
        )
        self.assign((shape, dtype), f"pto.full(({text}), {self.scalar(dtype)}, dtype={dtype})")

    def store_early(self) -> None:
        self.line(f"pto.store(o, {self.pick(lambda k: k == (self.shape, self.dtype))})")

    def reload(self) -> None:
        self.assign((self.shape, self.dtype), f"pto.load({self.draw.choice('xz')})")

    def swap(self) -> None:
        names = self.draw.sample(NAMES, self.draw.randint(2, 4))
        self.line(f"{', '.join(names)} = {', '.join((*names[1:], names[0]))}")

    def count_on(self) -> None:
        values = [
            "i = (i * 2 + 1) % 5",
            "j = j - i",
            "i, j = j, i + 1",
            "j = i",
            "i = a.rows",
            "j = b.rows % 3",
        ]
        self.line(self.draw.choice(values))

    def augment(self) -> None:
        a = self.number()
        if a not in self.params:
            self.line(f"{a} {self.draw.choice('+-*')}= {self.pick(lambda k: k == self.env[a])}")

    # --- blocks ---

    def nested(self, head: str, *body: str, names: dict[str, Kind] | None = None) -> None:
        self.line(head)
        before = dict(self.env)
        self.indent, self.depth = self.indent + 1, self.depth + 1
        for text in body or ("pass",):
            self.line(text)
        self.env |= names or {}
        self.block(self.draw.randint(0, 4))
        for maker in self.draw.sample([self.swap, self.augment, self.count_on], 2):
            maker()
        self.env = before
        self.indent, self.depth = self.indent - 1, self.depth - 1

    def loop(self) -> None:
        extent = self.draw.choice(["2", "3", "n", "0", "1, 4, 2", "x.rows"])
        self.nested(f"for {self.fresh()} in range({extent}):")

    def while_loop(self) -> None:
        i = self.fresh()
        self.line(f"{i} = 0")
        self.nested(f"while {i} < {self.draw.choice(['2', 'n'])}:", f"{i} = {i} + 1")

    def branch(self) -> None:
        rows = self.shape[0]
        self.nested(
            f"if {self.draw.choice(['i > 1', 's < 1.0', 'j % 2 == 0', f'x.rows == {rows} and i < 3'])}:"
        )
        if self.draw.random() < 0.5:
            self.nested("else:")

    def rows(self) -> None:
        if not self.has_rows:
            return
        kind = ((1, self.shape[1]), self.dtype)
        total = self.fresh()
        self.line(f"{total} = pto.full((1, {self.shape[1]}), 1, dtype={self.dtype})")
        r, t, size = self.fresh(), self.fresh(), self.draw.choice(SIZES)
        loaded = {t: ((size, self.shape[1]), self.dtype)}
        self.env[total] = kind
        names = self.env | loaded
        outer, self.env = self.env, names
        step = self.draw.choice([f"pto.colmax({t})", f"pto.colsum({self.small(t)})"])
        self.env = outer
        self.nested(
            f"for {r} in pto.tiles(k.rows, {size}):",
            f"{t} = {self.draw.choice([f'pto.load(k[{r}])', f'k[{r}] * 1'])}",
            f"j = {t}.rows",
            f"{total} = {self.draw.choice([f'pto.maximum({total}, {step})', f'{total} - {step}'])}",
            names=loaded,
        )

    def ids(self) -> None:
        if not self.has_ids:
            return
        i, w, t = self.fresh(), self.fresh(), self.fresh()
        self.nested(
            f"for {i} in range(ids.rows):", f"{w} = ids[{i}]", f"{t} = x * {w}",
            names={t: (self.shape, self.dtype)},
        )  # fmt: skip


def _fits(a: Shape, b: Shape) -> bool:
    """Whether shapes are equal where neither is 1."""
    return all(1 in pair or pair[0] == pair[1] for pair in zip(a, b, strict=True))
