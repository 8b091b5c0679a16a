"""Packs bytecode for tests of the engine: expressions are nested tuples, statements are method calls."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pto_wsp import _native

OP = _native.OPCODES
Expr = int | tuple[object, ...]

_EXPR_OPS = {
    "+": "EXPR_ADD",
    "-": "EXPR_SUB",
    "*": "EXPR_MUL",
    "//": "EXPR_FLOORDIV",
    "%": "EXPR_MOD",
    "min": "EXPR_MIN",
    "max": "EXPR_MAX",
}


def name_hash(name: str) -> int:
    """FNV-1a 64."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


class Assembler:
    """One program. Expressions: an int, ("reg", r), ("symbol", s) or (operator, a, b)."""

    def __init__(self, kernels: Sequence[tuple[str, int, int]], table_hash: int) -> None:
        """`kernels`: name, number of views and number of scalars, in the order of the library."""
        self.kernels = kernels
        self.table_hash = table_hash
        self.code: list[list[int]] = []
        self.axes: list[tuple[int, int, int, int]] = []
        self.tensors: list[bytes] = []
        self.symbols: list[bytes] = []
        self.constants: list[int] = []
        self.expressions: list[list[list[int]]] = []
        self.open: list[int] = []
        self.num_registers = 0

    def tensor(self, dtype: str, dims: Sequence[int], written: bool = True, distinct: bool = False) -> int:
        """Declare a tensor; a dimension of -1 - s is symbol s."""
        padded = [*dims, *[0] * (8 - len(dims))]
        code = _native.DTYPES[dtype]
        self.tensors.append(struct.pack("<BBBB4x8q", code, len(dims), written, distinct, *padded))
        return len(self.tensors) - 1

    def symbol(self, kind: str = "SIZE", dtype: str = "i64") -> int:
        self.symbols.append(struct.pack("<BB6x", _native.SYMBOL_KINDS[kind], _native.DTYPES[dtype]))
        return len(self.symbols) - 1

    def loop(self, op: str, extent: Expr, tile: Expr | None = None) -> int:
        """Open a loop; return its index register (start and length follow it if there is a tile)."""
        kind = "DENSE" if tile is None else "TILES"
        reg = self.num_registers
        self.num_registers += 1 if tile is None else 3
        tile_expr = -1 if tile is None else self._expression(tile)
        self.axes.append((_native.AXIS_KINDS[kind], reg, self._expression(extent), tile_expr))
        self.open.append(len(self.code))
        self._emit(op, len(self.axes) - 1)
        return reg

    def end(self) -> None:
        begin = self.open.pop()
        self.code[begin][2] = len(self.code)
        self._emit("END_LOOP", self.code[begin][1], begin)

    def task(self, kernel: int, scalars: Sequence[tuple[str, int] | Expr] = ()) -> None:
        """A task; a scalar is an expression or ("param_symbol", s)."""
        _, num_views, num_scalars = self.kernels[kernel]
        self._emit("TASK", kernel, num_views << 16 | num_scalars)
        for scalar in scalars:
            if isinstance(scalar, tuple) and scalar[0] == "param_symbol":
                symbol = scalar[1]
                assert isinstance(symbol, int)
                self._emit("PARAM_SYMBOL", 0, symbol)
            else:
                self._emit("PARAM_EXPR", 0, self._expression(scalar))

    def io(self, role: str, tensor: int, *dims: object) -> None:
        """A tensor argument.

        Dimensions: ":", ("tile", register), ("index", e), ("range", start, extent), ("merged",) and
        ("rows", index tensor, start, extent).
        """
        self._emit(f"IO_{role}", tensor)
        for dim in dims:
            if dim == ":":
                self._emit("DIM_FULL")
                continue
            assert isinstance(dim, tuple)
            if dim[0] == "tile":
                self._emit("DIM_TILE", next(i for i, axis in enumerate(self.axes) if axis[1] == dim[1]))
            elif dim[0] == "index":
                self._emit("DIM_INDEX", 0, self._expression(dim[1]))
            elif dim[0] == "merged":
                self._emit("DIM_MERGED")
            elif dim[0] == "rows":
                self._emit("DIM_ROWS", dim[1], self._expression(dim[2]))
                self._emit("DIM_EXTENT", 0, self._expression(dim[3]))
            else:
                self._emit("DIM_RANGE", 0, self._expression(dim[1]))
                self._emit("DIM_EXTENT", 0, self._expression(dim[2]))

    def workspace(self, size: Expr) -> None:
        self._emit("WORKSPACE", 0, self._expression(size))

    def cost(self, ns: Expr) -> None:
        self._emit("COST", 0, self._expression(ns))

    def bytes(self) -> bytes:
        """The finished bytecode."""
        code = [*self.code, [OP["HALT"], 0, 0]]
        starts = []
        for expression in self.expressions:
            starts.append(len(code))
            code += [*expression, [OP["EXPR_END"], 0, 0]]
        names = ("PARAM_EXPR", "DIM_INDEX", "DIM_RANGE", "DIM_EXTENT", "DIM_ROWS", "WORKSPACE", "COST")
        named = {OP[n] for n in names}
        body = b"".join(struct.pack("<BBHI", op, 0, a, starts[b] if op in named else b) for op, a, b in code)
        for kind, reg, extent, tile in self.axes:
            body += struct.pack("<BBHIII", kind, 0, reg, starts[extent], 0 if tile < 0 else starts[tile], 0)
        for i, (name, views, scalars) in enumerate(self.kernels):
            body += struct.pack("<QHHHH", name_hash(name), i, views, scalars, 0)
        body += b"".join(self.tensors) + b"".join(self.symbols)
        body += struct.pack(f"<{len(self.constants)}q", *self.constants)
        counts = (len(code), len(self.axes), len(self.kernels), len(self.tensors), len(self.symbols))
        header = struct.pack(
            "<10IQ",
            0x50544F57,
            _native.BYTECODE_VERSION,
            *counts,
            len(self.constants),
            self.num_registers,
            48 + len(body),
            self.table_hash,
        )
        return header + body

    def _emit(self, op: str, operand1: int = 0, operand2: int = 0) -> None:
        self.code.append([OP[op], operand1, operand2])

    def _expression(self, expression: object) -> int:
        self.expressions.append(self._postfix(expression))
        return len(self.expressions) - 1

    def _postfix(self, expression: object) -> list[list[int]]:
        if isinstance(expression, int):
            self.constants.append(expression)
            return [[OP["EXPR_CONST"], 0, len(self.constants) - 1]]
        assert isinstance(expression, tuple)
        head, *operands = expression
        if head in ("reg", "symbol"):
            return [[OP["EXPR_REG" if head == "reg" else "EXPR_SYMBOL"], 0, operands[0]]]
        return [*(x for operand in operands for x in self._postfix(operand)), [OP[_EXPR_OPS[head]], 0, 0]]
