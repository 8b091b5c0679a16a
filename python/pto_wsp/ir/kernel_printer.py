"""Kernels as `.pto` text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pto_wsp.ir import kernel as k
from pto_wsp.ir.region_text import expr_text, operand_text, quoted, region_text
from pto_wsp.ir.scalar import Expr
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.support.text import TextWriter
from pto_wsp.types.tile import ScalarType, TileType, ViewType


def write_kernel(function: k.KernelFunction, out: TextWriter) -> None:
    """Write a kernel."""
    out.line("// Function Type: InCore (tile-level computation)")
    params = ", ".join(_kernel_param(p) for p in function.params)
    head = f"func @{function.name}({params})" + _kernel_attributes(function)
    if function.body is None and function.native is None:
        out.line(head)
        return
    out.line(head + " {")
    if function.native is not None:
        _native(function.native, out)
    else:
        _kernel_body(function, function.body or (), out)
    out.line("}")


def _kernel_attributes(function: k.KernelFunction) -> str:
    found = [] if function.unit == "any" else [f"unit = {function.unit}"]
    found += [] if function.block_dim == 1 else [f"block_dim = {function.block_dim}"]
    return f" attributes {{{', '.join(found)}}}" if found else ""


def _native(native: k.Native, out: TextWriter) -> None:
    """Write the C++ of a kernel: every line of its text follows a bar."""
    with out.indented():
        kind = f"unit @{native.entry}" if native.entry else "body "
        out.line(f"CPP {kind}({', '.join(native.order)})")
        for header in native.includes:
            out.line(f"INCLUDE {header}")
        if native.folder:
            out.line(f"FOLDER {quoted(native.folder)}")
        for target in native.targets:
            out.line(f"TARGET {quoted(target)}")
        for name, value in native.constants:
            out.line(f"CONSTANT %{name} = {quoted(value) if isinstance(value, str) else value}")
        for line in native.source.split("\n"):
            out.line("|" + line)
        out.line("ENDCPP")


def _kernel_body(function: k.KernelFunction, body: Sequence[k.Stmt], out: TextWriter) -> None:
    with out.indented():
        if function.tiles:
            out.line("// Tile Declarations")
        for name, tile in function.tiles:
            out.line(f"%{name} = alloc_tile : !pto.{tile}")
        if function.scalars:
            out.line("// Scalar Declarations")
        for name, scalar in function.scalars:
            out.line(f"%{name} = alloc_scalar : {scalar}")
        out.line("// Instructions")
        _Statements({name: f"!pto.{tile}" for name, tile in function.tiles}, out).write(body)
        out.line("return")


def _kernel_param(param: k.Param) -> str:
    match param.type:
        case ScalarType(dtype=dtype):
            return f"%{param.name}: {dtype}"
        case TileType(rows=rows, cols=cols, dtype=dtype):
            return f"%{param.name}: !pto.memref<gm,{rows}x{cols},{dtype}> {{{param.role}, tile}}"
        case ViewType(dims=None):
            return f"%{param.name}: !pto.memref<gm,...> {{{param.role}}}"
        case ViewType(dtype=dtype, dims=dims):
            shape = "x".join("?" if d is None else str(d) for d in dims or ())
            return f"%{param.name}: !pto.memref<gm,{shape},{dtype}> {{{param.role}}}"


class _Statements:
    """Writes the statements of one kernel.

    Attributes:
        types: of its tiles, as text.
    """

    def __init__(self, types: Mapping[str, str], out: TextWriter) -> None:
        self.types = types
        self.out = out

    def write(self, body: Sequence[k.Stmt]) -> None:
        out = self.out
        for stmt in body:
            match stmt:
                case k.Instr():
                    out.line(self.instruction(stmt))
                case k.Load() | k.Store() | k.Prefetch():
                    out.line(self.transfer(stmt))
                case k.Assign(name=name, value=value):
                    out.line(f"%{name} = {expr_text(value)} : {value.dtype}")
                case k.KernelCall(kernel=kernel, args=args):
                    values = ", ".join("%" + a if isinstance(a, str) else expr_text(a) for a in args)
                    out.line(f"CALL @{kernel}({values})")
                case k.Print(parts=parts):
                    out.line(f"PRINT {', '.join(map(_printed, parts))}")
                case k.Assert(condition=condition, message=message):
                    out.line(f"CHECK {expr_text(condition)}, {quoted(message)}")
                case _:
                    self.control(stmt)

    def control(self, stmt: k.For | k.While | k.If) -> None:
        line = self.out.line
        match stmt:
            case k.For(var=var, start=start, stop=stop, step=step):
                line(f"FOR %{var}:idx, {expr_text(start)}:idx, {expr_text(stop)}:idx, {step}:idx")
                self.block(stmt.body)
                line("ENDFOR")
            case k.While(condition=condition):
                line("WHILE")
                line("DO " + expr_text(condition))
                self.block(stmt.body)
                line("ENDWHILE")
            case k.If(condition=condition, then=then, other=other):
                line(f"IF {expr_text(condition)}:u1")
                self.block(then)
                if other:
                    line("ELSE")
                    self.block(other)
                line("ENDIF")

    def block(self, body: Sequence[k.Stmt]) -> None:
        with self.out.indented():
            self.write(body)

    def transfer(self, stmt: k.Load | k.Store | k.Prefetch) -> str:
        place = region_text(stmt.region)
        rows = "" if stmt.rows is None else f", %{stmt.rows}"
        if isinstance(stmt, k.Prefetch):
            return f"tprefetch {place}{rows}"
        if isinstance(stmt, k.Load):
            name = "mgather" if rows else "tload"
            return f"%{stmt.tile} = {name} {place}{rows} : {self.types[stmt.tile]}"
        return f"{'mscatter' if rows else 'tstore'} %{stmt.tile}, {place}{rows}"

    def instruction(self, instr: k.Instr) -> str:
        dst, row = instr.dst, TABLE[instr.op]
        kinds = [*map(self.types.__getitem__, instr.tiles), *(s.dtype.name for s in instr.scalars)]
        operands = [*("%" + tile for tile in instr.tiles), *map(operand_text, instr.scalars)]
        attrs = ""
        if instr.attrs:
            attrs = f" {{{', '.join(f'{name} = {_attr(v)}' for name, v in instr.attrs)}}}"
        signature = signature_text(row.form, kinds, self.types[dst])
        return f"%{dst} = {row.mnemonic} {', '.join(operands)}{attrs} : {signature}"


def signature_text(form: Form, operands: Sequence[str], result: str) -> str:
    """Return the types that an instruction is written with, from those of its operands and its result."""
    listed = ", ".join(operands)
    match form:
        case Form.BINARY | Form.UNARY:
            return result
        case Form.TILE_SCALAR:
            return listed
        case Form.FILL:
            return f"{listed}, {result}"
        case Form.MATMUL | Form.MATMUL_ACC:
            return f"({listed}) -> {result}"
        case _:
            return f"{listed} -> {result}"


def _printed(part: k.Words | str | Expr) -> str:
    if isinstance(part, k.Words):
        return quoted(part.text)
    return "%" + part if isinstance(part, str) else expr_text(part)


def _attr(value: k.AttrValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else expr_text(value)
